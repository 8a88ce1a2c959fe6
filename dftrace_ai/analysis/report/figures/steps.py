"""Steps as a report shows them: their times and parts, loader and ranks; and what lies around."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from dftrace_ai.analysis.ranks.job import RanksOfJob
from dftrace_ai.analysis.report.figures.facts import briefly_named, envelope, rounded
from dftrace_ai.analysis.report.model import (
    EpochParts,
    HeatMap,
    Histogram,
    LoaderFigures,
    Phase,
    PhaseFigures,
    RankFigures,
    SlowSpan,
    SlowStepFigures,
    StepFigures,
)
from dftrace_ai.analysis.robust_statistics import odd_ranks
from dftrace_ai.analysis.steps.measuring import steady_of
from dftrace_ai.analysis.steps.roles import DATA_WORK
from dftrace_ai.analysis.steps.spans import NO_INTEGER, integer, union
from dftrace_ai.analysis.steps.timeline import PARTS, covered_within
from dftrace_ai.analysis.why.evidence import at_once, signals_of
from dftrace_ai.analysis.why.findings.phases import WORKERS_START
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers, Label
    from dftrace_ai.analysis.report.model import PhaseKind
    from dftrace_ai.analysis.steps import Rank, Steps
    from dftrace_ai.analysis.steps.job import Order
    from dftrace_ai.analysis.why.judging import JudgedRank


MOST_EPOCHS: Final = 60
STRETCHES: Final = 20
LOADER_STRETCHES: Final = 240
MOST_MARKS: Final = 200
BINS: Final = 48
WIDE: Final = 10.0
"""From such a ratio of the longest to the median on, times are shown by their logarithm."""

SLOWEST: Final = 10
MOST_SPANS: Final = 300


@dataclass(frozen=True, repr=False)
class MeasuredRank:
    """A rank with its steps, of which there is at least one."""

    rank: Rank
    steps: Steps

    @property
    def number(self) -> int:
        """The number of the rank."""
        return self.rank.process.number

    @property
    def who(self) -> str:
        """What people call it: ``rank 3``, and ``process 4711`` where it says no rank."""
        rank, pid = self.rank.process.header.rank, self.rank.process.pid
        return f"process {pid}" if rank is None else f"rank {rank}"


def step_figures(measured: MeasuredRank) -> StepFigures:
    """Return the figures of the steps of a rank."""
    steps = measured.steps
    steady = steady_of(steps)
    time = steps.time_ns
    p50, p95, p99 = np.percentile(time, (50, 95, 99)).tolist()
    numbers = _epochs_of(steps)
    split_by, epochs, starts = _split(steps, numbers)
    return StepFigures(
        rank=measured.number,
        who=measured.who,
        found_by=steps.found_by,
        count=len(steps),
        steady=len(steady),
        warm_up=steady.warm_up,
        times=envelope(np.arange(len(steps)), time),
        histogram=_histogram(time, steady.mask),
        p50_ns=p50,
        p95_ns=p95,
        p99_ns=p99,
        max_ns=int(time.max()),
        time_ns=int(time.sum()),
        parts={part: int(values.sum()) for part, values in steps.parts.items()},
        split_by=split_by,
        epochs=epochs,
        epoch_starts=starts,
    )


def rank_figures(measured: MeasuredRank) -> RankFigures:
    """Return a rank's row among the others."""
    process, steps = measured.rank.process, measured.steps
    whole = max(1, int(steps.time_ns.sum()))
    p50, p95 = np.percentile(steps.time_ns, (50, 95)).tolist()
    own = float(np.median(steps.time_ns - steps.parts["comm"]))
    return RankFigures(
        rank=measured.number,
        who=measured.who,
        host=briefly_named((process.header and process.header.host) or ""),
        pid=process.pid,
        workers=len(measured.rank.workers),
        steps=len(steps),
        p50_ns=p50,
        p95_ns=p95,
        max_ns=int(steps.time_ns.max()),
        wait_share=rounded(int(steps.parts["wait"].sum()) / whole),
        comm_share=rounded(int(steps.parts["comm"].sum()) / whole),
        workers_at_once=at_once(_lives(measured.rank)),
        own_ns=own,
        odd=False,
    )


