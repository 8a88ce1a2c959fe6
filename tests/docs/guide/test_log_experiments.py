"""The guide to logging experiments: its example leaves what it says, and its tables are the code's."""

from __future__ import annotations

import json

import pytest

from dftrace_ai.loggers.config import EntryConfig
from docs.conftest import ExampleRun, RunExample
from docs.pages import DOCS, between, plain, table

PAGE = DOCS / "guide" / "log-experiments.md"


@pytest.fixture(scope="module")
def trained(run_example: RunExample) -> ExampleRun:
    """What the example leaves."""
    return run_example("log_experiments.py")


def lines(run: ExampleRun) -> list[dict]:
    (path,) = (run.folder / "out/digits/small").glob("*.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_files_are_those_of_the_table(trained: ExampleRun) -> None:
    folder = trained.folder / "out"
    for name in ("digits/small/media/digits/000000008.png",):
        assert f"`{name}`" in PAGE.read_text(encoding="utf-8")
        assert (folder / name).exists()
    assert len(list((folder / "digits/small/media").rglob("*.png"))) == 3
    assert len(list((folder / "digits/small/media").rglob("*.glb"))) == 3


def test_the_trace_has_the_same_numbers_beside_its_spans(trained: ExampleRun) -> None:
    local = [
        (line["v"]["loss"], line["t"]) for line in lines(trained) if "loss" in line.get("v", ())
    ]
    counters = [e for e in trained.trace.events if e.ph == "C" and e.name == "loss"]
    assert [event.args["value"] for event in counters] == [value for value, _ in local]
    forward = [e for e in trained.trace.events if e.name == "forward"]
    assert len(forward) == len(counters) == 24
    # Each lies behind the forward pass that it is of, and before the next.
    for index, event in enumerate(counters):
        assert forward[index].ts_ns < event.ts_ns
        assert index + 1 == len(forward) or event.ts_ns < forward[index + 1].ts_ns
    pictures = [e for e in trained.trace.events if e.ph == "i" and e.name == "digits"]
    assert [(trained.folder / e.args["file"]).exists() for e in pictures] == [True] * 3


def test_tensorboard_has_the_same_numbers(trained: ExampleRun) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(trained.folder / "out/digits/small/tensorboard"))
    found.Reload()
    local = [
        (line["s"], line["v"]["loss"]) for line in lines(trained) if "loss" in line.get("v", ())
    ]
    scalars = [(event.step, event.value) for event in found.Scalars("loss")]
    assert scalars == [(step, pytest.approx(value)) for step, value in local]
    assert found.Images("digits")[0].encoded_image_string[:4] == b"\x89PNG"


def test_a_line_of_each_epoch_is_printed(trained: ExampleRun) -> None:
    (shown,) = [x for x in PAGE.read_text(encoding="utf-8").splitlines() if x.startswith("[small]")]
    told = [line for line in trained.stderr.splitlines() if line.startswith("[small]")]
    assert len(told) == 3
    words = [word for word in shown.split() if not word.replace(".", "").isdigit()]
    assert [word for word in told[0].split() if not word.replace(".", "").isdigit()] == words


def test_the_settings_are_those_of_the_model() -> None:
    written = [[plain(cell) for cell in row] for row in table(between(PAGE, "entry"))]
    assert written == [
        [name, shown_default(name), plain(str(field.description))]
        for name, field in EntryConfig.model_fields.items()
    ]


def shown_default(name: str) -> str:
    default = EntryConfig.model_fields[name].get_default(call_default_factory=True)
    if default is None:
        return "null"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, list | dict):
        return json.dumps(default) if default else ""
    return str(default)
