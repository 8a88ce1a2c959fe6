"""What `dftrace whatif` says in sentences, and in fifteen lines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.limits import severity
from dftrace_ai.analysis.ranks.model import is_in_one_span
from dftrace_ai.analysis.ranks.partials import GARBAGE
from dftrace_ai.analysis.ranks.words import (
    NEXT_OF_GARBAGE,
    NEXT_OF_SPANS,
    OF_A_STAGE,
    span_text,
)
from dftrace_ai.analysis.texts import (
    ARGUMENT_LETTERS,
    GPU_UNSEEN,
    few,
    in_lines,
    note_rows,
    percent,
    time_text,
)
from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.limits import Limit
    from dftrace_ai.analysis.whatif.model import Cause, CauseKind, Reason, Unjudged, WhatIf, Without

TITLES: Final[dict[CauseKind, str]] = {
    "none": "EVEN WORK GAINS LITTLE",
    "worker": "ONE SLOW RANK",
    "node": "SLOW NODE",
    "stage": "SLOW STAGE",
    "stage or worker": "SLOW STAGE OR RANK",
    "data": "UNEVEN DATA",
    "pauses": "PAUSES",
    "garbage collection": "GARBAGE COLLECTION",
    "communication": "SLOW COMMUNICATION",
    "several": "SEVERAL CAUSES",
    "abstained": "NO VERDICT",
}
NEXT: Final[dict[CauseKind, str]] = {
    "worker": "the machine of {who}: clocks and temperature; then its data. dftrace ranks tells "
    "in which span",
    "node": "the machine: clocks and temperature of {who}, other jobs on it",
    "stage": "move layers from {who} to the others",
    "stage or worker": "the machine of {who} first; if it is as the others', move layers away",
    "data": "deal out the data by length, so that micro-batches have as much to do",
    "pauses": "what stops a rank now and then: saving, logging, other load on its host",
    "garbage collection": NEXT_OF_GARBAGE,
    "communication": "the links of {who}; then overlap, larger buckets, fewer synchronisations",
    "several": "dftrace ranks for who is late; then the greatest of these shares",
}
IN_ONE_SPAN: Final = (
    "what {who} does in {span} and the others do not: hooks, other data; then the machine: clocks "
    "and temperature"
)
IN_BURSTS: Final = (
    "what {who} alone does then: saving, logging, its loader. dftrace ranks tells in which steps"
)
IN_SERIES: Final = "ONE RANK HAS MOST OF THE WORK"
NEXT_ON_ONE_HOST: Final = (
    "cores for each rank of its own: on one host whoever shares one is let wait; then overlap, "
    "larger buckets, fewer synchronisations"
)
NEXT_IN_SERIES: Final = (
    "what {who} does so long: dftrace ranks tells in which span; or smaller micro-batches, so that "
    "ranks work at the same time"
)
# By how many times the sum of what is asked for is told.
SHARES: Final = {
    "few": "the few ranks with most work",
    "rank": "all ranks alike",
    "stage": "stages alike",
    "within": "each operation as usual",
    "comm": "communication as usual",
}
UNNAMED: Final = frozenset({"none", "abstained"})
# Fewer are not told of beside the cause.
LEAST_SLOWDOWN: Final = 1.01
MOST_RANKS, MOST_KINDS, MOST_ASKED = 4, 3, 4
# From here on the words tell how much the graph misses.
MISSES: Final = 0.02
WHY: Final[dict[Reason, str]] = {
    "one rank": "one rank has a trace, and there is nothing to compare it with",
    "few steps": "{figure:.0f} steps that all ranks have, {needed:.0f} are needed",
    "no collectives": "no collectives were found, so that nothing tells who waits for whom; "
    "dftrace run records them, by hand ai.comm",
    "clocks": "the clocks of {names} cannot be compared with the others'",
    "circle": "what is before what goes round in a circle, so that calls are matched wrongly: "
    "{names}",
    "replay": "the steps as they were take {figure:.0%} less or more when they are put together "
    "again, so that what is left out of them would be wrong",
    "negative transfers": "{figure:.1%} of communication ended before it could have begun",
    "structure": "steps differ in what is done in them: {figure:.0%} of those of the ranks "
    "have other operations ({names})",
    "enqueued": "collectives end when they are enqueued, and no spans of the GPU tell how long "
    "they took",
    "unlike work": "with the mean of all ranks in place of each one's work the run would be no "
    "faster: what has one name is not one work",
}


def in_words(found: WhatIf, limit: Limit) -> WhatIf:
    """Return a result with what is to be said of it, and how severe it is.

    Args:
        found: with its figures.
        limit: from which slowdown on, less 1, it is a warning, and from which critical.
    """
    silences = tuple(replace(one, why=_why(one, found)) for one in found.abstained)
    if found.slowdown is None:
        return replace(found, abstained=silences)
    cause = found.cause
    return replace(
        found,
        abstained=silences,
        unseen=(GPU_UNSEEN,) if found.form == "host" else (),
        severity=None if cause.kind in UNNAMED else severity(limit, found.slowdown - 1),
        what=_what(found, found.slowdown),
        next=_next(cause, on_one_host=not found.by_host),
    )


def _why(one: Unjudged, found: WhatIf) -> str:
    names = ", ".join(shortened(name, ARGUMENT_LETTERS) for name in one.names[:3])
    needed = found.limits.get("steps", 0.0)
    return WHY[one.what].format(figure=one.figure, names=names or "some", needed=needed)


def _what(found: WhatIf, slowdown: float) -> str:
    cause = found.cause
    run = f"The run is {slowdown:.3g} times slower than with even work."
    if cause.kind == "none" and cause.ranks:
        without = found.by_rank[cause.ranks[0]].without or 1.0
        return (
            f"{run} Ranks work one after the other: shared out their work would take as long; did "
            f"{_who(cause)} as little as the others, the run would be {without:.3g} times as fast."
        )
    if cause.kind == "none":
        return f"{run} Less than {found.limits['slowdown']:g} times has no cause."
    if cause.kind == "abstained":
        steps = 0 if found.steps is None else found.steps.judged
        return f"{run} Of only {counted(steps, 'step')} no cause is named."
    # What a change brings may be more than all: then others would be faster than the mean, too.
    share = "All" if cause.share >= 0.995 else percent(cause.share)
    since = "" if cause.since is None else f" since step {cause.since:,}"
    if cause.kind == "several":
        return f"{run} No single cause makes half of that."
    if cause.kind in {"data", "pauses", "garbage collection"}:
        together = (
            ""
            if cause.correlation is None
            else " (forward and backward of one micro-batch go together, at "
            f"{cause.correlation:.2f})"
        )
        return f"{run} {share} of that goes when each operation of a rank takes its mean{together}."
    if cause.kind == "communication":
        return f"{run} {share} of that goes when communication takes what it usually does."
    who = _who(cause)
    return f"{run} {share} of that goes when {who} does as much as the others{since}."


def _next(cause: Cause, *, on_one_host: bool) -> str:
    text, span = NEXT.get(cause.kind, ""), cause.excess[0].name if cause.excess else ""
    if cause.kind == "communication" and on_one_host:
        text = NEXT_ON_ONE_HOST
    elif cause.kind == "none" and cause.ranks:
        text = NEXT_IN_SERIES
    elif cause.kind == "stage" and is_in_one_span(cause.excess):
        text = f"{OF_A_STAGE}; or {text}"
    elif cause.kind == "worker":
        of_span = NEXT_OF_SPANS.get(span.partition("/")[0])
        if span == GARBAGE:
            text = NEXT["garbage collection"]
        elif cause.in_bursts:
            text = IN_BURSTS
        elif of_span:
            text = of_span
        elif is_in_one_span(cause.excess):
            text = IN_ONE_SPAN
    who = _who(cause)
    return text.format(who=who, stages=who, span=span_text(span), place=f"the host of {who}")


def _who(cause: Cause) -> str:
    if cause.hosts:
        return f"host {', '.join(cause.hosts[:3])}"
    if cause.stages:
        return f"stage {few(cause.stages)}"
    if cause.kinds:
        return ", ".join(cause.kinds[:MOST_KINDS])
    if len(cause.ranks) == 1:
        return f"rank {cause.ranks[0]}"
    return f"ranks {few(cause.ranks)}" if cause.ranks else "these ranks"


def verdict_lines(found: WhatIf) -> list[str]:
    r"""Return what `dftrace whatif` prints, in fifteen lines at most.

    Args:
        found: of a job.

    Example::

        print(*verdict_lines(whatif(["out/"])), sep="\n")
    """
    return in_lines(_head(found), _rows(found))


def _head(found: WhatIf) -> Iterator[str]:
    severe = f"  ({found.severity})" if found.severity else ""
    title = TITLES[found.cause.kind]
    if found.cause.kind == "worker" and len(found.cause.ranks) > 1:
        title = "SLOW RANKS"
    elif found.cause.kind == "none" and found.cause.ranks:
        title = IN_SERIES
    elif found.cause.kind == "worker" and found.cause.in_bursts:
        title = "ONE RANK PAUSES"
    yield f"{title}{severe}"
    if found.what:
        yield from (found.what, "")


def _rows(found: WhatIf) -> Iterator[tuple[str, str]]:
    if found.slowdown is not None:
        yield from _figures(found)
    if found.together is not None:
        yield "without", f"{_without(found.together)}{_alone(found)}"
    else:
        yield from (("without", _without(asked)) for asked in found.without)
    if found.next:
        yield "do next", found.next
    for one in found.abstained:
        yield "because" if found.slowdown is None else "silent", one.why
    yield from note_rows(found.running, found.notes)
    yield "judged", _judged(found)
    if found.unseen:
        yield "unseen", "; ".join(found.unseen)


def _figures(found: WhatIf) -> Iterator[tuple[str, str]]:
    told = f"{time_text(found.measured_ns)}, with even work {time_text(found.ideal_ns)}"
    error = abs(found.replay_error or 0.0)
    misses = f"; the model misses {error:.1%} of it" if error >= MISSES else ""
    yield "step", told + misses
    if found.shares is not None:
        shares = {name: getattr(found.shares, field) for field, name in SHARES.items()}
        ordered = sorted(shares.items(), key=lambda item: -item[1])
        yield (
            "goes with",
            ", ".join(f"{name} {percent(min(max(share, 0.0), 1.0))}" for name, share in ordered),
        )
    ranks = [
        (figures.without, rank)
        for rank, figures in found.by_rank.items()
        if figures.without is not None and figures.without >= LEAST_SLOWDOWN
    ]
    if ranks and not found.without:
        first = sorted(ranks, key=lambda one: (-one[0], one[1]))[:MOST_RANKS]
        text = ", ".join(f"rank {rank} {ratio:.3g}" for ratio, rank in first)
        yield "without", f"{text} times as fast"
    if found.waste_gpu_hours >= 0.01:
        yield "lost", f"{found.waste_gpu_hours:,.3g} hours of GPUs"


def _without(asked: Without) -> str:
    faster = f"the run would be {asked.ratio:.3g} times as fast"
    return f"{_asked(asked)}: {faster}, {time_text(max(asked.saved_ns, 0))} a step less"


def _alone(found: WhatIf) -> str:
    """Return what each of several would bring by itself."""
    each = [f"{_asked(one)} {one.ratio:.3g}" for one in found.without[:MOST_ASKED]]
    more = len(found.without) - MOST_ASKED
    return f"; each alone: {', '.join(each)}" + (f" and {more:,} more" if more > 0 else "")


def _asked(asked: Without) -> str:
    return ", ".join(f"{dimension} {value}" for dimension, value in asked.asked)


def _judged(found: WhatIf) -> str:
    steps, ranks = found.steps, counted(found.ranks, "rank")
    if steps is None:
        return ranks
    of = f"{counted(steps.judged, 'step')} of {steps.common:,} of {ranks}"
    alone = ", each step by itself" if steps.alone else ""
    return f"{of}, {counted(found.operations, 'operation')}{alone}"
