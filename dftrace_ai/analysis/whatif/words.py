"""What `dftrace whatif` says in sentences, and in fifteen lines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.ranks.model import is_in_one_span
from dftrace_ai.analysis.ranks.partials import GARBAGE
from dftrace_ai.analysis.ranks.words import NEXT as RANKS_NEXT
from dftrace_ai.analysis.ranks.words import (
    NEXT_OF_GARBAGE,
    NEXT_OF_SPANS,
    NOTABLE,
    OF_A_STAGE,
    bubble_text,
    more_passes,
    span_text,
)
from dftrace_ai.analysis.reading.trace_end import are_whole
from dftrace_ai.analysis.texts import (
    ARGUMENT_LETTERS,
    GPU_UNSEEN,
    few,
    in_lines,
    note_rows,
    percent,
    time_text,
)
from dftrace_ai.analysis.thresholds import severity
from dftrace_ai.wording import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.thresholds import Limit
    from dftrace_ai.analysis.whatif.model import (
        Bubble,
        Cause,
        CauseKind,
        Reason,
        Unjudged,
        WhatIf,
        Without,
    )

TITLES: Final[dict[CauseKind, str]] = {
    "none": "EVEN WORK GAINS LITTLE",
    "worker": "ONE SLOW RANK",
    "node": "SLOW NODE",
    "stage": "SLOW STAGE",
    "stage or worker": "SLOW STAGE OR RANK",
    "split": "TWO KINDS OF RANKS",
    "data": "UNEVEN DATA",
    "pauses": "PAUSES",
    "garbage collection": "GARBAGE COLLECTION",
    "jitter": "JITTER",
    "communication": "SLOW COMMUNICATION",
    "bubble": "PIPELINE BUBBLE",
    "several": "SEVERAL CAUSES",
    "abstained": "NO VERDICT",
}
NEXT: Final[dict[CauseKind, str]] = {
    "worker": "the machine of {who}: clocks and temperature; then its data. dftrace ranks tells "
    "in which span",
    "node": "the machine: clocks and temperature of {who}, other jobs on it",
    "stage": "move layers from {who} to the others",
    "stage or worker": "the machine of {who} first; if it is as the others', move layers away",
    "split": RANKS_NEXT["split"].replace("{ranks}", "{who}"),
    "data": "deal out the data by length, so that micro-batches have as much to do",
    "pauses": "what stops a rank now and then: saving, logging, other load on its host",
    "garbage collection": NEXT_OF_GARBAGE,
    "communication": "the links of {who}; then overlap, larger buckets, fewer synchronisations",
    "jitter": "cores for each rank of its own, and threads pinned to them: whoever shares one is "
    "let wait, in what it computes and in its transfers; then overlap",
    "bubble": RANKS_NEXT["bubble"],
    "several": "dftrace ranks for who is late; then the greatest of these shares",
}
IN_ONE_SPAN: Final = (
    "what {who} {does} in {span} and the others do not: hooks, other data; then the machine: "
    "clocks and temperature"
)
IN_BURSTS: Final = (
    "what {who} alone {does} then: saving, logging, its loader. dftrace ranks tells in which steps"
)
IN_SERIES: Final = "ONE RANK HAS MOST OF THE WORK"
NEXT_IN_SERIES: Final = (
    "what {who} {does} so long: dftrace ranks tells in which span; or smaller micro-batches, so "
    "that ranks work at the same time"
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
MEAN: Final = "each operation of a rank takes its mean"
GOES_WHEN: Final[dict[CauseKind, str]] = {
    "data": MEAN,
    "pauses": MEAN,
    "garbage collection": MEAN,
    "jitter": f"{MEAN}, and communication what it usually does",
    "communication": "communication takes what it usually does",
}
# By so much has what is without somebody to be more than with even work.
MORE: Final = 1.1
MOST_RANKS, MOST_KINDS, MOST_ASKED = 4, 3, 4
# From here on the words tell how much the graph misses.
MISSES: Final = 0.02
WHY: Final[dict[Reason, str]] = {
    "one rank": "one rank has a trace that can be judged, and nothing is there to compare it with",
    "few steps": "{figure:.0f} steps that all ranks have, {needed:.0f} are needed",
    "no collectives": "no collectives were found, so that nothing tells who waits for whom; {how}",
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
    """Return a result with what is to be said of it, and how severe it is by a limit."""
    silences = tuple(replace(one, why=_why(one, found)) for one in found.abstained)
    if found.slowdown is None:
        return replace(found, abstained=silences)
    cause = found.cause
    return replace(
        found,
        abstained=silences,
        unseen=(*found.unseen, *((GPU_UNSEEN,) if found.form == "host" else ())),
        severity=None if cause.kind in UNNAMED else severity(limit, _cost(found)),
        what=_what(found, found.slowdown),
        next=_next_in_turn(found) or _next(cause, found.bubble),
    )


def _cost(found: WhatIf) -> float:
    if found.cause.kind == "bubble":
        return found.cause.share
    return (found.slowdown or 1.0) - 1


def _why(one: Unjudged, found: WhatIf) -> str:
    names = ", ".join(shortened(name, ARGUMENT_LETTERS) for name in one.names[:3])
    needed = found.limits.get("steps", 0.0)
    how = "dftrace run records them, by hand ai.comm"
    how = how if are_whole(found.notes) else "the traces are not whole"
    return WHY[one.what].format(figure=one.figure, names=names or "some", needed=needed, how=how)


def _what(found: WhatIf, slowdown: float) -> str:
    cause = found.cause
    by = f"{slowdown:.3g} times slower than" if slowdown >= NOTABLE else "as fast as"
    run = f"{_but_for(found)}he run is {by} with even work."
    if cause.kind == "none":
        return f"{run} {_of_nobody(found, slowdown)}"
    if cause.kind == "abstained":
        steps = 0 if found.steps is None else found.steps.judged
        return f"{run} Of only {counted(steps, 'step')} no cause is named."
    # What a change brings may be more than all: then others would be faster than the mean, too.
    share = "All" if cause.share >= 0.995 else percent(cause.share)
    since = "" if cause.since is None else f" since step {cause.since:,}"
    if cause.kind == "bubble" and found.bubble is not None:
        told = bubble_text(found.bubble.stages, found.bubble.passes)
        return f"{run} Even so all ranks wait {percent(found.bubble.share)} of a step {told}."
    if cause.kind == "several" and found.in_turn:
        each = [_asked(one) for one in found.in_turn]
        return (
            f"{run} {len(each)} are late in every step: {_listed(each)}. {share} of that "
            "goes when all ranks do as much."
        )
    if cause.kind == "several":
        return f"{run} No single cause makes half of that."
    if cause.kind in GOES_WHEN:
        together = (
            ""
            if cause.correlation is None or cause.kind != "data"
            else " (forward and backward of one micro-batch go together, at "
            f"{cause.correlation:.2f})"
        )
        return f"{run} {share} of that goes when {GOES_WHEN[cause.kind]}{together}."
    they, do = ("they", "do") if _are_several_ranks(cause) else ("it", "does")
    told = f"{run} {share} of that goes when {_who(cause)} {do} as much as the others{since}."
    if cause.without is None or cause.without < slowdown * MORE:
        return told
    # Even work has what they do more in it, dealt out to all.
    faster = f"the run would be {cause.without:.3g} times as fast"
    # To see late that communication has ended is work here, and waiting where `ranks` tells it.
    as_others = "as little as the others do now, and saw communication end as soon"
    return f"{told} Did {they} {as_others}, {faster}."


def _but_for(found: WhatIf) -> str:
    """Return how the first sentence begins: with the steps that it is not of, if any."""
    once = () if found.steps is None else found.steps.once
    if not once or found.steps is None:
        return "T"
    steps = "step" if len(once) == 1 else "steps"
    numbers = " and ".join(f"{step:,}" for step in once)
    return f"But for {steps} {numbers}, in which rank {found.steps.once_rank} was late once, t"


def _of_nobody(found: WhatIf, slowdown: float) -> str:
    cause = found.cause
    if cause.ranks:
        without = found.by_rank[cause.ranks[0]].without or 1.0
        return (
            "Ranks work one after the other: shared out their work would take as long; did "
            f"{_who(cause)} as little as the others, the run would be {without:.3g} times as fast."
        )
    if slowdown < found.limits["slowdown"]:
        return f"Less than {found.limits['slowdown']:g} times has no cause."
    return (
        "That is by turns, now on this rank and now on that: less than "
        f"{found.limits['jitter']:g} times is nothing to look for."
    )


def _listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them, of many the first."""
    first = [*names[:MOST_RANKS]]
    more = len(names) - len(first)
    rest = [f"{more:,} more"] if more else [first.pop()]
    return f"{', '.join(first)} and {rest[0]}"


