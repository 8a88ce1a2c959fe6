"""What collectives and messages take of a step: the time in which its thread stood still for them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from analysis.trace_lines import TraceLines

from dftrace_ai._reader import broken_silences
from dftrace_ai.analysis.diff import diff
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.steps import Job, Steps, measure
from dftrace_ai.analysis.why import why

MS = 1_000_000
START_NS = 1_000_000_000
STEPS = 5
COLLECTIVES, STEP_TRACK = 1_342_177_280, 1_073_741_825


class Call(NamedTuple):
    """A collective of a step: from when to when in milliseconds, and what is told of its end."""

    start: float
    end: float
    args: dict[str, Any] = {}  # noqa: RUF012 - nobody writes to it
    name: str = "all_reduce"


def measured(folder: Path, work: Mapping[str, tuple[float, float]], calls: list[Call]) -> Steps:
    """Steps of 100 ms, each with spans of the main thread and collectives on tracks of their own."""
    lines = TraceLines()
    for step in range(STEPS):
        begin = START_NS + step * 100 * MS
        lines.span("step", "pipeline", begin, 100 * MS, tid=STEP_TRACK, step=step)
        ids: dict[str, int] = {}
        for name, (low, high) in work.items():
            cat = name.partition(".")[0] if "." in name else "compute"
            word = name.rpartition(".")[2].rstrip("0123456789")
            lines.span(word, cat, begin + round(low * MS), round((high - low) * MS))
            ids[name] = lines.last_id
        for number, call in enumerate(calls):
            start, length = begin + round(call.start * MS), round((call.end - call.start) * MS)
            told = {"group": "0", **call.args}
            told["p_idx"] = ids.get(told.get("p_idx", ""), 0)
            lines.span(call.name, "comm", start, length, tid=COLLECTIVES + number, **told)
    lines.footer()
    lines.write(folder / "t.pfw")
    (rank,) = Job(open_traces([folder])).ranks
    steps = measure(rank.process)
    assert steps is not None
    assert len(steps) == STEPS
    return steps


WORK = {"forward": (1, 11), "backward": (11, 91), "step": (91, 96)}
WAITED = {"until": "waited"}

CASES: dict[str, tuple[Mapping[str, tuple[float, float]], list[Call], dict[str, float]]] = {
    "a bucket of DDP, in backward": (
        WORK,
        [Call(31, 91.5)],
        {"comm": 60, "backward": 20, "forward": 10, "none": 5},
    ),
    "two buckets, of which the first is hidden": (
        WORK,
        [Call(20, 40), Call(80, 90.8)],
        {"comm": 10.8, "backward": 69.2},
    ),
    "one after the other, in no span": (
        {"forward": (1, 11), "backward": (11, 21), "step": (91, 96)},
        [Call(21, 51), Call(51.1, 90.9)],
        {"comm": 69.8, "none": 5.2, "backward": 10},
    ),
    "hidden by work that goes on": (WORK, [Call(12, 60)], {"comm": 0, "backward": 80}),
    "hidden by work of which signs come": (
        {"forward": (1, 31), "forward2": (31, 61), "forward3": (61, 91), "step": (91, 96)},
        [Call(2, 45)],
        {"comm": 0, "forward": 90},
    ),
    "a message that was waited for behind work": (
        {"forward": (1, 41), "step": (91, 96)},
        [Call(0.5, 90.9, WAITED, "receive")],
        {"comm": 49.9, "forward": 40},
    ),
    "its end is the call's": (
        WORK,
        [Call(31, 91, {"until": "enqueued"}), Call(12, 91, {"until": "dropped"})],
        {"comm": 0, "backward": 80},
    ),
    "the wait is told": (
        {"step": (96, 97)},
        [Call(10, 60, {"waited_us": 20_000.0})],
        {"comm": 20, "none": 79},
    ),
    "a call that waits, and one behind which something else comes": (
        {"item": (50.1, 50.2), "step": (96, 97)},
        [
            Call(10, 40, {"waited_us": 29_700.0}),
            Call(50, 80, {"waited_us": 29_700.0, "waited_by": 100}),
        ],
        {"comm": 59.7},
    ),
    "nobody had waited": (
        {"forward": (1, 60.5), "step": (96, 97)},
        [Call(10, 60, {"waited_us": 0})],
        {"comm": 0, "forward": 59.5},
    ),
    "another thread waits": (
        {"step": (96, 97)},
        [Call(10, 60, {"waited_us": 20_000.0, "waited_by": 77})],
        {"comm": 0, "none": 99},
    ),
    "another thread waits, and this one may work until it is done": (
        {"forward": (1, 11), "step": (91, 96)},
        [
            Call(21, 51, {"waited_us": 29_900.0, "waited_by": 77}),
            Call(51.1, 90.5, {"waited_us": 39_300.0, "waited_by": 77}),
        ],
        {"comm": 0, "none": 85},
    ),
    "torch itself may wait, and another call is no sign of it": (
        WORK,
        [Call(20, 39, {"late_us": 1500}), Call(40, 90, {"late_us": 100})],
        {"comm": 50, "backward": 30},
    ),
    "torch waits in the span in which the call is made": (
        {"backward": (11, 31), "forward": (31, 81), "step": (91, 96)},
        [Call(21, 80, {"late_us": 60_000, "p_idx": "backward"})],
        {"comm": 10, "backward": 10, "forward": 50},
    ),
    "within other work that is told": (
        {"checkpoint.capture": (10, 50), "dataloader.fetch": (50, 90), "step": (91, 96)},
        [Call(11, 50), Call(51, 90)],
        {"checkpoint": 40, "comm": 39, "wait": 1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_stands_still_for_others(tmp_path: Path, case: str) -> None:
    work, calls, wanted = CASES[case]
    steps = measured(tmp_path, work, calls)
    told = {part: steps.parts[part] / MS for part in wanted}  # type: ignore[index]
    assert {part: set(ms.round(6).tolist()) for part, ms in told.items()} == {
        part: {float(ms)} for part, ms in wanted.items()
    }
    assert (np.sum(list(steps.parts.values()), axis=0) == steps.time_ns).all()
    # What blocks nothing is beside the steps, and nowhere twice.
    whole = sum(steps.hidden_ns.values()) + int(steps.parts["comm"].sum())
    lengths = sum(call.end - call.start for call in calls) * STEPS * MS
    assert whole <= lengths


def test_garbage_that_is_collected_in_no_span_is_other_work(tmp_path: Path) -> None:
    work = {"forward": (1, 11), "host.gc1": (4, 9), "host.gc2": (20, 60), "backward": (61, 91)}
    steps = measured(tmp_path, work, [])
    parts = {part: ns.tolist() for part, ns in steps.parts.items() if ns.any()}
    each = {"forward": 10, "other": 40, "backward": 30, "none": 20}
    assert parts == {part: [ms * MS] * STEPS for part, ms in each.items()}
    (finding,) = why([tmp_path]).findings
    assert finding.kind == "other-heavy"
    assert "most of it collecting Python's garbage" in finding.what
    assert finding.because == "Of it: host gc, 40 % of a step."


def slow_reading(work: list[tuple[int, int]], calls: list[Call]) -> list[tuple[int, int]]:
    """The longest silence that each call's end breaks, up to that end; times in nanoseconds."""
    of_spans = {moment for span in work for moment in span}
    signs = sorted(of_spans | {int(call.start) for call in calls})
    found = []
    for call in calls:
        start, end = int(call.start), int(call.end)
        within = "late_us" in call.args
        late = round(1000 * call.args["late_us"]) if within else 6 * MS + (end - start) // 8
        silences = [
            (v - u, u, min(v, end))
            for u, v in zip(signs, signs[1:], strict=False)
            if u >= start and end - late <= v <= end + 2 * MS and u < end
            if not within or v in of_spans
        ]
        found += [max(silences)[1:]] if silences else []
    return found


