"""Where the steps of a rank begin and end, in four ways of which the first that works counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from dftrace_ai.analysis.steps.roles import KINETO_STEP
from dftrace_ai.analysis.steps.spans import integer, union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps.spans import Spans

__all__ = ["FoundBy", "FoundSteps", "find_steps", "is_within"]

FoundBy = Literal["step spans", "loader blocks", "loader waits", "step numbers", "optimizer ends"]

# Of steps of several micro-batches: at most so many blocks hold an optimizer's span, and so many
# of the distances between those are one and the same.
MOST_WITH_OPTIMIZER: Final = 0.67
LEAST_ALIKE: Final = 0.8


def _none() -> Integers:
    return np.zeros(0, np.int64)


NEVER_RESUMED: Final = _none()


@dataclass(frozen=True, repr=False)
class FoundSteps:
    """Steps in order.

    Attributes:
        found_by: in which way.
        start_ns: where each begins.
        end_ns: where it ends.
        first: it is the first of its loop.
        evaluation: starts and ends of what is evaluation, in order.
        told_apart: evaluation would be known from training.
        accumulation: micro-batches in a step.
        gap_start_ns: stretches between loops within steps, which are no time of theirs.
        gap_end_ns: where these end.
        gap_step: in which step each lies.
        number: what each is called, where its span says it; they rise.
    """

    found_by: FoundBy
    start_ns: Integers
    end_ns: Integers
    first: Integers
    evaluation: tuple[Integers, Integers]
    told_apart: bool = True
    accumulation: int = 1
    gap_start_ns: Integers = field(default_factory=_none)
    gap_end_ns: Integers = field(default_factory=_none)
    gap_step: Integers = field(default_factory=_none)
    number: Integers | None = None

    @property
    def numbers(self) -> Integers:
        """What each is called: by who named it, else counted from 0."""
        return np.arange(len(self.start_ns)) if self.number is None else self.number


class _Piece(NamedTuple):
    """A step of a loop."""

    start: int
    end: int
    first: bool


def is_within(stretches: tuple[Integers, Integers], at_ns: Integers) -> Integers:
    """Return whether each moment lies in one of stretches that are in order."""
    start, end = stretches
    if not len(start):
        return np.zeros(len(at_ns), bool)
    index = np.searchsorted(start, at_ns, side="right") - 1
    return (index >= 0) & (end[np.maximum(index, 0)] > at_ns)


def _is_evaluated(evaluation: tuple[Integers, Integers], spans: Spans) -> Integers:
    """Return which spans are part of an evaluation; one around it may begin with it."""
    inside = is_within(evaluation, spans.start_ns)
    start, end = evaluation
    if inside.any():
        index = np.maximum(np.searchsorted(start, spans.start_ns, side="right") - 1, 0)
        inside &= (start[index] < spans.start_ns) | (spans.end_ns <= end[index])
    return inside


def find_steps(spans: Spans, tid: int, resumed_ns: Integers = NEVER_RESUMED) -> FoundSteps | None:
    """Return the steps of a rank; None where nothing says what a step is.

    Args:
        spans: of its process.
        tid: the thread that trains.
        resumed_ns: when recording went on behind a pause, in order.
    """
    own = spans.at(spans.tid == tid)
    judged = own.of("evaluation")
    evaluation = union(judged.start_ns, judged.end_ns)
    train = own.at(~_is_evaluated(evaluation, own))
    learning = spans.start_ns[spans.has("backward", "optimizer")]
    found = _by_marks(train, evaluation, resumed_ns)
    # One mark alone may be around a whole training.
    if found is None or len(found.start_ns) < 2:
        others = (
            _by_loops(train, np.sort(learning), evaluation)
            or _by_numbers(train, evaluation, told_apart=bool(len(learning) or len(judged)))
            or _by_optimizer(train, evaluation, told_apart=bool(len(judged)))
        )
        if found is None or (others is not None and len(others.start_ns) > 1):
            found = others
    return _accumulated(found, train) if found is not None and len(found.start_ns) else None


def _outermost(spans: Spans) -> Spans:
    reach = np.maximum.accumulate(np.concatenate([[-1], spans.end_ns]))[:-1]
    return spans.at(spans.start_ns >= reach) if len(spans) else spans


def _by_marks(
    train: Spans, evaluation: tuple[Integers, Integers], resumed_ns: Integers
) -> FoundSteps | None:
    marks, waits = train.of("step"), train.of("wait")
    marks = _outermost(marks.at(marks.end_ns > marks.start_ns))
    if not len(marks):
        return None
    start, first = marks.start_ns.copy(), np.zeros(len(marks), bool)
    ends = marks.end_ns
    if len(resumed_ns):
        behind = np.searchsorted(resumed_ns, marks.start_ns[1:], side="right")
        ends = np.append(np.maximum(ends[:-1], np.append(-1, resumed_ns)[behind]), ends[-1])
    for at in range(len(marks)):
        # The wait that leads to it, or is its first part; before the first step only the last of
        # them: others may be an evaluation's.
        before = int(np.searchsorted(waits.start_ns, marks.start_ns[at]))
        after = int(np.searchsorted(waits.start_ns, ends[at - 1])) if at else before - 1
        wait = max(after, 0)
        if wait < np.searchsorted(waits.start_ns, marks.end_ns[at]):
            start[at] = min(start[at], waits.start_ns[wait])
            first[at] = integer(waits.args(wait).get("count")) == 1
    size = _batches_of_each(waits, start, marks.end_ns)
    return FoundSteps(
        "step spans",
        start,
        marks.end_ns,
        first,
        evaluation,
        accumulation=max(1, size),
        number=_numbers_of(marks),
    )


def _numbers_of(marks: Spans) -> Integers | None:
    """Return the numbers that torch.profiler has put into the names of steps; None without."""
    numbers = np.full(len(marks), -1, np.int64)
    for place, columns in enumerate(marks.columns):
        here = marks.place == place
        codes, which = np.unique(columns.label[marks.row[here]], return_inverse=True)
        found = [KINETO_STEP.fullmatch(columns.labels[code].name) for code in codes.tolist()]
        numbers[here] = np.array([int(one[2]) if one else -1 for one in found], np.int64)[which]
    rise = bool((numbers >= 0).all() and (np.diff(numbers) > 0).all())
    return numbers if rise else None


def _batches_of_each(waits: Spans, start_ns: Integers, end_ns: Integers) -> int:
    """Return for how many batches steps wait; 0 where it is not as many in nearly all."""
    begins = _outermost(waits).start_ns
    counts = np.searchsorted(begins, end_ns) - np.searchsorted(begins, start_ns)
    size = int(np.median(counts))
    return size if np.mean(counts == size) >= LEAST_ALIKE else 0


def _by_loops(
    train: Spans, learning: Integers, evaluation: tuple[Integers, Integers]
) -> FoundSteps | None:
    blocks, waits = _outermost(train.of("block")), _outermost(train.of("wait"))
    if len(blocks) > 1:
        loops = _loops_of_blocks(blocks, waits)
    elif len(waits) > 1:
        loops = _loops_of_waits(waits, train, evaluation)
    else:
        return None
    told_apart = bool(len(evaluation[0]) or len(learning))
    if len(learning):
        # Where something learns, a loop in which nothing does is an evaluation.
        learns = [_any_within(learning, loop[0].start, loop[-1].end) for loop in loops]
        idle = [loop for loop, does in zip(loops, learns, strict=True) if not does]
        loops = [loop for loop, does in zip(loops, learns, strict=True) if does]
        starts = np.array([loop[0].start for loop in idle], np.int64)
        ends = np.array([loop[-1].end for loop in idle], np.int64)
        evaluation = union(
            np.concatenate([evaluation[0], starts]), np.concatenate([evaluation[1], ends])
        )
    pieces = [piece for loop in loops for piece in loop if piece.end > piece.start]
    if not pieces:
        return None
    return _found(
        "loader blocks" if len(blocks) > 1 else "loader waits", pieces, evaluation, told_apart
    )


def _found(
    found_by: FoundBy,
    pieces: Sequence[_Piece],
    evaluation: tuple[Integers, Integers],
    told_apart: bool,
) -> FoundSteps:
    start = np.array([piece.start for piece in pieces], np.int64)
    end = np.array([piece.end for piece in pieces], np.int64)
    first = np.array([piece.first for piece in pieces], bool)
    return FoundSteps(found_by, start, end, first, evaluation, told_apart)


def _any_within(moments: Integers, low: int, high: int) -> bool:
    return bool(np.searchsorted(moments, high) > np.searchsorted(moments, low))


class _Turn(NamedTuple):
    """Which item of which loop a span is of, as far as its arguments say."""

    parent: int | None
    item: int | None


def _turn(spans: Spans, index: int) -> _Turn:
    args = spans.args(index)
    count = args.get("count", args.get("block"))
    return _Turn(integer(args.get("p_idx")), integer(count))


def _begins_loop(turn: _Turn, before: _Turn | None) -> bool:
    if before is None or turn.parent != before.parent:
        return True
    return turn.item is not None and before.item is not None and turn.item <= before.item


def _loops_of_blocks(blocks: Spans, waits: Spans) -> list[list[_Piece]]:
    loops: list[list[_Piece]] = []
    before: _Turn | None = None
    last_end = 0
    wait_before = np.searchsorted(waits.start_ns, blocks.start_ns) - 1
    for at, (start, end) in enumerate(
        zip(blocks.start_ns.tolist(), blocks.end_ns.tolist(), strict=True)
    ):
        turn = _turn(blocks, at)
        first = _begins_loop(turn, before)
        wait = int(wait_before[at])
        waited = wait >= 0 and int(waits.start_ns[wait]) >= last_end
        if first:
            loops.append([])
        loops[-1].append(_Piece(int(waits.start_ns[wait]) if waited else start, end, first))
        before, last_end = turn, end
    return loops


def _loops_of_waits(
    waits: Spans, train: Spans, evaluation: tuple[Integers, Integers]
) -> list[list[_Piece]]:
    ends = np.sort(train.end_ns[~train.has("transparent", "evaluation")])
    loops: list[list[_Piece]] = []
    last: tuple[int, int, bool] | None = None
    before: _Turn | None = None
    for at, (start, end) in enumerate(
        zip(waits.start_ns.tolist(), waits.end_ns.tolist(), strict=True)
    ):
        turn = _turn(waits, at)
        first = before is None or turn.item == 1 or _begins_loop(turn, before)
        if last is not None:
            # What follows the last item of a loop is no step: it ends with its last span.
            stop = int(ends[max(0, int(np.searchsorted(ends, start, side="right")) - 1)])
            loops[-1].append(_Piece(last[0], min(stop, start) if first else start, last[2]))
        if first:
            loops.append([])
        last, before = (start, end, first), turn
    # The last request may only have learnt that there is nothing more.
    if last is not None and len(ends) and int(ends[-1]) > last[1]:
        loops[-1].append(_Piece(last[0], int(ends[-1]), last[2]))
    kept = ([piece for piece in loop if piece.end > piece.start] for loop in loops)
    return [loop for loop in kept if loop]


def _by_numbers(
    train: Spans, evaluation: tuple[Integers, Integers], *, told_apart: bool
) -> FoundSteps | None:
    busy = train.at(~train.has("transparent", "block", "step"))
    cuts: list[tuple[int, bool]] = []
    last: tuple[int | None, int] | None = None
    for at, start in enumerate(busy.start_ns.tolist()):
        args = busy.args(at)
        step = integer(args.get("step"))
        if step is None:
            continue
        key = (integer(args.get("epoch")), step)
        if key != last:
            cuts.append((start, last is None or key[0] != last[0]))
            last = key
    if len(cuts) < 2:
        return None
    start = np.array([at for at, _ in cuts], np.int64)
    end = np.append(start[1:], max(int(busy.end_ns.max()), int(start[-1])))
    first = np.array([first for _, first in cuts], bool)
    some = end > start
    return FoundSteps("step numbers", start[some], end[some], first[some], evaluation, told_apart)


def _by_optimizer(
    train: Spans, evaluation: tuple[Integers, Integers], *, told_apart: bool
) -> FoundSteps | None:
    updates = _outermost(train.of("optimizer"))
    if len(updates) < 2:
        return None
    ends = np.unique(updates.end_ns)
    start, end = ends[:-1], ends[1:]
    none = np.zeros(len(start), bool)
    return FoundSteps("optimizer ends", start, end, none, evaluation, told_apart)


def _accumulated(found: FoundSteps, train: Spans) -> FoundSteps:
    """Return the steps, of which each may be several micro-batches for one update."""
    if found.found_by == "optimizer ends":
        return found
    ends = np.sort(train.end_ns[train.has("optimizer")])
    low = np.searchsorted(ends, found.start_ns, side="right")
    updates = np.searchsorted(ends, found.end_ns, side="right") > low
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