def _next_in_turn(found: WhatIf) -> str:
    """Return what to try where several are late, by unlike causes."""
    if found.cause.kind != "several" or not found.in_turn:
        return ""
    each = ", then ".join(_asked(one) for one in found.in_turn[:MOST_RANKS])
    return f"{each}: dftrace ranks tells in which span each is late, and what to look at"


def _next(cause: Cause, bubble: Bubble | None) -> str:
    text, span = NEXT.get(cause.kind, ""), cause.excess[0].name if cause.excess else ""
    if cause.kind == "none" and cause.ranks:
        text = NEXT_IN_SERIES
    elif cause.kind == "stage" and is_in_one_span(cause.excess):
        text = f"{OF_A_STAGE}; or {text}"
    elif cause.kind == "worker":
        of_span = NEXT_OF_SPANS.get(span.partition("/")[0])
        if span == GARBAGE:
            text = NEXT["garbage collection"]
        elif cause.once is not None:
            text = RANKS_NEXT["once"].replace("{ranks}", "{who}")
        elif cause.in_bursts:
            text = IN_BURSTS
        elif of_span:
            text = of_span
        elif is_in_one_span(cause.excess):
            text = IN_ONE_SPAN
    who = _who(cause)
    more = "" if bubble is None else more_passes(bubble.stages, bubble.passes)
    once = cause.once or 0
    return text.format(
        who=who,
        stages=who,
        does="do" if _are_several_ranks(cause) else "does",
        stages_do="does" if len(cause.stages) == 1 else "do",
        more=more,
        step=once,
        behind=once + 1,
        span=span_text(span),
        place=f"the host of {who}",
    )