def with_the_odd(ranks: list[RankFigures], late: Collection[int]) -> list[RankFigures]:
    """Return ranks of which those are odd whose own time is far from that of most, or are late."""
    odd = odd_ranks(np.array([one.own_ns for one in ranks], float))
    return [
        replace(one, odd=bool(is_odd) or one.rank in late)
        for one, is_odd in zip(ranks, odd, strict=True)
    ]


def _lives(rank: Rank) -> list[tuple[int, int]]:
    """Return when each worker of a rank that worked did so, from the first span to the last."""
    works = (worker.spans.of(*DATA_WORK) for worker in rank.workers)
    return [(int(work.start_ns.min()), int(work.end_ns.max())) for work in works if len(work)]


class SlowestSteps:
    """The slowest steps of some ranks; those of others are merged into them."""

    def __init__(self) -> None:
        self._slowest: list[tuple[int, Order, int, SlowStepFigures]] = []

    def add(self, measured: MeasuredRank) -> None:
        """Take in the steps of a rank."""
        time, order = measured.steps.time_ns, measured.rank.order
        slowest = np.argsort(-time, kind="stable")[:SLOWEST].tolist()
        keys = [(-int(time[at]), order, int(at)) for at in slowest]
        if len(self._slowest) == SLOWEST:
            # What is told of a step takes more than to see that it is none of them.
            keys = [key for key in keys if key < self._slowest[-1][:3]]
        self._take([(*key, _slow_step(measured, key[2])) for key in keys])

    def merge(self, other: SlowestSteps) -> None:
        """Take in those of others."""
        self._take(other._slowest)

    def _take(self, more: list[tuple[int, Order, int, SlowStepFigures]]) -> None:
        self._slowest = sorted([*self._slowest, *more], key=lambda each: each[:3])[:SLOWEST]

    @property
    def figures(self) -> list[SlowStepFigures]:
        """The slowest steps of all, the slowest first."""
        return [figures for *_, figures in self._slowest]


def _slow_step(measured: MeasuredRank, at: int) -> SlowStepFigures:
    steps = measured.steps
    start, ns = int(steps.start_ns[at]), int(steps.time_ns[at])
    steady = steady_of(steps)
    kind: Literal["steady", "warm-up", "first of a loop"] = "steady"
    if at < steady.warm_up:
        kind = "warm-up"
    elif not steady.mask[at]:
        kind = "first of a loop"
    at_us = max(0.0, measured.rank.process.ts_us(start))
    spans, left_out = _spans_within(steps, at)
    beside = steps.marks.beside(at)
    return SlowStepFigures(
        rank=measured.number,
        who=measured.who,
        step=int(steps.number[at]),
        epoch=_epoch_at(steps, at),
        ns=ns,
        at_us=at_us,
        at=f"{at_us / 1e6:.6f}s+{ns / 1e6:.3f}ms",
        kind=kind,
        rss_bytes=beside.rss_bytes,
        device_bytes=beside.device_bytes,
        nonfinite=beside.nonfinite,
        nonfinite_tensor=beside.nonfinite_tensor and briefly_named(beside.nonfinite_tensor),
        parts={part: int(values[at]) for part, values in steps.parts.items()},
        spans=spans,
        spans_left_out=left_out,
    )


def _spans_within(steps: Steps, at: int) -> tuple[list[SlowSpan], int]:
    """Return the longest spans that begin in a step, in order, and how many more there are."""
    begin, end = int(steps.start_ns[at]), int(steps.end_ns[at])
    thread = steps.thread
    low, high = np.searchsorted(thread.start_ns, (begin, end)).tolist()
    open_until: list[int] = []
    found: list[tuple[int, int, int, int]] = []
    starts, ends = thread.start_ns[low:high].tolist(), thread.end_ns[low:high].tolist()
    for index, (start, stop) in enumerate(zip(starts, ends, strict=True), low):
        while open_until and open_until[-1] <= start:
            open_until.pop()
        found.append((index, len(open_until), start - begin, min(stop, end) - start))
        open_until.append(stop)
    longest = sorted(found, key=lambda each: -each[3])[:MOST_SPANS]
    spans = [
        _slow_span(thread.label(index), depth, after, dur)
        for index, depth, after, dur in sorted(longest)
    ]
    return spans, len(found) - len(spans)


