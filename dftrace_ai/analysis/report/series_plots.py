"""The plots of a report of what is told again and again: counters, and statistics of tensors.

Counters and layers are small lines side by side, tensors and ranks heat maps. Apart from
`step_plots`, whose figures are of steps and spans.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from dftrace_ai.page.palette import DASHES, LINES, of_share
from dftrace_ai.page.svg import (
    NARROW,
    WIDTH,
    Axis,
    Box,
    Place,
    Plot,
    at_both_widths,
    cross,
    fitted,
    frame,
    line_and_band,
    line_legend,
    number_text,
    plot_of,
    short_names,
    text,
    tip,
    unit_of_s,
)
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.report.model import CounterChart, CounterLine, Envelope, HeatMap
    from dftrace_ai.analysis.report.sections import LinePlot

SMALL_WIDTH, SMALL_HEIGHT = 296.0, 168.0
SMALL: Final = Box(56, 26, SMALL_WIDTH - 10, SMALL_HEIGHT - 36)
MOST_LAYERS: Final = 24
STRONG_LETTER: Final = 7.0
HEAT_LEFT: Final = 190.0
HEAT_TOP: Final = 40.0
SHADES: Final = 24
WIDE_RANGE: Final = 50.0
FAR_FROM_ZERO: Final = 0.5
HEAT_ROOM: Final = 900.0
LABEL_ROOM: Final = 9.5
OVER: Final = 0.3
SMALL_LETTER: Final = 5.4
LEGEND_ROW: Final = 16.0


def places_of(values: Envelope, across: Axis, up: Axis) -> Iterator[Place | None]:
    """Yield where values lie on a plot; None where there are none."""
    for first, last, low, middle, high in zip(
        values.first, values.last, values.low, values.middle, values.high, strict=True
    ):
        if low is None or middle is None or high is None:
            yield None
        else:
            x = (across.at(first) + across.at(last)) / 2
            yield Place(x, up.at(low), up.at(middle), up.at(high))


def _crosses(values: Envelope, across: Axis, y: float) -> Iterator[str]:
    """Draw a cross where values are not finite."""
    for first, last, odd in zip(values.first, values.last, values.non_finite, strict=True):
        if odd:
            x = (across.at(first) + across.at(last)) / 2
            said = tip(f"{counted(odd, 'value')} NaN or infinite")
            yield cross(x, y, f'class="odd" {said}')


def counter_plots(charts: list[CounterChart]) -> list[Plot]:
    """Draw each number of each counter, small and side by side."""
    return [_counter_plot(number, chart) for number, chart in enumerate(charts)]


def _counter_plot(number: int, chart: CounterChart) -> Plot:
    box = SMALL
    across = Axis(
        [x for line in chart.lines for x in (*line.values.first[:1], *line.values.last[-1:])],
        box.left,
        box.right,
    )
    heights = [v for line in chart.lines for v in (*line.values.low, *line.values.high)]
    finite = [v for v in heights if v is not None]
    # From zero where that leaves the line most of the room.
    zero = bool(finite) and min(finite) >= 0 and max(finite) >= 2 * min(finite)
    up = Axis(heights, box.bottom, box.top, zero=zero)
    size, unit = unit_of_s(max(abs(across.low), abs(across.high)))
    name = f"{chart.counter}: {chart.key}" if chart.key != chart.counter else chart.counter
    parts = [
        frame(box, across, up, x_title=f"time ({unit})", x_size=size, x_marks=5, y_marks=4),
        text(box.left - 4, 13, fitted(name, box.right - box.left), "strong"),
    ]
    odd = 0
    for at, line in enumerate(chart.lines):
        colour, dash = LINES[at % len(LINES)], DASHES[at % len(DASHES)]
        parts += [f"<g {tip(*_told_line(name, line))}>"]
        parts += line_and_band(places_of(line.values, across, up), colour, dash)
        parts += [*_crosses(line.values, across, box.top + 4), "</g>"]
        odd += sum(line.values.non_finite)
    notes = [f"{counted(odd, 'value')} NaN or infinite"] if odd else []
    if len(chart.lines) > 1:
        notes.append(", ".join(line.process for line in chart.lines))
    if chart.lines_left_out:
        notes.append(f"{counted(chart.lines_left_out, 'process')} more not drawn")
    return plot_of(
        f"counter-{number}", name, "; ".join(notes), SMALL_HEIGHT, parts, width=SMALL_WIDTH
    )


def _told_line(name: str, line: CounterLine) -> Iterator[str]:
    yield f"{name}, {line.process}"
    yield counted(line.samples, "sample")
    low = [v for v in line.values.low if v is not None]
    high = [v for v in line.values.high if v is not None]
    if low and high:
        yield f"from {number_text(min(low))} to {number_text(max(high))}"
    odd = sum(line.values.non_finite)
    if odd:
        yield f"{counted(odd, 'value')} NaN or infinite"


def section_plot(number: str, plot: LinePlot, width: float) -> Plot:
    """Draw the lines of a section that another package adds."""
    # A row of the legend for each line, however long their names are.
    top = 26 + LEGEND_ROW * len(plot.lines)
    box = Box(64, top, width - 12, top + 182)
    across = Axis(plot.x, box.left, box.right)
    heights = [y for values in plot.lines.values() for y in values]
    finite = [y for y in heights if y is not None]
    up = Axis(heights, box.bottom, box.top, zero=bool(finite) and min(finite) >= 0)
    marks = 4 if width == NARROW else 8
    x_title, y_title = (fitted(each, width - 80) for each in (plot.x_title, plot.y_title))
    parts = [frame(box, across, up, x_title=x_title, y_title=y_title, x_marks=marks)]
    for at, (name, values) in enumerate(plot.lines.items()):
        colour, dash = LINES[at % len(LINES)], DASHES[at % len(DASHES)]
        parts += line_legend([(name, colour, dash)], 8, 14 + at * LEGEND_ROW)
        own = [y for y in values if y is not None]
        reach = f"from {number_text(min(own))} to {number_text(max(own))}" if own else "no value"
        places = (
            None if y is None else Place(across.at(x), up.at(y), up.at(y), up.at(y))
            for x, y in zip(plot.x, values, strict=True)
        )
        parts += [f"<g {tip(name, reach)}>", *line_and_band(places, colour, dash), "</g>"]
    height = box.bottom + 36
    return plot_of(f"section-{number}", plot.title, plot.caption, height, parts, width=width)


def layer_plots(heat: HeatMap) -> list[Plot]:
    """Draw the layers of a heat map that change most, each as a small line over iterations."""
    ordered = sorted(range(len(heat.layers)), key=lambda row: _unrest(heat.values[row]))
    chosen = sorted(ordered[:MOST_LAYERS])
    letters = int((SMALL.right - SMALL.left) / STRONG_LETTER)
    names = short_names([heat.layers[row] for row in chosen], letters)
    return [_layer_plot(number, heat, row, names[number]) for number, row in enumerate(chosen)]


def _unrest(row: Sequence[float | str | None]) -> tuple[bool, float]:
    values = [value for value in row if isinstance(value, float | int)]
    odd = any(isinstance(value, str) for value in row)
    way = max(values) / 2 - min(values) / 2 if values else 0.0
    scale = max((abs(value) / 2 for value in values), default=0.0) or 1.0
    return not odd, -way / scale


def _layer_plot(number: int, heat: HeatMap, row: int, label: str) -> Plot:
    box = SMALL
    values = heat.values[row]
    across = Axis([*map(float, heat.first[:1]), *map(float, heat.last[-1:])], box.left, box.right)
    numbers = [value for value in values if isinstance(value, float | int)]
    up = Axis(numbers, box.bottom, box.top)
    name = heat.layers[row]
    parts = [
        frame(box, across, up, x_title="iteration", x_whole=True, x_marks=5, y_marks=4),
        text(box.left - 4, 13, fitted(label, WIDTH), "strong"),
        f"<g {tip(f'{heat.statistic} of {name}:{heat.tensor}')}>",
    ]
    places: list[Place | None] = []
    for first, last, value in zip(heat.first, heat.last, values, strict=True):
        x = (across.at(first) + across.at(last)) / 2
        if isinstance(value, str):
            said = tip(f"{value} at iteration {first}")
            parts.append(cross(x, box.top + 4, f'class="odd" {said}'))
            places.append(None)
        elif value is not None and math.isfinite(value):
            y = up.at(value)
            places.append(Place(x, y, y, y))
    parts += line_and_band(places, LINES[0])
    parts.append("</g>")
    title = f"{heat.statistic} of {name}:{heat.tensor}"
    return plot_of(f"layer-{number}", title, "", SMALL_HEIGHT, parts, width=SMALL_WIDTH)


def heat_plots(maps: Sequence[HeatMap]) -> list[Plot]:
    """Draw heat maps, each at both widths."""
    return [at_both_widths(partial(heat_plot, number, heat)) for number, heat in enumerate(maps)]


def heat_plot(number: int, heat: HeatMap, width: float) -> Plot:
    """Draw a heat map."""
    rows, columns = len(heat.layers), len(heat.first)
    tall = min(16.0, max(4.5, HEAT_ROOM / max(rows, 1)))
    whole = Box(HEAT_LEFT, HEAT_TOP, WIDTH - 12, HEAT_TOP + tall * rows)
    box = whole if width >= WIDTH else Box(96, 58, width - 12, 58 + tall * rows)
    wide = (box.right - box.left) / max(columns, 1)
    scale = Shading(heat)
    of_ranks = heat.of == "rank"
    name, noun = (f"rank-map-{number}", "step") if of_ranks else (f"tensor-{number}", "iteration")
    parts = [*_cells_once(name, heat, scale, whole, box), *_layer_labels(heat, box, tall)]
    parts += _iteration_marks(heat, box, wide, 10 if width >= WIDTH else 4, noun)
    parts.append(
        f'<path class="frame" d="M{box.left} {box.top}V{box.bottom:.1f}H{box.right}V{box.top}z"/>'
    )
    parts += _scale_legend(heat.statistic, scale, width)
    rows_told = f"{counted(rows, 'row' if of_ranks else 'layer')}, {counted(columns, 'column')}"
    shows = "most of it" if of_ranks else "value farthest from zero, NaN and infinite before all"
    notes = [f"{rows_told} of {noun}s; a cell shows the {shows}"]
    if of_ranks:
        notes.append("who stands out is first; who is late works long and waits little")
    elif rows > 1 and tall < LABEL_ROOM:
        notes.append("not every layer has its name beside it, those that are not finite first")
    if heat.layers_left_out:
        notes.append(f"{counted(heat.layers_left_out, 'layer')} more not drawn")
    more = (
        f'data-heat="{number}" data-rows="{heat.of}" data-left="{box.left:g}" '
        f'data-top="{box.top:g}" data-wide="{wide:.4f}" data-tall="{tall:.4f}"'
    )
    title = f"{heat.statistic} of {heat.tensor}" if heat.tensor else heat.statistic
    return plot_of(
        name,
        f"Rank by step: {title}" if of_ranks else title,
        "; ".join(notes),
        box.bottom + 38,
        parts,
        width=width,
        more=more,
    )


class Shading:
    """Which colour a value of a heat map has: the darker, the nearer to zero."""

    def __init__(self, heat: HeatMap) -> None:
        values = [value for row in heat.values for value in row]
        self.numbers = [value for value in values if isinstance(value, float | int)]
        self.odd = any(isinstance(value, str) for value in values)
        self.low, self.high = min(self.numbers, default=0.0), max(self.numbers, default=0.0)
        sizes = [abs(value) for value in self.numbers]
        above = [size for size in sizes if size > 0]
        self.signed = self.low < 0
        self.least, self.most = 0.0, max(sizes, default=0.0)
        self.logarithmic = bool(above) and not self.signed and self.most > WIDE_RANGE * min(above)
        if self.logarithmic:
            self.least = min(above)
        # Of what lies far from zero the darkest is the least, so that what changes is seen.
        elif sizes and not self.signed and min(sizes) > FAR_FROM_ZERO * self.most:
            self.least = min(sizes)
        self._axis = Axis([self.least, self.most], 0.0, 1.0, logarithmic=self.logarithmic)

    def share_of(self, value: float) -> float:
        """Return how bright a value is, from 0 to 1; below zero, less than 0."""
        if self.least == self.most:
            return 0.0
        share = math.floor(self._axis.at(abs(value)) * (SHADES - 1) + 0.5) / (SHADES - 1)
        return -share if value < 0 else share

    def of(self, value: float | str | None) -> str:
        """Return a colour; ``odd`` for what is not finite, nothing where there is no value."""
        if value is None:
            return ""
        return "odd" if isinstance(value, str) else of_share(self.share_of(value))


def _cells_once(name: str, heat: HeatMap, scale: Shading, whole: Box, box: Box) -> Iterator[str]:
    """Draw the cells where there is room for all of them; the narrow plot shows the same ones."""
    width = whole.right - whole.left
    if box is whole:
        wide, tall = (
            width / max(len(heat.first), 1),
            (box.bottom - box.top) / max(len(heat.layers), 1),
        )
        yield f'<g id="cells-{name}">'
        yield from _cells(heat, scale, box, tall, wide)
        yield "</g>"
        return
    by = (box.right - box.left) / width
    move = f"{box.left - by * whole.left:.3f} {box.top - whole.top:g}"
    yield f'<use href="#cells-{name}" transform="matrix({by:.5f} 0 0 1 {move})"/>'


def _cells(heat: HeatMap, scale: Shading, box: Box, tall: float, wide: float) -> Iterator[str]:
    """Draw cells, those that lie beside each other and have one colour as one."""
    paths: dict[str, list[str]] = defaultdict(list)
    odd: list[str] = []
    for row, values in enumerate(heat.values):
        # A little over the next ones, or the paper shines through between them in print.
        top, bottom = f"{box.top + row * tall:.1f}", f"{box.top + (row + 1) * tall + OVER:.1f}"
        begin, colour = 0, ""
        for column, value in enumerate([*values, None]):
            shade = scale.of(value) if column < len(values) else ""
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


def _layer_labels(heat: HeatMap, box: Box, tall: float) -> Iterator[str]:
    """Name as many layers as there is room for, first of all those that are not finite."""
    every = max(1, math.ceil(LABEL_ROOM / tall))
    odd = [any(isinstance(value, str) for value in row) for row in heat.values]
    named: set[int] = set()
    order = sorted(range(len(heat.layers)), key=lambda row: (not odd[row], row % every != 0, row))
    for row in order:
        if named.isdisjoint(range(row - every + 1, row + every)):
            named.add(row)
    for row, label in enumerate(short_names(heat.layers, int((box.left - 10) / SMALL_LETTER))):
        if row in named:
            y = box.top + (row + 0.5) * tall + 3
            kind = "small strong" if odd[row] else "small"
            yield text(box.left - 5, y, fitted(label, box.left * 2), kind, "end")


def _iteration_marks(heat: HeatMap, box: Box, wide: float, about: int, noun: str) -> Iterator[str]:
    columns = len(heat.first)
    every = max(1, math.ceil(columns / about))
    for column in range(0, columns, every):
        x = box.left + (column + 0.5) * wide
        yield f'<path class="grid" d="M{x:.1f} {box.bottom:.1f}v4"/>'
        yield text(x, box.bottom + 15, number_text(heat.first[column]), "", "middle")
    middle = (box.left + box.right) / 2
    yield text(middle, box.bottom + 30, noun, "soft", "middle")


def _scale_legend(statistic: str, scale: Shading, width: float) -> Iterator[str]:
    left, long = (HEAT_LEFT, 240.0) if width >= WIDTH else (8.0, 130.0)
    if scale.numbers:
        first = 1 - SHADES if scale.signed else 0
        shares = [at / (SHADES - 1) for at in range(first, SHADES)]
        each = long / len(shares)
        for at, share in enumerate(shares):
            x, colour = left + at * each, of_share(share)
            yield (
                f'<rect x="{x:.1f}" y="8" width="{each + 0.3:.1f}" height="10" fill="{colour}"/>'
            )
        if scale.signed:
            yield text(left + long / 2, 30, "0", "", "middle")
        yield text(left, 30, number_text(-scale.most if scale.signed else scale.least))
        yield text(left + long, 30, number_text(scale.most), "", "end")
        how = ", by its logarithm" if scale.logarithmic else ""
        yield text(left + long + 12, 17, fitted(f"{statistic}{how}", min(260, width - long - 24)))
    if scale.odd:
        x, y = (left + 530, 8) if width >= WIDTH else (left, 38)
        yield f'<rect x="{x}" y="{y}" width="12" height="10" fill="var(--odd)"/>'
        yield text(x + 18, y + 9, "NaN or infinite", "strong")
