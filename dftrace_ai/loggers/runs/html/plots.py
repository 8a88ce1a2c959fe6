"""Plots as SVG: a metric's lines over its steps, a histogram's bars; no script, no library."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.wording import escaped, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COLOURS", "Dot", "Line", "bars", "lines", "told"]

WIDTH, HEIGHT = 560, 230
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 26
BARS_WIDTH, BARS_HEIGHT = 260, 120
NAME_LETTERS = 200

# Okabe and Ito's, which people tell apart who see fewer colours (jfly.uni-koeln.de/color).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
DASHES = ("", "6 3", "2 2", "8 3 2 3")


class Dot(NamedTuple):
    """What the values of a step, or of several, come to.

    Attributes:
        x: the step.
        y: mean of the finite values; None where there are none.
        low: the least of them.
        high: the greatest.
        non_finite: how many values are not finite.
    """

    x: float
    y: float | None
    low: float | None
    high: float | None
    non_finite: int


class Line(NamedTuple):
    """What is drawn of a run: its number among the runs, its name, and dots by ascending step."""

    number: int
    name: str
    dots: Sequence[Dot]


def told(text: object) -> str:
    """Return a text that somebody else chose as text of a page, on one line and no tags in it."""
    return escape(escaped(shortened(str(text), NAME_LETTERS)))


def lines(name: str, drawn: Sequence[Line]) -> str:
    """Draw a metric over its steps, a line for each run.

    Around a line lies a band from the least to the greatest value, where several stand at one
    place; crosses at the top are values that are not finite.

    Args:
        name: of the metric.
        drawn: the runs.
    """
    dots = [dot for line in drawn for dot in line.dots]
    across = _Axis([dot.x for dot in dots], LEFT, WIDTH - RIGHT)
    ys = [y for dot in dots for y in (dot.low, dot.high) if y is not None]
    up = _Axis(ys, HEIGHT - BOTTOM, TOP)
    parts = [_frame(across, up)]
    for line in drawn:
        colour = COLOURS[line.number % len(COLOURS)]
        dash = DASHES[line.number // len(COLOURS) % len(DASHES)]
        style = f'stroke="{colour}"' + (f' stroke-dasharray="{dash}"' if dash else "")
        parts.append(f"<g><title>{told(line.name)}</title>")
        for piece in _pieces(line.dots):
            at = [(across.at(dot.x), dot) for dot in piece]
            if any(dot.low != dot.high for dot in piece):
                edge = [f"{x:.1f},{up.at(dot.high):.1f}" for x, dot in at]
                edge += [f"{x:.1f},{up.at(dot.low):.1f}" for x, dot in reversed(at)]
                parts.append(f'<polygon class="band" fill="{colour}" points="{" ".join(edge)}"/>')
            points = " ".join(f"{x:.1f},{up.at(dot.y):.1f}" for x, dot in at)
            parts.append(f'<polyline class="line" {style} points="{points}"/>')
            if len(piece) == 1:
                ((x, dot),) = at
                y = up.at(dot.y)
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>')
        parts += [
            f'<path class="cross" stroke="{colour}" d="M{x - 3:.1f} {TOP}l6 6m0 -6l-6 6">'
            f"<title>{dot.non_finite} not finite at {dot.x:.0f}</title></path>"
            for x, dot in ((across.at(dot.x), dot) for dot in line.dots if dot.non_finite)
        ]
        parts.append("</g>")
    return _svg("plot", name, WIDTH, HEIGHT, parts)


def bars(name: str, edges: Sequence[float], counts: Sequence[int]) -> str:
    """Draw how many values lie in each bin.

    Args:
        name: what the values are of.
        edges: of the bins, ascending, one more than there are bins.
        counts: values by bin.
    """
    across = _Axis(list(edges), 4, BARS_WIDTH - 4)
    floor, most = BARS_HEIGHT - 16, max(max(counts, default=0), 1)
    parts = []
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        x, height = across.at(low), count / most * (floor - 4)
        width = max(across.at(high) - x, 0.5)
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{floor - height:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}"><title>{count} from {low:.4g} to {high:.4g}</title></rect>'
        )
    for x, anchor, edge in ((4, "start", edges[0]), (BARS_WIDTH - 4, "end", edges[-1])):
        parts.append(
            f'<text x="{x}" y="{BARS_HEIGHT - 3}" text-anchor="{anchor}">{edge:.4g}</text>'
        )
    return _svg("bars", name, BARS_WIDTH, BARS_HEIGHT, parts)


class _Axis:
    """Places of values between two ends of a picture, and values that it is marked at."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        finite = [value for value in values if math.isfinite(value)]
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        if low == high:
            room = abs(low) * 0.1 or 1.0
            low, high = low - room, high + room
        self.low, self.high = max(low, -1.7e308), min(high, 1.7e308)
        self._begin, self._end = begin, end

    def at(self, value: float | None) -> float:
        """Return where a value is drawn."""
        # Halves, since the whole way between two finite numbers may not be one.
        way = self.high / 2 - self.low / 2
        share = ((value or 0.0) / 2 - self.low / 2) / way if way else 0.5
        return self._begin + min(max(share, 0.0), 1.0) * (self._end - self._begin)

    def marks(self) -> list[float]:
        """Return round values, about five of them."""
        way = self.high - self.low
        if not math.isfinite(way) or way < 1e-300:
            return [self.low, self.high]
        step = 10.0 ** math.floor(math.log10(way / 4))
        step *= next(many for many in (1, 2, 5, 10) if way / (step * many) <= 5.5)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, first + 7) if number * step <= self.high]


def _frame(across: _Axis, up: _Axis) -> str:
    floor = HEIGHT - BOTTOM
    parts = [f'<path class="frame" d="M{LEFT} {TOP}V{floor}H{WIDTH - RIGHT}"/>']
    for value in up.marks():
        y = up.at(value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y + 3.5:.1f}" text-anchor="end">{value:.6g}</text>')
    for value in across.marks():
        x = across.at(value)
        parts.append(f'<text x="{x:.1f}" y="{floor + 15}" text-anchor="middle">{value:.8g}</text>')
    return "".join(parts)


def _pieces(dots: Sequence[Dot]) -> list[list[Dot]]:
    """Return runs of dots that have a finite mean: a line ends where there is none."""
    pieces: list[list[Dot]] = [[]]
    for dot in dots:
        if dot.y is not None and math.isfinite(dot.y):
            pieces[-1].append(dot)
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _svg(kind: str, name: str, width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg class="{kind}" role="img" aria-label="{told(name)}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">{"".join(parts)}</svg>'
    )