def _slow_span(label: Label, depth: int, after: int, dur: int) -> SlowSpan:
    cat, name = map(briefly_named, label)
    return SlowSpan(cat, name, depth, after, max(0, dur))


def _histogram(time: Integers, steady: Integers) -> Histogram:
    low, high = max(float(time.min()), 1.0), max(float(time.max()), 2.0)
    wide = high > WIDE * max(float(np.median(time)), 1.0)
    if high <= low * 1.0001:
        low, high = low * 0.95, high * 1.05
    edges = np.geomspace(low, high, BINS + 1) if wide else np.linspace(low, high, BINS + 1)
    edges[0], edges[-1] = low, high
    inside = np.clip(time, low, high)
    return Histogram(
        edges_ns=[rounded(edge) for edge in edges.tolist()],
        steady=np.histogram(inside[steady], edges)[0].tolist(),
        others=np.histogram(inside[~steady], edges)[0].tolist(),
        logarithmic=bool(wide),
    )


def _epoch_at(steps: Steps, at: int) -> int | None:
    """Return the epoch of a step: of the span that began last in it, for others may be before."""
    thread = steps.thread
    index = int(np.searchsorted(thread.start_ns, steps.end_ns[at])) - 1
    if index < 0 or thread.start_ns[index] < steps.start_ns[at]:
        return None
    return integer(thread.args(index).get("epoch"))


def _epochs_of(steps: Steps) -> list[int] | None:
    """Return the epoch of each step; None where not all of them say it, or it goes back."""
    if _epoch_at(steps, 0) is None:
        return None  # nor will the others
    index = np.searchsorted(steps.thread.start_ns, steps.end_ns) - 1
    if (index < 0).any() or (steps.thread.start_ns[index] < steps.start_ns).any():
        return None
    (epochs,) = steps.thread.integers(index, "epoch")
    if (epochs == NO_INTEGER).any() or (epochs[1:] < epochs[:-1]).any():
        return None
    numbers: list[int] = epochs.tolist()
    return numbers


def _split(
    steps: Steps, numbers: list[int] | None
) -> tuple[Literal["epoch", "loop", "stretch"], list[EpochParts], list[int]]:
    """Cut the steps into epochs; else into loops, or where there is one, into stretches."""
    count = len(steps)
    if numbers is not None and numbers[-1] != numbers[0]:
        starts = [at for at in range(count) if not at or numbers[at] != numbers[at - 1]]
        labels = [numbers[at] for at in starts]
        return "epoch", _parts_of(steps, "epoch", starts, labels), _marks(starts)
    loops = np.flatnonzero(steps.first).tolist()
    starts = sorted({0, *loops})
    if 1 < len(starts) <= count // 2:
        labels = list(range(len(starts)))
        return "loop", _parts_of(steps, "loop", starts, labels), _marks(starts)
    pieces = min(STRETCHES, count)
    starts = np.linspace(0, count, pieces + 1).astype(int)[:-1].tolist()
    return "stretch", _parts_of(steps, "step", starts, starts), []


def _marks(starts: list[int]) -> list[int]:
    return starts if len(starts) <= MOST_MARKS else []


def _parts_of(steps: Steps, noun: str, starts: list[int], labels: list[int]) -> list[EpochParts]:
    chosen = np.unique(np.linspace(0, len(starts), MOST_EPOCHS + 1).astype(int)[:-1]).tolist()
    if len(starts) <= MOST_EPOCHS:
        chosen = list(range(len(starts)))
    found = []
    for here, after in zip(chosen, [*chosen[1:], len(starts)], strict=True):
        low = starts[here]
        high = starts[after] if after < len(starts) else len(steps)
        last = high - 1 if noun == "step" else labels[after - 1]
        first = labels[here]
        label = f"{noun} {first}" if first == last else f"{noun}s {first}-{last}"
        found.append(
            EpochParts(
                label,
                high - low,
                int(steps.time_ns[low:high].sum()),
                {part: int(values[low:high].sum()) for part, values in steps.parts.items()},
            )
        )
    return found


