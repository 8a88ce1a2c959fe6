"""Where the steps of a rank begin and end, in four ways of which the first that works counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from dftrace_ai.analysis.steps.roles import KINETO_STEP
from dftrace_ai.analysis.steps.spans import NO_INTEGER, ROWS_AT_ONCE, rows_of, union

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.roles import Role
    from dftrace_ai.analysis.steps.spans import Spans

FoundBy = Literal["step spans", "loader blocks", "loader waits", "step numbers", "optimizer ends"]

# Of steps of several micro-batches: at most so many blocks hold an optimizer's span, and so many
# of the distances between those are one and the same.
MOST_WITH_OPTIMIZER: Final = 0.67
LEAST_ALIKE: Final = 0.8

# A loop that begins anew has more steps than one.
MOST_FIRST: Final = 0.5


def _none() -> Integers:
    return np.zeros(0, np.int64)


NEVER_RESUMED: Final = _none()


@dataclass(frozen=True, repr=False)
class FoundSteps:
    """Steps in order."""

    found_by: FoundBy  # in which way
    start_ns: Integers  # where each begins
    end_ns: Integers  # where it ends
    first: Integers  # it is the first of its loop
    evaluation: tuple[Integers, Integers]  # starts and ends of what is evaluation, in order
    told_apart: bool = True  # evaluation would be known from training
    accumulation: int = 1  # micro-batches in a step
    # Stretches between loops within steps, which are no time of theirs.
    gap_start_ns: Integers = field(default_factory=_none)
    gap_end_ns: Integers = field(default_factory=_none)  # where these end
    gap_step: Integers = field(default_factory=_none)  # in which step each lies
    number: Integers | None = None  # what each is called, where its span says it; they rise

    @property
    def numbers(self) -> Integers:
        """What each is called: by who named it, else counted from 0."""
        if self.number is not None:
            return self.number
        return np.arange(len(self.start_ns), dtype=np.int32)


class _Pieces(NamedTuple):
    """Steps of loops: where each begins and ends, whether it is the first, and of which loop."""

    start_ns: Integers
    end_ns: Integers
    first: Integers
    loop: Integers

    def only(self, which: Integers) -> _Pieces:
        return self if which.all() else _Pieces(*(column[which] for column in self))


def is_within(stretches: tuple[Integers, Integers], at_ns: Integers) -> Integers:
    """Return whether each moment lies in one of stretches that are in order."""
    start, end = stretches
    if not len(start):
        return np.zeros(len(at_ns), bool)
    index = np.searchsorted(start, at_ns, side="right") - 1
    return (index >= 0) & (end[np.maximum(index, 0)] > at_ns)


class _Chosen(NamedTuple):
    """Some spans, of which those of few roles at a time are copied."""

    spans: Spans
    mask: Integers

    def of(self, *roles: Role) -> Spans:
        return self.spans.at(self.mask & self.spans.has(*roles))

    def ends_of(self, role: Role) -> Integers:
        """Return when those of a role end, in order."""
        ends = self.spans.end_ns[self.mask & self.spans.has(role)]
        ends.sort()
        return ends

    def but(self, *roles: Role) -> Integers:
        """Return the mask of those without these roles."""
        chosen: Integers = self.mask & ~self.spans.has(*roles)
        return chosen


def _without_evaluated(spans: Spans, evaluation: tuple[Integers, Integers]) -> Integers:
    """Return which spans are part of no evaluation; one around it may begin with it."""
    start, end = evaluation
    if not len(start):
        return np.ones(len(spans), bool)
    first, within, behind = np.searchsorted(spans.start_ns, np.stack([start, start + 1, end]))
    train = ~_between(within, behind, len(spans))
    with_it = np.flatnonzero(_between(first, within, len(spans)))
    around = np.searchsorted(start, spans.start_ns[with_it], side="right") - 1
    train[with_it] &= spans.end_ns[with_it] > end[around]
    return train


def _between(first: Integers, behind: Integers, count: int) -> Integers:
    """Return the mask of the rows of stretches that do not overlap."""
    edges = np.zeros(count + 1, np.int8)
    np.add.at(edges, first, 1)
    np.subtract.at(edges, behind, 1)
    return np.cumsum(edges[:-1], dtype=np.int8).view(bool)


def find_steps(spans: Spans, tid: int, resumed_ns: Integers = NEVER_RESUMED) -> FoundSteps | None:
    """Return the steps of a rank; None where nothing says what a step is."""
    own = spans.tid == tid
    judged = spans.at(own & spans.has("evaluation"))
    evaluation = union(judged.start_ns, judged.end_ns)
    train = _Chosen(spans, own & _without_evaluated(spans, evaluation))
    del own
    learning = rows_of(spans.has("backward", "optimizer"))
    told_apart = bool(len(learning) or len(judged))
    ways: tuple[Callable[[], FoundSteps | None], ...] = (
        lambda: _by_marks(train, evaluation, resumed_ns),
        lambda: _by_loops(train, learning, evaluation),
        lambda: _by_numbers(train, evaluation, told_apart=told_apart),
        lambda: _by_optimizer(train, evaluation, told_apart=bool(len(judged))),
    )
    found: FoundSteps | None = None
    for way in ways:
        steps = way()
        # One alone may be around a whole training.
        if steps is not None and len(steps.start_ns) >= (1 if found is None else 2):
            found = steps
        if found is not None and len(found.start_ns) > 1:
            break
    return None if found is None else _accumulated(found, train)


def _outermost(spans: Spans) -> Spans:
    outer, reach = np.empty(len(spans), bool), -1
    for first in range(0, len(spans), ROWS_AT_ONCE):
        here = slice(first, first + ROWS_AT_ONCE)
        reaches = np.maximum.accumulate(np.append(reach, spans.end_ns[here]))
        outer[here], reach = spans.start_ns[here] >= reaches[:-1], int(reaches[-1])
    return spans.at(outer)


def _by_marks(
    train: _Chosen, evaluation: tuple[Integers, Integers], resumed_ns: Integers
) -> FoundSteps | None:
    marks = train.of("step")
    marks = _outermost(marks.at(marks.end_ns > marks.start_ns))
    if not len(marks):
        return None
    waits = train.of("wait")
    start, first = marks.start_ns.copy(), np.zeros(len(marks), bool)
    ends = marks.end_ns
    if len(resumed_ns):
        behind = np.searchsorted(resumed_ns, marks.start_ns[1:], side="right")
        ends = np.append(np.maximum(ends[:-1], np.append(-1, resumed_ns)[behind]), ends[-1])
    # The wait that leads to each, or is its first part; before the first step only the last of
    # them: others may be an evaluation's.
    before = np.searchsorted(waits.start_ns, marks.start_ns[:1]) - 1
    wait = np.maximum(np.append(before, np.searchsorted(waits.start_ns, ends[:-1])), 0)
    led = np.flatnonzero(wait < np.searchsorted(waits.start_ns, marks.end_ns))
    wait = wait[led]
    start[led] = np.minimum(start[led], waits.start_ns[wait])
    (count,) = waits.integers(wait, "count")
    first[led] = count == 1
    del wait, led, count
    if not first.any():
        first = _first_of_epochs(marks, train)
    size = _batches_of_each(waits, start, marks.end_ns, first)
    return FoundSteps(
        "step spans",
        start,
        marks.end_ns,
        first,
        evaluation,
        accumulation=max(1, size),
        number=_numbers_of(marks),
    )


def _first_of_epochs(marks: Spans, train: _Chosen) -> Integers:
    """Return which steps are the first of an epoch, by their numbers or the spans of epochs."""
    first = np.zeros(len(marks), bool)
    (step,) = marks.integers(np.arange(len(marks)), "step")
    told = (step[1:] != NO_INTEGER) & (step[:-1] != NO_INTEGER)
    first[1:] = told & (step[1:] <= step[:-1])
    spans = train.spans
    epochs = spans.start_ns[train.mask & spans.called("pipeline", "epoch")]
    behind = np.searchsorted(marks.start_ns, epochs)
    first[behind[behind < len(marks)]] = True
    first[:1] |= first.any()
    # Numbers that are the same in each step, or of each its own, tell nothing.
    return first if first.mean() <= MOST_FIRST else np.zeros(len(marks), bool)


def _numbers_of(marks: Spans) -> Integers | None:
    """Return the numbers that torch.profiler has put into the names of steps; None without."""
    numbers = np.full(len(marks), -1, np.int64)
    for place, columns in enumerate(marks.columns):
        here = marks.place == place
        if not here.any():
            continue
        found = [KINETO_STEP.fullmatch(label.name) for label in columns.labels]
        if not any(found):
            return None
        told = np.array([int(one[2]) if one else -1 for one in found], np.int64)
        numbers[here] = told[columns.label[marks.row[here]]]
    rise = bool((numbers >= 0).all() and (np.diff(numbers) > 0).all())
    return numbers if rise else None


def _batches_of_each(waits: Spans, start_ns: Integers, end_ns: Integers, first: Integers) -> int:
    """Return for how many batches steps wait; 0 where it is not as many in nearly all."""
    begins = _outermost(waits).start_ns
    counts = np.searchsorted(begins, end_ns) - np.searchsorted(begins, start_ns)
    loops = np.flatnonzero(np.append(True, first[1:]))
    # A loader that is ahead gives the first step of a loop more, and the last one fewer.
    inner = np.ones(len(counts), bool)
    inner[loops] = inner[np.append(loops[1:], len(counts)) - 1] = False
    if inner.any():
        counts = counts[inner]
    else:
        counts = -(-np.add.reduceat(counts, loops) // np.diff(np.append(loops, len(counts))))
    size = int(np.median(counts))
    return size if np.mean(counts == size) >= LEAST_ALIKE else 0


def _by_loops(
    train: _Chosen, learning: Integers, evaluation: tuple[Integers, Integers]
) -> FoundSteps | None:
    blocks, waits = _outermost(train.of("block")), _outermost(train.of("wait"))
    if len(blocks) > 1:
        pieces = _loops_of_blocks(blocks, waits)
    elif len(waits) > 1:
        pieces = _loops_of_waits(waits, train)
    elif len(blocks):
        pieces = _loops_of_blocks(blocks, waits)
    else:
        return None
    of_waits = len(blocks) < 2 <= len(waits)
    del blocks, waits
    told_apart = bool(len(evaluation[0]) or len(learning))
    if len(learning) and len(pieces.loop):
        # Where something learns, a loop in which nothing does is an evaluation.
        begins = np.append(0, np.flatnonzero(pieces.loop[1:] != pieces.loop[:-1]) + 1)
        low = pieces.start_ns[begins]
        high = pieces.end_ns[np.append(begins[1:], len(pieces.loop)) - 1]
        starts = train.spans.start_ns
        until, since = (
            np.searchsorted(learning, np.searchsorted(starts, at_ns)) for at_ns in (high, low)
        )
        idle = until <= since
        evaluation = union(
            np.concatenate([evaluation[0], low[idle]]), np.concatenate([evaluation[1], high[idle]])
        )
        sizes = np.diff(np.append(begins, len(pieces.loop)))
        pieces = pieces.only(~np.repeat(idle, sizes))
    pieces = pieces.only(pieces.end_ns > pieces.start_ns)
    if not len(pieces.loop):
        return None
    found_by: FoundBy = "loader waits" if of_waits else "loader blocks"
    return FoundSteps(found_by, *pieces[:3], evaluation, told_apart)


def _items(spans: Spans) -> tuple[Integers, Integers]:
    """Return which items begin a loop, and which are told to be its first, as arguments say it."""
    first, is_first = np.empty(len(spans), bool), np.empty(len(spans), bool)
    before = np.full((2, 1), NO_INTEGER)
    for begin in range(0, len(spans), ROWS_AT_ONCE):
        here = slice(begin, begin + ROWS_AT_ONCE)
        rows = np.arange(begin, min(here.stop, len(spans)))
        parent, count, block = spans.integers(rows, "p_idx", "count", "block")
        item = np.where(count == NO_INTEGER, block, count)
        is_first[here] = item == 1
        told = np.append(before, [item, parent], axis=1)
        item, parent = told
        again = (item[1:] != NO_INTEGER) & (item[:-1] != NO_INTEGER) & (item[1:] <= item[:-1])
        first[here] = again | (parent[1:] != parent[:-1])
        before = told[:, -1:]
    first[:1] = True
    return first, is_first


def _loops_of_blocks(blocks: Spans, waits: Spans) -> _Pieces:
    first, _ = _items(blocks)
    start, before_ns = np.empty(len(blocks), np.int64), 0
    for begin in range(0, len(blocks), ROWS_AT_ONCE):
        here = slice(begin, begin + ROWS_AT_ONCE)
        begins, ends = blocks.start_ns[here], blocks.end_ns[here]
        wait = np.searchsorted(waits.start_ns, begins) - 1
        if len(waits):
            before = waits.start_ns[np.maximum(wait, 0)]
            waited = (wait >= 0) & (before >= np.append(before_ns, ends[:-1]))
            begins, before_ns = np.where(waited, before, begins), int(ends[-1])
        start[here] = begins
    return _Pieces(start, np.asarray(blocks.end_ns), first, np.cumsum(first, dtype=np.int32))


def _loops_of_waits(waits: Spans, train: _Chosen) -> _Pieces:
    ends = np.sort(train.spans.end_ns[train.but("transparent", "garbage", "evaluation")])
    first, is_first = _items(waits)
    first |= is_first
    start = np.asarray(waits.start_ns)
    # What follows the last item of a loop is no step: it ends with its last span.
    stop = ends[np.maximum(np.searchsorted(ends, start[1:], side="right") - 1, 0)]
    end = np.where(first[1:], np.minimum(stop, start[1:]), start[1:])
    # The last request may only have learnt that there is nothing more.
    last = ends[-1:] if ends[-1] > waits.end_ns[-1] else start[-1:]
    pieces = _Pieces(start, np.append(end, last), first, np.cumsum(first))
    return pieces.only(pieces.end_ns > pieces.start_ns)


def _by_numbers(
    train: _Chosen, evaluation: tuple[Integers, Integers], *, told_apart: bool
) -> FoundSteps | None:
    busy = train.spans.at(train.but("transparent", "garbage", "block", "step"))
    step, epoch = busy.integers(np.arange(len(busy)), "step", "epoch")
    told = np.flatnonzero(step != NO_INTEGER)
    step, epoch = step[told], epoch[told]
    first = np.append(True, epoch[1:] != epoch[:-1])[: len(told)]
    cuts = np.flatnonzero(first | np.append(True, step[1:] != step[:-1])[: len(told)])
    if not len(cuts):
        return None
    start, first = busy.start_ns[told[cuts]], first[cuts]
    end = np.append(start[1:], max(int(busy.end_ns.max()), int(start[-1])))
    some = end > start
    return FoundSteps("step numbers", start[some], end[some], first[some], evaluation, told_apart)


def _by_optimizer(
    train: _Chosen, evaluation: tuple[Integers, Integers], *, told_apart: bool
) -> FoundSteps | None:
    updates = _outermost(train.of("optimizer"))
    if len(updates) < 2:
        return None
    ends = np.unique(updates.end_ns)
    start, end = ends[:-1], ends[1:]
    none = np.zeros(len(start), bool)
    return FoundSteps("optimizer ends", start, end, none, evaluation, told_apart)


def _accumulated(found: FoundSteps, train: _Chosen) -> FoundSteps:
    """Return the steps, of which each may be several micro-batches for one update."""
    if found.found_by == "optimizer ends":
        return found
    ends, updates = train.ends_of("optimizer"), np.empty(len(found.start_ns), bool)
    for first in range(0, len(updates), ROWS_AT_ONCE):
        here = slice(first, first + ROWS_AT_ONCE)
        low, high = (
            np.searchsorted(ends, at_ns[here], side="right")
            for at_ns in (found.start_ns, found.end_ns)
        )
        updates[here] = high > low
    at = np.flatnonzero(updates)
    if len(at) < 3 or updates.mean() > MOST_WITH_OPTIMIZER:
        return found
    distances = np.diff(at)
    size = int(np.median(distances))
    if size < 2 or np.mean(distances == size) < LEAST_ALIKE:
        return found
    begins = np.concatenate([[0], at[:-1] + 1])
    owner = np.repeat(np.arange(len(at)), at - begins + 1)
    # Time between the micro-batches of a step is the step's, that between loops is not.
    inner = np.flatnonzero((owner[1:] == owner[:-1]) & found.first[1 : len(owner)])
    return replace(
        found,
        start_ns=found.start_ns[begins],
        end_ns=found.end_ns[at],
        first=np.logical_or.reduceat(found.first[: at[-1] + 1], begins),
        number=None if found.number is None else found.number[begins],
        accumulation=size,
        gap_start_ns=found.end_ns[inner],
        gap_end_ns=found.start_ns[inner + 1],
        gap_step=owner[inner],
    )
