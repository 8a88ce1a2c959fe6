"""The guides to logging, to runs and to trackers: examples leave what they say, tables are the code's."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest
from loggers.local_lines import Kept, entry
from safety.commands import invoke

from dftrace_ai.loggers import make_loggers
from dftrace_ai.loggers.config import EntryConfig
from dftrace_ai.loggers.registry import INTERFACES, logint_class
from dftrace_ai.loggers.runs.conditions import FACTS
from dftrace_ai.loggers.runs.log_files import LINE_BYTES
from dftrace_ai.loggers.runs.page import MOST_DOTS, MOST_PLOTS, MOST_RUNS
from dftrace_ai.loggers.runs.reading import MOST_NAMES, QUIET_S, STATUSES
from dftrace_ai.loggers.runs.tables import TABLES
from docs.conftest import ExampleRun, RunExample
from docs.pages import DOCS, between, blocks, plain, section, table

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


RUNS_PAGE = DOCS / "guide" / "runs.md"
SHOWN = [block for block in blocks(RUNS_PAGE, "text") if block.text.startswith("$ dftrace runs")]
VARYING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +\d:\d\d:\d\d")


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_a_command_prints_what_the_page_shows(
    block, run_example: RunExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_example("two_runs.py").folder)
    command, _, want = block.text.partition("\n")
    done = invoke(*shlex.split(command)[2:])
    assert (done.status, done.err) == (0, "")
    assert lines_of(done.out) == lines_of(want)


def lines_of(text: str) -> list[str]:
    return [VARYING.sub("", line.rstrip()) for line in text.splitlines() if line.strip()]


def test_the_tables_are_those_that_are_asked() -> None:
    for name, columns in TABLES.items():
        rows = table(section(RUNS_PAGE, f"Table {name}"))
        assert {plain(row[0]): plain(row[1]) for row in rows} == columns


def test_statuses_facts_and_limits_are_as_told() -> None:
    assert [plain(row[0]) for row in table(section(RUNS_PAGE, "Status"))] == list(STATUSES)
    text = RUNS_PAGE.read_text(encoding="utf-8")
    chosen = plain(section(RUNS_PAGE, "Choosing and sorting"))
    assert all(fact in chosen for fact in FACTS)
    assert f"changed for {QUIET_S:.0f} seconds" in text
    assert f"more than {LINE_BYTES >> 20} MiB" in text
    assert f"{MOST_NAMES:,} names" in text
    assert f"(beyond {MOST_DOTS})" in text
    assert f"The page has {MOST_RUNS:,} runs at most" in text
    assert f"have {MOST_PLOTS} plots" in text


def test_the_lines_are_those_that_are_written(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    kept = tmp_path / "kept.txt"
    kept.write_text("x")
    settings = entry(tmp_path, "metric", "hparams", "hist", "image")
    with make_loggers({"local": settings}) as loggers:
        loggers.log_iter({"loss": 1.0})
        loggers.log_hyperparams({"lr": 0.1})
        loggers.log_histogram("w", np.arange(10.0))
        loggers.log_image("im", np.zeros((4, 4, 3), np.uint8))
        loggers.log_text("note", "x")
        loggers.log_artifact(kept)
        loggers.alert("title")
    lines = Kept(tmp_path).lines
    told = {plain(row[0]): row for row in table(between(RUNS_PAGE, "lines"))}
    assert {line["k"] for line in lines} == set(told)
    for line in lines:
        members = re.findall(r"`(\w+)`", told[line["k"]][1])
        own = [name for name in json.loads(json.dumps(line)) if name != "k"]
        if line["k"] == "f":
            own = [name for name in own if name not in ("width", "height", "caption")]
        assert own == members, line["k"]


TRACKERS_PAGE = DOCS / "guide" / "trackers.md"
TESTS = DOCS.parent / "tests" / "loggers" / "trackers"


def rows(mark: str) -> dict[str, list[str]]:
    return {
        plain(row[0]): [plain(cell) for cell in row[1:]]
        for row in table(between(TRACKERS_PAGE, mark))
    }


def stated(name: str) -> list[str]:
    """What the tests of an interface say that they hold."""
    file = TESTS / ("test_trace.py" if name == "trace" else f"readers/{name}.py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STATED":
            return list(ast.literal_eval(node.value))
    pytest.fail(f"{file} has no STATED")


@pytest.mark.parametrize("mark", ["where", "kept"])
def test_each_interface_has_its_row(mark: str) -> None:
    assert list(rows(mark)) == list(INTERFACES)


@pytest.mark.parametrize("name", INTERFACES)
def test_what_is_kept_is_what_its_tests_hold(name: str) -> None:
    assert rows("kept")[name] == stated(name)


@pytest.mark.parametrize("name", set(INTERFACES) - {"local", "trace"})
def test_the_extra_is_that_of_the_interface(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dftrace_ai.loggers import registry

    monkeypatch.setattr(registry, "find_spec", lambda package: package)
    kind = logint_class(name)

    assert rows("where")[name][0] == (kind.extra or name)
