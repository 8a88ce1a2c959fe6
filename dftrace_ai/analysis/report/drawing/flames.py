"""Flame graphs: of all spans by path, and of the spans of one step over its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.report.drawing.axes import Axis, Box, frame, unit_of_ns
from dftrace_ai.analysis.report.drawing.colours import ink_on, of_span
from dftrace_ai.analysis.report.drawing.svg import WIDTH, Plot, fitted, plot_of, text, tip
from dftrace_ai.analysis.why.words import time_text
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from dftrace_ai.analysis.report.model import FlameGraph, SlowStepFigures

__all__ = ["flame_plot", "slow_step_plot"]

ROW: Final = 18.0
MOST_ROWS: Final = 40
LEAST_WIDTH: Final = 0.4
NAMED_WIDTH: Final = 28.0


def flame_plot(flame: FlameGraph) -> Plot:
    """Draw spans merged by path: what lies inside of another is below it.

    Args:
        flame: the frames.
    """
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
        if row >= MOST_ROWS or width < LEAST_WIDTH:
            hidden += 1
            continue
        parts.append(_frame(x, box.top + row * ROW, width, one.cat, one.name, _told(flame, left)))
    deepest = min(max(depth, default=0) + 1, MOST_ROWS)
    notes = ["Width is time, summed over all tracks of all processes; what is inside is below."]
    more = hidden + flame.paths_left_out
    if more:
        notes.append(f"{counted(more, 'path')} too narrow or too deep to be drawn.")
    return plot_of(
        "flame", "Where the time goes", " ".join(notes), box.top + deepest * ROW + 6, parts
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
        f'<rect{edge} x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{ROW - 1:g}" '
        f'fill="{colour}" {attribute}/>'
    )
    if width < NAMED_WIDTH:
        return shape
    label = fitted(name, width - 6)
    return shape + (text(x + 4, y + 12.5, label, f"{ink_on(colour)} name") if label else "")


def slow_step_plot(number: int, step: SlowStepFigures) -> Plot:
    """Draw what the thread that trains did in a step, over its time.

    Args:
        number: of the step among the slowest.
        step: the step.
    """
    rows = min(max((span.depth for span in step.spans), default=0) + 1, 12)
    box = Box(8, 6, WIDTH - 8, 8 + rows * ROW)
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
        parts.append(_frame(x, box.top + span.depth * ROW, width, span.cat, span.name, said))
    left_out = (
        f"{counted(step.spans_left_out, 'shorter span')} not drawn." if step.spans_left_out else ""
    )
    title = f"Step {step.step} of rank {step.rank}: {time_text(step.ns)}"
    return plot_of(f"slow-{number}", title, left_out, box.bottom + 36, parts)
