"""Which ranks work longer than the others, all the time or by turns, and what that costs.

Rules over own work, which is what a rank does while nobody keeps it waiting: durations of its own
clock alone. Who is late has the most of it, and the least waiting.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.by_turns import ByTurns, of_turns
from dftrace_ai.analysis.ranks.findings import Late, Lateness
from dftrace_ai.analysis.ranks.in_every_step import InEveryStep
from dftrace_ai.analysis.ranks.model import LIMITS, Evidence, bubble_share, is_in_one_span
from dftrace_ai.analysis.ranks.named_work import MOST_OF_IT, Naming, Scoring, Where
from dftrace_ai.analysis.ranks.own_work import (
    OwnWork,
    is_varying,
    low_median,
    lower_scale,
    onset_of,
)
from dftrace_ai.analysis.ranks.partials import GARBAGE, NOT_ANNOTATED, UNTOLD
from dftrace_ai.analysis.robust_statistics import Share
from dftrace_ai.analysis.thresholds import severity, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.ranks.drafts import Draft
    from dftrace_ai.analysis.ranks.findings import Silence
    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.thresholds import Limits

FEWEST_SCORED: Final = 5
# Of more steps of ranks what comes by turns is not looked for beside who is late: 32 bytes each.
MOST_CELLS: Final = 4_000_000
# Ranks that are alike are late by so much at most, as a multiple of the least.
UNLIKE: Final = 1.5
# Who stands out by memory has so many scales more, and so much of what is usual.
MEMORY_SCALES: Final = 6
MORE_MEMORY: Final = 1.2
# No scale is less than this part of what is usual.
LEAST_MEMORY_SCALE: Final = 0.02
# Of comparable ranks so many tell what is usual, and one of so many may stand out.
FEWEST_COMPARED: Final = 3


def lateness_of(job: RanksOfJob, limits: Limits | None = None, *, scores: bool = True) -> Lateness:
    """Judge who is late, the same whatever the order in which ranks were read.

    The steps that all have are gone through once, and again for spans and, if asked for, `scores`.
    """
    if len(job.ranks) < 2:
        return Lateness(abstains="one rank")
    work = OwnWork.of(job)
    rules = _Rules(work, LIMITS if limits is None else limits)
    enough = len(work) >= rules.limits["steps"].warning
    if enough:
        rules.judge()
    scoring = Scoring(work) if scores and len(work) >= FEWEST_SCORED else None
    naming = Naming(work, rules.wheres)
    if scoring or rules.wheres:
        for part in work.named():
            naming.add(part)
            if scoring:
                scoring.add(part)
    found = rules.told(naming)
    few: Silence = "few steps" if work.common else "no common steps"
    return Lateness(
        common=work.common,
        steady=len(work),
        step_ns=work.step_ns if len(work) else 0,
        found=(*found.late, *(rules.of_bubble() if enough else ()), *memory_of(work)),
        slight=found.slight,
        slowest=rules.slowest() if enough else None,
        scores=scoring.rows() if scoring else (),
        abstains=few if not enough else "nobody waits" if rules.unwaited and not found.late else "",
        judged=work.numbers,
    )


class _Told(NamedTuple):
    late: tuple[Late, ...]
    slight: tuple[Late, ...]


class _Rules:
    """The rules in their order, and those beside others."""

    def __init__(self, work: OwnWork, limits: Limits) -> None:
        self.limits = limits
        self._every = InEveryStep(work, limits)
        self.drafts: list[Draft] = []
        self.unwaited = False

    @property
    def work(self) -> OwnWork:
        """What ranks did themselves."""
        return self._every.work

    def judge(self) -> None:
        """Go through the rules over own work."""
        late = self._every.judge()
        turns = ByTurns(self.work, self.limits)
        self.drafts = self._every.drafts
        if late.any():
            self._beside_the_late(late)
        elif not self.drafts:
            turns.judge()
        turns.judge_once()
        self.drafts += turns.drafts
        self.unwaited = self._every.unwaited or turns.unwaited
        self._first_ones_first()

    @property
    def wheres(self) -> list[Where]:
        """Where the spans of findings are looked for."""
        return [where for draft in self.drafts for where in (draft.where, *draft.each)]

    def told(self, naming: Naming) -> _Told:
        """Return what was found with its spans."""
        late: list[Late] = []
        slight: list[Late] = []
        at = 0
        for draft in self.drafts:
            each = range(at + 1, at + 1 + len(draft.each))
            one = replace(draft.late, names=naming.names_of(at))
            at = each.stop
            if draft.rotates:
                one = of_turns(one, draft.where.work, naming.correlation)
            # Whom a crowded host lets wait, and jitter, are no news beside somebody who is late.
            if one.turn in {"rotating", "bursts"} and one.figures.beside_ranks:
                is_garbage = bool(one.names) and one.names[0].name == GARBAGE
                if one.kind == "jitter" or (self._every.most_crowded and not is_garbage):
                    continue
            # A machine is slow in all that it does.
            if one.kind == "stage or worker" and is_in_one_span(one.names):
                one = replace(one, kind="stage")
            if apart := self._apart(draft, naming, each):
                late += apart
            else:
                (slight if draft.slight else late).append(one)
        return _Told(tuple(late), tuple(slight))

    def _apart(self, draft: Draft, naming: Naming, each: range) -> list[Late]:
        """Return late ranks by the spans in which they are so; none where these are the same."""
        by_name: dict[str, list[int]] = {}
        for at in each:
            names = naming.names_of(at)
            if not names or names[0].part < MOST_OF_IT:
                return []
            by_name.setdefault(names[0].name, []).append(at)
        lots = [*by_name.values()]
        if len(lots) < 2 and self._are_unlike(draft, [*by_name]):
            lots = [[at] for at in each]
        if len(lots) < 2:
            return []
        found: list[Late] = []
        numbers = [place.rank for place in self._every.places]
        rank = {at: numbers.index(one) for at, one in zip(each, draft.late.ranks, strict=True)}
        every = np.arange(self.work.ranks)
        for ats in lots:
            late = np.isin(every, [rank[at] for at in ats])
            beside = np.isin(every, [rank[at] for at in each if at not in ats])
            figures = replace(draft.late.figures, beside_ranks=self._every.numbers_of(beside))
            part = self._every.drafted("worker", late, figures, beside=beside)
            if part is None or part.slight:
                return []
            found.append(replace(part.late, names=naming.names_of(*ats)))
        return sorted(found, key=lambda one: -one.cost)

    def _are_unlike(self, draft: Draft, names: Sequence[str]) -> bool:
        """Return whether half of the ranks are late in no span, by far more and by far less.

        What has no name is not one thing, and two kinds of ranks would be late by as much each.
        """
        if draft.late.kind != "split" or names != [NOT_ANNOTATED]:
            return False
        usual = self.work.usual_excess_ns()[draft.where.ranks]
        return int(usual.max()) > UNLIKE * int(usual.min())

    def slowest(self) -> tuple[int, float]:
        """Return who works longest as a rule, and what that costs."""
        usual = self.work.usual_excess_ns()
        at = int(usual.argmax())
        late = np.arange(len(usual)) == at
        return self._every.places[at].rank, round(self.work.cost_of(late).share, 6)

    def of_bubble(self) -> tuple[Late, ...]:
        """Return what all wait since a pipeline fills and drains, where nobody is slow."""
        work = self.work
        always = ("persistent", "since")
        slow = any(draft.late.turn in always for draft in self.drafts if not draft.slight)
        if slow or (pipeline := work.job.pipeline) is None:
            return ()
        stages, passes = pipeline
        # So long nobody does anything in it: who works most waits as well.
        idle = np.maximum(work.time_ns - work.own_ns.max(axis=0), 0)
        share = bubble_share(stages, passes)
        filling = np.minimum(idle, (share * work.time_ns).astype(np.int64))
        cost = work.share_of(filling)
        severe = severity(self.limits["cost"], cost.low)
        if severe is None:
            return ()
        beyond = work.of_time(int((idle - filling).sum()) / max(int(work.time_ns.sum()), 1))
        figures = Evidence(stages=stages, passes=passes, beyond=round(beyond, 6))
        return (Late.of("bubble", "persistent", severe, cost, low_median(filling), figures),)

    def _beside_the_late(self, late: Integers) -> None:
        """Add what ranks lose by turns beside who is late in every step, the dearer one first."""
        if late.all() or self.work.own_ns.size > MOST_CELLS:
            return
        work, numbers = self.work, self._every.numbers_of(late)
        level = work.doing(self._without_lateness(late))
        rules = ByTurns(level, self.limits)
        rules.judge()
        turns = next((one for one in rules.drafts if not one.slight), None)
        if turns is None or (turns.late.ranks and {*turns.late.ranks} <= {*numbers}):
            return
        # In place: of a thousand ranks each of these is as large as all that is known of steps.
        own = np.maximum(level.excess_ns, 0)
        quiet = work.doing(np.subtract(work.own_ns, own, out=own))
        now = work.share_of(work.own_ns.max(axis=0) - quiet.own_ns.max(axis=0))
        dearest = max((one.late.cost for one in self.drafts if not one.slight), default=0.0)
        if dearest < now.share and not self._every.most_crowded:
            every = InEveryStep(quiet, self.limits, work.noise_ns(slice(None)))
            every.judge()
            others = [one.beside_turns(turns.where) for one in every.drafts if not one.slight]
            if others:
                limit = self.limits["rotating" if turns.rotates else "cost"]
                severe = worst([severity(limit, now.low), *(one.late.severity for one in others)])
                self.drafts = [turns._replace(late=turns.late.costing(now, severe)), *others]
                return
        figures = replace(turns.late.figures, beside_ranks=numbers)
        self.drafts.append(turns._replace(late=replace(turns.late, figures=figures)))

    def _without_lateness(self, late: Integers) -> Integers:
        """Return own work less what ranks are later by than the others as a rule."""
        work = self.work
        own: Integers = work.own_ns.copy()
        for label in np.unique(work.peers[late]).tolist():
            peers = work.peers == label
            others = peers & ~late if (peers & ~late).any() else ~late
            usual = low_median(work.own_ns[others], 0)
            for at in np.flatnonzero(late & peers).tolist():
                more = work.own_ns[at] - usual
                first = onset_of(more)
                rest = more[first:]
                own[at, first:] -= np.maximum(rest if is_varying(rest) else low_median(rest), 0)
        return own

    def _first_ones_first(self) -> None:
        """Tell who costs little by itself, but without whom others cost what they do."""
        drafts = self.drafts
        for at, one in enumerate(drafts):
            behind = [
                other.late.severity
                for other in drafts
                if not other.slight and {*one.late.ranks} <= {*other.late.figures.beside_ranks}
            ]
            if one.slight and one.late.ranks and behind:
                late = replace(one.late, severity=worst(behind))
                drafts[at] = one._replace(late=late, slight=False)


def memory_of(work: OwnWork) -> tuple[Late, ...]:
    """Return ranks with more memory than comparable ones, which is told for information."""
    found: list[Late] = []
    ranks = work.job.ranks
    peaks = np.array([rank.peak_bytes for rank in ranks], np.int64)
    # Of stages of one rank each has its own memory.
    labels = work.peers if work.stages is None else work.stages
    for label in np.unique(labels).tolist():
        known = np.flatnonzero((labels == label) & (peaks != UNTOLD))
        if len(known) < FEWEST_COMPARED:
            continue
        bytes_of = peaks[known]
        usual = low_median(bytes_of)
        scale = max(lower_scale(bytes_of), LEAST_MEMORY_SCALE * usual)
        more = bytes_of > max(usual + MEMORY_SCALES * scale, MORE_MEMORY * usual)
        if more.any() and more.sum() <= len(known) // FEWEST_COMPARED:
            figures = Evidence(peak_bytes=int(bytes_of[more].max()), usual_bytes=usual)
            numbers = tuple(ranks[at].place.rank for at in known[more].tolist())
            nothing = Share(0.0, 0.0, 0.0)
            found.append(
                Late.of("memory", "persistent", "info", nothing, 0, figures, ranks=numbers)
            )
    return tuple(found)
