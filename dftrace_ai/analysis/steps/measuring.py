"""The steps of a rank: their parts, what lies beside them, and which of them are the rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import numpy as np

from dftrace_ai.analysis.steps.blocking import feeders_of, profiled_standstill, standstill
from dftrace_ai.analysis.steps.calls import CallSpans
from dftrace_ai.analysis.steps.detection import find_steps
from dftrace_ai.analysis.steps.marks import marks_of
from dftrace_ai.analysis.steps.processes import step_thread
from dftrace_ai.analysis.steps.spans import (
    ROWS_AT_ONCE,
    brief,
    common,
    places,
    rows_of,
    union,
    without,
)
from dftrace_ai.analysis.steps.timeline import (
    PART_CODE,
    PARTS,
    Layer,
    PartTimes,
    ThreadLine,
    Timeline,
    covered_within,
    joined,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.blocking import Feeders, Standstill
    from dftrace_ai.analysis.steps.detection import FoundBy, FoundSteps
    from dftrace_ai.analysis.steps.marks import StepMarks
    from dftrace_ai.analysis.steps.processes import Process
    from dftrace_ai.analysis.steps.roles import Role
    from dftrace_ai.analysis.steps.spans import Spans
    from dftrace_ai.analysis.steps.timeline import Part

    _Stretches = tuple[Integers, Integers]  # starts and ends

# Beyond this part of the steps nothing is warm-up.
WARM_UP_SHARE: Final = 0.3
# From so many on noise may hide where calm begins.
ENOUGH_FOR_LEVELS: Final = 20
# So many of the later steps may be as slow as those of the warm-up.
MOST_COME_BACK: Final = 0.2


@dataclass(frozen=True, repr=False)
class Steady:
    """The steps that are judged."""

    warm_up: int  # steps at the beginning that are not
    mask: Integers  # which steps are
    median_ns: float  # of the steady steps; where there are none, of all that may be
    scale_ns: float  # how much these usually differ from it

    def __len__(self) -> int:
        return int(self.mask.sum())


def scale_of(values: Integers) -> float:
    """Return how much values usually differ from their median; never below 2 % of it.

    A perfect rhythm must not make all else an outlier.
    """
    median = float(np.median(values))
    return max(1.4826 * usual_distance(values, median), 0.02 * abs(median), 1.0)


def usual_distance(values: Integers, median: float) -> float:
    """Return the median of how far values are from a number."""
    away = values - median
    return float(np.median(np.abs(away, out=away), overwrite_input=True))


def steady_of(steps: Steps) -> Steady:
    """Tell the steady steps from the others."""
    return steady_times(steps.time_ns, steps.first)


def steady_times(time: Integers, first: Integers) -> Steady:
    """Tell the steady steps by what each took, and whether it was the first of its loop."""
    count = len(time)
    # Where every pass is of one step, there are no others than the first.
    body = np.ones(count, bool) if first.all() else ~first
    body[0] = False
    late = body.copy()
    late[: int(WARM_UP_SHARE * count)] = False
    # What calm is, is taken from steps that are no warm-up whatever it turns out to be.
    calm = next((time[some] for some in (late, body) if some.sum() >= 5), time[body])
    calm = calm if len(calm) else time
    median, scale = float(np.median(calm)), scale_of(calm)
    del late
    warm_up = _warm_up(time, body, max(median + 6 * scale, 2 * median)) if count > 1 else 0
    if _comes_back(time, body, warm_up):
        warm_up = 1
    steady = body.copy()
    steady[:warm_up] = False
    if steady.any():
        del calm
        calm = time[steady]
    return Steady(warm_up, steady, float(np.median(calm)), scale_of(calm))


def _warm_up(time: Integers, body: Integers, calm_ns: float) -> int:
    judged = rows_of(body)
    calm = (time <= calm_ns)[judged]
    most = WARM_UP_SHARE * len(time)
    warm_up = 1
    for at in range(len(judged)):
        if judged[at] > most:
            break
        if calm[at] and calm[at : at + 5].sum() >= 4:
            warm_up = int(judged[at]) if at else 1
            break
    if warm_up == 1 and len(judged) >= ENOUGH_FOR_LEVELS and not calm[:3].any():
        return _level_ends(time)
    return warm_up


def _comes_back(time: Integers, body: Integers, warm_up: int) -> bool:
    """Tell whether later steps are as slow as the first: two kinds of steps, and no warm-up."""
    if warm_up < 2:
        return False
    first, later = time[:warm_up][body[:warm_up]], time[warm_up:][body[warm_up:]]
    if not len(first) or not len(later):
        return False
    between = np.sqrt(np.median(first) * max(float(np.median(later)), 1.0))
    return bool((later >= between).mean() > MOST_COME_BACK)


def _level_ends(time: Integers) -> int:
    """Return where two levels fit the logarithms best, if the first is thrice the second."""
    log = np.log(np.maximum(time, 1))
    best, at = np.inf, 1
    for cut in range(2, int(WARM_UP_SHARE * len(time))):
        before, after = log[:cut], log[cut:]
        misfit = np.abs(before - np.median(before)).sum() + np.abs(after - np.median(after)).sum()
        if misfit < best:
            best, at = misfit, cut
    return at if np.median(time[:at]) >= 3 * np.median(time[at:]) else 1


STEP_PARTS: Final = tuple(part for part in PARTS if part != "evaluation")
"""The parts whose times add up to that of a step; evaluation inside of it is none of it."""

# The roles of other tracks, by the part that they are hidden time of.
_HIDDEN: Final[dict[Part, tuple[Role, ...]]] = {
    "data": ("item", "collate", "io", "data"),
    "transfer": ("transfer", "gpu_transfer"),
    "comm": ("comm", "gpu_comm"),
    "gpu": ("gpu_compute",),
    "forward": ("forward",),
    "backward": ("backward",),
    "optimizer": ("optimizer",),
    "checkpoint": ("checkpoint",),
    "compute": ("compute",),
}


@dataclass(frozen=True, repr=False)
class BlockedSteps:
    """The steps of a rank in order, and when its thread was blocked by others.

    Attributes:
        found_by: how they were found.
        start_ns: where each begins, nanoseconds since 1970.
        end_ns: where it ends.
        time_ns: what it took, without evaluation inside of it.
        number: what it is called: its place, from 0, or the number that torch.profiler gave it.
        parts: nanoseconds of each part, by step; of communication at least.
        evaluation: starts and ends of what is evaluation.
        gaps: starts and ends of stretches within steps that are no time of theirs, between loops.
        timeline: the time of the thread that trains, as far as it is held; communication always.
        thread: its spans, to which the timeline's indices lead.
        tid: its number.
        standstill: when it stood still for collectives and messages, and for which.
        calls: these and all others, where they are held.
    """

    found_by: FoundBy
    start_ns: Integers
    end_ns: Integers
    time_ns: Integers
    number: Integers
    parts: PartTimes
    evaluation: tuple[Integers, Integers]
    gaps: tuple[Integers, Integers]
    timeline: Timeline
    thread: Spans
    tid: int
    standstill: Standstill
    calls: CallSpans | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.start_ns)

    def within(self, at_ns: Integers) -> Integers:
        """Return in which step each moment lies; -1 for none."""
        step = places(self.start_ns, at_ns, right=True) - 1
        step[(step >= 0) & (self.end_ns[np.maximum(step, 0)] <= at_ns)] = -1
        return step


@dataclass(frozen=True, repr=False)
class Steps(BlockedSteps):
    """The steps of a rank in order, and all of their parts, which add up to `time_ns`.

    Attributes:
        first: it is the first of its loop.
        hidden_ns: nanoseconds that other threads and the GPU spent in spans of each part
            while the thread that trains was in another, in all steps together.
        on_gpu: whether a GPU did anything in each step, as far as it was recorded.
        told_apart: evaluation would be known from training.
        accumulation: micro-batches in a step.
        line: all of the time of the thread that trains, made anew.
        feeders: threads that iterate the loader for it; None where it waits for none.
        marks: memory and tensors beside each step.
    """

    first: Integers
    hidden_ns: dict[Part, int]
    on_gpu: Integers
    told_apart: bool
    accumulation: int
    line: ThreadLine
    feeders: Feeders | None
    marks: StepMarks

    def time_of(self, *parts: Part) -> Integers:
        """Return what some parts took together, by step."""
        total = np.zeros(len(self), np.int64)
        for part in parts:
            total += self.parts[part]
        return total


S = TypeVar("S", bound=BlockedSteps)


def measure(process: Process, *, whole: bool = True) -> Steps | None:
    """Find the steps of a rank and what they are made of; None where nothing says it.

    Args:
        process: the rank's.
        whole: hold all of the timeline; else what of it tells more than the parts of steps do,
            which for a step that hides nothing is nothing.

    Example::

        steps = measure(Job(open_traces(["out/"])).ranks[0].process)
        if steps:
            print(len(steps), steps.parts["wait"].sum() / steps.time_ns.sum())
    """
    begun = _Begun.of(process)
    if begun is None:
        return None
    spans, found, beside = process.spans, begun.found, begun.beside
    feeders = feeders_of(spans, begun.thread, begun.tid, found)
    line = ThreadLine.of(
        begun.thread, process.near_ns, _layers(process, beside, begun.stood, feeders)
    )
    sums = _sums(found, line, _of_others(spans, beside), hold="all" if whole else "more")
    on_gpu = begun.on_gpu
    return begun.steps(
        Steps,
        sums,
        first=found.first,
        hidden_ns=sums.hidden_ns,
        on_gpu=_within(found, *union(spans.start_ns[on_gpu], spans.end_ns[on_gpu])) > 0,
        told_apart=found.told_apart,
        accumulation=found.accumulation,
        line=line,
        feeders=feeders,
        marks=marks_of(process, found.start_ns, found.end_ns),
    )


def measure_blocked(process: Process) -> BlockedSteps | None:
    """Find the steps of a rank and when it was blocked, as `measure` does, but sooner.

    Args:
        process: the rank's.

    Returns:
        Its steps, of which communication is the only part; None where nothing says it.

    Example::

        steps = measure_blocked(Job(open_traces(["out/"])).ranks[0].process)
        if steps:
            print(len(steps), steps.parts["comm"].sum() / steps.time_ns.sum())
    """
    begun = _Begun.of(process)
    if begun is None:
        return None
    if not begun.on_gpu.any() and not begun.thread.has(*_OVER_COMM).any():
        sums = _stood_alone(begun.found, begun.stood)
        return begun.steps(BlockedSteps, sums, calls=begun.calls)
    layers = _layers(process, begun.beside, begun.stood, None)
    line = ThreadLine.of(begun.thread, process.near_ns, layers, absorbing=True)
    sums = _sums(begun.found, line, {}, hold="comm")
    return begun.steps(BlockedSteps, sums, calls=begun.calls)


class _Begun(NamedTuple):
    """What is known of a rank before the time of its thread is."""

    found: FoundSteps
    tid: int
    thread: Spans
    beside: Integers  # which spans are not of the thread, a mask
    on_gpu: Integers  # which are of a GPU, a mask
    stood: Standstill
    calls: CallSpans | None  # None of a profile

    @classmethod
    def of(cls, process: Process) -> _Begun | None:
        """Return it; None where nothing says what a step is."""
        spans = process.spans
        tid = step_thread(spans)
        found = None if tid is None else find_steps(spans, tid, process.pauses[1])
        if tid is None or found is None:
            return None
        on_gpu = spans.has("gpu_compute", "gpu_comm", "gpu_transfer")
        own = (spans.tid == tid) & ~on_gpu
        thread = spans.at(own)
        if process.source == "kineto":
            return cls(
                *(found, tid, thread, ~own, on_gpu),
                *(profiled_standstill(spans, thread, tid), None),
            )
        calls = CallSpans.of(spans)
        stood = standstill(calls, thread, tid, process.pid)
        return cls(found, tid, thread, ~own, on_gpu, stood, calls)

    def steps(self, kind: type[S], sums: _Sums, **others: Any) -> S:
        """Return steps, of which others tell what these do not."""
        found = self.found
        return kind(
            found_by=found.found_by,
            start_ns=found.start_ns,
            end_ns=found.end_ns,
            time_ns=sums.time_ns,
            number=found.numbers,
            parts=sums.parts,
            evaluation=found.evaluation,
            gaps=(found.gap_start_ns, found.gap_end_ns),
            timeline=sums.timeline,
            thread=self.thread,
            tid=self.tid,
            standstill=self.stood.within(*sums.timeline.of("comm")),
            **others,
        )


class _Sums(NamedTuple):
    """What the pieces of a timeline add up to."""

    time_ns: Integers
    parts: PartTimes
    hidden_ns: dict[Part, int]
    timeline: Timeline


# Parts of which not only is told how much of each step they are.
_TOLD: Final[tuple[Part, ...]] = ("comm", "checkpoint", "evaluation", "other")


def _sums(
    found: FoundSteps,
    line: ThreadLine,
    others: dict[Part, _Stretches],
    *,
    hold: Literal["all", "more", "comm"],
) -> _Sums:
    """Add up a timeline by step, a stretch of it at a time.

    Held of it is all, what tells more than the parts of steps, or communication, which is then the
    only part.
    """
    told = np.array([part in (_TOLD if hold == "more" else ("comm",)) for part in PARTS])
    summed = ("comm",) if hold == "comm" else STEP_PARTS
    within: dict[Part, Integers] = {
        part: np.broadcast_to(np.int64(0), len(found.start_ns)) for part in summed
    }
    evaluated = np.broadcast_to(np.int64(0), len(found.start_ns))
    time = _length(found)
    longest = int(time.max(initial=0))
    if len(found.gap_step):
        longest = max(longest, int((found.end_ns - found.start_ns).max()))
    kind = np.int32 if longest < 2**30 else np.int64
    seen: dict[Part, int] = dict.fromkeys(others, 0)

    def pieces() -> Iterator[Timeline]:
        nonlocal evaluated
        for some in line.lines():
            for code in np.flatnonzero(np.bincount(some.part)).tolist():
                part = PARTS[code]
                stretch = some.of(part)
                if part == "evaluation":
                    if not evaluated.flags.writeable:
                        evaluated = np.zeros(len(time), np.int64)
                    _add_within(evaluated, found, *stretch)
                elif part in within:
                    if not within[part].flags.writeable:
                        within[part] = np.zeros(len(time), kind)
                    _add_within(within[part], found, *stretch)
                if part in others:
                    shared = common(*_met_by(others[part], *stretch), *stretch)
                    seen[part] += int(_within(found, *shared).sum())
            tells = told[some.part]
            if hold == "more":
                tells |= ~_lies_in_step(found, some)
            yield some if hold == "all" else some.only(tells)

    timeline = joined(pieces())
    if evaluated.any():
        time -= evaluated
    parts: dict[Part, Integers] = {part: brief(within[part]) for part in summed}
    if hold != "comm":
        rest, taken = np.empty(len(time), kind), [ns for ns in parts.values() if ns.any()]
        for first in range(0, len(time), ROWS_AT_ONCE):
            here = slice(first, first + ROWS_AT_ONCE)
            left = time[here].copy()
            for ns in taken:
                left -= ns[here]
            rest[here] = left
        parts["none"] = rest
    hidden = {
        part: max(0, int(_within(found, *stretch).sum()) - seen[part])
        for part, stretch in others.items()
    }
    return _Sums(time, PartTimes(parts), hidden, timeline)


# Spans of the thread that keep time from what it stood still for, or add to it.
_OVER_COMM: Final[tuple[Role, ...]] = ("evaluation", "checkpoint", "comm", "transfer")


def _stood_alone(found: FoundSteps, stood: Standstill) -> _Sums:
    """Return what `_sums` does with hold="comm", of a thread without `_OVER_COMM`, and no GPU."""
    comm = brief(_within(found, stood.start_ns, stood.end_ns))
    codes = np.full(len(stood.start_ns), PART_CODE["comm"], np.uint8)
    none = np.broadcast_to(np.int32(-1), len(codes))
    timeline = Timeline.between(stood.start_ns, stood.end_ns, codes, none)
    return _Sums(_length(found), PartTimes({"comm": comm}), {}, timeline)


def _lies_in_step(found: FoundSteps, line: Timeline) -> Integers:
    """Return which pieces lie in a step as a whole."""
    step = places(found.start_ns, line.start_ns, right=True) - 1
    inside: Integers = (step >= 0) & (line.end_ns <= found.end_ns[np.maximum(step, 0)])
    return inside


def _within(found: FoundSteps, start_ns: Integers, end_ns: Integers) -> Integers:
    inside = np.zeros(len(found.start_ns), np.int64)
    _add_within(inside, found, start_ns, end_ns)
    return inside


def _add_within(inside: Integers, found: FoundSteps, start_ns: Integers, end_ns: Integers) -> None:
    """Add how much of stretches that are in order lies in each step."""
    if not len(start_ns):
        return
    first = np.searchsorted(found.end_ns, start_ns[0], side="right")
    near = slice(first, np.searchsorted(found.start_ns, end_ns[-1]))
    inside[near] += covered_within(start_ns, end_ns, found.start_ns[near], found.end_ns[near])
    between = covered_within(start_ns, end_ns, found.gap_start_ns, found.gap_end_ns)
    np.subtract.at(inside, found.gap_step, between.astype(inside.dtype))


def _length(found: FoundSteps) -> Integers:
    length = found.end_ns - found.start_ns
    np.subtract.at(length, found.gap_step, found.gap_end_ns - found.gap_start_ns)
    return length


def _met_by(stretches: _Stretches, start_ns: Integers, end_ns: Integers) -> _Stretches:
    """Return those of stretches that reach into the time from the first to the last of others."""
    first = np.searchsorted(stretches[1], start_ns[0], side="right")
    some = slice(first, np.searchsorted(stretches[0], end_ns[-1]))
    return stretches[0][some], stretches[1][some]


def _layers(
    process: Process, beside: Integers, stood: Standstill, feeders: Feeders | None
) -> Iterator[Layer]:
    """Yield what others make of the time of the thread that trains; what comes later wins."""
    spans = process.spans

    def of(role: Role, part: Part, *, fills: bool = False) -> Layer:
        return Layer(*_stretches_of(spans, beside, (role,)), part, fills=fills)

    stretches = union(stood.start_ns, stood.end_ns)
    yield Layer(*stretches, "comm", below=("evaluation", "checkpoint", "transfer"))
    if feeders:
        yield Layer(feeders.start_ns, feeders.end_ns, "wait", fills=True)
    if process.source == "kineto":
        # The thread waits meanwhile: autograd has threads of its own.
        yield of("backward", "backward", fills=True)
    # Kernels hide copies and communication.
    yield of("gpu_transfer", "transfer")
    yield of("gpu_comm", "comm")
    yield of("gpu_compute", "gpu")


def _of_others(spans: Spans, beside: Integers) -> dict[Part, _Stretches]:
    """Return when others than the thread that trains were in spans of each part, if ever."""
    found: dict[Part, _Stretches] = {}
    for part, roles in _HIDDEN.items():
        stretches = _stretches_of(spans, beside, roles)
        if len(stretches[0]):
            found[part] = stretches
    return found


def _stretches_of(spans: Spans, beside: Integers, roles: tuple[Role, ...]) -> _Stretches:
    """Return when others were in spans of some roles; of a GPU, when a stream computed itself."""
    chosen = beside & spans.has(*roles)
    if roles != ("gpu_compute",) or not chosen.any():
        return union(spans.start_ns[chosen], spans.end_ns[chosen])
    # An interval of a stream has the collectives and copies within that the stream came to.
    inner = beside & spans.has("gpu_comm", "gpu_transfer")
    both = np.intersect1d(spans.tid[chosen], spans.tid[inner])
    alone = chosen & ~np.isin(spans.tid, both)
    found = [(spans.start_ns[alone], spans.end_ns[alone])]
    for tid in both:
        here = [mask & (spans.tid == tid) for mask in (chosen, inner)]
        computing, moving = (union(spans.start_ns[one], spans.end_ns[one]) for one in here)
        found.append(without(*computing, *moving))
    return union(*map(np.concatenate, zip(*found, strict=True)))
