"""Every example runs alone, and its trace holds what the guide says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import pytest
from perfetto.trace_file import LANE, Event, Trace

from docs.conftest import ExampleRun, RunExample
from docs.pages import DOCS, EXAMPLES, after_example, plain, quoted_examples, table

GUIDE = DOCS / "guide" / "annotate.md"
AUTO = DOCS / "guide" / "auto.md"
STUCK = DOCS / "guide" / "find-the-stuck-rank.md"
INSPECT = DOCS / "guide" / "inspect.md"
LOGGING = DOCS / "guide" / "log-experiments.md"
RUNS = DOCS / "guide" / "runs.md"
WHY = DOCS / "guide" / "why-is-my-step-slow.md"
DIFF = DOCS / "guide" / "compare-two-runs.md"
RANKS = DOCS / "guide" / "which-rank.md"
PAGES = (GUIDE, AUTO, STUCK, INSPECT, LOGGING, RUNS, WHY, DIFF, RANKS)
FRAMEWORKS = tuple(sorted((DOCS / "guide" / "frameworks").glob("*.md")))
QUOTING = (*PAGES, *FRAMEWORKS, DOCS / "quick-start.md")
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))
KINDS = {
    "X": "span",
    "B": "unfinished span",
    "i": "instant",
    "C": "counter",
    "s": "flow, tail",
    "f": "flow, head",
}
FORMAT_ARGS = ("hhash", "p_idx", "level")


@pytest.mark.parametrize("page", QUOTING, ids=lambda page: page.name)
def test_a_page_shows_the_files_as_they_are(page) -> None:
    quoted = quoted_examples(page)
    assert quoted
    for name, text in quoted.items():
        assert (EXAMPLES / name).read_text(encoding="utf-8") == text, name


def test_every_example_is_on_a_page() -> None:
    assert {name for page in QUOTING for name in quoted_examples(page)} == set(NAMES)


@pytest.mark.parametrize("page", FRAMEWORKS, ids=lambda page: page.name)
def test_a_page_counts_the_lines_of_its_programs(page) -> None:
    """Those that name us, and the others, blank ones left out."""
    counted = []
    for text in quoted_examples(page).values():
        lines = [line for line in text.splitlines() if line.strip()][1:]  # behind what it is
        ours = [line for line in lines if re.search(r"dftrace_ai|\btrace_\w+\(|\bai\.", line)]
        counted.append((str(len(lines) + 1), str(len(ours))))
    told = re.findall(r"The program has (\d+) lines, (\d+) of them for the trace", page.read_text())
    assert told == counted != []


def recorded(traces: Iterable[Trace]) -> dict[tuple[str, str, str], tuple[int, set[str]]]:
    """Events by kind, category and name: how many, and the arguments any of them has."""
    counts: Counter[tuple[str, str, str]] = Counter()
    arguments: dict[tuple[str, str, str], set[str]] = {}
    for trace in traces:
        for event in trace.events:
            if event.ph in KINDS:
                key = KINDS[event.ph], event.cat, event.name
                found = set(event.args) - set(FORMAT_ARGS)
            elif event.name == "CM":
                key, found = ("metadata", event.cat, event.args["name"]), set()
            else:
                continue
            counts[key] += 1
            arguments.setdefault(key, set()).update(found)
    return {key: (count, arguments[key]) for key, count in counts.items()}


LISTED = [(page, name) for page in (GUIDE, AUTO) for name in sorted(quoted_examples(page))]


@pytest.mark.parametrize(("page", "name"), LISTED, ids=[name for _, name in LISTED])
def test_the_trace_holds_what_the_guide_lists(page, name: str, run_example: RunExample) -> None:
    listed = {}
    for kind, category, label, count, arguments in table(after_example(page, name)):
        names = {plain(argument) for argument in arguments.split(", ") if argument}
        listed[kind, plain(category), plain(label)] = (int(count), names)
    assert listed == recorded(run_example(name).traces)


def outcome(run_example: RunExample, name: str) -> Trace:
    return run_example(f"{name}.py").trace


def users(event: Event) -> dict[str, object]:
    return {key: value for key, value in event.args.items() if key not in FORMAT_ARGS}


def test_runs(run_example: RunExample) -> None:
    run = run_example("runs.py")
    names = [trace.path.name for trace in run.traces]
    assert [name.split("-")[0] for name in names] == ["first", "second"]
    assert [name.partition(".")[2] for name in names] == ["pfw", "pfw.gz"]
    assert run.stdout.splitlines()[0] == f"{run.traces[0].path} 1"
    assert run.stdout.splitlines()[1] == "1 events, dropped: 0"
    assert run.traces[1].header["timestamps"] == "epoch_us"
    assert users(run.traces[1].one("step")) == {}


def test_context_manager(run_example: RunExample) -> None:
    trace = outcome(run_example, "context_manager")
    assert trace.parent(trace.one("all_reduce")) is trace.one("backward")
    assert [event.level for event in trace.named("compute")] == [1, 2, 3]
    assert trace.one("capture").args["error"] == "OSError"


def test_arguments_of_a_place(run_example: RunExample) -> None:
    trace = outcome(run_example, "decorator_arguments")
    assert users(trace.named("forward")[0]) == {"precision": "bf16", "shape": [32, 128]}
    assert users(trace.named("item")[0]) == {"epoch": 0, "image_size": 64.0, "source": "digits"}
    trace = outcome(run_example, "context_manager_arguments")
    assert [event.args["micro_batch"] for event in trace.named("forward")] == [1, 2]
    assert users(trace.named("send")[1]) == {"peer": 1, "tensor_bytes": 4096, "tag": "gradients"}


def test_iterate(run_example: RunExample) -> None:
    run = run_example("iterate.py")
    assert "items to come: 3" in run.stdout
    trace = run.trace
    assert [event.args["count"] for event in trace.named("fetch.iter")] == [1, 2, 3] * 2
    assert [event.args["epoch"] for event in trace.named("fetch.block")] == [0, 0, 0, 1, 1, 1]
    steps = trace.named("forward")
    assert [event.args["step"] for event in steps] == [0, 1, 2] * 2
    assert [trace.parent(event) for event in steps] == trace.named("fetch.block")
    assert {trace.parent(event) for event in trace.named("fetch.block")} == set(
        trace.named("epoch.block")
    )
    assert trace.one("item.wait").args["count"] == 1


def test_async_tasks(run_example: RunExample) -> None:
    trace = outcome(run_example, "async_tasks")
    train, items, blocks = trace.one("train"), trace.named("item"), trace.named("fetch.block")
    assert all(event.tid >= LANE for event in [train, *items])
    assert "task lane" in trace.thread_names[train.tid]
    # Two tasks at a time, beside the one that made them.
    assert len({event.tid for event in [train, *items]}) == 3
    assert all(event.tid == train.tid for event in blocks)
    assert [trace.parent(event) for event in items] == [blocks[0]] * 2 + [blocks[1]] * 2
    assert {trace.parent(event) for event in trace.named("preprocess")} == set(items)


def test_hooks(run_example: RunExample) -> None:
    run = run_example("hooks.py")
    assert "barrier.stop() without start()" in run.stderr
    assert run.trace.footer["unmatched_stops"] == 1
    train = run.trace.one("train")
    assert [run.trace.parent(event) for event in run.trace.named("compute")] == [train] * 3
    assert [event.args["step"] for event in run.trace.named("compute")] == [0, 1, 2]


def test_derive(run_example: RunExample) -> None:
    trace = outcome(run_example, "derive")
    assert users(trace.one("forward.attention")) == {"epoch": 1, "heads": 8}
    assert trace.parent(trace.one("forward.attention")) is trace.one("forward")


def test_update(run_example: RunExample) -> None:
    trace = outcome(run_example, "update")
    assert users(trace.one("forward")) == {
        "epoch": 1,
        "run_name": "baseline",
        "step": 7,
        "lr": 0.001,
        "shapes": {"x": [8, 4], "y": [8]},
        "loss": 0.5,
    }
    assert users(trace.one("backward")) == {}


def test_switches(run_example: RunExample) -> None:
    trace = outcome(run_example, "switches")
    # always and fixed while the category is off, follows once it is on again.
    assert [users(event) for event in trace.named("forward")] == [{}, {"kind": "fixed"}, {}]


def test_metadata(run_example: RunExample) -> None:
    trace = outcome(run_example, "metadata")
    lines = [(event.args["name"], event.args["value"]) for event in trace.meta("CM")]
    assert [name for name, _ in lines] == ["epoch.start", "epoch.end"] * 2 + ["optimizer"]
    assert all(value.isdecimal() for name, value in lines if name.startswith("epoch"))
    assert lines[-1] == ("optimizer", "AdamW")


def test_functions(run_example: RunExample) -> None:
    trace = outcome(run_example, "functions")
    assert users(trace.one("Reader.read")) == {"epoch": 3, "step": 5}
    assert [event.args["block"] for event in trace.named("scan.iter")] == [1, 2]
    assert users(trace.one("flush")) == {"bytes": 512}


def test_logger(run_example: RunExample) -> None:
    run = run_example("logger.py")
    assert run.stdout == "True\n"
    event = run.trace.one("validate")
    assert event.dur_ns == 250_000
    assert users(event) == {"samples": 64, "accuracy": 0.75, "split": "test"}
    assert run.trace.header["data_dir"] == "data"


def test_marks(run_example: RunExample) -> None:
    trace = outcome(run_example, "marks")
    tails, heads = trace.of("s"), trace.of("f")
    assert [event.id for event in tails] == [event.id for event in heads]
    assert len({event.id for event in tails}) == 2
    assert [event.args for event in trace.of("C")] == [
        {"train": 1.0, "smooth": 0.9},
        {"train": 0.5, "smooth": 0.9},
    ]
    assert users(trace.one("best model")) == {"accuracy": 0.97}


def test_threads(run_example: RunExample) -> None:
    run = run_example("threads.py")
    assert run.stdout == "4950\n"
    items = run.trace.named("item")
    assert all(event.p_idx == 0 for event in items)
    workers = {run.trace.thread_names[event.tid] for event in items}
    assert workers
    assert all(name.startswith("loader_") for name in workers)
    assert {run.trace.parent(event) for event in run.trace.named("preprocess")} == set(items)


def own_and_children(run: ExampleRun, name: str) -> tuple[Trace, list[Trace]]:
    """The trace that holds the event of that name, and the others."""
    (own,) = [trace for trace in run.traces if trace.named(name)]
    return own, [trace for trace in run.traces if trace is not own]


def test_processes(run_example: RunExample) -> None:
    run = run_example("processes.py")
    assert run.stdout.split() == ["fork", "1", "spawn", "1"]
    own, children = own_and_children(run, "train")
    assert len(children) == 3
    assert {trace.header["run"] for trace in children} == {own.header["run"]}
    assert {trace.header["time_base_us"] for trace in children} == {own.header["time_base_us"]}


def test_dataloader(run_example: RunExample) -> None:
    own, workers = own_and_children(run_example("dataloader.py"), "fetch.iter")
    assert [len(trace.named("item")) for trace in workers] == [4, 4]
    assert own.named("item") == []


def test_compiled(run_example: RunExample) -> None:
    trace = outcome(run_example, "compiled")
    assert [trace.parent(event) for event in trace.named("forward")] == [
        trace.one("compute.init"),
        None,
    ]


def test_training(run_example: RunExample) -> None:
    run = run_example("training.py")
    assert run.stdout.strip() == str(run.trace.path)
    steps = run.trace.named("step")
    assert [(event.args["epoch"], event.args["step"]) for event in steps] == [
        (epoch, step) for epoch in range(2) for step in range(8)
    ]
    assert len(run.trace.of("C")) == 16
