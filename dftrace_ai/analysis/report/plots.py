"""The plots of a report, from its steps to its counters.

They are one subject: a page, a notebook and a folder of files show the same ones, in the same
colours of parts and roles, and with the same legends; `page/` below knows none of these.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.report.figures.flame import part_of_span
from dftrace_ai.analysis.why.words import part_name, percent, time_text
from dftrace_ai.page.palette import DASHES, LINES, ink_on, of_share
from dftrace_ai.page.svg import (
    WIDTH,
    Axis,
    Box,
    Place,
    Plot,
    cross,
    fitted,
    frame,
    line_and_band,
    number_text,
    plot_of,
    short_names,
    text,
    tip,
    told,
    unit_of_ns,
    unit_of_s,
)
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dftrace_ai.analysis.report.model import (
        CounterChart,
        CounterLine,
        Envelope,
        FlameGraph,
        HeatMap,
        LoaderFigures,
        ReportFigures,
        SlowStepFigures,
        StepFigures,
    )

__all__ = ["MOST_LAYERS", "Plots", "of_span", "plots_of"]

# In the order of a step.
PARTS: Final = {
    part: f"var(--part-{part})"
    for part in (
        *("wait", "data", "transfer", "forward", "backward", "optimizer", "compute", "gpu"),
        *("launch", "comm", "checkpoint", "evaluation", "other", "none"),
    )
}

SLOW_OF_MEDIAN: Final = 10.0
FEW: Final = 60
LEAST_BAR: Final = 1.5
BAR: Final = 34.0
MOST_BAR: Final = 110.0
MARKED_OF: Final = 10
LEGEND_ROW: Final = 16.0
PERCENTILE_ROOM: Final = 48.0
# The title of the axis stands above the mark of the slowest step, which may be the first.
MARK_ROOM: Final = 22.0

FLAME_ROW: Final = 18.0
MOST_FLAME_ROWS: Final = 40
LEAST_WIDTH: Final = 0.4
NAMED_WIDTH: Final = 28.0

SMALL_WIDTH, SMALL_HEIGHT = 296.0, 168.0
SMALL: Final = Box(56, 26, SMALL_WIDTH - 10, SMALL_HEIGHT - 36)
MOST_LAYERS: Final = 24
STRONG_LETTER: Final = 7.0

HEAT_LEFT: Final = 190.0
HEAT_TOP: Final = 40.0
SHADES: Final = 24
WIDE_RANGE: Final = 50.0
HEAT_ROOM: Final = 900.0
LABEL_ROOM: Final = 9.5
OVER: Final = 0.3
SMALL_LETTER: Final = 5.4
MOST_SLOW_PLOTS: Final = 3


def of_span(cat: str, name: str) -> str:
    """Return the colour of spans: that of the part of a step that they are, or their category's."""
    return f"var(--part-{part_of_span(cat, name)})"


class Plots:
    """The plots of a report by the section of its page; one without figures has none."""

    def __init__(self, figures: ReportFigures) -> None:
        steps, tensors = figures.steps, figures.tensors
        self.parts = [] if steps is None else [parts_plot(steps), epochs_plot(steps)]
        self.steps = (
            [] if steps is None else [times_plot(steps, figures.slowest), histogram_plot(steps)]
        )
        self.slowest = [
            slow_step_plot(number, step)
            for number, step in enumerate(figures.slowest[:MOST_SLOW_PLOTS])
            if step.spans
        ]
        some = any(frame.total_ns for frame in figures.flame.frames)
        self.flame = [flame_plot(figures.flame)] if some else []
        self.loader = [] if figures.loader is None else [loader_plot(figures.loader)]
        maps = [] if tensors is None else tensors.maps
        self.tensors = [heat_plot(number, heat) for number, heat in enumerate(maps)]
        self.layers = layer_plots(maps[0]) if maps else []
        self.counters = counter_plots(figures.counters)


def plots_of(figures: ReportFigures) -> list[Plot]:
    """Return all plots of a report, in the order of its page."""
    plots = Plots(figures)
    return [
        *(*plots.parts, *plots.steps, *plots.slowest, *plots.flame, *plots.loader),
        *(*plots.tensors, *plots.layers, *plots.counters),
    ]


