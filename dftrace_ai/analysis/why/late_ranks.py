"""Who is late, as a finding of `dftrace why`: in what, in which line, and how long others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.model import LIMITS as RANK_LIMITS
from dftrace_ai.analysis.ranks.model import bubble_share
from dftrace_ai.analysis.ranks.partials import GARBAGE
from dftrace_ai.analysis.texts import time_text
from dftrace_ai.analysis.thresholds import Abstention
from dftrace_ai.analysis.why.model import Finding, Lateness, LateRank, SlowSteps, figures_of
from dftrace_ai.analysis.why.sentences import because_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dftrace_ai.analysis.ranks.model import Finding as RankFinding
    from dftrace_ai.analysis.ranks.partials import RankPartial
    from dftrace_ai.analysis.thresholds import Limits
    from dftrace_ai.analysis.why.judging import JudgedSteps, OwnTime
    from dftrace_ai.analysis.why.model import FindingLine

WHOM: Final = "whom ranks wait for"
# Of more late ranks the first are looked at for the function in which they are.
MOST_APART: Final = 4
# What ranks wait in a step is explained by who is late where that is so much of it.
EXPLAINED: Final = 0.5


class LateRanks(NamedTuple):
    """Who is late; of too few steps to say it, who seems to be."""

    found: tuple[Finding, ...] = ()
    unsure: tuple[Abstention, ...] = ()
    bubble: float = 0.0  # the part of a step that a pipeline waits with even work, too


def explains_waiting(late: Finding) -> bool:
    """Return whether who is late makes most of what ranks wait in a step."""
    return figures_of(late, Lateness)["explains"] >= EXPLAINED


def late_ranks_of(
    partials: Sequence[RankPartial], judged: Mapping[int, JudgedSteps], *, breaks_off: bool
) -> LateRanks:
    """Return which ranks the others wait for, as `dftrace ranks` finds them."""
    # Late: most trainings are of one rank.
    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.ranks.judging import Judged
    from dftrace_ai.analysis.ranks.lateness import lateness_of

    together = RanksOfJob.of(partials, breaks_off=breaks_off)
    lateness = lateness_of(together, scores=False)
    if lateness.abstains:
        of_few = lateness.abstains == "few steps"
        return LateRanks(unsure=_unsure(judged, RANK_LIMITS) if of_few else ())
    found = Judged(together, lateness, RANK_LIMITS).findings()
    bubble = bubble_share(*together.pipeline) if together.pipeline else 0.0
    told = (_late_rank(one, judged, bubble) for one in found if one.kind != "memory")
    return LateRanks(tuple(told), bubble=bubble)


def _unsure(judged: Mapping[int, JudgedSteps], limits: Limits) -> tuple[Abstention, ...]:
    """Return who works so much longer than others that it may be whom these wait for."""
    own = {number: of.own.usual for number, of in judged.items()}
    if len(own) < 2:
        return ()
    number = max(own, key=lambda one: (own[one].ns, -one))
    others = [of for one, of in own.items() if one != number]
    longer = own[number].ns - float(np.median([one.ns for one in others]))
    waits = float(np.median([one.comm for one in others])) - own[number].comm
    if waits <= 0 or longer < EXPLAINED * waits:
        return ()
    return (
        Abstention(
            WHOM,
            f"rank {number} works {time_text(longer)} longer in a step, and the others wait "
            f"{time_text(waits)} longer; {limits['steps'].warning:g} steady steps are needed to "
            "say that they do for it",
        ),
    )


def _late_rank(late: RankFinding, judged: Mapping[int, JudgedSteps], bubble: float) -> Finding:
    rare = late.turn in {"bursts", "once"}
    figure = "last" if late.since is not None else "mean" if rare else "usual"
    own: dict[int, OwnTime] = {number: getattr(of.own, figure) for number, of in judged.items()}
    others = [one for number, one in own.items() if number not in late.ranks] or [*own.values()]
    waited = late.evidence.waited_in
    waits = float(np.median([one.comm for one in others])) if waited is None else float(waited.ns)
    shown = [number for number in late.ranks if number in own] or [*own][:1]
    usual = float(np.median([one.ns for one in others]))
    longer = max(own[number].ns for number in shown) - usual if late.ranks else float(late.late_ns)
    # Of a pipeline ranks wait with even work, too.
    filling = bubble * late.evidence.step_ns if late.kind not in {"bubble", "jitter"} else 0.0
    # What some steps are longer by explains what ranks wait in all of them by what it costs.
    makes, of = longer, waits
    if not late.ranks:
        makes = late.cost * late.evidence.step_ns
        of = float(np.mean([one.own.mean.comm for one in judged.values()]))
    evidence = Lateness(
        turn=late.turn,
        hosts=list(late.hosts),
        stages=list(late.stages),
        since=late.since,
        late_ns=late.late_ns,
        last_share=late.last_share,
        without=late.without,
        name=late.name,
        name_part=late.name_part,
        longer_ns=round(longer),
        waits_ns=round(waits),
        explains=round(min(max(makes, 0.0) / max(of - filling, 1.0), 1.0), 6),
        beside_ranks=list(late.evidence.beside_ranks),
        beside_turns=late.evidence.beside_turns,
    )
    lines, of_line = _line_of(shown[0], late, judged)
    return Finding(
        "late-rank",
        late.kind,
        late.severity,
        late.confidence,
        late.cost,
        late.low,
        min(2 * late.cost - late.low, 1.0),
        "training",
        cost=late.cost,
        what=late.what,
        because=because_of(late, waits),
        next=of_line or f"{late.next[:1].upper()}{late.next[1:]}.",
        evidence=evidence,
        ranks=late.ranks,
        rank=shown[0],
        late_ranks=tuple(_late(number, own[number], others) for number in shown if late.ranks),
        lines=lines,
    )


def _line_of(
    number: int, late: RankFinding, judged: Mapping[int, JudgedSteps]
) -> tuple[tuple[FindingLine, ...], str]:
    """Return a late rank's line in most steps, or in those of a ONCE; what to try where alone."""
    if late.turn == "once":
        return _line_of_steps(late.evidence.steps or 1, judged.get(number)), ""
    functions = {of: one.functions for of, one in judged.items()}
    if not late.ranks or not any(functions.values()):
        return (), ""
    # Late: most traces hold no samples of stacks.
    from dftrace_ai.analysis.why.carriers import line_of_late_rank

    # Several may be late in a function each.
    apart: dict[tuple[str, str], tuple[FindingLine, str]] = {}
    for one in dict.fromkeys((number, *late.ranks[:MOST_APART])):
        some, then = line_of_late_rank(one, late.ranks, late.late_ns, functions)
        for line in some:
            if line.carrier is not None:
                apart.setdefault((line.carrier.function, line.carrier.file), (line, then))
    lines = tuple(line for line, _ in apart.values())
    following = " ".join(then for _, then in apart.values())
    if not all(then for _, then in apart.values()):
        following = ""
    # Garbage is collected wherever a rank happens to be.
    return lines, "" if late.name == GARBAGE else following


def _line_of_steps(count: int, judged: JudgedSteps | None) -> tuple[FindingLine, ...]:
    """Return what a rank tells of its slow steps by itself, where it has no others than these."""
    for one in judged.findings if judged else ():
        if one.kind == "slow-step":
            # What goes on into the step behind one makes that slow, too.
            steps = figures_of(one, SlowSteps)["steps"]
            apart = sum(step - 1 not in steps for step in steps)
            return one.lines if apart == count else ()
    return ()


def _late(number: int, own: OwnTime, others: Sequence[OwnTime]) -> LateRank:
    usual = {part: float(np.median([one.parts[part] for one in others])) for part in own.parts}
    part = max(own.parts, key=lambda name: own.parts[name] - usual[name])
    return LateRank(number, part, round(own.parts[part]), round(usual[part]))
