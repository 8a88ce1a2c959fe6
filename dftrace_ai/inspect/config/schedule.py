"""When a feature is due: every freq-th iteration, inside a window or a list of windows."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dftrace_ai.inspect.config.problems import all_checked, as_written

if TYPE_CHECKING:
    from collections.abc import Sequence


OPEN = -1


def whole(value: Any) -> int | None:
    """Return a whole number as int, or None for anything else; a truth value is none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)  # JSON and its schemas know one kind of number
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    return int(value.__index__())


def frequency(value: Any) -> int:
    """Check a `freq`; null is 1."""
    if value is None:
        return 1
    number = whole(value)
    if number is None or number < 1:
        raise ValueError(
            f"{as_written(value)} is not accepted; accepted: a whole number, 1 or more"
        )
    return number


def iteration(value: Any) -> int | None:
    """Check a `start_step` or `end_step`; null and -1 mean that this side is open."""
    if value is None:
        return None
    number = whole(value)
    if number is None or number < OPEN:
        raise ValueError(
            f"{as_written(value)} is not accepted; accepted: an iteration (0 or more), or null or "
            "-1 for an open end"
        )
    return None if number == OPEN else number


def pairs(value: Any) -> tuple[tuple[int, int], ...]:
    """Check a `start_end_list`; null means that there is none, an end of null means -1, open."""
    if value is None:
        return ()
    if isinstance(value, (list, tuple)):
        return all_checked(_pair, value)
    raise ValueError(f"{as_written(value)} is not accepted; accepted: a list of pairs [start, end]")


def _pair(value: Any) -> tuple[int, int]:
    accepted = "accepted: [start, end] with 0 <= start <= end, end -1 for an open end"
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"{as_written(value)} is no pair; {accepted}")
    start, end = whole(value[0]), OPEN if value[1] is None else whole(value[1])
    if start is None or end is None or start < 0 or end < OPEN or start > end >= 0:
        raise ValueError(f"{as_written(list(value))} is not accepted; {accepted}")
    return start, end


@dataclass(frozen=True)
class Schedule:
    """The iterations at which something is due: multiples of `freq` inside the windows."""

    # Due is an iteration that `freq` divides, counted from 0 and not from the start of a window.
    # Windows in `start_end_list` stand in place of the one that `start_step` and `end_step`, itself
    # included, make; the end of each is not included, and -1 is open.

    freq: int = 1
    start_step: int | None = None
    end_step: int | None = None
    start_end_list: tuple[tuple[int, int], ...] = ()
    # Start and end of each window, the end not included and None where it is open; the windows
    # are in order and do not overlap.
    windows: tuple[tuple[int, int | None], ...] = field(
        init=False, repr=False, compare=False, default=()
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "windows", _united(self._given()))

    def _given(self) -> list[tuple[int, int | None]]:
        if self.start_end_list:
            return [(start, None if end == OPEN else end) for start, end in self.start_end_list]
        end = None if self.end_step is None else self.end_step + 1
        return [(self.start_step or 0, end)]

    @property
    def disordered(self) -> bool:
        """Whether the pairs of `start_end_list` overlap or are not in order."""
        given = self._given()
        return any(end is None or end > start for (_, end), (start, _) in pairwise(given))

    def due(self, iteration: int) -> bool:
        """Tell whether an iteration is due."""
        if iteration % self.freq:
            return False
        return any(
            start <= iteration and (end is None or iteration < end) for start, end in self.windows
        )

    def next_due(self, iteration: int) -> int | None:
        """Return the smallest due iteration after `iteration`, or None when there is none."""
        for start, end in self.windows:
            candidate = self._multiple(max(start, iteration + 1))
            if end is None or candidate < end:
                return candidate
        return None

    def _multiple(self, least: int) -> int:
        return -(-least // self.freq) * self.freq

    def first(self, most: int) -> list[int]:
        """Return the first due iterations, at most so many."""
        found: list[int] = []
        due = self.next_due(-1)
        while due is not None and len(found) < most:
            found.append(due)
            due = self.next_due(due)
        return found

    def count(self, stop: int) -> int:
        """Return how many of the iterations below `stop` are due."""
        total = 0
        for start, end in self.windows:
            last = stop if end is None else min(end, stop)
            total += max(0, -(-last // self.freq) - -(-start // self.freq))
        return total

    @property
    def rule(self) -> str:
        """The schedule in words, such as ``multiples of 10, from 5 to 100``."""
        if not self.windows:
            return "never"
        every = "every iteration" if self.freq == 1 else f"multiples of {self.freq}"
        if self.windows == ((0, None),):
            return every
        spans = [
            f"from {start} on" if end is None else f"from {start} to {end - 1}"
            for start, end in self.windows
        ]
        return f"{every}, {' and '.join(spans)}"


def _united(given: Sequence[tuple[int, int | None]]) -> tuple[tuple[int, int | None], ...]:
    """Return windows in order, joined where they overlap or touch, without empty ones."""
    united: list[tuple[int, int | None]] = []
    for start, end in sorted(given, key=lambda window: window[0]):
        if end is not None and end <= start:
            continue
        if united:
            before, until = united[-1]
            if until is None:
                break
            if start <= until:
                united[-1] = (before, None if end is None else max(end, until))
                continue
        united.append((start, end))
    return tuple(united)
