"""log_tensor_stats: what is logged, when, where, and what it costs when nothing is due."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Traced
from inspect_sessions import (
    SIX,
    Values,
    base_config,
    exact_statistics,
    main_log,
    scalars,
    statistics_path,
)
from rank_processes import on_ranks

import dftrace_ai.inspect as debug_api


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    debug_api.end_debug()


def test_values_are_returned_and_logged(tmp_path: Path) -> None:
    debug_api.initialize(base_config(), log_dir=tmp_path)
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0)) + 3
    found = debug_api.log_tensor_stats("fc1", tensor=x, tensor_name="activation")
    truth = exact_statistics(x)
    assert list(found) == SIX
    for stat, value in found.items():
        assert (value.dtype, value.shape, value.device.type) == (torch.float32, (), "cpu")
        assert not value.requires_grad
        assert value.item() == pytest.approx(truth[stat], rel=1e-6)
    debug_api.end_debug()
    assert [(s.name, s.iteration, s.value) for s in scalars(tmp_path)] == [
        (f"fc1_activation_{stat}", 0, f"{value.item():.4f}") for stat, value in found.items()
    ]
    # Each is a tensor of its own.
    before = {stat: value.item() for stat, value in found.items()}
    found["min"] += 5
    assert {stat: value.item() for stat, value in found.items()} == {
        **before,
        "min": pytest.approx(before["min"] + 5),
    }
    assert {value.untyped_storage().nbytes() for value in found.values()} == {4}


def test_the_log_tells_what_is_read_and_called(tmp_path: Path) -> None:
    debug_api.initialize(base_config(), log_dir=tmp_path)
    for _ in range(3):
        debug_api.log_tensor_stats("fc1", tensor=torch.ones(2), tensor_name="activation")
        debug_api.log_tensor_stats("fc1", tensor=torch.ones(2), tensor_name="other")
        debug_api.step()
    debug_api.end_debug()
    assert main_log(tmp_path) == [
        f"INFO - Default logging to file enabled at {tmp_path}",
        "INFO - Reading config from Python dictionary.",
        "INFO - Loaded configs for dict_keys(['stats']).",
        "INFO - fc1: Feature=LogTensorStats, API=log_tensor_stats, TENSOR=activation: Called",
    ]


def test_the_schedule_decides(tmp_path: Path) -> None:
    config = base_config(["max"], freq=2, start_end_list=[[1, 4], [9, -1]])
    debug_api.initialize(config, log_dir=tmp_path)
    told = []
    for iteration in range(12):
        # Twice in an iteration is two lines.
        for _ in range(2):
            if debug_api.log_tensor_stats("a", torch.ones(3), "activation"):
                told.append(iteration)
        debug_api.step()
    debug_api.end_debug()
    assert told == [2, 2, 10, 10]
    assert [s.iteration for s in scalars(tmp_path)] == told


def test_a_resumed_training_goes_on_with_its_number(tmp_path: Path) -> None:
    debug_api.initialize(base_config(["max"], freq=5), log_dir=tmp_path, init_training_step=9)
    found = []
    for n in range(4):
        if n == 3:
            debug_api.initialize_training_step(5)
        found.append(bool(debug_api.log_tensor_stats("a", torch.ones(3), "activation")))
        debug_api.step()
    assert found == [False, True, False, True]


def test_a_given_iteration_overrides_the_counter(tmp_path: Path) -> None:
    debug_api.initialize(base_config(["max"], freq=100), log_dir=tmp_path, init_training_step=1)
    assert not debug_api.log_tensor_stats("a", torch.ones(3), "activation")
    assert debug_api.log_tensor_stats("a", torch.ones(3), "activation", iteration=700)
    assert not debug_api.log_tensor_stats("a", torch.ones(3), "activation", iteration=701)
    debug_api.end_debug()
    assert [s.iteration for s in scalars(tmp_path)] == [700]


def test_every_sink_gets_every_number(tmp_path: Path, traced: Traced) -> None:
    logger, writer = Values(), Values()
    with traced() as rec:
        debug_api.initialize(
            base_config(["max", "mean"]),
            log_dir=tmp_path,
            statistics_logger=logger,
            tb_writer=writer,
            default_logging_enabled=True,
            init_training_step=7,
        )
        debug_api.log_tensor_stats("fc", torch.tensor([1.0, float("nan"), 0.0]), "activation")
        debug_api.log_tensor_stats("fc", torch.tensor([1.0, 4.0]), "activation")
        debug_api.end_debug()
    assert (
        logger.got[2:]
        == writer.got[2:]
        == [("fc_activation_max", 4.0, 7), ("fc_activation_mean", 2.5, 7)]
    )
    assert [s.value for s in scalars(tmp_path)] == ["nan", "nan", "4.0000", "2.5000"]
    first, second = rec.trace.named("fc:activation", "tensor_stats")
    assert first.user == {
        "iteration": 7,
        "rank": 0,
        "feature": "LogTensorStats",
        "max": None,
        "max_str": "nan",
        "mean": None,
        "mean_str": "nan",
        "n": 3,
        "n_nan": 1,
        "n_inf": 0,
        "n_zero": 1,
    }
    assert second.user["max"] == 4.0
    assert rec.trace.thread_names[second.tid] == "tensor stats"
    counters = [e for e in rec.trace.of("C") if e.name == "fc:activation"]
    assert [e.args for e in counters] == [{"max": 4.0, "mean": 2.5}]
    assert counters[0].ts_ns == second.ts_ns
    assert len(rec.perfetto.named("fc:activation")) == 2


def test_without_the_file_there_is_no_file(tmp_path: Path) -> None:
    debug_api.initialize(base_config(), log_dir=tmp_path, tb_writer=Values())
    debug_api.log_tensor_stats("fc", torch.ones(1), "activation")
    debug_api.end_debug()
    assert not statistics_path(tmp_path).exists()


def test_a_logger_that_fails_is_told_once_and_training_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def log_scalar(self, name: str, value: float, iteration: int) -> None:
            raise OSError(28, "No space left on device")

    writer = Values()
    debug_api.initialize(base_config(), log_dir=tmp_path, logger=Broken(), tb_writer=writer)
    for _ in range(3):
        assert debug_api.log_tensor_stats("fc", torch.ones(4), "activation")
        debug_api.step()
    debug_api.end_debug()
    assert len(writer.got) == 18
    errors = [line for line in main_log(tmp_path) if line.startswith("ERROR")]
    assert errors == [
        "ERROR - Broken failed, which is told once: OSError: [Errno 28] No space left on device"
    ]
    assert capfd.readouterr().err == f"NVDLFW INSPECT - {errors[0]}\n"


def test_two_sessions_do_not_mix(tmp_path: Path) -> None:
    for name in ("one", "two"):
        debug_api.initialize(base_config(["max"]), log_dir=tmp_path / name)
        debug_api.log_tensor_stats(name, torch.ones(1), "activation")
        debug_api.log_message(f"here is {name}")
        debug_api.end_debug()
    for name in ("one", "two"):
        assert [s.name for s in scalars(tmp_path / name)] == [f"{name}_activation_max"]
        assert main_log(tmp_path / name)[-1] == f"INFO - here is {name}"


def test_messages_are_told_once_each(tmp_path: Path) -> None:
    debug_api.initialize(log_dir=tmp_path)
    for n in (1, 1, 2, 2):
        debug_api.log_message(f"message {n}", "fc", level=logging.WARNING)
    debug_api.log_message("message 1", "fc", level=logging.WARNING)
    debug_api.end_debug()
    assert main_log(tmp_path)[2:] == [
        "WARNING - fc: message 1",
        "WARNING - fc: message 2",
        "WARNING - fc: message 1",
    ]


def test_nothing_to_log_logs_nothing(tmp_path: Path) -> None:
    debug_api.initialize(base_config(), log_dir=tmp_path)
    assert debug_api.log_tensor_stats("fc", torch.empty(0, 3), "activation") == {}
    assert debug_api.log_tensor_stats("fc", torch.ones(3), "unheard of") == {}
    debug_api.end_debug()
    assert scalars(tmp_path) == []


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="initialize"):
        debug_api.log_tensor_stats("fc", torch.ones(1), "activation")
    with pytest.raises(RuntimeError, match="initialize"):
        debug_api.log_message("x")
    with pytest.raises(RuntimeError, match="initialize"):
        debug_api.list_features()
    for call in (
        lambda: debug_api.set_tensor_reduction_group(None),
        debug_api.get_tensor_reduction_group,
    ):
        with pytest.raises(ValueError, match="initialize"):
            call()
    debug_api.step()
    debug_api.initialize_training_step(3)
    debug_api.end_debug()
    with pytest.raises(AttributeError):
        debug_api.no_such_call  # noqa: B018
    debug_api.initialize(base_config(), log_dir=tmp_path)
    with pytest.raises(ValueError, match="Already initialized"):
        debug_api.initialize(base_config(), log_dir=tmp_path)
    for given in ({}, {"tensor": torch.ones(1)}, {"tensor_name": "activation"}):
        with pytest.raises(AssertionError, match="is missing"):
            debug_api.log_tensor_stats("fc", **given)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="complex"):
        debug_api.log_tensor_stats("fc", torch.ones(1, dtype=torch.complex64), "activation")


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"config_file": 3}, TypeError, "config_file"),
        ({"feature_dirs": 3}, ValueError, "feature_dirs"),
        ({"feature_dirs": "/no/such/place"}, AssertionError, "/no/such/place"),
        ({"statistics_logger": object()}, AssertionError, "log_scalar"),
        ({"tb_writer": object()}, AssertionError, "add_scalar"),
        ({"config_file": {"a": {"layers": {}}}}, AssertionError, "enabled"),
        ({"feature_dirs": [None]}, ValueError, "feature_dirs"),
        ({"log_dir": None}, TypeError, "log_dir"),
        ({"log_dir": __file__}, OSError, "test_explicit"),
        ({"logger": Values(), "statistics_logger": Values()}, ValueError, "another name"),
    ],
)
def test_after_a_refusal_another_try_works(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        debug_api.initialize(**{"log_dir": tmp_path, **given})
    debug_api.initialize(base_config(), log_dir=tmp_path)
    assert debug_api.log_tensor_stats("fc", torch.ones(1), "activation")


def test_odd_arguments_are_told_and_ignored(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    debug_api.initialize(
        tmp_path / "missing.yaml",
        ["/somewhere/transformer_engine/debug/features"],
        log_dir=tmp_path,
        extensions="x",
        colour="red",
    )
    debug_api.end_debug()
    assert main_log(tmp_path)[1:] == [
        f"WARNING - No config file is used: {tmp_path}/missing.yaml does not exist.",
        "INFO - /somewhere/transformer_engine/debug/features: these features are built in.",
        "WARNING - initialize: the argument colour is not known and ignored.",
    ]
    assert capfd.readouterr().err.count("NVDLFW INSPECT - WARNING - ") == 2


def test_features_are_listed_and_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    debug_api.initialize(log_dir=tmp_path)
    capsys.readouterr()
    debug_api.list_features()
    listed = capsys.readouterr().out
    for name in ("LogTensorStats", "LogFp8TensorStats", "FakeQuant", "PerTensorScaling"):
        assert f"transformer_engine.{name}:" in listed
    debug_api.explain_features(["transformer_engine.FakeQuant"])
    assert "quant_format" in capsys.readouterr().out
    for unknown in ("FakeQuart", 5):
        with pytest.raises(ValueError, match="no feature"):
            debug_api.explain_features(unknown)  # type: ignore[arg-type]


def test_only_the_first_rank_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    off = {"off": {"enabled": False}}
    for config in (tmp_path / "missing.yaml", {**base_config(), **off}):
        debug_api.initialize(config, log_dir=tmp_path)
        debug_api.list_features()
        debug_api.explain_features("all")
        debug_api.end_debug()
        assert capfd.readouterr() == ("", "")
        assert not [line for line in main_log(tmp_path, rank=1) if "off is not" in line]
    monkeypatch.setenv("RANK", "0")
    debug_api.initialize({**base_config(), **off}, log_dir=tmp_path)
    assert "INFO - Section off is not enabled." in main_log(tmp_path)


# Two ranks: who merges what, and who logs it


def part(number: int, rank: int) -> torch.Tensor:
    """Unlike parts: another mean and another size, and none at all in the third of rank 0."""
    generator = torch.Generator().manual_seed(10 * number + rank)
    rows = [[1000, 3], [700, 500], [0, 250]][number][rank]
    return torch.randn(rows, 4, generator=generator) + 5 - 10 * rank


def given_on_ranks(rank: int, folder: Path) -> dict[str, dict[str, float]]:
    world = torch.distributed.group.WORLD
    told = {}

    def give(way: str, number: int, **keys: Any) -> None:
        x = part(number, rank)
        found = debug_api.log_tensor_stats(f"{way}{number}", x, "activation", **keys)
        told[f"{way}{number}"] = {stat: value.item() for stat, value in found.items()}

    debug_api.initialize(base_config(), log_dir=folder, default_logging_enabled=True)
    for number in range(3):
        give("world", number)
        give("local", number, skip_reduction=True)
        give("given", number, reduction_group=world)
    debug_api.set_tensor_reduction_group(world)
    for number in range(3):
        give("set", number)
    debug_api.end_debug()
    return told


def close(found: dict[str, float], tensor: torch.Tensor) -> bool:
    exact = exact_statistics(tensor)
    return list(found) == SIX and all(
        abs(value - exact[stat]) <= 2e-6 * abs(exact[stat]) for stat, value in found.items()
    )


@pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="needs gloo",
)
def test_who_merges_and_who_logs(tmp_path: Path) -> None:
    first, second = on_ranks(given_on_ranks, tmp_path)
    for number in range(3):
        parts = [part(number, rank) for rank in range(2)]
        whole = second[f"world{number}"]
        # Without a group the last rank logs; with one, every member, and the same bits.
        assert first[f"world{number}"] == {}
        assert close(whole, torch.cat(parts))
        for way in ("given", "set"):
            assert first[f"{way}{number}"] == second[f"{way}{number}"] == whole
        for told, own in zip((first, second), parts, strict=True):
            found = told[f"local{number}"]
            assert close(found, own) if own.numel() else found == {}
    logged = [{s.name.split("_")[0] for s in scalars(tmp_path, rank)} for rank in range(2)]
    both = {"given0", "given1", "given2", "set0", "set1", "set2", "local0", "local1"}
    assert logged == [both, both | {"local2", "world0", "world1", "world2"}]
    for rank in range(2):
        warned = [line for line in main_log(tmp_path, rank) if "no reduction group" in line]
        assert len(warned) == 3
