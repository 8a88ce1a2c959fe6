"""Heat maps: a statistic by layer and iteration."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.report.drawing.axes import Axis, Box, number_text
from dftrace_ai.analysis.report.drawing.colours import of_share
from dftrace_ai.analysis.report.drawing.svg import (
    WIDTH,
    Plot,
    fitted,
    plot_of,
    short_names,
    text,
)
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.report.series_model import HeatMap

__all__ = ["heat_plot"]

LEFT: Final = 190.0
TOP: Final = 40.0
SHADES: Final = 24
WIDE: Final = 50.0
ROOM: Final = 900.0
LABEL_ROOM: Final = 9.5
OVER: Final = 0.3
SMALL_LETTER: Final = 5.4


def heat_plot(number: int, heat: HeatMap) -> Plot:
    """Draw a heat map.

    Args:
        number: of the map on its page.
        heat: what is drawn.
    """
    rows, columns = len(heat.layers), len(heat.first)
    tall = min(16.0, max(4.5, ROOM / max(rows, 1)))
    box = Box(LEFT, TOP, WIDTH - 12, TOP + tall * rows)
    wide = (box.right - box.left) / max(columns, 1)
    numbers = [value for row in heat.values for value in row if isinstance(value, float | int)]
    above = [value for value in numbers if value > 0]
    # Zeros are the darkest then.
    wide_range = bool(above) and min(numbers) >= 0 and max(above) > WIDE * min(above)
    scale = Axis(above if wide_range else numbers, 0, 1, logarithmic=wide_range)
    parts = [*_cells(heat, scale, box, tall, wide), *_labels(heat, box, tall)]
    parts += _iterations(heat, box, wide)
    parts.append(
        f'<path class="frame" d="M{box.left} {box.top}V{box.bottom:.1f}H{box.right}V{box.top}z"/>'
    )
    odd = any(isinstance(value, str) for row in heat.values for value in row)
    parts += _legend(heat.statistic, scale, odd=odd, empty=not numbers)
    rows_told = f"{counted(rows, 'layer')}, {counted(columns, 'column')} of iterations"
    notes = [f"{rows_told}; a cell shows the value farthest from zero, NaN and infinite before all"]
    if rows > 1 and tall < LABEL_ROOM:
        notes.append("not every layer has its name beside it, those that are not finite first")
    if heat.layers_left_out:
        notes.append(f"{counted(heat.layers_left_out, 'layer')} more not drawn")
    more = (
        f'data-heat="{number}" data-left="{box.left:g}" data-top="{box.top:g}" '
        f'data-wide="{wide:.4f}" data-tall="{tall:.4f}"'
    )
    return plot_of(
        f"tensor-{number}",
        f"{heat.statistic} of {heat.tensor}" if heat.tensor else heat.statistic,
        "; ".join(notes),
        box.bottom + 38,
        parts,
        more=more,
    )


def _cells(heat: HeatMap, scale: Axis, box: Box, tall: float, wide: float) -> Iterator[str]:
    """Draw cells, those that lie beside each other and have one colour as one."""
    paths: dict[str, list[str]] = defaultdict(list)
    odd: list[str] = []
    for row, values in enumerate(heat.values):
        # A little over the next ones, or the paper shines through between them in print.
        top, bottom = f"{box.top + row * tall:.1f}", f"{box.top + (row + 1) * tall + OVER:.1f}"
        begin, colour = 0, ""
        for column, value in enumerate([*values, None]):
            shade = _shade(value, scale) if column < len(values) else ""
            if shade != colour:
                if colour:
                    left = f"{box.left + begin * wide:.1f}"
                    right = f"{box.left + column * wide + OVER:.1f}"
                    where = f"M{left} {top}H{right}V{bottom}H{left}z"
                    (odd if colour == "odd" else paths[colour]).append(where)
                begin, colour = column, shade
    for colour, found in sorted(paths.items()):
        yield f'<path fill="{colour}" shape-rendering="crispEdges" d="{"".join(found)}"/>'
    if odd:
        yield f'<path fill="var(--odd)" shape-rendering="crispEdges" d="{"".join(odd)}"/>'


def _shade(value: float | str | None, scale: Axis) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return "odd"
    return of_share(math.floor(scale.at(value) * (SHADES - 1) + 0.5) / (SHADES - 1))


def _labels(heat: HeatMap, box: Box, tall: float) -> Iterator[str]:
    """Name as many layers as there is room for, first of all those that are not finite."""
    every = max(1, math.ceil(LABEL_ROOM / tall))
    odd = [any(isinstance(value, str) for value in row) for row in heat.values]
    named: set[int] = set()
    order = sorted(range(len(heat.layers)), key=lambda row: (not odd[row], row % every != 0, row))
    for row in order:
        if named.isdisjoint(range(row - every + 1, row + every)):
            named.add(row)
    for row, label in enumerate(short_names(heat.layers, int((LEFT - 10) / SMALL_LETTER))):
        if row in named:
            y = box.top + (row + 0.5) * tall + 3
            kind = "small strong" if odd[row] else "small"
            yield text(box.left - 5, y, fitted(label, LEFT * 2), kind, "end")


def _iterations(heat: HeatMap, box: Box, wide: float) -> Iterator[str]:
    columns = len(heat.first)
    every = max(1, math.ceil(columns / 10))
    for column in range(0, columns, every):
        x = box.left + (column + 0.5) * wide
        yield f'<path class="grid" d="M{x:.1f} {box.bottom:.1f}v4"/>'
        yield text(x, box.bottom + 15, number_text(heat.first[column]), "", "middle")
    middle = (box.left + box.right) / 2
    yield text(middle, box.bottom + 30, "iteration", "soft", "middle")


def _legend(statistic: str, scale: Axis, *, odd: bool, empty: bool) -> Iterator[str]:
    left, width = LEFT, 240.0
    if not empty:
        each = width / SHADES
        for at in range(SHADES):
            x, colour = left + at * each, of_share(at / (SHADES - 1))
            yield (
                f'<rect x="{x:.1f}" y="8" width="{each + 0.3:.1f}" height="10" fill="{colour}"/>'
            )
        yield text(left, 30, number_text(scale.low))
        yield text(left + width, 30, number_text(scale.high), "", "end")
        how = ", by its logarithm" if scale.logarithmic else ""
        yield text(left + width + 12, 17, fitted(f"{statistic}{how}", 260))
    if odd:
        yield f'<rect x="{left + 530}" y="8" width="12" height="10" fill="var(--odd)"/>'
        yield text(left + 548, 17, "NaN or infinite", "strong")
