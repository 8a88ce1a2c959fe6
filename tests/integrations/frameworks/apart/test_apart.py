"""Keras on TensorFlow, its sessions and tapes, DeepSpeed and Ray: learned is the same, and the pages show what is recorded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import clean_environment, read_all, trace_files
from docs.pages import EXAMPLES
from perfetto.trace_file import Event, Trace

from integrations.frameworks.shown import shows_what_is_recorded

HERE = Path(__file__).parent
PYTHON = HERE.parents[3] / ".venv-frameworks" / "bin" / "python"
LIMIT_S = 600
QUIET = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}

pytestmark = pytest.mark.skipif(
    not (PYTHON.parents[1] / "made").exists(), reason="needs the environment of test-frameworks"
)


def ran(program: str, folder: Path) -> dict[str, bool]:
    """What a program says of its trainings."""
    done = subprocess.run(
        [PYTHON, HERE / program, folder],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=clean_environment() | QUIET | {"KERAS_HOME": str(folder / "home")},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "auto records nothing" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def trace_of(folder: Path) -> Trace:
    (trace,) = read_all(trace_files(folder))
    return trace


def counted(trace: Trace) -> Counter[str]:
    return Counter(f"{e.cat} {e.name}" for e in trace.spans)


def steps_of(trace: Trace) -> list[Event]:
    return [e for e in trace.spans if (e.cat, e.name) == ("pipeline", "step")]


def test_keras_on_tensorflow(tmp_path: Path) -> None:
    said = ran("with_keras.py", tmp_path)
    assert all(said.values()), said
    for name in ("graph", "eager", "callback", "together"):
        each = 3 if name == "together" else 1
        trace = trace_of(tmp_path / name)
        assert counted(trace) == {
            "pipeline epoch": 2,
            "pipeline step": 24 // each,
            "pipeline evaluate": 3,
            "compute compute": 24 // each,
            "compute forward.eval": 3 if each == 3 else 6,
            "dataloader fetch.iter": 2,  # what `predict` fetches itself
            "checkpoint capture": 1,
            "checkpoint restart": 1,
        }, name
        steps = steps_of(trace)
        assert [e.args["step"] for e in steps] == list(range(0, 24, each))
        computed = [e for e in trace.spans if e.name == "compute"]
        for step, one in zip(steps, computed, strict=True):
            assert step.ts_ns <= one.ts_ns <= one.end_ns <= step.end_ns
            assert (one.args["step"], one.args["epoch"]) == (step.args["step"], step.args["epoch"])
    spans = counted(trace_of(tmp_path / "generator"))
    assert spans == {"pipeline epoch": 1, "pipeline step": 5, "compute compute": 5}


def test_loops_by_tapes(tmp_path: Path) -> None:
    said = ran("with_tapes.py", tmp_path)
    assert all(said.values()), said
    each = {
        "dataloader fetch.iter": 12,
        "compute forward": 12,
        "compute backward": 12,
        "compute step": 12,
        "pipeline step": 12,
        "pipeline epoch": 2,
    }
    trace = trace_of(tmp_path / "eager")
    assert counted(trace) == each
    for number, step in enumerate(steps_of(trace)):
        inside = [e for e in trace.spans if step.ts_ns <= e.ts_ns and e.end_ns <= step.end_ns]
        inside = [e for e in inside if e.cat != "pipeline"]
        assert [e.name for e in inside] == ["fetch.iter", "forward", "backward", "step"]
        assert {e.args["step"] for e in inside} == {number}
        assert inside[0].args["count"] == number % 6 + 1
    found = counted(trace_of(tmp_path / "penalty"))
    assert found == each | {"compute backward.grad": 12}
    found = counted(trace_of(tmp_path / "judged"))
    judged = {"dataloader fetch.iter": 18, "compute forward.eval": 6, "pipeline evaluate": 2}
    assert found == each | judged
    # What runs in a graph is not seen: neither its steps, nor that something is learned.
    assert counted(trace_of(tmp_path / "graph")) == {"dataloader fetch.iter": 12}
    spans = [e for e in trace_of(tmp_path / "raises").spans if e.cat == "compute"]
    names = [(e.name, e.args.get("error")) for e in spans]
    assert names == [("forward", "LookupError"), ("forward", None), *[("backward", None)] * 2]
    assert all(e.level == 1 for e in spans)


def test_monitored_sessions(tmp_path: Path) -> None:
    said = ran("with_sessions.py", tmp_path)
    assert all(said.values()), said
    trace = trace_of(tmp_path / "traced")
    steps = [(e.args["step"], e.args["epoch"]) for e in steps_of(trace)]
    assert steps == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)]
    assert counted(trace)["compute compute"] == 5
    saved = [e for e in trace.spans if e.cat == "checkpoint"]
    assert {e.name for e in saved} == {"capture"}
    assert all(e.args["bytes"] > 0 for e in saved)


def test_deepspeed(tmp_path: Path) -> None:
    said = ran("with_deepspeed.py", tmp_path)
    assert all(said.values()), said
    for stage in ("0", "2"):
        trace = trace_of(tmp_path / stage)
        steps = steps_of(trace)
        assert [e.args["step"] for e in steps] == [*range(8), 4]
        assert {e.args["microbatches"] for e in steps} == {2}
        for step in steps:
            inside = [e for e in trace.spans if step.ts_ns <= e.ts_ns < step.end_ns]
            names = Counter(e.name for e in inside if e.cat == "compute")
            assert names == {"forward": 2, "backward": 2, "step": 1}
        found = counted(trace)
        assert (found["checkpoint capture"], found["checkpoint restart"]) == (2, 1)


def test_ray_train(tmp_path: Path) -> None:
    said = ran("with_ray.py", tmp_path)
    assert all(said.values()), said
    traces = read_all(trace_files(tmp_path / "traces"))
    assert sorted(trace.header["rank"] for trace in traces) == [0, 1]
    assert len({trace.header["run"] for trace in traces}) == 1
    for trace in traces:
        assert counted(trace) == {
            "pipeline epoch": 2,
            "pipeline step": 8,
            "dataloader fetch.iter": 8,
            "data item": 32,
            "data preprocess.collate": 8,
            "compute forward": 8,
            "compute backward": 8,
            "compute step": 8,
            "compute step.zero_grad": 8,
            "comm all_reduce": 8,
            "comm all_gather": 1,  # DDP compares the models of its ranks, and sends the first's
            "comm bcast": 4,
            "checkpoint capture": 2,
            "checkpoint capture.report": 2,
        }


LAUNCH = ("-m", "dftrace_ai.cli", "run", "-o", "out")
RANKS = (
    *("--", str(PYTHON), "-m", "torch.distributed.run", "--nproc-per-node=2"),
    *("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"),
)
ONE_HOST = {
    "DS_ACCELERATOR": "cpu",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.mark.parametrize(
    ("page", "program", "name", "words"),
    [
        ("tensorflow", "tensorflow", "tensorflow", LAUNCH),
        ("tensorflow", "sessions", "sessions", ()),
        ("keras", "keras", "keras-tensorflow", LAUNCH),
        ("deepspeed", "deepspeed", "deepspeed", (*LAUNCH, *RANKS)),
        ("ray-train", "ray", "ray", ()),
        ("megatron", "pipeline", "pipeline", (*LAUNCH, *RANKS)),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_page_shows_what_its_program_records(
    page: str, program: str, name: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    shutil.copy(EXAMPLES / f"digits_{program}.py", tmp_path)
    done = subprocess.run(
        [PYTHON, *words, f"digits_{program}.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=clean_environment()
        | QUIET
        | ONE_HOST
        # DeepSpeed compiles by a program that lies beside Python.
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        | {"KERAS_HOME": str(tmp_path / "home")},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # Whether the framework or its launcher joins the group of all ranks differs by its version.
    shows_what_is_recorded(page, name, tmp_path / "out", without=r".part|^comm init_process_group")
