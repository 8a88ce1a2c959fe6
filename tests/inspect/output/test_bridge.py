"""Beside nvdlfw-inspect itself: its statistics on our timeline, and the same numbers from ours."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import Traced
from inspect_sessions import SIX, Values, base_config

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.output.bridge import NvdlfwTraceLogger

peer = pytest.importorskip("nvdlfw_inspect.api", reason="nvdlfw-inspect is not installed")

# What both understand.
LINE = re.compile(r"(\S+)\s+iteration=(\d+)\s+value=(\S+)")


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    debug_api.end_debug()
    peer.end_debug()
    gc.collect()


def tensors(iteration: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(iteration)
    return {
        "plain": torch.randn(64, 32, generator=generator),
        "shifted": torch.randn(2000, generator=generator) * 0.01 + 100,
        "sparse": torch.randn(500, generator=generator).relu(),
    }


def lines_of(folder: Path) -> dict[tuple[str, int], float]:
    """The statistics that lie under a folder, whoever wrote them."""
    found: dict[tuple[str, int], float] = {}
    for path in folder.rglob("*statistics_logs/*.log"):
        for name, iteration, value in LINE.findall(path.read_text()):
            found[name, int(iteration)] = float(value)
    return found


def test_the_same_config_and_tensors_give_the_same_numbers(tmp_path: Path) -> None:
    config = base_config(freq=2, start_end_list=[[2, 7]])
    debug_api.initialize(config, log_dir=tmp_path / "ours")
    peer.initialize(config, log_dir=str(tmp_path / "peer"), default_logging_enabled=True)
    for iteration in range(9):
        for name, tensor in tensors(iteration).items():
            for api in (debug_api, peer):
                api.log_tensor_stats(
                    name, tensor=tensor, tensor_name="activation", iteration=iteration
                )
        debug_api.step()
        peer.step()
    debug_api.end_debug()
    peer.end_debug()
    ours, theirs = lines_of(tmp_path / "ours"), lines_of(tmp_path / "peer")
    assert set(ours) == set(theirs)
    assert {iteration for _, iteration in ours} == {2, 4, 6}
    assert len(ours) == 3 * 3 * len(SIX)
    for key, value in ours.items():
        # Four decimals are written, and theirs are sums in fp32.
        assert value == pytest.approx(theirs[key], rel=2e-5, abs=2e-4), key


def test_their_statistics_lie_on_our_timeline(tmp_path: Path, traced: Traced) -> None:
    writer = Values()
    with traced() as rec:
        logger = NvdlfwTraceLogger(tb_writer=writer, default_file=tmp_path / "own.log")
        peer.initialize(base_config(), log_dir=str(tmp_path), statistics_logger=logger)
        for iteration in range(3):
            peer.log_tensor_stats(
                "decoder.1_mlp",
                tensor=torch.full((4,), float(iteration)),
                tensor_name="activation",
                iteration=iteration,
            )
            peer.step()
        logger.flush()
    events = rec.trace.named("decoder.1_mlp:activation", "tensor_stats")
    assert [(e.user["iteration"], e.user["max"], e.user["l1_norm"]) for e in events] == [
        (n, float(n), 4.0 * n) for n in range(3)
    ]
    assert {e.user["feature"] for e in events} == {"nvdlfw-inspect"}
    assert len(writer.got) == 3 * len(SIX)
    assert ("decoder.1_mlp_activation_max", 2.0, 2) in writer.got
    assert len((tmp_path / "own.log").read_text().splitlines()) == 3 * len(SIX)
    assert len(rec.perfetto.named("decoder.1_mlp:activation")) == 3


def test_names_that_are_no_tensor_of_a_layer_are_kept_whole(traced: Traced) -> None:
    with traced() as rec:
        logger = NvdlfwTraceLogger()
        logger.log_scalar("loss", 2.5, 4)
        logger.log_scalar("a_weight_b_gradient_mean", torch.tensor(1.0), 4)
        logger.flush()
    assert rec.trace.one("loss", "tensor_stats").user["value"] == 2.5
    assert rec.trace.one("a_weight_b:gradient", "tensor_stats").user["mean"] == 1.0


def test_two_looks_at_a_tensor_in_an_iteration_are_two_events(traced: Traced) -> None:
    with traced() as rec:
        logger = NvdlfwTraceLogger()
        value = torch.tensor(1.0, requires_grad=True)
        logger.log_scalar("_fc_activation_max", value, 4)
        with torch.no_grad():
            value.fill_(2.0)
        logger.log_scalar("_fc_activation_min", 0.0, 4)
        logger.log_scalar("_fc_activation_max", value, 4)
        logger.flush()
    first, second = rec.trace.named("_fc:activation", "tensor_stats")
    assert (first.user["max"], first.user["min"], second.user["max"]) == (1.0, 0.0, 2.0)


def test_the_last_numbers_are_in_the_trace_when_the_run_ends(
    tmp_path: Path, traced: Traced
) -> None:
    writer = Values()
    logger = NvdlfwTraceLogger(tb_writer=writer, default_file=tmp_path / "own.log")
    for run in range(2):
        with traced() as rec:
            logger.log_scalar("loss", torch.tensor(2.5 + run), 4)
        assert rec.trace.one("loss", "tensor_stats").user["value"] == 2.5 + run
    # They are handed on once, by the logger's own flush.
    assert writer.got == []
    logger.flush()
    assert writer.got == [("loss", 2.5, 4), ("loss", 3.5, 4)]
    assert len((tmp_path / "own.log").read_text().splitlines()) == 2


def test_numbers_are_those_of_the_process_that_was_given_them(
    tmp_path: Path, traced: Traced
) -> None:
    with traced() as rec:
        logger = NvdlfwTraceLogger(default_file=tmp_path / "own.log")
        logger.log_scalar("loss", 2.5, 4)
        child = os.fork()
        if not child:
            logger.log_scalar("loss", 0.5, 5)
            logger.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    for trace in rec.traces:
        of_child = f"-{child}." in trace.path.name
        assert trace.one("loss", "tensor_stats").user["value"] == (0.5 if of_child else 2.5)
    assert len(rec.traces) == 2
    logger.flush()
    lines = (tmp_path / "own.log").read_text().splitlines()
    assert [float(line.rsplit("=", 1)[1]) for line in lines] == [0.5, 2.5]


def test_what_goes_wrong_is_told_once_and_the_rest_is_kept(
    tmp_path: Path, traced: Traced, capfd: pytest.CaptureFixture[str]
) -> None:
    class Writer:
        def add_scalar(self, name: str, value: float, iteration: int) -> None:
            raise OSError("no space")

    with pytest.raises(AssertionError, match="add_scalar"):
        NvdlfwTraceLogger(tb_writer=object())
    with traced() as rec:
        logger = NvdlfwTraceLogger(tb_writer=Writer(), default_file=tmp_path / "own.log")
        for iteration in range(2):
            for value in (torch.ones(3), None, torch.ones((), device="meta"), "x"):
                logger.log_scalar("fc_activation_max", value, iteration)
            logger.log_scalar("_fc_activation_min", -1.0, iteration)
        logger.log_scalar("loss", 3.0, None)  # type: ignore[arg-type]
        logger.flush()
    assert [e.user["min"] for e in rec.trace.named("_fc:activation", "tensor_stats")] == [-1, -1]
    assert rec.trace.named("fc:activation") == []
    assert rec.trace.one("loss", "tensor_stats").user["value"] == 3
    lines = (tmp_path / "own.log").read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["_fc_activation_min"] * 2
    told = capfd.readouterr().err.splitlines()
    assert [line.split()[2] for line in told if line.startswith("dftrace: Nvdlfw")] == [
        "fc_activation_max",
        "tb_writer",
        "default_file",
    ]