def times_plot(steps: StepFigures, slowest: Sequence[SlowStepFigures]) -> Plot:
    """Draw the time of each step in their order, and mark the slowest, which are of any rank."""
    box = Box(64, 42, WIDTH - 12, 244)
    times = steps.times
    wide = steps.max_ns > SLOW_OF_MEDIAN * max(steps.p50_ns, 1.0)
    across = Axis([*times.first[:1], *times.last[-1:]], box.left + 3, box.right - 3)
    up = Axis([*times.low, *times.high], box.bottom, box.top, logarithmic=wide, zero=True)
    size, unit = unit_of_ns(steps.p95_ns)
    parts = [*_warm_up(steps, across, box)]
    how = ", by its logarithm" if up.logarithmic else ""
    parts.append(
        frame(
            box,
            across,
            up,
            x_title="step, in the order of time",
            y_title=f"time ({unit}{how})",
            y_size=size,
            x_whole=True,
            y_title_above=MARK_ROOM,
        )
    )
    for start in steps.epoch_starts[1:]:
        x = across.at(start - 0.5)
        parts.append(
            f'<path class="grid" stroke-dasharray="2 3" d="M{x:.1f} {box.top}V{box.bottom}"/>'
        )
    parts += line_and_band(_places(times, across, up), LINES[0])
    if steps.count <= FEW:
        parts += [
            f'<circle cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" r="2.5" fill="{LINES[0]}"/>'
            for x, y in zip(times.first, times.middle, strict=True)
            if y is not None
        ]
    parts += _hits(steps, across, box)
    # Of few steps few are slow.
    most = max(1, steps.count // MARKED_OF)
    own = [step for step in slowest if step.rank == steps.rank][:most]
    for step in own:
        x, y = across.at(step.step), up.at(step.ns)
        said = tip(f"step {step.step}", time_text(step.ns), step.kind, f"--at {step.at}")
        shape = f'class="slow" d="M{x:.1f} {y - 2:.1f}l-4 -7h8z"'
        parts.append(f'<path {shape} fill="{PARTS["wait"]}" {said}/>')
    together = math.ceil(steps.count / max(len(times.first), 1))
    notes = []
    if together > 1:
        notes.append(
            f"The line is the median of up to {together} steps, the band reaches from the shortest "
            "to the longest of them."
        )
    if own:
        notes.append("Triangles: the slowest steps.")
    if steps.warm_up:
        notes.append(f"Grey: {counted(steps.warm_up, 'step')} of warm-up.")
    if len(steps.epoch_starts) > 1:
        notes.append(f"Dotted: where {steps.split_by}s begin.")
    return plot_of("steps", "Time of each step", " ".join(notes), 282, parts)


def _warm_up(steps: StepFigures, across: Axis, box: Box) -> Iterator[str]:
    if steps.warm_up:
        right = min(across.at(steps.warm_up - 0.5), box.right)
        yield (
            f'<rect class="shade" x="{box.left}" y="{box.top}" width="{right - box.left:.1f}" '
            f'height="{box.bottom - box.top}"/>'
        )


def _hits(steps: StepFigures, across: Axis, box: Box) -> Iterator[str]:
    times = steps.times
    half = (box.right - box.left) / max(len(times.first), 1) / 2
    for first, last, low, middle, high in zip(
        times.first, times.last, times.low, times.middle, times.high, strict=True
    ):
        if low is None or middle is None or high is None:
            continue
        if first == last:
            said = tip(f"step {first:.0f}", time_text(low))
        else:
            said = tip(
                f"steps {first:.0f} to {last:.0f}",
                f"median {time_text(middle)}",
                f"{time_text(low)} to {time_text(high)}",
            )
        x = (across.at(first) + across.at(last)) / 2
        yield _hit(x - half, x + half, box, said)


def histogram_plot(steps: StepFigures) -> Plot:
    """Draw how many steps take how long."""
    box = Box(64, 46, WIDTH - 12, 226)
    found = steps.histogram
    across = Axis(found.edges_ns, box.left, box.right, logarithmic=found.logarithmic)
    most = max([a + b for a, b in zip(found.steady, found.others, strict=True)] or [1])
    up = Axis([0.0, float(max(most, 1))], box.bottom, box.top)
    size, unit = unit_of_ns(steps.p50_ns)
    how = ", by its logarithm" if found.logarithmic else ""
    parts = [
        frame(
            box,
            across,
            up,
            x_title=f"time of a step ({unit}{how})",
            y_title="steps",
            x_size=size,
        )
    ]
    for low, high, steady, others in zip(
        found.edges_ns, found.edges_ns[1:], found.steady, found.others, strict=False
    ):
        x, right = across.at(low), across.at(high)
        said = tip(
            f"{time_text(low)} to {time_text(high)}",
            counted(steady, "steady step"),
            counted(others, "other step") if others else "",
        )
        y = box.bottom
        for count, kind in ((steady, f'fill="{LINES[0]}"'), (others, f'fill="{PARTS["data"]}"')):
            if count:
                # One step among thousands is still seen.
                tall = max(box.bottom - up.at(count), LEAST_BAR)
                y -= tall
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(right - x - 0.6, 0.6):.1f}" '
                    f'height="{tall:.1f}" {kind} {said}/>'
                )
    parts += _percentiles(steps, across, box)
    rows = [("steady steps", LINES[0])]
    if any(found.others):
        rows.append(("warm-up, and first steps of loops", PARTS["data"]))
    left = 130.0
    for name, colour in rows:
        parts.append(f'<rect x="{left}" y="5" width="10" height="10" fill="{colour}"/>')
        parts.append(text(left + 15, 14, name))
        left += 40 + 6.2 * len(name)
    caption = (
        f"Median {time_text(steps.p50_ns)}, p95 {time_text(steps.p95_ns)}, p99 "
        f"{time_text(steps.p99_ns)}, longest {time_text(steps.max_ns)}, of all steps. Bars of few "
        "steps are drawn high enough to be seen."
    )
    return plot_of("distribution", "How long steps take", caption, 262, parts)