def loader_figures(measured: MeasuredRank, first_ns: int) -> LoaderFigures | None:
    """Return wait and work over the time of a rank's training; None where no wait is annotated."""
    steps = measured.steps
    wait = steps.timeline.of("wait")
    if not len(wait[0]):
        return None
    begin, end = int(steps.start_ns[0]), int(steps.end_ns[-1])
    edges = np.unique(np.linspace(begin, end, LOADER_STRETCHES + 1).astype(np.int64))
    low, high = edges[:-1], edges[1:]
    waited = covered_within(*wait, low, high)
    whole = max(1, end - begin)
    busy = np.zeros(len(low), np.int64)
    life = np.zeros(len(low), np.int64)
    lives = _lives(measured.rank)
    for worker in measured.rank.workers:
        work = worker.spans.of(*DATA_WORK)
        busy += covered_within(*union(work.start_ns, work.end_ns), low, high)
    for first, last in lives:
        life += np.maximum(np.minimum(high, last) - np.maximum(low, first), 0)
    return LoaderFigures(
        rank=measured.number,
        who=measured.who,
        workers=len(measured.rank.workers),
        edges_s=[rounded((edge - first_ns) / 1e9, 9) for edge in edges.tolist()],
        wait=[rounded(share, 4) for share in (waited / (high - low)).tolist()],
        busy=[rounded(share, 4) for share in (busy / np.maximum(life, 1)).tolist()]
        if lives
        else [],
        wait_share=rounded(int(waited.sum()) / whole),
        busy_share=rounded(int(busy.sum()) / max(1, int(life.sum()))) if lives else None,
        workers_at_once=at_once(lives),
        inline=not measured.rank.workers and _loads_itself(measured),
    )


def _loads_itself(measured: MeasuredRank) -> bool:
    """Return whether the training loads by itself: within its waits, or as no workers start."""
    spans = measured.rank.process.spans
    own = spans.at(spans.tid == measured.steps.tid)
    work, wait = own.of(*DATA_WORK), own.of("wait")
    if covered_within(*union(work.start_ns, work.end_ns), wait.start_ns, wait.end_ns).any():
        return True
    by_auto = signals_of(measured.rank, measured.steps).by_auto
    return by_auto and not bool(spans.called(*WORKERS_START).any())


# Own work and waiting of ranks beside each other, step by step, as two maps.

MOST_COLUMNS: Final = 80
MOST_ROWS: Final = 64
MOST_BY_THEMSELVES: Final = 24
MS: Final = 1e6
OWN: Final = "own work, ms"
WAITS: Final = "waits for others, ms"


def rank_maps(judged: Iterable[JudgedRank], odd: Collection[int]) -> list[HeatMap]:
    """Return own work and waiting by rank and step; nothing where no step is of several ranks.

    Those that are odd come first; of large jobs the others are in groups, with the most of any.
    """
    partials = [one.partial for one in judged if one.partial is not None]
    if len(partials) < 2 or len({one.place.rank for one in partials}) < len(partials):
        return []
    job = RanksOfJob.of(partials)
    numbers = job.common
    if not len(numbers):
        return []
    starts = np.unique(np.linspace(0, len(numbers), MOST_COLUMNS + 1).astype(int)[:-1])
    own = np.zeros((len(job.ranks), len(starts)), np.int64)
    waits = np.zeros_like(own)
    for block in job.blocks("steps"):
        at = np.searchsorted(starts, np.searchsorted(numbers, block.numbers), side="right") - 1
        first = np.flatnonzero(np.append(True, at[1:] != at[:-1]))
        for into, ns in ((own, block.total_own_ns), (waits, block.blocked_ns)):
            most = np.maximum.reduceat(ns, first, axis=1)
            into[:, at[first]] = np.maximum(into[:, at[first]], most)
    first = numbers[starts]
    last = numbers[np.append(starts[1:], len(numbers)) - 1]
    rows = _rows([one.place.rank for one in job.ranks], own, odd)
    labels = [_label([job.ranks[at].place.rank for at in row]) for row in rows]
    return [
        HeatMap(
            statistic,
            "",
            labels,
            first.tolist(),
            last.tolist(),
            [(values[row].max(0) / MS).round(3).tolist() for row in rows],
            0,
            of="rank",
        )
        for statistic, values in ((OWN, own), (WAITS, waits))
    ]


