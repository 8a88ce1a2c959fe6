"""Trainings on a real GPU under `dftrace run` and `auto`: the same bits, and spans that have ended."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import Traced, clean_environment, read_all, trace_files
from perfetto.trace_file import Trace
from safety.commands import invoke

from dftrace_ai.integrations.auto import Auto
from dftrace_ai.integrations.torch.inside import bytes_of
from integrations.programs.test_what_cannot_be_asked import BYTES, TENSORS

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

PROGRAM = Path(__file__).with_name("gpu_trainings.py")
LIMIT_S = 200


class Run(NamedTuple):
    """What the program printed, and its trace if it was traced."""

    said: dict[str, str]
    told: str
    trace: Trace | None = None


def run(folder: Path, *before: str) -> Run:
    done = subprocess.run(
        [sys.executable, *before, PROGRAM],
        cwd=folder,
        env=clean_environment() | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    traces = read_all(trace_files(folder / "out"))
    return Run(json.loads(done.stdout), done.stderr, traces[0] if traces else None)


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The program by itself."""
    return run(tmp_path_factory.mktemp("without"))


@pytest.fixture(scope="module")
def with_device(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The program below `dftrace run`, with all that it can be asked for."""
    options = ("-o", "out", "--device", "--depth", "2", "--nvtx", "--io", "--data-dir", "all")
    folder = tmp_path_factory.mktemp("with")
    return run(folder, "-m", "dftrace_ai.cli", "run", *options)


def test_every_training_comes_to_something(without: Run) -> None:
    """The comparisons below say nothing of one that raises."""
    assert not {name: what for name, what in without.said.items() if ":" in what}


def test_bits_are_those_without(without: Run, with_device: Run) -> None:
    assert with_device.said == without.said
    assert "is not recorded as it should be" not in with_device.told


def test_all_spans_have_ended_and_lie_on_host_and_device(with_device: Run) -> None:
    trace = with_device.trace
    assert trace is not None
    assert not trace.of("B")
    assert (trace.footer["dropped"], trace.footer["unfinished"]) == (0, 0)
    found = Counter((one.cat, one.name) for one in trace.spans)
    on_both = {("compute", name) for name in ("forward", "backward", "step")}
    on_both |= {("comm", name) for name in ("all_reduce", "all_gather", "bcast")}
    assert {(f"{scope}{cat}", name) for cat, name in on_both for scope in ("", "gpu.")} <= {*found}
    moves = [one for one in trace.spans if (one.cat, one.name) == ("device", "transfer")]
    assert {one.args.get("direction") for one in moves} == {"cpu->cuda", "cuda->cpu"}
    assert all(isinstance(one.args.get("bytes"), int) for one in moves)


def test_why_says_what_the_gpu_did(with_device: Run) -> None:
    assert with_device.trace is not None
    said = invoke("why", with_device.trace.path)
    assert (said.status, "GPU" in said.out) == (0, True), said.out


def moves(tensor: Any) -> Any:
    """In all ways; of each what it came to, where it has one."""
    holder = torch.nn.Module()
    holder.register_buffer("adjacency", tensor)
    pinned = tensor.pin_memory() if type(tensor) is torch.Tensor and tensor.is_cpu else tensor
    there = [
        *(tensor.to("cuda"), tensor.cuda(), tensor.to("cuda", non_blocking=True)),
        *(pinned.cuda(non_blocking=True), holder.cuda()._buffers["adjacency"]),
    ]
    back = [there[0].cpu(), there[1].to("cpu", non_blocking=True)]
    torch.cuda.synchronize()
    return [(type(one).__name__, str(one.layout), bytes_of(one)) for one in (*there, *back)]


def outcome(tensor: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return moves(tensor)
        except Exception as error:  # noqa: BLE001 - whatever it is, it has to be the same
            return type(error).__name__, str(error).partition("0x")[0]


@pytest.fixture(scope="module")
def tensors() -> Iterator[dict[str, Any]]:
    """One of each kind, and the group that some of them need."""
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield {kind: make() for kind, make in TENSORS.items()}
    dist.destroy_process_group()


def test_what_moves_arrives_as_without_and_says_its_size(
    traced: Traced, auto: Auto, tensors: dict[str, Any]
) -> None:
    expected = {kind: outcome(tensor) for kind, tensor in tensors.items()}
    with traced(perfetto=False) as recording:
        auto(device=True)
        for kind, tensor in tensors.items():
            assert outcome(tensor) == expected[kind], kind
        auto.remove()
    trace = recording.trace
    assert not trace.of("B")
    moved = [one for one in trace.spans if (one.cat, one.name) == ("device", "transfer")]
    directions = {one.args.get("direction") for one in moved}
    assert {"cpu->cuda", "cuda->cpu"} <= directions <= {"cpu->cuda", "cuda->cpu", None}
    sizes = {one.args.get("bytes") for one in moved}
    for kind in ("dense", "sparse coo", "sparse csr", "nested", "jagged"):
        assert isinstance(expected[kind], list), (kind, expected[kind])
        assert BYTES[kind] in sizes, kind