def _percentiles(steps: StepFigures, across: Axis, box: Box) -> Iterator[str]:
    groups: list[list[tuple[str, float]]] = []
    for name, value in (("p50", steps.p50_ns), ("p95", steps.p95_ns), ("p99", steps.p99_ns)):
        x = across.at(value)
        said = tip(name, time_text(value))
        yield f'<path class="mark" d="M{x:.1f} {box.top - 8}V{box.bottom}" {said}/>'
        # Those that lie close together share a text.
        if groups and x - groups[-1][-1][1] < PERCENTILE_ROOM:
            groups[-1].append((name, x))
        else:
            groups.append([(name, x)])
    for group in groups:
        names = ", ".join(name for name, _ in group)
        yield text((group[0][1] + group[-1][1]) / 2, box.top - 11, names, "soft", "middle")


def shown_parts(parts: Mapping[str, int]) -> list[str]:
    """Return the parts that have any time, in the order of a step."""
    return [part for part in PARTS if parts.get(part, 0) > 0]


def parts_plot(steps: StepFigures) -> Plot:
    """Draw what the steps of the rank are made of."""
    box = Box(8, 8, WIDTH - 8, 8 + BAR)
    whole = max(sum(max(ns, 0) for ns in steps.parts.values()), 1)
    parts = []
    left = box.left
    for part in shown_parts(steps.parts):
        share = steps.parts[part] / whole
        width = share * (box.right - box.left)
        said = tip(part_name(part), percent(share), time_text(steps.parts[part]))
        parts.append(_bar(left, box.top, width, BAR, part, said))
        label = f"{part_name(part)} {percent(share)}"
        if width > 6.2 * len(label) + 8:
            kind = ink_on(PARTS[part])
            parts.append(text(left + 5, box.top + 21, label, f"{kind} name".strip()))
        left += width
    legend, height = _parts_legend(steps.parts, whole, box.bottom + 20)
    caption = (
        f"All {counted(steps.count, 'step')} of rank {steps.rank}, {time_text(steps.time_ns)} "
        "together. Each moment belongs to the innermost span of the thread that trains."
    )
    return plot_of("parts", "Where a step goes", caption, height, [*parts, *legend])


def _bar(x: float, y: float, width: float, height: float, part: str, attribute: str) -> str:
    kind = ' class="plain"' if part == "none" else f' class="edge" fill="{PARTS[part]}"'
    return (
        f'<rect{kind} x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.3):.1f}" '
        f'height="{height:.1f}" {attribute}/>'
    )


def _parts_legend(parts: Mapping[str, int], whole: int, top: float) -> tuple[list[str], float]:
    """Return the legend, the greatest part first, and where it ends."""
    found = sorted(shown_parts(parts), key=lambda part: -parts[part])
    drawn = []
    for at, part in enumerate(found):
        x, y = 8 + at % 4 * 226, top + at // 4 * LEGEND_ROW
        drawn.append(_bar(x, y - 9, 10, 10, part, ""))
        drawn.append(text(x + 15, y, f"{part_name(part)} {100 * parts[part] / whole:.1f} %"))
    return drawn, top + (len(found) + 3) // 4 * LEGEND_ROW


