"""Places of values on a picture, round values to mark there, and how they are written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.report.drawing.svg import text

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Axis", "Box", "frame", "number_text", "unit_of_ns", "unit_of_s"]

MOST: Final = 1.7e308
LEAST_WAY: Final = 1e-300
UNGROUPED, GROUPED = 9999.5, 1e5
PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class Box(NamedTuple):
    """Where the values of a plot are drawn."""

    left: float
    top: float
    right: float
    bottom: float


class Axis:
    """Places of values between two ends of a picture.

    Args:
        values: all that has to have a place; at least the finite ones count.
        begin: where the least is.
        end: where the greatest is.
        logarithmic: equal factors are equally far; the values are above zero.
        zero: 0 has a place, too.
    """

    def __init__(
        self,
        values: Iterable[float | None],
        begin: float,
        end: float,
        *,
        logarithmic: bool = False,
        zero: bool = False,
    ) -> None:
        finite = [value for value in values if value is not None and math.isfinite(value)]
        if logarithmic:
            finite = [value for value in finite if value > 0]
        self.logarithmic = logarithmic and bool(finite)
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        if zero and not self.logarithmic:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            room = abs(low) * 0.1 or 1.0
            low, high = (low * 0.9, high * 1.1) if self.logarithmic else (low - room, high + room)
        self.low, self.high = max(low, -MOST), min(high, MOST)
        self.begin, self.end = begin, end

    def at(self, value: float) -> float:
        """Return where a value is drawn; at an end what lies beyond."""
        if self.logarithmic:
            low, high = math.log(self.low), math.log(self.high)
            share = (math.log(max(value, self.low)) - low) / (high - low) if high > low else 0.5
        else:
            # Halves, since the whole way between two finite numbers may not be one.
            way = self.high / 2 - self.low / 2
            share = (value / 2 - self.low / 2) / way if way else 0.5
        return self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin)

    def marks(self, about: int = 5, *, whole: bool = False) -> list[float]:
        """Return round values within the axis, about so many."""
        if self.logarithmic:
            return self._powers()
        way = self.high - self.low
        if not math.isfinite(way) or way < LEAST_WAY:
            return [self.low, self.high]
        step = 10.0 ** math.floor(math.log10(way / about))
        step *= next(many for many in (1, 2, 5, 10) if way / (step * many) <= about * 1.2)
        step = max(step, 1.0) if whole else step
        first = math.ceil(self.low / step - 1e-9)
        marks = [number * step for number in range(first, first + about * 3)]
        return [mark for mark in marks if mark <= self.high + step * 1e-9]

    def _powers(self) -> list[float]:
        low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        found = [
            many * 10.0**power
            for power in range(max(low, -300), min(high, 300) + 1)
            for many in ((1, 2, 5) if high - low <= 3 else (1,))
        ]
        inside = [mark for mark in found if self.low * 0.999 <= mark <= self.high * 1.001]
        if len(inside) > 8:
            inside = inside[:: len(inside) // 6]
        return inside if len(inside) > 1 else [self.low, self.high]


def unit_of_ns(greatest_ns: float) -> tuple[float, str]:
    """Return in which unit times up to the greatest are shown, and its nanoseconds."""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if greatest_ns >= size:
            return size, unit
    return 1.0, "ns"


def unit_of_s(greatest_s: float) -> tuple[float, str]:
    """Return in which unit a stretch of time is shown, and its seconds."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if greatest_s >= 3 * size:
            return size, unit
    if greatest_s >= 1 or not greatest_s:
        return 1.0, "s"
    return 1e-3, "ms"


def number_text(value: float) -> str:
    """Return a number as people read it: ``12.5``, ``3.2 M``, ``1e-07``."""
    size = abs(value)
    if UNGROUPED <= size < GROUPED:
        return f"{value:,.0f}"
    if GROUPED <= size < 1e15:
        for many, prefix in PREFIXES:
            if size >= many:
                return f"{value / many:.4g} {prefix}"
    return f"{value:.4g}" if value else "0"


def frame(
    box: Box,
    across: Axis | None,
    up: Axis | None,
    *,
    x_title: str = "",
    y_title: str = "",
    x_size: float = 1.0,
    y_size: float = 1.0,
    x_whole: bool = False,
    x_marks: int = 8,
    y_marks: int = 5,
    y_title_above: float = 10.0,
) -> str:
    """Return grid, marks and titles around a plot.

    Args:
        box: where its values are.
        across: the axis from left to right, of values that are divided by `x_size`.
        up: the axis from below.
        x_title: what is on the former, with its unit.
        y_title: what is on the latter.
        x_size: what one of the unit is of the values.
        y_size: likewise.
        x_whole: only whole numbers are marked.
        x_marks: about so many.
        y_marks: likewise.
        y_title_above: how far above the values its title stands.
    """
    parts = []
    if up is not None:
        for value in _marks(up, y_size, y_marks):
            y = up.at(value)
            parts.append(f'<path class="grid" d="M{box.left} {y:.1f}H{box.right}"/>')
            parts.append(text(box.left - 6, y + 3.5, number_text(value / y_size), "", "end"))
    if across is not None:
        for value in _marks(across, x_size, x_marks, whole=x_whole):
            x = across.at(value)
            parts.append(f'<path class="grid" d="M{x:.1f} {box.bottom}v4"/>')
            parts.append(text(x, box.bottom + 17.5, number_text(value / x_size), "", "middle"))
    parts.append(f'<path class="frame" d="M{box.left} {box.top}V{box.bottom}H{box.right}"/>')
    if x_title:
        middle = (box.left + box.right) / 2
        parts.append(text(middle, box.bottom + 32, x_title, "soft", "middle"))
    if y_title:
        parts.append(text(4, box.top - y_title_above, y_title, "soft"))
    return "".join(parts)


def _marks(axis: Axis, size: float, about: int, *, whole: bool = False) -> list[float]:
    scaled = Axis([axis.low / size, axis.high / size], 0, 1, logarithmic=axis.logarithmic)
    return [mark * size for mark in scaled.marks(about, whole=whole)]