@pytest.mark.parametrize("seed", range(8))
def test_silences_are_those_of_a_slow_reading(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lines = TraceLines()
    length = 400 * MS
    cuts = sorted(chance.sample(range(MS, length - MS), 60))
    work = list(zip(cuts[::2], cuts[1::2], strict=True))
    calls = [
        Call(
            at, at + chance.randint(1, 40 * MS), {"late_us": 900.5} if chance.random() < 0.5 else {}
        )
        for at in chance.sample(range(MS, length - 50 * MS), 40)
    ]
    for low, high in work:
        lines.span("forward", "compute", START_NS + low, high - low)
    for number, call in enumerate(calls):
        start, dur = START_NS + int(call.start), int(call.end - call.start)
        tid = COLLECTIVES + number
        lines.span(call.name, "comm", start, dur, tid=tid, group="0", **call.args)
    for begin in (0, length):
        lines.span("step", "pipeline", START_NS + begin, length, tid=STEP_TRACK)
    lines.footer()
    lines.write(tmp_path / "t.pfw")
    (rank,) = Job(open_traces([tmp_path])).ranks
    steps = measure(rank.process)
    assert steps is not None
    ends = sorted(slow_reading([*work, (0, length), (length, 2 * length)], calls))
    total, reach = 0, 0
    for low, high in ends:
        total += max(0, high - max(low, reach))
        reach = max(reach, high)
    assert int(steps.parts["comm"][0]) == total


def write_waits(path: Path, wait_ms: int, *, in_backward: bool) -> Path:
    """Steps that wait for an all_reduce, within backward or in no span; 5 ms of it are hidden."""
    lines = TraceLines()
    at = START_NS
    for step in range(60):
        jitter = step * 7 % 11 * MS // 100
        work = 20 * MS + jitter
        call, end = at + 10 * MS, at + 5 * MS + work + wait_ms * MS
        # The sign behind which it waits is the end of a span, 5 ms behind the call.
        lines.span("forward", "compute", at + MS, 4 * MS)
        stop = end if in_backward else at + 5 * MS + work
        lines.span("backward", "compute", at + 5 * MS, stop - at - 5 * MS)
        lines.span("grad", "compute", at + 6 * MS, at + 5 * MS + work - at - 6 * MS)
        lines.span("all_reduce", "comm", call, end - call, tid=COLLECTIVES, group="0", late_us=10)
        lines.span("step", "compute", end, 2 * MS)
        lines.span("step", "pipeline", at, end + 2 * MS - at, tid=STEP_TRACK)
        at = end + 3 * MS
    lines.footer()
    lines.write(path)
    return path


@pytest.mark.parametrize("in_backward", [True, False])
def test_a_longer_wait_is_the_collectives(tmp_path: Path, *, in_backward: bool) -> None:
    before, after = (
        write_waits(tmp_path / f"{name}.pfw", wait, in_backward=in_backward)
        for name, wait in (("a", 10), ("b", 40))
    )
    found = diff(before, after)
    assert found.verdict == "slower"
    slower = {
        (row.cat, row.name, row.beside): row.change.added_ns
        for row in found.names
        if row.change.kind in {"slower", "faster", "new", "gone"}
    }
    assert slower == {("comm", "all_reduce", False): pytest.approx(30 * MS)}
    (place,) = [row.path for row in found.tree if row.change.kind == "slower"]
    around = ("compute.backward",) if in_backward else ()
    assert place == ("pipeline.step", *around, "comm.all_reduce")


def test_silences_are_broken_by_calls_of_columns_that_are_as_long() -> None:
    none, two = np.zeros(0, np.int64), np.arange(2)
    given = (two, two, two, two, np.zeros(2, np.uint8))
    assert broken_silences((none, none, none), given, 5) == b""
    for at in range(5):
        wrong = [*given]
        wrong[at] = wrong[at][:1]
        with pytest.raises(ValueError, match="different lengths"):
            broken_silences((none, none, none), tuple(wrong), 5)  # type: ignore[arg-type]
