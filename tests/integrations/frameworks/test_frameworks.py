"""Frameworks trace themselves: the same training, the same events by the same names, each in its place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import LEAN_ENDS, clean_environment, read_all, trace_files
from docs.pages import DOCS, section, table
from loggers.local_lines import Kept
from perfetto.trace_file import Event, Trace

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.steps import Job, measure
from dftrace_ai.analysis.why import why
from integrations.frameworks.shown import shows_what_is_recorded

GUIDE = DOCS / "guide" / "frameworks.md"
PROGRAM = Path(__file__).with_name("trainings.py")
LIMIT_S = 600
BATCHES, BATCH, MARKED = 12, 4, 21
ROUNDED_NS = 20  # of some sums, while one step of these takes a million
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "KERAS_BACKEND": "torch",
    "PYTHONWARNINGS": "ignore",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}
EVALUATIONS = {
    "lightning": ["sanity_check", "validate", "validate"],
    "trainer": ["validate", "validate"],
    "keras": ["validate", "validate", "predict"],
}

Runs = tuple[dict[str, dict[str, bool]], Path]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """What the program says of its trainings, and where their traces are."""
    folder = tmp_path_factory.mktemp("frameworks")
    done = subprocess.run(
        [sys.executable, PROGRAM, folder],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=clean_environment() | LEAN_ENDS | QUIET | {"KERAS_HOME": str(folder / "home")},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "auto records nothing" not in done.stderr
    assert "written by another run" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1]), folder


def trace_of(runs: Runs, name: str) -> Trace:
    (trace,) = read_all(trace_files(runs[1] / name))
    return trace


def named(trace: Trace, category: str, name: str) -> list[Event]:
    return [e for e in trace.spans if (e.cat, e.name) == (category, name)]


def numbers(event: Event) -> tuple[object, object]:
    return event.args.get("epoch"), event.args.get("step")


def is_within(inner: Event, outer: Event) -> bool:
    return outer.ts_ns <= inner.ts_ns and (inner.end_ns if inner.dur_ns else 0) <= outer.end_ns


@pytest.mark.parametrize("name", ["plain", "accelerate", "trainer", "lightning", "keras"])
def test_a_training_learns_the_same_traced_by_a_callback_and_resumed(runs: Runs, name: str) -> None:
    assert all(runs[0][name].values()), runs[0][name]


def fetches(name: str) -> list[int]:
    """How many batches are waited for in each step of an epoch."""
    ahead = {"accelerate": [5, 4, 3], "trainer": [5, 4, 3], "keras": [1] * 12}
    return ahead.get(name, [4, 4, 4])


WAYS = ["plain", "accelerate", "trainer", "trainer-callback", "lightning", "lightning-callback"]
WAYS += ["keras", "keras-callback"]


@pytest.mark.parametrize("way", WAYS)
def test_each_step_has_exactly_its_events(runs: Runs, way: str) -> None:
    trace, name = trace_of(runs, way), way.partition("-")[0]
    steps = named(trace, "pipeline", "step")
    each = 1 if name == "keras" else 4
    in_epoch = BATCHES // each
    assert [e.args["step"] for e in steps] == list(range(2 * in_epoch))
    assert [e.args["epoch"] for e in steps] == [0] * in_epoch + [1] * in_epoch
    assert {e.args["microbatches"] for e in steps} == {each}
    assert all(one.end_ns <= other.ts_ns for one, other in zip(steps, steps[1:]))
    clears = {} if name in {"trainer", "keras"} else {"compute step.zero_grad": 1}
    for step, waits in zip(steps, fetches(name) * 2):
        inside = [
            e for e in trace.spans if e.cat not in {"pipeline", "other"} and is_within(e, step)
        ]
        items = {"data item": waits * BATCH, "data preprocess.collate": waits}
        assert Counter(f"{e.cat} {e.name}" for e in inside) == {
            "dataloader fetch.iter": waits,
            "compute forward": each,
            "compute backward": each,
            "compute step": 1,
            **items,
            **clears,
        }
        told = [numbers(e) for e in inside if e.cat in {"compute", "dataloader"}]
        assert set(told) == {numbers(step)}
    # What lies between them is told as part of none.
    assert {numbers(e) for e in trace.spans if "step" in e.args} == {numbers(e) for e in steps}
    assert why([runs[1] / way]).steps.accumulation == each
    epochs = named(trace, "pipeline", "epoch")
    assert [e.args["epoch"] for e in epochs] == [0, 1]
    assert [sum(is_within(step, one) for step in steps) for one in epochs] == [in_epoch] * 2
    # What is no part of a step: evaluations and checkpoints, one for each that the framework makes.
    evaluations = named(trace, "pipeline", "evaluate")
    assert [e.args.get("stage") for e in evaluations] == EVALUATIONS.get(name, [None, None])
    judged = named(trace, "compute", "forward.eval")
    assert [sum(is_within(e, one) for e in judged) for one in evaluations] == [2] * len(evaluations)
    if name == "lightning":  # with what an evaluation starts with
        begun = [e.ts_ns for e in trace.events if e.name == "a pass begins"]
        within = [sum(one.ts_ns <= at <= one.end_ns for at in begun) for one in evaluations]
        assert within == [1, 1, 1]
    assert len(judged) == 2 * len(evaluations)
    saved = named(trace, "checkpoint", "capture")
    assert len(saved) == 2
    assert all(e.args["bytes"] > 0 for e in saved)
    assert len(named(trace, "checkpoint", "restart")) == (name in {"accelerate", "keras"})


@pytest.mark.parametrize("way", WAYS)
def test_a_slow_item_is_a_wait_of_its_own_batch(runs: Runs, way: str) -> None:
    """Wherever a batch is fetched, the time that its item takes lies in the wait for it."""
    trace = trace_of(runs, way)
    marks = [e for e in trace.of("i") if e.name == "the marked item"]
    waits = named(trace, "dataloader", "fetch.iter")
    found = [[e for e in waits if e.ts_ns <= m.ts_ns <= e.end_ns] for m in marks]
    assert [[e.args["count"] for e in one] for one in found] == [[MARKED // BATCH + 1]] * 2
    lost = 5 if way.startswith("keras") else 1
    in_epoch = 12 if way.startswith("keras") else 3
    assert [one[0].args["step"] for one in found] == [lost, lost + in_epoch]


def test_an_optimizer_that_runs_forward_and_backward_has_a_time_of_its_own(runs: Runs) -> None:
    trace = trace_of(runs, "lightning")
    for step in named(trace, "compute", "step"):
        inside = [e.name for e in trace.children(step) if e.ph == "X"]
        assert inside in (["forward", "backward"], ["forward", "step.zero_grad", "backward"])
    steps = measure(Job(open_traces([str(runs[1] / "lightning")])).ranks[0].process)
    assert steps.found_by == "step spans"
    assert len(steps) == 6
    for number, step in enumerate(named(trace, "pipeline", "step")):
        inside = [e for e in trace.spans if e.cat == "compute" and is_within(e, step)]
        taken = {n: sum(e.dur_ns for e in inside if e.name == n) for n in {e.name for e in inside}}
        # The last of four microbatches lies inside of the optimizer's step, and is none of it.
        whole = taken["step"] + sum(
            e.dur_ns for e in inside if e.name != "step" and trace.parent(e) is None
        )
        own = whole - taken["forward"] - taken["backward"]
        assert abs(steps.parts["optimizer"][number] - own) <= ROUNDED_NS


@pytest.mark.parametrize("name", ["trainer-resumed", "lightning-resumed", "trainer-alone"])
def test_the_numbers_of_the_framework_win(runs: Runs, name: str) -> None:
    """A training that goes on from a checkpoint has the steps and epochs that come next."""
    trace = trace_of(runs, name)
    steps = named(trace, "pipeline", "step")
    assert [(e.args["step"], e.args["epoch"]) for e in steps] == [(3, 1), (4, 1), (5, 1)]
    assert [e.args["epoch"] for e in named(trace, "pipeline", "epoch")] == [1]
    assert len(named(trace, "checkpoint", "restart")) >= 1


def test_models_are_saved_and_loaded(runs: Runs) -> None:
    assert all(runs[0]["models"].values())
    folder = runs[1] / "models"
    sizes = [(folder / name).stat().st_size for name in ("model/model.safetensors", "model.keras")]
    spans = [e for e in trace_of(runs, "models").spans if e.cat == "checkpoint"]
    for name in ("capture", "restart"):
        whole = [e.args["bytes"] for e in spans if e.name == name]
        assert whole == sizes, name


DIGITS = ("accelerate", "transformers", "lightning", "keras")


def test_the_guide_counts_what_is_recorded(runs: Runs) -> None:
    rows = table(section(GUIDE, "The same training in each"))
    for column, name in enumerate(DIGITS, 1):
        found = Counter(f"`{e.cat}` `{e.name}`" for e in trace_of(runs, f"digits-{name}/out").spans)
        own = {name: n for name, n in found.items() if ".part`" not in name}  # of its version
        told = {row[0]: int(row[column]) for row in rows}
        assert own == {name: count for name, count in told.items() if count}, name


@pytest.mark.parametrize("name", DIGITS)
def test_a_page_shows_what_its_program_records(runs: Runs, name: str) -> None:
    shows_what_is_recorded(name, name, runs[1] / f"digits-{name}" / "out")


@pytest.mark.parametrize("name", ["trainer", "lightning", "keras"])
def test_epochs_are_the_frameworks_own(runs: Runs, name: str) -> None:
    """Nothing lies between them, and a loader of one's own or a generator tells of none."""
    trace = trace_of(runs, f"{name}-bare")
    steps, epochs = named(trace, "pipeline", "step"), named(trace, "pipeline", "epoch")
    assert [(e.args["step"], e.args["epoch"]) for e in steps] == [(n, n // 12) for n in range(24)]
    assert [e.args["epoch"] for e in epochs] == [0, 1]
    for number, epoch in enumerate(epochs):
        assert [e for e in steps if is_within(e, epoch)] == steps[12 * number : 12 * (number + 1)]


def test_a_profiler_of_lightning_names_its_actions(runs: Runs) -> None:
    actions = {e.name for e in trace_of(runs, "lightning-callback").spans if e.cat == "other"}
    assert any("ModelCheckpoint" in name and "on_validation_end" in name for name in actions)
    assert all(name.startswith("lightning.") for name in actions)
    assert not any("<locals>" in name for name in actions)


def told(runs: Runs, run: str) -> dict[int, float]:
    """Losses by step, as the trainer had them itself."""
    losses = json.loads((runs[1] / f"{run}-losses").read_text())
    assert losses
    return {int(step): loss for step, loss in losses.items()}


@pytest.mark.parametrize("name", ["lightning", "forked", "accelerate", "transformers", "keras"])
def test_what_a_trainer_logs_by_our_loggers_is_found(runs: Runs, name: str) -> None:
    kept = Kept(runs[1] / "logged", name)
    assert dict(kept.metric("loss")) == pytest.approx(told(runs, name))
    assert kept.status == "finished"
    assert "0.01" in json.dumps(kept.of("p")[0]["v"]) or name == "keras"
    assert len(kept.metric("test_loss")) == (name == "lightning")


def test_a_tracker_that_accelerate_makes_itself_counts_the_steps(runs: Runs) -> None:
    kept = Kept(runs[1] / "logged", "registered")
    if not kept.lines:
        pytest.skip("this accelerate takes no class of a tracker")
    assert kept.metric("loss") == [(0, 1.0), (1, 1.0), (2, 1.0)]
    assert kept.metric("eval/acc") == [(0, 0.5), (1, 0.5), (2, 0.5)]


def test_epochs_of_keras_are_those_that_it_tells_itself(runs: Runs) -> None:
    kept = Kept(runs[1] / "logged", "keras")
    for figure in ("mean", "last", "min", "max", "mean_1"):
        assert dict(kept.metric(f"epoch/loss/{figure}")) == told(runs, "epochs")