def epochs_plot(steps: StepFigures) -> Plot:
    """Draw what a step is made of in each epoch."""
    box = Box(64, 30, WIDTH - 12, 216)
    count = len(steps.epochs)
    most = max((one.time_ns / max(one.steps, 1) for one in steps.epochs), default=1.0)
    up = Axis([0.0, max(most, 1.0)], box.bottom, box.top)
    size, unit = unit_of_ns(most)
    nouns = {"epoch": "epoch", "loop": "loop over the loader", "stretch": "steps"}
    parts = [
        frame(
            box,
            None,
            up,
            x_title=nouns[steps.split_by],
            y_title=f"time of a step on average ({unit})",
            y_size=size,
        )
    ]
    wide = (box.right - box.left) / max(count, 1)
    gap = min(wide * 0.15, 12)
    every = max(1, math.ceil(count / 14))
    for at, one in enumerate(steps.epochs):
        y = box.bottom
        bar = min(wide - gap, MOST_BAR)
        x = box.left + at * wide + (wide - bar) / 2
        each = max(one.steps, 1)
        for part in shown_parts(one.parts):
            tall = box.bottom - up.at(one.parts[part] / each)
            y -= tall
            share = one.parts[part] / max(one.time_ns, 1)
            of_step = f"{time_text(one.parts[part] / each)} of a step, {percent(share)}"
            said = tip(
                f"{one.label}, {counted(one.steps, 'step')}", f"{part_name(part)}: {of_step}"
            )
            if tall > 0.05:
                parts.append(_bar(x, y, bar, tall, part, said))
        if at % every == 0:
            label = one.label.partition(" ")[2]
            parts.append(text(x + bar / 2, box.bottom + 15, label, "small", "middle"))
    whole = max(sum(steps.parts.values()), 1)
    legend, height = _parts_legend(steps.parts, whole, box.bottom + 52)
    titles = {"epoch": "by epoch", "loop": "by loop", "stretch": "over the run"}
    caption = "Averages over the steps of each bar; the plot of step times shows the single ones."
    return plot_of(
        "epochs", f"Where a step goes, {titles[steps.split_by]}", caption, height, [*parts, *legend]
    )


def flame_plot(flame: FlameGraph) -> Plot:
    """Draw spans merged by path: what lies inside of another is below it."""
    box = Box(4, 6, WIDTH - 4, 0)
    whole = sum(frame.total_ns for frame in flame.frames if frame.parent < 0) or 1
    left: list[float] = []
    free: list[float] = []
    depth: list[int] = []
    next_root = box.left
    parts = []
    hidden = 0
    for one in flame.frames:
        width = one.total_ns / whole * (box.right - box.left)
        if one.parent < 0:
            x, row = next_root, 0
            next_root += width
        else:
            x, row = free[one.parent], depth[one.parent] + 1
            free[one.parent] += width
        left.append(x)
        free.append(x)
        depth.append(row)
        if row >= MOST_FLAME_ROWS or width < LEAST_WIDTH:
            hidden += 1
            continue
        parts.append(
            _frame(x, box.top + row * FLAME_ROW, width, one.cat, one.name, _told(flame, left))
        )
    deepest = min(max(depth, default=0) + 1, MOST_FLAME_ROWS)
    notes = ["Width is time, summed over all tracks of all processes; what is inside is below."]
    more = hidden + flame.paths_left_out
    if more:
        notes.append(f"{counted(more, 'path')} too narrow or too deep to be drawn.")
    return plot_of(
        "flame", "Where the time goes", " ".join(notes), box.top + deepest * FLAME_ROW + 6, parts
    )


def _told(flame: FlameGraph, so_far: list[float]) -> str:
    number = len(so_far) - 1
    frame_ = flame.frames[number]
    above = flame.frames[frame_.parent] if frame_.parent >= 0 else None
    of_above = (
        f"{frame_.total_ns / above.total_ns:.1%} of {above.name}"
        if above is not None and above.total_ns
        else ""
    )
    said = [f"total {time_text(frame_.total_ns)}"]
    if frame_.parent >= 0:
        said.append(f"self {time_text(frame_.self_ns)}, {counted(frame_.count, 'span')}")
    name = f"{frame_.cat}: {frame_.name}" if frame_.cat else frame_.name
    return tip(name, *said, of_above)


def _frame(x: float, y: float, width: float, cat: str, name: str, attribute: str) -> str:
    colour = of_span(cat, name)
    edge = ' class="edge"' if width > 2 else ""
    shape = (
        f'<rect{edge} x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{FLAME_ROW - 1:g}" '
        f'fill="{colour}" {attribute}/>'
    )
    if width < NAMED_WIDTH:
        return shape
    label = fitted(name, width - 6)
    return shape + (text(x + 4, y + 12.5, label, f"{ink_on(colour)} name") if label else "")


