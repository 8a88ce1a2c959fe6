"""The plots of a report of steps and spans: their times and parts, ranks, flame graphs, the loader.

They are one subject: all have the same colours of parts and roles, and the same legends; `page/`
below knows none of these.
"""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.report.figures.flame import part_of_span
from dftrace_ai.analysis.report.series_plots import LEGEND_ROW, places_of
from dftrace_ai.analysis.texts import part_name, percent, time_text
from dftrace_ai.page.palette import LINES, ink_on
from dftrace_ai.page.svg import (
    NARROW,
    WIDTH,
    Axis,
    Box,
    Plot,
    fitted,
    frame,
    line_and_band,
    line_legend,
    number_text,
    plot_of,
    text,
    tip,
    unit_of_ns,
    unit_of_s,
)
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dftrace_ai.analysis.report.model import (
        FlameGraph,
        LoaderFigures,
        PhaseFigures,
        RankFigures,
        SlowStepFigures,
        StepFigures,
    )

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
PHASE_WORDS: Final = {
    "start-up": "start-up",
    "warm-up": "warm-up",
    "steady": "steps",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
    "between": "between steps",
    "end": "end",
}
PERCENTILE_ROOM: Final = 48.0
# The title of the axis stands above the mark of the slowest step, which may be the first.
MARK_ROOM: Final = 22.0

FLAME_ROW: Final = 18.0
MOST_FLAME_ROWS: Final = 40
LEAST_WIDTH: Final = 0.4
NAMED_WIDTH: Final = 28.0

MOST_RANK_BAR: Final = 40.0
RANK_LABEL: Final = 22.0
RANK_LEGEND: Final = 112.0
MOST_NAMED: Final = 8
LEAST_TOUCH: Final = 5.0


def of_span(cat: str, name: str) -> str:
    """Return the colour of spans: that of the part of a step that they are, or their category's."""
    return f"var(--part-{part_of_span(cat, name)})"


