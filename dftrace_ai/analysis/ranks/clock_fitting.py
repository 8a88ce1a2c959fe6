"""How one clock runs beside another: a line, or several, where it was set in between."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.analysis.reading.event_columns import Integers

FEWEST_IN_COMMON: Final = 8
MOST_DRIFT: Final = 1000e-6
"""Clocks do not differ by more: what looks like it is something else."""

_CELLS: Final = 60
_FEWEST_CELLS: Final = 6
_A_CELL: Final = 8

# Of a clock that is set: where what it shows is further from a line than so many times what it is
# from one collective to the next, two levels are tried.
_OFF_A_LINE: Final = 8
_LEAST_JUMP_NS: Final = 20_000
_A_CELL_OF_JUMP: Final = 24
_CELLS_OF_JUMP: Final = 8

# Of so many bounds one may be wrong.
_SPARED: Final = 100

ClockState = Literal["reference", "calibrated", "bounded", "not calibrated"]
Reason = Literal["", "none in common", "few in common", "enqueued", "contradiction"]
"""Why a clock is not calibrated: no collective in common with another host, too few, only such as
were seen to be enqueued, or bounds that contradict each other, as after a jump."""


class Line(NamedTuple):
    """Time of the reference: t - offset - rate * (t - at)."""

    offset: int = 0
    rate: float = 0.0
    at: int = 0
    later: tuple[tuple[int, Line], ...] = ()  # from a time of its own on it is another
    unsure: int = 0  # of another one: within how long it is not known when it began

    def after(self, first: Line) -> Line:
        """Return what does the same as another, and then this."""
        moved = self.rate * (first.at - first.offset - self.at)
        rate = first.rate + self.rate - first.rate * self.rate
        unsure = max(first.unsure, self.unsure)
        one = Line(first.offset + self.offset + round(moved), rate, first.at, unsure=unsure)
        if not first.later and not self.later:
            return one
        begins = {begin for begin, _ in first.later}
        begins |= {first.shown(begin) for begin, _ in self.later}
        return one._replace(
            later=tuple(
                (begin, self.part(int(first.of(np.array(begin)))).after(first.part(begin)))
                for begin in sorted(begins)
            )
        )

    def part(self, time: int) -> Line:
        """Return the line at a time, alone."""
        lines = [self, *(line for begin, line in self.later if begin <= time)]
        return lines[-1]._replace(later=())

    def shown(self, time: int) -> int:
        """Return what the clock shows at a time of the reference, before it is another line."""
        return time + self.offset + round(self.rate * (time + self.offset - self.at))

    def of(self, times: Integers) -> Integers:
        """Return times of the reference."""
        moved: Integers = times - self.offset
        if self.rate:
            moved -= np.rint(self.rate * (times - self.at)).astype(np.int64)
        for begin, line in self.later:
            moved = np.where(times >= begin, line.of(times), moved)
        return moved


class PairOfClocks(NamedTuple):
    """How one clock differs from another."""

    line: Line  # from the second to the first
    state: ClockState
    reason: Reason
    shared: int
    offset: int = 0
    drift: float | None = None
    typical: int | None = None
    certain: int | None = None
    contradiction: int = 0
    jumps: tuple[int, ...] = ()


def least(apart: Callable[[float], float]) -> float:
    """Return the drift of clocks at which a convex function is least."""
    low, high = -MOST_DRIFT, MOST_DRIFT
    for _ in range(60):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        if apart(one) < apart(other):
            high = other
        else:
            low = one
    return (low + high) / 2


def fitted(time: Integers, shown: Integers, low: Integers, high: Integers) -> PairOfClocks:
    """Fit a line to what a clock shows more along its time, or one to each part between jumps."""
    order = np.argsort(time, kind="stable")
    time, shown, low, high = (column[order] for column in (time, shown, low, high))
    whole = _on_a_line(time, shown, low, high)
    off = np.abs(whole.line.of(shown) - time)
    # A few at either end, as those before a clock is set, are none of the usual ones.
    at_ends = (off[:FEWEST_IN_COMMON], off[-FEWEST_IN_COMMON:])
    far = max(whole.typical or 0, *map(np.median, at_ends))
    if whole.state == "calibrated" and far <= _OFF_A_LINE * _noise(shown - time):
        return whole
    at = _jump(time, shown - time)
    if at is None:
        return whole
    one, other = (
        fitted(*(column[some] for column in (time, shown, low, high)))
        for some in (slice(at), slice(at, None))
    )
    if "not calibrated" in {one.state, other.state}:
        return whole
    begin = int(shown[at - 1] + shown[at]) // 2
    near = time[max(at - 2, 0) : at + 2]
    behind = other.line._replace(later=(), unsure=int(near[-1] - near[0]))
    later = (*one.line.later, (begin, behind), *other.line.later)
    longer = max(one, other, key=lambda pair: pair.shared)
    ends = [int(pair.line.part(begin).of(np.array(begin))) for pair in (one, other)]
    return longer._replace(
        line=one.line._replace(later=later),
        shared=len(time),
        typical=max(one.typical or 0, other.typical or 0),
        certain=max(one.certain or 0, other.certain or 0),
        jumps=(*one.jumps, ends[0] - ends[1], *other.jumps),
    )


def _noise(more: Integers) -> float:
    """Return how far what a clock shows more usually is from one time to the next."""
    return float(np.median(np.abs(np.diff(more)))) if len(more) > 1 else 0.0


def _jump(time: Integers, more: Integers) -> int | None:
    """Return from where on a clock shows another time as if it had been set; None for nowhere."""
    cell = max(min(len(time) // _CELLS_OF_JUMP, _A_CELL_OF_JUMP), 1)
    cells = len(time) // cell
    at, level = (
        np.median((column[: cells * cell] - column[0]).reshape(cells, cell), axis=1)
        for column in (time, more)
    )
    if cells < 4:
        return None
    slope = float(np.median(np.diff(level) / np.maximum(np.diff(at), 1)))
    slope = slope if abs(slope) <= MOST_DRIFT else 0.0
    straight = (more - more[0]) - slope * (time - time[0])
    # Squares of what is left by two means, by the first of the second.
    level = level - slope * at
    level -= level.mean()
    first = np.arange(1, cells)
    total = np.cumsum(level)[:-1]
    gained = total**2 * cells / (first * (cells - first))
    near = (int(gained.argmax()) + 1) * cell
    # What is set within the first cell or the last shows in no mean.
    found = (_jump_near(straight, at, cell) for at in (near, cell, len(time) - cell))
    return next((at for at in found if at is not None), None)


def _jump_near(straight: Integers, near: int, cell: int) -> int | None:
    """Return from where on what a clock shows has another level, about some place."""
    low, high = max(near - 2 * cell, 0), min(near + 2 * cell, len(straight))
    at_end = min(cell, FEWEST_IN_COMMON)
    before = np.median(straight[low : low + (cell if low else at_end)])
    behind = np.median(straight[high - (cell if high < len(straight) else at_end) : high])
    left = np.abs(straight[low:high] - before) - np.abs(straight[low:high] - behind)
    split = low + int(np.append(0.0, np.cumsum(left)).argmin())
    if min(split, len(straight) - split) < FEWEST_IN_COMMON:
        return None
    jump = abs(float(behind - before))
    # A few at either end have to be of one level.
    few = straight[:split] - before if split < cell else straight[split:] - behind
    if len(few) < cell and np.abs(few).max() > jump / 2:
        return None
    return split if jump > max(_OFF_A_LINE * _noise(straight), _LEAST_JUMP_NS) else None


def _on_a_line(time: Integers, shown: Integers, low: Integers, high: Integers) -> PairOfClocks:
    """Fit a line to what a clock shows more, within bounds; all by its time."""
    start, base = int(time[0]), int(shown[0] - time[0])
    at, more = (time - start).astype(float), (shown - time - base).astype(float)
    middle = round(float(at.mean()))
    drift = _drift(at, more)
    straight = more - (drift or 0.0) * (at - middle)
    offset = round(float(np.median(straight)))
    typical = round(float(np.quantile(np.abs(straight - offset), 0.95)))
    turn = (drift or 0.0) * (at - middle)
    below, above = np.sort((low - base) - turn), np.sort((high - base) - turn)
    # Of very many a few may be wrong, as one that was not matched rightly. Rounded outwards.
    few = len(at) // _SPARED if below[-1] > above[0] else 0
    lowest, highest = int(np.floor(below[-1 - few])), int(np.ceil(above[few]))
    if lowest > highest:
        apart = lowest - highest
        return PairOfClocks(Line(), "not calibrated", "contradiction", len(at), contradiction=apart)
    offset = min(max(offset, lowest), highest)
    slope = drift or 0.0
    line = Line(base + offset, slope / (1 + slope), start + middle + base + offset)
    certain = max(highest - offset, offset - lowest)
    return PairOfClocks(line, "calibrated", "", len(at), base + offset, drift, typical, certain)


def _drift(at: Integers, more: Integers) -> float | None:
    """Return the median slope of medians; None for too few of them, or more than clocks have."""
    cells = min(_CELLS, len(at) // _A_CELL)
    if cells < _FEWEST_CELLS:
        return None
    long = len(at) // cells
    times, shown = (column[: cells * long].reshape(cells, long) for column in (at, more))
    time, level = times.mean(1), np.median(shown, axis=1)
    one, other = _pairs_of(cells)
    apart = time[other] - time[one]
    slopes = (level[other] - level[one])[apart > 0] / apart[apart > 0]
    drift = float(np.median(slopes)) if len(slopes) else 0.0
    return drift if abs(drift) <= MOST_DRIFT else None


@lru_cache
def _pairs_of(count: int) -> tuple[Integers, Integers]:
    return np.triu_indices(count, 1)
