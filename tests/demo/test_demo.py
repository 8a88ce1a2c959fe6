"""The demo trains, tells how it went, and leaves the trace of every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LEAN
from printed_json import checked

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.validating import validate_traces

pytest.importorskip("torch")
pytest.importorskip("sklearn")

PHASES = {
    ("pipeline", "train"): 1,
    ("pipeline", "epoch.block"): 2,
    ("pipeline", "evaluate"): 2,
    ("compute", "compute.init"): 1,
    ("compute", "forward"): 2 * (45 + 2),
    ("compute", "backward"): 2 * 45,
    ("compute", "step"): 2 * 45,
    ("device", "transfer"): 2 * (45 + 2),
    ("data", "item.init"): 2,
    ("data", "preprocess"): 1,
    # 1,438 pictures by the workers and 359 by the evaluating process, each epoch.
    ("data", "item"): 2 * 1797,
    ("checkpoint", "checkpoint.init"): 1,
}


COMMAND = Path(sys.executable).with_name("dftrace")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of two epochs: its directory and what it printed."""
    out = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [str(COMMAND), "demo", "--epochs", "2", "--out", str(out)],
        env={**os.environ, "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_it_tells_accuracy_files_figures_and_the_next_step(demo: tuple[Path, str]) -> None:
    out, said = demo
    assert "on unseen digits after 2 epochs (90 steps)" in said
    for path in out.glob("*.pfw.gz"):
        assert str(path) in said
    assert "backward" in said
    assert f"why {out}:" in said
    assert "steady steps of 90, by loader blocks" in said
    # Where no shell finds the command, it is named as it was called.
    assert f"{COMMAND} view {out}" in said.replace("\n", " ")
    assert (out / "digits.pt").is_file()


def test_every_phase_is_in_the_trace(demo: tuple[Path, str]) -> None:
    found = summarise([demo[0]])
    counts = {(row.cat, row.name): row.count for row in found.spans}
    assert {phase: counts.get(phase) for phase in PHASES} == PHASES
    assert counts["checkpoint", "capture"] >= 1
    others = {(row.kind, row.name): row.count for row in found.others}
    assert others["counter", "loss"] == 90
    assert others["counter", "accuracy"] == 2
    assert others["counter", "cpu %"]
    assert others["instant", "best accuracy"] >= 1
    assert found.warnings() == []


def test_each_worker_leaves_a_trace_with_its_items(demo: tuple[Path, str]) -> None:
    items = []
    for trace in open_traces([demo[0]]):
        names = [event["name"] for _, event in trace.events()]
        items.append(("train" in names, names.count("item")))
    assert len(items) == 3
    assert [count for main, count in items if main] == [2 * 359]
    assert sum(count for main, count in items if not main) == 2 * 1438


def test_the_trace_is_correct(demo: tuple[Path, str]) -> None:
    result = validate_traces([demo[0]])
    assert [str(fault) for fault in result.first_faults(10)] == []


def test_training_is_the_same_traced_and_untraced(tmp_path: Path) -> None:
    import dftrace_ai
    from dftrace_ai.demo import train

    untraced = train(epochs=1, workers=0)
    with dftrace_ai.tracing(log_file=tmp_path / "t"):
        traced = train(epochs=1, workers=0)
    assert traced == untraced
    assert untraced.steps == 45
    assert 0.3 < untraced.best_accuracy <= 1


def test_a_demo_that_is_not_recorded_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFTRACE_ENABLE", "0")
    arguments = ["demo", "--epochs", "1", "--workers", "0", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "dftrace_ai.cli", *arguments],
        env={**os.environ, **LEAN},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "recording is off" in done.stdout


def test_json_has_the_figures_and_the_verdict(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(COMMAND), "demo", "--epochs", "1", "--workers", "0", "--json", "--out", str(tmp_path)],
        env={**os.environ, **LEAN},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = checked(done.stdout, "demo")
    assert (found["steps"], found["verdict"]["steps"]["count"]) == (45, 45)
    assert [Path(path) for path in found["traces"]] == list(tmp_path.glob("*.pfw.gz"))