def _rows(numbers: Sequence[int], own: Integers, odd: Collection[int]) -> list[list[int]]:
    """Return which ranks each row is of: who stands out, the one that works longest first."""
    usual = np.median(own, 1)
    apart = sorted((at for at, one in enumerate(numbers) if one in odd), key=lambda at: -usual[at])
    apart = apart[:MOST_BY_THEMSELVES]
    others = [at for at in range(len(numbers)) if at not in set(apart)]
    groups = min(len(others), MOST_ROWS - len(apart))
    return [[at] for at in apart] + [part.tolist() for part in np.array_split(others, groups or 1)]


def _label(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"


LANE_STRETCHES: Final = 400
# Of more steps a stretch holds so many that it makes no difference where in a step it ends.
FEW_STEPS: Final = 20 * LANE_STRETCHES
MOST_PHASES: Final = 1500
MOST_LOOPS: Final = 300
# Between two steps for so many medians and so long nothing that is annotated: a stall.
STALL_MEDIANS: Final = 20.0
STALL_NS: Final = 50e6


def phase_figures(steps: Steps, facts: StepFigures, first_ns: int, last_ns: int) -> PhaseFigures:
    """Return what a rank did from the first event of the run to its last."""
    found = sorted(_phases(steps, facts, first_ns, last_ns), key=lambda one: one[0] - one[1])
    return PhaseFigures(
        rank=facts.rank,
        spent_s=_spent(steps, facts.warm_up, first_ns, last_ns),
        phases=[
            Phase((low - first_ns) / 1e9, (high - first_ns) / 1e9, kind, name)
            for low, high, kind, name in sorted(found[:MOST_PHASES])
        ],
        phases_left_out=max(0, len(found) - MOST_PHASES),
        lane=_lane(steps, first_ns, last_ns),
    )


def _spent(steps: Steps, warm_up: int, first_ns: int, last_ns: int) -> dict[str, float]:
    """Return how long each phase took: every moment of the run is in one of them."""
    reach = np.maximum.accumulate(steps.end_ns)
    start = np.maximum(steps.start_ns, np.append(steps.start_ns[:1], reach[:-1]))
    edges = np.array([first_ns, max(last_ns, first_ns)])
    windows: dict[PhaseKind, tuple[Integers, Integers]] = {
        "start-up": (edges[:1], start[:1]),
        "warm-up": (start[:warm_up], reach[:warm_up]),
        "steady": (start[warm_up:], reach[warm_up:]),
        "between": (reach[:-1], start[1:]),
        "end": (reach[-1:], edges[1:]),
    }
    checkpoints = steps.timeline.of("checkpoint")
    spent: dict[PhaseKind, int] = dict.fromkeys(("start-up", "warm-up", "steady"), 0)
    spent |= {"evaluation": 0, "checkpoint": 0, "between": 0, "end": 0}
    for kind, (begin, end) in windows.items():
        low = begin.clip(*edges)
        high = np.maximum(low, end.clip(*edges))
        saved = covered_within(*checkpoints, low, high)
        # Inside of a step an evaluation is a part of that.
        outside = kind not in {"warm-up", "steady"}
        evaluated = covered_within(*steps.evaluation, low, high) if outside else 0 * saved
        evaluated = np.minimum(evaluated, high - low - saved)
        spent["checkpoint"] += int(saved.sum())
        spent["evaluation"] += int(evaluated.sum())
        spent[kind] += int((high - low - saved - evaluated).sum())
    return {kind: ns / 1e9 for kind, ns in spent.items() if ns}


def _lane(steps: Steps, first_ns: int, last_ns: int) -> dict[str, list[float]]:
    # In whole numbers: floats of times since 1970 are 256 ns apart.
    length = max(last_ns - first_ns, LANE_STRETCHES)
    edges = first_ns + np.arange(LANE_STRETCHES + 1) * length // LANE_STRETCHES
    knots = _outside(steps, edges) if len(steps) < FEW_STEPS else edges
    lane = {}
    for part in PARTS:
        begin, end = steps.timeline.of(part)
        spent = np.append(0, covered_within(begin, end, knots[:-1], knots[1:]).cumsum())
        until = np.interp(edges - first_ns, knots - first_ns, spent)
        shares = np.diff(until) / np.diff(edges)
        if part != "none" and shares.any():
            lane[str(part)] = np.round(shares, 3).tolist()
    return lane


def _outside(steps: Steps, edges: Integers) -> Integers:
    """Return where steps begin and end, and the edges that lie in none of them.

    A stretch that ends within a step then has the shares of the step: with what the step did just
    there, stretches as long as a step or shorter would show its order, or beats of the two lengths.
    """
    reach = np.maximum.accumulate(steps.end_ns)
    step = np.searchsorted(steps.start_ns, edges, "right") - 1
    free = edges[(step < 0) | (edges >= reach[np.maximum(step, 0)])]
    knots: Integers = np.unique(np.concatenate([edges[[0, -1]], free, steps.start_ns, reach]))
    return knots.clip(edges[0], edges[-1])


def _phases(
    steps: Steps, facts: StepFigures, first_ns: int, last_ns: int
) -> Iterator[tuple[int, int, PhaseKind, str]]:
    begin, end = int(steps.start_ns[0]), int(steps.end_ns[-1])
    if begin > first_ns:
        yield first_ns, begin, "start-up", ""
    warm_up, count = facts.warm_up, len(steps)
    calm = int(steps.start_ns[warm_up]) if warm_up < count else end
    if warm_up:
        yield begin, calm, "warm-up", counted(warm_up, "step")
    if warm_up < count:
        yield calm, end, "steady", counted(count - warm_up, "step")
    evaluation, checkpoints = steps.evaluation, steps.timeline.of("checkpoint")
    yield from ((*one, "evaluation", "") for one in _pairs(*evaluation))
    yield from ((*one, "checkpoint", "") for one in _pairs(*checkpoints))
    for number, one in _stalls(steps):
        yield *one, "stall", f"after step {number}"
    word, starts = "loop", np.flatnonzero(steps.first).tolist()
    if facts.split_by == "epoch" and facts.epoch_starts:
        word, starts = "epoch", facts.epoch_starts
    bounds = [*sorted({0, *starts}), count]
    if len(bounds) <= MOST_LOOPS:
        for number, (low, high) in enumerate(pairwise(bounds)):
            begins, ends = int(steps.start_ns[low]), int(steps.end_ns[high - 1])
            yield begins, ends, "loop", f"{word} {number}"
    if last_ns > end:
        yield end, last_ns, "end", ""


def _pairs(begin: Integers, end: Integers) -> list[tuple[int, int]]:
    return list(zip(begin.tolist(), end.tolist(), strict=True))


def _stalls(steps: Steps) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield where between two steps nothing was annotated for long, with the step before."""
    least = max(STALL_MEDIANS * float(np.median(steps.time_ns)), STALL_NS)
    gaps = np.stack([steps.end_ns[:-1], steps.start_ns[1:]])
    line = steps.timeline
    for at in np.flatnonzero(gaps[1] - gaps[0] > least).tolist():
        low, high = gaps[:, at].tolist()
        here = slice(
            int(np.searchsorted(line.end_ns, low, "right")),
            int(np.searchsorted(line.start_ns, high)),
        )
        begin = np.append(np.clip(line.start_ns[here], low, high), high)
        end = np.append(low, np.clip(line.end_ns[here], low, high))
        for one in np.flatnonzero(begin - end > least).tolist():
            yield int(steps.number[at]), (int(end[one]), int(begin[one]))
