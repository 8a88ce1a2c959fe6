"""What a torn file tells of a training: the steps of which no track was lost with its end.

A recorder writes what its threads have put down by turns, and collectives, which end later, behind
the steps that called them. A file that is cut has the last steps without what they waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading.clock_faults import LATEST_NS
from dftrace_ai.analysis.steps.roles import GPU_ROLES
from dftrace_ai.analysis.steps.spans import rows_of

if TYPE_CHECKING:
    from dftrace_ai.analysis.steps.roles import Role
    from dftrace_ai.analysis.steps.spans import Spans
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts

# What there is one of for each step, as far as it is recorded.
MARKS: Final[tuple[Role, ...]] = ("step", "block", "optimizer")
# An argument of the steps of `auto` alone.
BY_AUTO: Final = "microbatches"


def is_by_auto(spans: Spans) -> bool:
    """Return whether `auto` has recorded the last step, and so all that it knows."""
    steps = rows_of(spans.has("step"))
    return len(steps) > 0 and BY_AUTO in spans.args(int(steps[-1]))


def before_the_tear(spans: Spans, tid: int | None, header: HeaderFacts) -> tuple[Spans, str]:
    """Return the spans of a torn file that tell of whole steps, and what is to be said of others.

    Args:
        spans: all that are left.
        tid: the thread that trains.
        header: which rank it is of how many, whose collectives `auto` records.
    """
    if tid is None:
        return spans, ""
    beside = spans.tid != tid
    expected = (header.world_size or 1) > 1 and is_by_auto(spans)
    collectives = spans.has("comm") & beside
    until, missing = LATEST_NS, "collectives"
    if expected or collectives.any():
        until = int(spans.end_ns[collectives].max(initial=-1))
    # Whether a GPU was used nobody says.
    on_gpu = spans.has(*GPU_ROLES) & beside
    if on_gpu.any() and (last_ns := int(spans.end_ns[on_gpu].max())) < until:
        until, missing = last_ns, "work of the GPU"
    steps = next((mask for role in MARKS if (mask := spans.has(role)).any()), ~beside)
    # The step in which the last of them lies is whole.
    reached = spans.end_ns[steps & (spans.start_ns <= until)]
    whole = spans.end_ns <= max(until, int(reached.max(initial=-1)))
    count, lost = int(steps.sum()), int((steps & ~whole).sum())
    if not lost:
        return spans, ""
    last = "" if lost == count else "last "
    last += "step" if lost == 1 else f"{lost:,} steps"
    who = "" if header.rank is None else f" of rank {header.rank}"
    said = f"the {missing} of the {last}{who}, which cannot be judged"
    return spans.at(whole), said