def times_plot(steps: StepFigures, slowest: Sequence[SlowStepFigures], width: float) -> Plot:
    """Draw the time of each step in their order, and mark the slowest, which are of any rank."""
    box = Box(64, 42, width - 12, 244)
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
            x_marks=_marks_within(width),
            y_title_above=MARK_ROOM,
        )
    )
    for start in steps.epoch_starts[1:]:
        x = across.at(start - 0.5)
        parts.append(
            f'<path class="grid" stroke-dasharray="2 3" d="M{x:.1f} {box.top}V{box.bottom}"/>'
        )
    parts += line_and_band(places_of(times, across, up), LINES[0])
    if steps.count <= FEW:
        parts += [
            f'<circle cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" r="2.5" fill="{LINES[0]}"/>'
            for x, y in zip(times.first, times.middle, strict=True)
            if y is not None
        ]
    parts += _hits(steps, across, box)
    # Of few steps few are slow.
    most = max(1, steps.count // MARKED_OF)
    own = [step for step in slowest if step.who == steps.who][:most]
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
    return plot_of("steps", "Time of each step", " ".join(notes), 282, parts, width=width)


def _marks_within(width: float) -> int:
    return 8 if width >= WIDTH else 4


def _warm_up(steps: StepFigures, across: Axis, box: Box) -> Iterator[str]:
    if steps.warm_up:
        right = min(across.at(steps.warm_up - 0.5), box.right)
        yield (
            f'<rect class="shade" x="{box.left}" y="{box.top}" width="{right - box.left:.1f}" '
            f'height="{box.bottom - box.top}"/>'
        )


def _hits(steps: StepFigures, across: Axis, box: Box) -> Iterator[str]:
    times = steps.times
    count = len(times.first)
    together = _together(count, box)
    half = (box.right - box.left) / max(count, 1) / 2
    for at in range(0, count, together):
        piece = slice(at, at + together)
        low = [value for value in times.low[piece] if value is not None]
        high = [value for value in times.high[piece] if value is not None]
        if not low or not high:
            continue
        first, last, middle = times.first[piece][0], times.last[piece][-1], times.middle[at]
        if first == last:
            said = tip(f"step {first:.0f}", time_text(low[0]))
        else:
            said = tip(
                f"steps {first:.0f} to {last:.0f}",
                "" if middle is None or len(low) > 1 else f"median {time_text(middle)}",
                f"{time_text(min(low))} to {time_text(max(high))}",
            )
        yield _hit(across.at(first) - half, across.at(last) + half, box, said)


def _together(count: int, box: Box) -> int:
    """Return how many places are told of together: on a telephone it is a finger that points."""
    width = box.right - box.left
    return max(1, math.ceil(count * (LEAST_TOUCH if width < NARROW else 1.0) / width))


def histogram_plot(steps: StepFigures, width: float) -> Plot:
    """Draw how many steps take how long."""
    box = Box(64, 46, width - 12, 226)
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
            x_marks=_marks_within(width),
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
    left = 130.0 if width >= WIDTH else 8.0
    for name, colour in rows:
        parts.append(f'<rect x="{left}" y="5" width="10" height="10" fill="{colour}"/>')
        parts.append(text(left + 15, 14, name))
        left += 40 + 6.2 * len(name)
    caption = (
        f"Median {time_text(steps.p50_ns)}, p95 {time_text(steps.p95_ns)}, p99 "
        f"{time_text(steps.p99_ns)}, longest {time_text(steps.max_ns)}, of all steps. Bars of few "
        "steps are drawn high enough to be seen."
    )
    return plot_of("distribution", "How long steps take", caption, 262, parts, width=width)


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


def parts_plot(steps: StepFigures, width: float, *, several: bool) -> Plot:
    """Draw what the steps of the rank are made of."""
    box = Box(8, 8, width - 8, 8 + BAR)
    whole = max(sum(max(ns, 0) for ns in steps.parts.values()), 1)
    parts = []
    left = box.left
    for part in shown_parts(steps.parts):
        share = steps.parts[part] / whole
        wide = share * (box.right - box.left)
        said = tip(part_name(part), percent(share), time_text(steps.parts[part]))
        parts.append(_bar(left, box.top, wide, BAR, part, said))
        label = f"{part_name(part)} {percent(share)}"
        if wide > 6.2 * len(label) + 8:
            kind = ink_on(PARTS[part])
            parts.append(text(left + 5, box.top + 21, label, f"{kind} name".strip()))
        left += wide
    legend, height = _parts_legend(steps.parts, whole, box.bottom + 20, width)
    of_rank = f" of {steps.who}" if several else ""
    caption = (
        f"All {counted(steps.count, 'step')}{of_rank}, {time_text(steps.time_ns)} "
        "together. Each moment belongs to the innermost span of the thread that trains."
    )
    parts += legend
    return plot_of("parts", "Where a step goes", caption, height, parts, width=width)


def _bar(x: float, y: float, width: float, height: float, part: str, attribute: str) -> str:
    kind = ' class="plain"' if part == "none" else f' class="edge" fill="{PARTS[part]}"'
    return (
        f'<rect{kind} x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.3):.1f}" '
        f'height="{height:.1f}" {attribute}/>'
    )


def _parts_legend(
    parts: Mapping[str, int], whole: int, top: float, width: float
) -> tuple[list[str], float]:
    """Return the legend, the greatest part first, and where it ends."""
    found = sorted(shown_parts(parts), key=lambda part: -parts[part])
    columns = 4 if width >= WIDTH else 2
    drawn = []
    for at, part in enumerate(found):
        x, y = 8 + at % columns * (width - 16) / columns, top + at // columns * LEGEND_ROW
        drawn.append(_bar(x, y - 9, 10, 10, part, ""))
        drawn.append(text(x + 15, y, f"{part_name(part)} {100 * parts[part] / whole:.1f} %"))
    return drawn, top + math.ceil(len(found) / columns) * LEGEND_ROW


def epochs_plot(steps: StepFigures, width: float) -> Plot:
    """Draw what a step is made of in each epoch."""
    box = Box(64, 30, width - 12, 216)
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
    every = max(1, math.ceil(count / (14 if width >= WIDTH else 6)))
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
    legend, height = _parts_legend(steps.parts, whole, box.bottom + 52, width)
    titles = {"epoch": "by epoch", "loop": "by loop", "stretch": "over the run"}
    caption = "Averages over the steps of each bar; the plot of step times shows the single ones."
    title = f"Where a step goes, {titles[steps.split_by]}"
    return plot_of("epochs", title, caption, height, [*parts, *legend], width=width)


# The later ones lie on top; what is steady is bare.
PHASES: Final = {
    "loop": "var(--grid)",
    "start-up": "var(--faint)",
    "warm-up": "var(--first)",
    "end": "var(--faint)",
    "evaluation": "var(--part-evaluation)",
    "checkpoint": "var(--part-checkpoint)",
    "stall": "var(--loud)",
}
PHASE_TALL: Final = 26.0


def phases_plot(phases: PhaseFigures, wall_s: float, width: float) -> Plot:
    """Draw what the rank that is shown did from the first event of the run to the last."""
    box = Box(8, 8, width - 8, 8 + PHASE_TALL)
    across = Axis([0.0, max(wall_s, 1e-9)], box.left, box.right)
    size, unit = unit_of_s(across.high)
    parts = [_phase_bar(box.left, box.top, box.right - box.left, PHASE_TALL, "var(--none)")]
    loops = 0
    for one in sorted(phases.phases, key=lambda one: [*PHASES, "steady"].index(one.kind)):
        colour = PHASES.get(one.kind)
        loops += one.kind == "loop"
        # Epochs that follow each other differ.
        if colour is None or (one.kind == "loop" and loops % 2):
            continue
        left, right = across.at(one.begin_s), across.at(one.end_s)
        took = f"{time_text((one.end_s - one.begin_s) * 1e9)} from {one.begin_s:.3f} s on"
        said = one.name if one.kind == "loop" else f"{one.kind} {one.name}".strip()
        parts.append(
            _phase_bar(left, box.top, max(right - left, 0.8), PHASE_TALL, colour, tip(said, took))
        )
    for mark in across.marks(_marks_within(width)):
        label = number_text(mark / size)
        at = across.at(mark)
        anchor = "start" if at < box.left + 20 else "end" if at > box.right - 20 else "middle"
        parts.append(text(at, box.bottom + 14, label, "small", anchor))
    y, columns = box.bottom + 34, 4 if width >= WIDTH else 2
    spent = [(kind, seconds) for kind, seconds in phases.spent_s.items() if seconds]
    for at, (kind, seconds) in enumerate(spent):
        x, line = 8 + at % columns * (width - 16) / columns, y + at // columns * LEGEND_ROW
        colour = PHASES.get(kind, "var(--none)")
        parts.append(_phase_bar(x, line - 9, 10, 10, colour))
        share = percent(seconds / max(wall_s, 1e-9))
        parts.append(text(x + 15, line, f"{PHASE_WORDS[kind]} {time_text(seconds * 1e9)}, {share}"))
    height = y + math.ceil(len(spent) / columns) * LEGEND_ROW
    caption = f"Over the time since the first event ({unit}); each moment counts once."
    if phases.phases_left_out:
        caption += f" {counted(phases.phases_left_out, 'short one')} not drawn."
    return plot_of("phases", "What the run did", caption, height, parts, width=width)


def _phase_bar(
    x: float, y: float, width: float, height: float, colour: str, attribute: str = ""
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:g}"'
    return f'<rect fill="{colour}" {place} {attribute}/>'


def ranks_plot(ranks: list[RankFigures], width: float) -> Plot:
    """Draw a bar for each rank: its median step, by what it does; those that are odd come first."""
    box = Box(64, 56, width - 12, 216)
    odd = [one for one in ranks if one.odd]
    ordered = [*odd, *(one for one in ranks if not one.odd)]
    most = max((one.p50_ns for one in ranks), default=1.0)
    up = Axis([0.0, max(most, 1.0)], box.bottom, box.top)
    size, unit = unit_of_ns(most)
    # Bare between those that are odd and the others.
    places = len(ordered) + (1 if odd and len(odd) < len(ordered) else 0)
    wide = (box.right - box.left) / max(places, 1)
    bar = min(wide * 0.85, MOST_RANK_BAR)
    every = max(1, math.ceil(RANK_LABEL / wide))
    title = f"median step ({unit})"
    parts = [
        frame(
            box,
            None,
            up,
            x_title="rank",
            y_title=title,
            y_size=size,
            y_marks=4,
            # Above the marks of those that are odd.
            y_title_above=MARK_ROOM,
        )
    ]
    last = -RANK_LABEL
    for at, one in enumerate(ordered):
        x = box.left + (at + (1 if odd and not one.odd else 0) + 0.5) * wide
        said = tip(
            f"{one.who} on {one.host}" if one.host else one.who,
            f"median step {time_text(one.p50_ns)}, without communication {time_text(one.own_ns)}",
            f"waits for data {percent(one.wait_share)}, communicates {percent(one.comm_share)}",
            "far from most ranks" if one.odd else "",
        )
        y = box.bottom
        for part, share in (
            ("compute", max(0.0, 1 - one.wait_share - one.comm_share)),
            ("wait", one.wait_share),
            ("comm", one.comm_share),
        ):
            tall = share * (box.bottom - up.at(one.p50_ns))
            y -= tall
            if tall > 0.05:
                parts.append(_bar(x - bar / 2, y, bar, tall, part, ""))
        if one.odd:
            parts.append(f'<path class="oddly" d="M{x:.1f} {y - 3:.1f}l-4 -7h8z"/>')
        parts.append(_hit(x - wide / 2, x + wide / 2, box, said))
        if x - last >= RANK_LABEL and (one.odd or (at - len(odd)) % every == 0):
            kind = "small strong" if one.odd else "small"
            parts.append(text(x, box.bottom + 15, number_of(one), kind, "middle"))
            last = x
    for at, part in enumerate(("compute", "wait", "comm")):
        x = 8 + at * RANK_LEGEND
        name = "all else" if part == "compute" else part_name(part)
        parts += [_bar(x, 5, 10, 10, part, ""), text(x + 15, 14, name)]
    return plot_of("ranks", "Ranks", _ranks_told(ranks, odd), box.bottom + 40, parts, width=width)


def number_of(one: RankFigures | SlowStepFigures) -> str:
    """Return the number of a rank, or of its process, for a place where the noun stands above."""
    return one.who.rpartition(" ")[2]


def _ranks_told(ranks: list[RankFigures], odd: list[RankFigures]) -> str:
    if not odd:
        return "A bar is the median step of a rank. No rank is far from the others."
    usual = median(one.own_ns for one in ranks if not one.odd)
    named = ", ".join(f"{one.who} {time_text(one.own_ns)}" for one in odd[:MOST_NAMED])
    more = f" and {len(odd) - MOST_NAMED:,} more" if len(odd) > MOST_NAMED else ""
    return (
        "A bar is the median step of a rank. Marked and first: those whose step without "
        f"communication is far from that of most, {time_text(usual)}: {named}{more}."
    )


SPANS_SAID: Final = (
    "Width is time, summed over all tracks of all processes; what is inside is below."
)
STACKS_SAID: Final = (
    "Of the rank that is shown, and of who loads for it: width is the time that samples stand for, "
    "colour the part of the step; what is called is below. Calls of a library within itself are "
    "not shown."
)


def flame_plot(flame: FlameGraph) -> Plot:
    """Draw spans, or samples, merged by path: what lies inside of another is below it."""
    of_spans = flame.counts == "span"
    name, title = (
        ("flame", "Where the time goes") if of_spans else ("lines", "Lines of the program")
    )
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
        colour = of_span(one.cat, one.name) if of_spans else f"var(--part-{one.part})"
        parts.append(
            _frame(x, box.top + row * FLAME_ROW, width, one.name, colour, _told(flame, left))
        )
    deepest = min(max(depth, default=0) + 1, MOST_FLAME_ROWS)
    notes = [SPANS_SAID if of_spans else STACKS_SAID]
    if hidden:
        notes.append(f"{counted(hidden, 'path')} too narrow or too deep to be seen before a zoom.")
    if flame.paths_left_out:
        notes.append(f"{counted(flame.paths_left_out, 'path')} of least time left out.")
    return plot_of(name, title, " ".join(notes), box.top + deepest * FLAME_ROW + 6, parts)


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
        said.append(f"self {time_text(frame_.self_ns)}, {counted(frame_.count, flame.counts)}")
    name = f"{frame_.cat}: {frame_.name}" if frame_.cat else frame_.name
    return tip(name, *said, of_above)


def _frame(x: float, y: float, width: float, name: str, colour: str, attribute: str) -> str:
    edge = ' class="edge"' if width > 2 else ""
    shape = (
        f'<rect{edge} x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{FLAME_ROW - 1:g}" '
        f'fill="{colour}" {attribute}/>'
    )
    if width < NAMED_WIDTH:
        return shape
    label = fitted(name, width - 6)
    return shape + (text(x + 4, y + 12.5, label, f"{ink_on(colour)} name") if label else "")


def slow_step_plot(number: int, step: SlowStepFigures, width: float, *, several: bool) -> Plot:
    """Draw what the thread that trains did in a step, over its time."""
    rows = min(max((span.depth for span in step.spans), default=0) + 1, 12)
    box = Box(8, 6, width - 8, 8 + rows * FLAME_ROW)
    ends = [span.after_ns + span.dur_ns for span in step.spans]
    across = Axis([0.0, float(max([step.ns, *ends]))], box.left, box.right)
    size, unit = unit_of_ns(across.high)
    marks = _marks_within(width)
    parts = [
        frame(box, across, None, x_title=f"time in the step ({unit})", x_size=size, x_marks=marks)
    ]
    for span in step.spans:
        if span.depth >= rows:
            continue
        x = across.at(span.after_ns)
        wide = max(across.at(span.after_ns + span.dur_ns) - x, 0.6)
        said = tip(
            f"{span.cat}: {span.name}",
            time_text(span.dur_ns),
            f"{time_text(span.after_ns)} after the beginning",
        )
        colour = of_span(span.cat, span.name)
        y = box.top + span.depth * FLAME_ROW
        parts.append(_frame(x, y, wide, span.name, colour, said))
    left_out = (
        f"{counted(step.spans_left_out, 'shorter span')} not drawn." if step.spans_left_out else ""
    )
    of_rank = f" of {step.who}" if several else ""
    title = f"Step {step.step}{of_rank}: {time_text(step.ns)}"
    return plot_of(f"slow-{number}", title, left_out, box.bottom + 36, parts, width=width)


def loader_plot(loader: LoaderFigures, width: float) -> Plot:
    """Draw the wait of a rank and the work of its workers over time."""
    top = 34 if width >= WIDTH else 64
    box = Box(64, top, width - 12, top + 182)
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
            x_marks=_marks_within(width),
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
    legend = [(name, colour, dash) for name, _, colour, dash in rows]
    if width >= WIDTH:
        parts += line_legend(legend, box.left + 140, 14)
    else:
        for at, row in enumerate(legend):
            parts += line_legend([row], 8, 14 + at * LEGEND_ROW)
    together = _together(len(middles), box)
    for at in range(0, len(middles), together):
        piece = slice(at, at + together)
        begin, end = loader.edges_s[at], loader.edges_s[min(at + together, len(middles))]
        said = [f"{name}: {fmean(shares[piece]):.0%}" for name, shares, _, _ in rows]
        place = f"{begin / size:.4g} to {end / size:.4g} {unit}"
        parts.append(_hit(across.at(begin), across.at(end), box, tip(place, *said)))
    caption = f"The training in {len(middles)} stretches of time; each point is one of them."
    title = "Wait for data, and the work of the loader"
    return plot_of("loader", title, caption, box.bottom + 36, parts, width=width)


def _hit(left: float, right: float, box: Box, attribute: str) -> str:
    return (
        f'<rect class="hit" x="{left:.1f}" y="{box.top:g}" width="{max(right - left, 0.5):.1f}" '
        f'height="{box.bottom - box.top:g}" {attribute}/>'
    )
