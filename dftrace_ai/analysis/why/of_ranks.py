"""Which of a job's ranks a finding is of: those for which its rule holds, whoever is late."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.ranks.findings import behind_others, is_beside
from dftrace_ai.analysis.ranks.partials import NOT_ANNOTATED
from dftrace_ai.analysis.thresholds import SEVERITIES, worst
from dftrace_ai.analysis.why.late_ranks import EXPLAINED, LateRanks, explains_waiting
from dftrace_ai.analysis.why.model import (
    KINDS,
    START_UP,
    Also,
    Finding,
    Input,
    Lateness,
    Rhythm,
    figures_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from dftrace_ai.analysis.why.judging import JudgedSteps
    from dftrace_ai.analysis.why.model import Kind

# Who is late, and no more in one step than in another.
EVERY_STEP: Final = frozenset({"worker", "node", "split", "stage", "stage or worker"})


class OfRank(NamedTuple):
    """A rank whose findings were completed by what the others show."""

    number: int
    steps: JudgedSteps
    findings: tuple[Finding, ...]
    # Percent of the processors of its host that others used, where they crowded it.
    others_percent: float | None


def told_of_ranks(
    judged: Sequence[OfRank], late: LateRanks, *, crowded: bool
) -> tuple[list[Finding], list[Finding]]:
    """Return the findings of at least half of the ranks with who is late, and those of fewer."""
    by_kind: dict[Kind, dict[str, list[Finding]]] = defaultdict(lambda: defaultdict(list))
    for one in judged:
        for finding in one.findings:
            by_kind[finding.kind][_thing(finding)].append(finding)
    told = [_in_place_of(by_kind["communication-bound"][""], one) for one in late.found]
    severe = [one for one in told if one.severity != "info"]
    named = {rank for one in severe for rank in one.ranks}
    waiting = min((one.cost for one in by_kind["communication-bound"][""]), default=1.0)
    is_explained = bool(late.unsure) or any(
        explains_waiting(one) or (one.ranks and one.cost >= EXPLAINED * (waiting - late.bubble))
        for one in severe
    )
    once = {rank for one in told if one.cause == "once" for rank in one.ranks}
    said = {one.rank: one for one in by_kind["not-annotated"][""]}
    common = [_with_line(one, said) for one in told]
    in_no_span = {rank for one in severe if _is_in_no_span(one) for rank in one.ranks}
    rare: list[Finding] = []
    for things in by_kind.values():
        # What grew or comes again for who is late is another thing than the waiting for it.
        alike = [
            [
                one
                for one in found
                if not (is_explained and waits(one))
                and not (once and one.kind == "slow-step" and (waits(one) or one.rank in once))
                and not (one.kind == "not-annotated" and one.rank in in_no_span)
            ]
            for found in things.values()
        ]
        most, fewer = _told_together([*filter(None, alike)], len(judged), named)
        common += most
        rare += fewer
    if any(finding.kind != "compute-bound" for finding in common):
        common = [finding for finding in common if finding.kind != "compute-bound"]
    rare = [finding for finding in rare if finding.kind != "compute-bound"]
    behind = _behind_a_bubble(judged, late, crowded=crowded)
    return _ranked(common, behind), _ranked(rare, behind)


def _thing(finding: Finding) -> str:
    """Return what of its kind a finding is: ranks that show the same one have it together."""
    if finding.kind == "input-bound":
        # That steps wait is one thing, whatever for; what passes cost to begin is another.
        return START_UP if finding.cause == START_UP else ""
    if finding.kind == "periodic" and figures_of(finding, Rhythm)["garbage"]:
        return "garbage"
    return finding.cause


def _told_together(
    alike: Sequence[Sequence[Finding]], count: int, named: Container[int | None]
) -> tuple[list[Finding], list[Finding]]:
    """Return findings of one kind that hold for half of so many ranks, and for fewer.

    Of what makes ranks late those that are named are all that are, be they half of the job.
    """
    ordered = sorted(alike, key=len, reverse=True)

    def is_half(found: Iterable[Finding]) -> bool:
        ranks = {one.rank for one in found}
        return 2 * len(ranks) >= count and not all(rank in named for rank in ranks)

    most = list(map(is_half, ordered))
    if not any(most) and is_half(one for found in ordered for one in found):
        # The kind is one of half of the ranks, which are of several of its things.
        others = (any(one.rank not in named for one in found) for found in ordered)
        most[next(at for at, some in enumerate(others) if some)] = True
    told = [_middle(found) for found in ordered]
    left_out = _beside_another(told, ordered)
    common, rare = (
        [one for one, half in zip(told, most, strict=True) if half == wanted and one != left_out]
        for wanted in (True, False)
    )
    return common, rare


def _middle(found: Sequence[Finding]) -> Finding:
    """Return the finding in the middle, which stands for all."""
    ordered = sorted(found, key=lambda finding: -finding.share)
    ranks = tuple(sorted(one.rank for one in found if one.rank is not None))
    shares = (ordered[-1].share, ordered[0].share)
    return replace(ordered[(len(ordered) - 1) // 2], ranks=ranks, of_ranks=shares)


def _beside_another(told: list[Finding], alike: Sequence[Sequence[Finding]]) -> Finding | None:
    """Put the cheaper finding of the input beside the dearer one that all of its ranks have, too.

    Its figures are those of the rank whose the dearer one's are. Returns the one that is put there.
    """
    if len(told) < 2 or told[0].kind != "input-bound":
        return None
    dear, cheap = sorted(range(2), key=lambda at: -told[at].cost)
    second = next((one for one in alike[cheap] if one.rank == told[dear].rank), None)
    if second is None or not {*told[cheap].ranks} <= {*told[dear].ranks}:
        return None
    also = Also(
        cause=second.cause,
        share=second.share,
        low=second.low,
        high=second.high,
        share_of=second.share_of,
        confidence=second.confidence,
    )
    figures = Input(**{**figures_of(told[dear], Input), "also": also})
    told[dear] = replace(told[dear], evidence=figures)
    return told[cheap]


def _in_place_of(waiting: Sequence[Finding], late: Finding) -> Finding:
    """Return who is late in every step as severe as the waiting for it, whose place it takes.

    That is a share of steps, and what it costs one of the time, of which steps may be little yet.
    """
    if not (late.ranks and late.severity == "info" and explains_waiting(late)):
        return late
    if late.cause not in EVERY_STEP:
        return late
    return replace(late, severity=worst([late.severity, *(one.severity for one in waiting)]))


def _is_in_no_span(late: Finding) -> bool:
    return figures_of(late, Lateness)["name"] == NOT_ANNOTATED


def _with_line(late: Finding, said: Mapping[int | None, Finding]) -> Finding:
    """Return who is late with the line in which that is in no span, where it alone has none."""
    other = None if late.lines or late.cause == "once" else said.get(late.rank)
    return late if other is None or not _is_in_no_span(late) else replace(late, lines=other.lines)


def waits(finding: Finding) -> bool:
    """Return whether a finding is that ranks wait for others."""
    return finding.kind == "communication-bound" or finding.cause == "comm"


def _behind_a_bubble(
    judged: Sequence[OfRank], late: LateRanks, *, crowded: bool
) -> Callable[[Finding], bool]:
    """Return which findings stand behind that of a pipeline's bubble.

    What ranks wait beyond it they wait for each other, on a crowded host or where it is little.
    """
    costs = [one.cost for one in late.found if one.cause == "bubble" and one.severity != "info"]
    shares = [
        one.share for of in judged for one in of.findings if one.kind == "communication-bound"
    ]
    if not costs or not (crowded or costs[0] >= EXPLAINED * max(shares, default=0.0)):
        return lambda _: False
    return lambda one: one.kind in {"communication-bound", "not-annotated"} or one.cause == "jitter"


def _ranked(findings: Iterable[Finding], behind: Callable[[Finding], bool]) -> list[Finding]:
    """Return findings by severity, what is sure first, then by cost, then the more special.

    Where ranks wait for others, what these do in no span comes behind it. Of who is late it may be
    unsure what in, but not that others wait.
    """
    found = list(findings)
    waiting = {rank for one in found if one.kind == "communication-bound" for rank in one.ranks}
    found.sort(
        key=lambda finding: (
            behind(finding),
            SEVERITIES.index(finding.severity),
            finding.confidence == "low" and finding.kind != "late-rank",
            finding.kind == "not-annotated" and bool(waiting - {*finding.ranks}),
            -finding.cost,
            KINDS.index(finding.kind),
        ),
    )
    return [*behind_others(found, _is_behind)]


def _is_behind(one: Finding, other: Finding) -> bool:
    if one.kind != "late-rank" or other.kind != "late-rank":
        return False
    figures, turn = figures_of(one, Lateness), figures_of(other, Lateness)["turn"]
    turns = figures["beside_turns"]
    return is_beside(other.ranks, turn, figures["beside_ranks"], beside_turns=turns)
