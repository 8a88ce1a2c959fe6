"""Plots of steps: their times in order, how they are spread, and what they are made of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.report.drawing.axes import Axis, Box, frame, unit_of_ns
from dftrace_ai.analysis.report.drawing.colours import LINES, PARTS, ink_on
from dftrace_ai.analysis.report.drawing.lines import band_and_line
from dftrace_ai.analysis.report.drawing.svg import WIDTH, Plot, plot_of, text, tip
from dftrace_ai.analysis.why.words import part_name, percent, time_text
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dftrace_ai.analysis.report.model import SlowStepFigures, StepFigures

__all__ = ["epochs_plot", "histogram_plot", "parts_plot", "times_plot"]

WIDE: Final = 10.0
FEW: Final = 60
LEAST_BAR: Final = 1.5
BAR: Final = 34.0
MOST_BAR: Final = 110.0
MARKED_OF: Final = 10
LEGEND_ROW: Final = 16.0
PERCENTILE_ROOM: Final = 48.0
# The title of the axis stands above the mark of the slowest step, which may be the first.
MARK_ROOM: Final = 22.0


def times_plot(steps: StepFigures, slowest: Sequence[SlowStepFigures]) -> Plot:
    """Draw the time of each step in their order.

    Args:
        steps: their figures.
        slowest: the slowest steps, of any rank.
    """
    box = Box(64, 42, WIDTH - 12, 244)
    times = steps.times
    wide = steps.max_ns > WIDE * max(steps.p50_ns, 1.0)
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
    parts += band_and_line(times, across, up, LINES[0])
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
        yield (
            f'<rect class="hit" x="{x - half:.1f}" y="{box.top}" width="{2 * half:.1f}" '
            f'height="{box.bottom - box.top}" {said}/>'
        )


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
    legend, height = _legend(steps.parts, whole, box.bottom + 20)
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


def _legend(parts: Mapping[str, int], whole: int, top: float) -> tuple[list[str], float]:
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
    legend, height = _legend(steps.parts, whole, box.bottom + 52)
    titles = {"epoch": "by epoch", "loop": "by loop", "stretch": "over the run"}
    caption = "Averages over the steps of each bar; the plot of step times shows the single ones."
    return plot_of(
        "epochs", f"Where a step goes, {titles[steps.split_by]}", caption, height, [*parts, *legend]
    )