def _are_several_ranks(cause: Cause) -> bool:
    return len(cause.ranks) > 1 and not (cause.hosts or cause.stages)


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
        title = "ONE RANK PAUSES" if found.cause.once is None else "ONE RANK WAS LATE ONCE"
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
    took, ideal = time_text(found.measured_ns), time_text(found.ideal_ns)
    told = f"{took} on average, with even work {ideal}"
    error = abs(found.replay_error or 0.0)
    misses = f"; the model misses {error:.1%} of it" if error >= MISSES else ""
    yield "step", told + misses
    if found.bubble is not None and found.cause.kind != "bubble":
        told = bubble_text(found.bubble.stages, found.bubble.passes)
        yield "bubble", f"{percent(found.bubble.share)} of a step with even work all wait {told}"
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
    if found.in_turn and not found.without:
        each = [f"{_asked(one)} {one.ratio:.3g}" for one in found.in_turn[:MOST_RANKS]]
        yield (
            "without",
            f"{', and '.join(each)} times as fast, each without those before it as well",
        )
    elif ranks and not found.without:
        first = sorted(ranks, key=lambda one: (-one[0], one[1]))[:MOST_RANKS]
        text = ", ".join(f"rank {rank} {ratio:.3g}" for ratio, rank in first)
        yield "without", f"{text} times as fast"
    if found.waste_gpu_hours >= 0.01:
        yield "lost", f"{found.waste_gpu_hours:,.3g} hours of GPUs"


def _without(asked: Without) -> str:
    if asked.ratio < NOTABLE:
        return f"{_asked(asked)}: the run would take as long"
    faster = f"the run would be {asked.ratio:.3g} times as fast"
    return f"{_asked(asked)}: {faster}, {time_text(asked.saved_ns)} a step less"


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
    odd = f", without {steps.odd:,} in which other things are done" if steps.odd else ""
    return f"{of}{odd}, {counted(found.operations, 'operation')}{alone}"