def slow_step_plot(number: int, step: SlowStepFigures) -> Plot:
    """Draw what the thread that trains did in a step, over its time."""
    rows = min(max((span.depth for span in step.spans), default=0) + 1, 12)
    box = Box(8, 6, WIDTH - 8, 8 + rows * FLAME_ROW)
    ends = [span.after_ns + span.dur_ns for span in step.spans]
    across = Axis([0.0, float(max([step.ns, *ends]))], box.left, box.right)
    size, unit = unit_of_ns(across.high)
    parts = [
        frame(box, across, None, x_title=f"time in the step ({unit})", x_size=size, x_marks=10)
    ]
    for span in step.spans:
        if span.depth >= rows:
            continue
        x = across.at(span.after_ns)
        width = max(across.at(span.after_ns + span.dur_ns) - x, 0.6)
        said = tip(
            f"{span.cat}: {span.name}",
            time_text(span.dur_ns),
            f"{time_text(span.after_ns)} after the beginning",
        )
        parts.append(_frame(x, box.top + span.depth * FLAME_ROW, width, span.cat, span.name, said))
    left_out = (
        f"{counted(step.spans_left_out, 'shorter span')} not drawn." if step.spans_left_out else ""
    )
    title = f"Step {step.step} of rank {step.rank}: {time_text(step.ns)}"
    return plot_of(f"slow-{number}", title, left_out, box.bottom + 36, parts)


def _places(values: Envelope, across: Axis, up: Axis) -> Iterator[Place | None]:
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
    parts += _line_legend(
        [(name, colour, dash) for name, _, colour, dash in rows], box.left + 140, 14
    )
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


def _line_legend(rows: list[tuple[str, str, str]], left: float, y: float) -> Iterator[str]:
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
        parts += line_and_band(_places(line.values, across, up), colour, dash)
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


def heat_plot(number: int, heat: HeatMap) -> Plot:
    """Draw a heat map."""
    rows, columns = len(heat.layers), len(heat.first)
    tall = min(16.0, max(4.5, HEAT_ROOM / max(rows, 1)))
    box = Box(HEAT_LEFT, HEAT_TOP, WIDTH - 12, HEAT_TOP + tall * rows)
    wide = (box.right - box.left) / max(columns, 1)
    numbers = [value for row in heat.values for value in row if isinstance(value, float | int)]
    above = [value for value in numbers if value > 0]
    # Zeros are the darkest then.
    wide_range = bool(above) and min(numbers) >= 0 and max(above) > WIDE_RANGE * min(above)
    scale = Axis(above if wide_range else numbers, 0, 1, logarithmic=wide_range)
    parts = [*_cells(heat, scale, box, tall, wide), *_layer_labels(heat, box, tall)]
    parts += _iteration_marks(heat, box, wide)
    parts.append(
        f'<path class="frame" d="M{box.left} {box.top}V{box.bottom:.1f}H{box.right}V{box.top}z"/>'
    )
    odd = any(isinstance(value, str) for row in heat.values for value in row)
    parts += _scale_legend(heat.statistic, scale, odd=odd, empty=not numbers)
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


def _layer_labels(heat: HeatMap, box: Box, tall: float) -> Iterator[str]:
    """Name as many layers as there is room for, first of all those that are not finite."""
    every = max(1, math.ceil(LABEL_ROOM / tall))
    odd = [any(isinstance(value, str) for value in row) for row in heat.values]
    named: set[int] = set()
    order = sorted(range(len(heat.layers)), key=lambda row: (not odd[row], row % every != 0, row))
    for row in order:
        if named.isdisjoint(range(row - every + 1, row + every)):
            named.add(row)
    for row, label in enumerate(short_names(heat.layers, int((HEAT_LEFT - 10) / SMALL_LETTER))):
        if row in named:
            y = box.top + (row + 0.5) * tall + 3
            kind = "small strong" if odd[row] else "small"
            yield text(box.left - 5, y, fitted(label, HEAT_LEFT * 2), kind, "end")


def _iteration_marks(heat: HeatMap, box: Box, wide: float) -> Iterator[str]:
    columns = len(heat.first)
    every = max(1, math.ceil(columns / 10))
    for column in range(0, columns, every):
        x = box.left + (column + 0.5) * wide
        yield f'<path class="grid" d="M{x:.1f} {box.bottom:.1f}v4"/>'
        yield text(x, box.bottom + 15, number_text(heat.first[column]), "", "middle")
    middle = (box.left + box.right) / 2
    yield text(middle, box.bottom + 30, "iteration", "soft", "middle")


def _scale_legend(statistic: str, scale: Axis, *, odd: bool, empty: bool) -> Iterator[str]:
    left, width = HEAT_LEFT, 240.0
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
