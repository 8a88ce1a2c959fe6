"""Lines over steps or time, with the band from the least to the greatest value around each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.report.drawing.axes import Axis, Box, frame, number_text, unit_of_s
from dftrace_ai.analysis.report.drawing.colours import LINES, PARTS
from dftrace_ai.analysis.report.drawing.svg import (
    WIDTH,
    Plot,
    fitted,
    plot_of,
    short_names,
    text,
    tip,
    told,
)
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.report.model import LoaderFigures
    from dftrace_ai.analysis.report.series_model import (
        CounterChart,
        CounterLine,
        Envelope,
        HeatMap,
    )

__all__ = ["band_and_line", "counter_plots", "layer_plots", "loader_plot", "odd_marks"]

SMALL_WIDTH, SMALL_HEIGHT = 296.0, 168.0
SMALL: Final = Box(56, 26, SMALL_WIDTH - 10, SMALL_HEIGHT - 36)
MOST_LAYERS: Final = 24
STRONG_LETTER: Final = 7.0
DASHES: Final = ("", "5 3", "2 2", "8 3 2 3")


class Point(NamedTuple):
    """A group of values where it is drawn."""

    x: float
    low: float
    middle: float
    high: float


def pieces_of(values: Envelope, across: Axis, up: Axis) -> list[list[Point]]:
    """Return stretches of groups with finite values: a line ends where there are none."""
    pieces: list[list[Point]] = [[]]
    for first, last, low, middle, high in zip(
        values.first, values.last, values.low, values.middle, values.high, strict=True
    ):
        if low is None or middle is None or high is None:
            if pieces[-1]:
                pieces.append([])
            continue
        x = (across.at(first) + across.at(last)) / 2
        pieces[-1].append(Point(x, up.at(low), up.at(middle), up.at(high)))
    return [piece for piece in pieces if piece]


def band_and_line(
    values: Envelope, across: Axis, up: Axis, colour: str, dash: str = ""
) -> Iterator[str]:
    """Draw values: a line through the medians of groups, and the band of all of them."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    for piece in pieces_of(values, across, up):
        if any(point.low != point.high for point in piece):
            # A spike in one group is still a pixel wide.
            steps = [f"M{piece[0].x - 0.5:.1f} {piece[0].high:.1f}"]
            steps += [f"L{point.x:.1f} {point.high:.1f}" for point in piece]
            steps += [f"L{point.x + 0.5:.1f} {point.low:.1f}" for point in reversed(piece)]
            path = "".join(steps)
            yield f'<path class="band" fill="{colour}" d="{path}z"/>'
        points = " ".join(f"{point.x:.1f},{point.middle:.1f}" for point in piece)
        yield f'<polyline class="line" stroke="{colour}"{dashed} points="{points}"/>'
        if len(piece) == 1:
            (point,) = piece
            yield f'<circle cx="{point.x:.1f}" cy="{point.middle:.1f}" r="2" fill="{colour}"/>'


def odd_marks(values: Envelope, across: Axis, y: float) -> Iterator[str]:
    """Draw a cross where values are not finite."""
    for first, last, odd in zip(values.first, values.last, values.non_finite, strict=True):
        if odd:
            x = (across.at(first) + across.at(last)) / 2
            what = f"{counted(odd, 'value')} NaN or infinite"
            yield f'<path class="odd" d="M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6" {tip(what)}/>'


def loader_plot(loader: LoaderFigures) -> Plot:
    """Draw the wait of a rank and the work of its workers over time."""
    box = Box(64, 34, WIDTH - 12, 216)
    across = Axis(loader.edges_s, box.left, box.right)
    up = Axis([0.0, 1.0], box.bottom, box.top)
    size, unit = unit_of_s(across.high)
    parts = [
        frame(
            box,
            across,
            up,
            x_title=f"time since the first event ({unit})",
            y_title="share of the time (%)",
            x_size=size,
            y_size=0.01,
        )
    ]
    rows = [("the step waits for data", loader.wait, PARTS["wait"], "")]
    if loader.busy:
        rows.append(("a worker is busy, on average", loader.busy, LINES[0], "5 3"))
    middles = [
        (begin + end) / 2 for begin, end in zip(loader.edges_s, loader.edges_s[1:], strict=False)
    ]
    for name, shares, colour, dash in rows:
        points = " ".join(
            f"{across.at(x):.1f},{up.at(share):.1f}"
            for x, share in zip(middles, shares, strict=True)
        )
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(
            f'<polyline class="line" stroke="{colour}"{dashed} points="{points}">'
            f"<title>{name}</title></polyline>"
        )
    parts += _legend([(name, colour, dash) for name, _, colour, dash in rows], box.left + 140, 14)
    for at, (begin, end) in enumerate(zip(loader.edges_s, loader.edges_s[1:], strict=False)):
        said = [f"{name}: {shares[at]:.0%}" for name, shares, _, _ in rows]
        place = f"{begin / size:.4g} to {end / size:.4g} {unit}"
        parts.append(_hit(across.at(begin), across.at(end), box, tip(place, *said)))
    caption = f"The training in {len(middles)} stretches of time; each point is one of them."
    return plot_of("loader", "Wait for data, and the work of the loader", caption, 252, parts)


def _hit(left: float, right: float, box: Box, attribute: str) -> str:
    return (
        f'<rect class="hit" x="{left:.1f}" y="{box.top:g}" width="{max(right - left, 0.5):.1f}" '
        f'height="{box.bottom - box.top:g}" {attribute}/>'
    )


def _legend(rows: list[tuple[str, str, str]], left: float, y: float) -> Iterator[str]:
    for name, colour, dash in rows:
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        yield f'<path class="line" stroke="{colour}"{dashed} d="M{left:.0f} {y - 4}h18"/>'
        yield text(left + 23, y, told(name, 40))
        left += 40 + 6.2 * min(len(name), 40)


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
        parts += band_and_line(line.values, across, up, colour, dash)
        parts += [*odd_marks(line.values, across, box.top + 4), "</g>"]
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
    piece: list[str] = []
    lines: list[list[str]] = [piece]
    for first, last, value in zip(heat.first, heat.last, values, strict=True):
        x = (across.at(first) + across.at(last)) / 2
        if isinstance(value, str):
            parts.append(
                f'<path class="odd" d="M{x - 3:.1f} {box.top + 1}l6 6m0 -6l-6 6" '
                f"{tip(f'{value} at iteration {first}')}/>"
            )
            piece = []
            lines.append(piece)
        elif value is not None and math.isfinite(value):
            piece.append(f"{x:.1f},{up.at(value):.1f}")
    for points in lines:
        if len(points) == 1:
            x_text, _, y_text = points[0].partition(",")
            parts.append(f'<circle cx="{x_text}" cy="{y_text}" r="2" fill="{LINES[0]}"/>')
        elif points:
            joined = " ".join(points)
            parts.append(f'<polyline class="line" stroke="{LINES[0]}" points="{joined}"/>')
    parts.append("</g>")
    title = f"{heat.statistic} of {name}:{heat.tensor}"
    return plot_of(f"layer-{number}", title, "", SMALL_HEIGHT, parts, width=SMALL_WIDTH)
