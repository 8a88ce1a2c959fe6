"""Who is late, as findings: how sure that is, in what order they are told, and in sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.ranks.findings import behind_others, is_beside
from dftrace_ai.analysis.ranks.model import (
    KINDS,
    LIMITS,
    Evidence,
    Finding,
    RanksSeen,
    Waiting,
)
from dftrace_ai.analysis.ranks.partials import NOT_ANNOTATED
from dftrace_ai.analysis.ranks.words import once_text, sentences_of
from dftrace_ai.analysis.texts import few, percent, time_text
from dftrace_ai.analysis.thresholds import SEVERITIES, severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dftrace_ai.analysis.ranks.collectives import WaitedIn
    from dftrace_ai.analysis.ranks.findings import Late, Lateness
    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.ranks.links import SlowLink
    from dftrace_ai.analysis.thresholds import Confidence, Limits, Severity

# Of more ranks without a trace the last may well be one.
MOST_MISSING: Final = 0.1
# No job is a hundred times as fast without a link.
MOST_FASTER: Final = 0.01


class Judged:
    """Makes findings of who is late.

    Args:
        job: the ranks.
        lateness: what own work says of them.
        limits: how many steps are needed to be sure.
        waited_in: tells where others wait for ranks; None for nowhere that is known.
    """

    def __init__(
        self,
        job: RanksOfJob,
        lateness: Lateness,
        limits: Limits,
        waited_in: Callable[[Sequence[int]], WaitedIn | None] = lambda _: None,
    ) -> None:
        self._lateness = lateness
        self._limits = limits
        self._waited_in = waited_in
        self._places = {rank.place.rank: rank.place for rank in job.ranks}
        self.seen = ranks_seen(job)

    def findings(self, links: Iterable[SlowLink] = ()) -> tuple[Finding, ...]:
        """Return all of them, with those of links, the dearest first."""
        found = [self._of_late(late) for late in self._lateness.found]
        found += (
            self._of_link(link, severe)
            for link in links
            if (severe := severity(self._limits["link"], link.low)) is not None
        )
        worded: list[Finding] = []
        for finding in found:
            what, following = sentences_of(finding, self._places, self._lateness.steady)
            worded.append(replace(finding, what=what, next=following))
        # What ranks lose by turns depends on who else uses their hosts, a bubble on the schedule;
        # what a slow link costs is its own.
        bubble = max((one.cost for one in worded if one.kind == "bubble"), default=None)
        of_link = max((one.cost for one in worded if one.kind == "link"), default=0.0)
        behind = {"jitter": 2, "bubble": int(of_link >= bubble)} if bubble is not None else {}
        worded.sort(key=lambda one: (behind.get(one.kind, 0), *_order(one)))
        return behind_others(worded, _is_behind)

    def slight(self) -> Iterator[str]:
        """Yield who is late as a rule and costs little."""
        for late in self._lateness.slight:
            if late.kind == "bursts":
                yield (
                    f"rank {late.ranks[0]} kept the others waiting in {late.figures.steps:,} of "
                    f"{self._lateness.steady:,} steps, for {time_text(late.late_ns)} on average; "
                    f"without that the run would win {percent(late.cost)}"
                )
                continue
            several = len(late.ranks) > 1
            who = f"ranks {few(late.ranks)} are" if several else f"rank {late.ranks[0]} is"
            yield (
                f"{who} {time_text(late.late_ns)} late as a rule; without "
                f"{'them' if several else 'it'} the run would win {percent(late.cost)}"
                f"{once_text(late.figures.beside_ranks, turns=late.figures.beside_turns)}"
            )

    def _of_late(self, late: Late) -> Finding:
        first = late.names[0] if late.names else None
        is_waited_for = bool(late.ranks) and late.kind != "memory"
        waited = self._waited_in(late.ranks) if is_waited_for else None
        return Finding(
            kind=late.kind,
            turn=late.turn,
            ranks=late.ranks,
            hosts=late.hosts,
            stages=late.stages,
            since=late.since,
            severity=late.severity,
            confidence=self._confidence(
                named=first is None or first.name != NOT_ANNOTATED,
                members=() if waited is None else waited.members,
            ),
            cost=round(late.cost, 6),
            low=round(late.low, 6),
            last_share=round(late.last_share, 6),
            late_ns=late.late_ns,
            name="" if first is None else first.name,
            name_part=0.0 if first is None else first.part,
            without=round(late.without, 6),
            evidence=replace(
                late.figures,
                step_ns=self._lateness.step_ns,
                excess=late.names,
                waited_in=_waiting(waited, late.waits_ns) if is_waited_for else None,
            ),
        )

    def _of_link(self, link: SlowLink, severe: Severity) -> Finding:
        return Finding(
            kind="link",
            turn="persistent",
            ranks=link.ranks,
            hosts=(),
            stages=(),
            since=None,
            severity=severe,
            confidence=self._confidence(named=True, members=link.ranks),
            cost=round(link.cost, 6),
            low=round(link.low, 6),
            last_share=0.0,
            late_ns=link.transfer_ns - link.usual_ns,
            name=link.name,
            name_part=1.0,
            without=round(1 / max(1 - link.cost, MOST_FASTER), 6),
            evidence=Evidence(
                self._lateness.step_ns,
                collective=link.name,
                group=link.group,
                transfer_ns=link.transfer_ns,
                usual_ns=link.usual_ns,
            ),
        )

    def _confidence(self, *, named: bool, members: Iterable[int]) -> Confidence:
        missing = {*self.seen.missing}
        few = self._lateness.steady < LIMITS["steps"].warning
        unseen = len(missing) > MOST_MISSING * self.seen.world or missing & {*members}
        if few or not named or unseen:
            return "low"
        many = self._limits["steps"].critical or 0.0
        return "high" if self._lateness.steady >= many and not missing else "medium"


def _waiting(waited: WaitedIn | None, ns: int) -> Waiting:
    return Waiting("", "", ns) if waited is None else Waiting(*waited[:2], ns, waited.part)


def ranks_seen(job: RanksOfJob) -> RanksSeen:
    """Return which ranks there are, and which have no trace."""
    world = max((rank.place.world_size or 0 for rank in job.ranks), default=0)
    seen = len(job.ranks)
    return RanksSeen(max(world, seen + len(job.missing)), seen, job.missing)


def _is_behind(one: Finding, other: Finding) -> bool:
    figures = one.evidence
    turns = figures.beside_turns
    return is_beside(other.ranks, other.turn, figures.beside_ranks, beside_turns=turns)


def _order(finding: Finding) -> tuple[int, bool, float, int]:
    return (
        SEVERITIES.index(finding.severity),
        finding.confidence == "low",
        -finding.cost,
        KINDS.index(finding.kind),
    )
