"""Who is late in every step, or since one: ranks, hosts and stages, each as if others were not."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.drafts import ERRORS, INFO_COST, INFO_LOW, SCALES, Draft, Rules
from dftrace_ai.analysis.ranks.findings import Late
from dftrace_ai.analysis.ranks.model import Evidence
from dftrace_ai.analysis.ranks.named_work import Where
from dftrace_ai.analysis.ranks.own_work import (
    is_varying,
    levels_of,
    low_median,
    lower_scale,
    onset_of,
)
from dftrace_ai.analysis.thresholds import severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.ranks.model import Kind
    from dftrace_ai.analysis.ranks.own_work import OwnWork
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.thresholds import Limits

# Who stands out is such a part of a step beyond the others; of few ranks or hosts more, since the
# others say little of what is usual.
FLOOR: Final = 0.03
FLOOR_OF_FEW: Final = 0.05
FEW: Final = 4
# Of a stage, of the step and of its own work.
STAGE_FLOOR: Final = 0.05
# Ranks that stand out are a host where they are nearly all of it, and it so much of them.
ALL_OF_A_HOST: Final = 0.85
OF_THE_LATE: Final = 0.5
# A rank is late as its host is where it is so by this part of that.
AS_ITS_HOST: Final = 0.5
# The last part of the steps is judged by itself, if it has so many.
LAST_PART: Final = 3
FEWEST_LAST: Final = 20
# One rank is so much later than all others that are late.
LEADS: Final = 2
# So many ranks that are late are looked at one by one: they may be so in other spans each.
MOST_APART: Final = 8


class InEveryStep(Rules):
    """Rules for who is late as a rule.

    Args:
        work: what ranks did themselves.
        limits: from which costs on something is a finding.
        noise_ns: the usual error, at least, of what a rank does as a rule.
    """

    def __init__(self, work: OwnWork, limits: Limits, noise_ns: float = 0.0) -> None:
        super().__init__(work, limits)
        self._noise_ns = noise_ns
        # What nobody is late by, by step: beside a slow host of two it is no median of all.
        self._base_ns: Integers = np.zeros(len(work), np.int64)
        # How much longer slow stages work than others, by step.
        self._stage_excess_ns: Integers = np.zeros(len(work), np.int64)

    def judge(self) -> Integers:
        """Add who is late in every step; return the ranks that are, whatever these cost."""
        stage = self._stages()
        slow = self._nodes()
        late, scale = self._standing_out()
        late = self._with_hosts(late)
        every = late | slow | self._out_beside(slow)
        if slow.any() and not every.all():
            late = every
            self._base_ns = low_median(self.work.excess_ns[~late], 0)
        # Stages of one rank are beside all others: it is late as its stage is.
        alone = len(np.unique(self.work.peers)) == 1
        self._workers(late & ~stage if alone else late, stage, scale)
        return late | slow | stage

    def _stages(self) -> Integers:
        """Add stages that are slow as a whole; return their ranks, whatever these cost."""
        work, stages = self.work, self.work.stages
        nobody = np.zeros(work.ranks, bool)
        if stages is None:
            return nobody
        levels = levels_of(work.own_ns, stages)
        excess = levels - low_median(levels, 0)
        usual = low_median(excess, 1)
        slow = usual > STAGE_FLOOR * max(work.step_ns, low_median(levels))
        # Of work that was laid out unevenly there is more in nearly every step.
        slow &= np.array([not is_varying(by_step[onset_of(by_step) :]) for by_step in excess])
        if not slow.any():
            return nobody
        # Half of its ranks make the level of a stage: where the others have nothing, it is these.
        stage_of = np.unique(stages, return_inverse=True)[1]
        of_rank = low_median(work.own_ns - low_median(levels, 0), 1)
        late = of_rank >= AS_ITS_HOST * usual[stage_of]
        whole = slow & (np.bincount(stage_of, late) >= ALL_OF_A_HOST * np.bincount(stage_of))
        if (slow & ~whole).any():
            self.work = work.beside_all()
        if not whole.any():
            return nobody
        late = whole[stage_of]
        last = np.isin(levels.argmax(axis=0), np.flatnonzero(whole))
        self._stage_excess_ns = low_median(excess[whole], 0)
        self._add(self._of_a_stage, late, self._stage_excess_ns, last, Evidence())
        return late

    @property
    def _of_a_stage(self) -> Kind:
        stages = self.work.stages
        alone = stages is not None and np.unique(stages, return_counts=True)[1].min() < 2
        return "stage or worker" if alone else "stage"

    def _nodes(self) -> Integers:
        """Add hosts that are slow as a whole; return their ranks, whatever these cost."""
        work = self.work
        count = len(self.hosts)
        nobody = np.zeros(work.ranks, bool)
        if count < 2 or np.bincount(self.host_of).min() < 2:
            return nobody
        levels = levels_of(work.excess_ns, self.host_of)
        excess = levels - low_median(levels, 0)
        usual = low_median(excess, 1)
        # Of several ranks the level is so much surer than what one of them does.
        noise = self._noise_of(slice(None)) / sqrt(int(np.bincount(self.host_of).min()))
        scale = max(lower_scale(usual), self.least, ERRORS * noise)
        slow = usual > max(SCALES * scale, self._floor_of(count))
        # Half of its ranks make the level of a host: the others may have nothing.
        of_rank = work.usual_excess_ns() - low_median(low_median(levels, 1))
        slow &= self._are_all_of(of_rank >= AS_ITS_HOST * usual[self.host_of])
        if not slow.any() or slow.sum() > _most_of(count):
            return nobody
        late = np.isin(self.host_of, np.flatnonzero(slow))
        figures = Evidence(scale_ns=round(scale))
        self._add("node", late, low_median(excess[slow], 0), late[work.last], figures)
        return late

    def _are_all_of(self, ranks: Integers) -> Integers:
        """Return of which hosts some ranks, a mask, are nearly all."""
        return np.bincount(self.host_of, ranks) >= ALL_OF_A_HOST * np.bincount(self.host_of)

    def _standing_out(self) -> tuple[Integers, float]:
        """Return which ranks do, over all steps or the last of them, and the scale of ranks."""
        late, scale = self._out_of(slice(None))
        last = len(self.work) // LAST_PART
        if last >= FEWEST_LAST:
            recent, recent_scale = self._out_of(slice(len(self.work) - last, None))
            if (recent & ~late).any():
                late, scale = recent, recent_scale
        return self._without_crowds(late), scale

    def _with_hosts(self, late: Integers) -> Integers:
        """Return late ranks with those of their host where nearly all of these are as late."""
        usual = self.work.usual_excess_ns()
        every: Integers = late.copy()
        for host in np.unique(self.host_of[late]).tolist():
            there = self.host_of == host
            alike = there & (usual >= AS_ITS_HOST * low_median(usual[there & late]))
            if not there.all() and alike.sum() >= max(ALL_OF_A_HOST * int(there.sum()), 2):
                every |= alike
        return every

    def _without_crowds(self, late: Integers) -> Integers:
        for at in np.flatnonzero(late).tolist():
            excess = self.work.excess_ns[at]
            if self.crowd(np.arange(len(late)) == at) and is_varying(excess[onset_of(excess) :]):
                late[at] = False
        return late

    def _out_beside(self, slow: Integers) -> Integers:
        """Return which ranks of other hosts than slow ones stand out among themselves."""
        if not slow.any():
            return slow
        usual = self.work.usual_excess_ns()
        usual = usual - low_median(usual[~slow])
        errors = ERRORS * self._noise_of(slice(None))
        scale = max(lower_scale(usual[~slow]), self.least, errors)
        far = usual > max(SCALES * scale, self._floor_of(int((~slow).sum())))
        return self._without_crowds(far & ~slow)

    def _out_of(self, steps: slice) -> tuple[Integers, float]:
        work = self.work
        usual = work.usual_excess_ns(steps)
        scale = max(lower_scale(usual), self.least, ERRORS * self._noise_of(steps))
        return usual > max(SCALES * scale, self._floor_of(work.ranks)), scale

    def _noise_of(self, steps: slice) -> float:
        return max(self.work.noise_ns(steps), self._noise_ns)

    def _floor_of(self, count: int) -> float:
        return (FLOOR_OF_FEW if count < FEW else FLOOR) * self.work.step_ns

    def _workers(self, late: Integers, stage: Integers, scale: float) -> None:
        """Add late ranks, hosts and stages, the later ones first: each as if these were not."""
        if not late.any():
            return
        usual = self.work.usual_excess_ns() - low_median(self._base_ns)
        parts = [*self._apart_in(late, usual, scale)]
        if stage.any():
            usual = np.where(stage, usual + low_median(self._stage_excess_ns), usual)
            parts.append(stage)
        parts.sort(key=lambda part: -low_median(usual[part]))
        # Without who is within them, or before them, they may cost what they do not beside these.
        self.drafts = [one for one in self.drafts if any(one.is_just(part) for part in parts)]
        beside = np.zeros(len(late), bool)
        for part in parts:
            if beside.any():
                self.drafts = [one for one in self.drafts if not (one.slight and one.is_just(part))]
            if not any(draft.is_just(part) for draft in self.drafts):
                self._worker(part, scale, beside, is_stage=bool((part == stage).all()))
            beside = beside | part

    def _apart_in(self, late: Integers, usual: Integers, scale: float) -> Iterator[Integers]:
        """Yield late ranks that are late by themselves, and those that are so together."""
        # Who is far beyond all others is told alone: what these cost shows when it is like them.
        leads = late & (usual > LEADS * np.sort(usual)[-2])
        leads = leads if leads.any() else self._leading_host(late, usual)
        hosts = np.isin(self.host_of, self._hosts_of(late))
        for host in np.unique(self.host_of[hosts]).tolist():
            there = self.host_of == host
            beyond = low_median(usual[there]) + max(SCALES * scale, self._floor_of(self.work.ranks))
            leads |= there & (usual > beyond)
        rest = late & ~leads
        yield from (part for part in (leads, rest & hosts, rest & ~hosts) if part.any())

    def _leading_host(self, late: Integers, usual: Integers) -> Integers:
        """Return the ranks of a host that is late as a whole, far beyond all others."""
        for host in np.flatnonzero(self._are_all_of(late)).tolist():
            there = self.host_of == host
            if not there.all() and low_median(usual[there]) > LEADS * int(usual[~there].max()):
                leads: Integers = there & late
                return leads
        return np.zeros(len(late), bool)

    def _worker(
        self, late: Integers, scale: float, beside: Integers, *, is_stage: bool = False
    ) -> None:
        hosts = self._hosts_of(late, beside)
        is_half = not hosts and late.sum() > max(1, (self.work.ranks - 1) // 2)
        kind: Kind = "node" if hosts else "split" if is_half else "worker"
        stages = self.work.stages
        if is_stage or (stages is not None and len(np.unique(stages)) == len(stages)):
            kind = self._of_a_stage
        figures = Evidence(scale_ns=round(scale), beside_ranks=self.numbers_of(beside))
        draft = self.drafted(kind, late, figures, beside=beside, is_stage=is_stage)
        if draft is None:
            return
        # Stages may have unlike work as they were laid out; and who comes next costs nothing yet.
        unlike = is_half and not is_stage and kind != "split"
        if unlike or (beside.any() and draft.late.severity == "info"):
            draft = draft._replace(slight=True)
        places = np.flatnonzero(late)
        if kind in {"worker", "split"} and 1 < len(places) <= MOST_APART:
            alone = (np.arange(len(late)) == at for at in places)
            steps = draft.where.steps
            draft = draft._replace(each=tuple(Where(self.work, one, steps) for one in alone))
        self.drafts.append(draft)

    def _hosts_of(self, late: Integers, beside: Integers | None = None) -> list[int]:
        """Return the hosts that ranks are, where these are nearly all of them, and few others.

        With those beside them they may be it: of these one is later than its host.
        """
        every = late if beside is None else late | beside
        of_host = np.bincount(self.host_of)
        most = 2 * np.bincount(self.host_of, late) > of_host
        hosts = np.flatnonzero((of_host >= 2) & most & self._are_all_of(every))
        few = len(hosts) <= _most_of(len(of_host)) and len(of_host) > 1
        ours = int(np.isin(self.host_of[late], hosts).sum())
        return hosts.tolist() if few and ours >= OF_THE_LATE * late.sum() else []

    def drafted(
        self,
        kind: Kind,
        late: Integers,
        figures: Evidence,
        *,
        beside: Integers,
        is_stage: bool = False,
    ) -> Draft | None:
        """Return ranks that are late as a rule, as if those beside them were as all others are."""
        excess = low_median(self.work.excess_ns[late], 0) - self._base_ns
        if is_stage:
            excess = self._stage_excess_ns
        last = self.work.last
        if beside.any():
            last = np.where(beside[:, None], np.iinfo(np.int64).min, self.work.excess_ns).argmax(0)
        return self._as_a_rule(kind, late, excess, late[last], figures, beside)

    def _add(
        self, kind: Kind, late: Integers, excess: Integers, last: Integers, figures: Evidence
    ) -> None:
        """Add who is late as a rule, of whom it is told by how much and who is last, by step."""
        draft = self._as_a_rule(kind, late, excess, last, figures, np.zeros(len(late), bool))
        if draft is not None:
            self.drafts.append(draft)

    def _as_a_rule(
        self,
        kind: Kind,
        late: Integers,
        excess: Integers,
        last: Integers,
        figures: Evidence,
        beside: Integers,
    ) -> Draft | None:
        """Return who is late as a rule; none where nobody waits for them."""
        work = self.work
        first = onset_of(excess)
        # What held up a single step is told by itself, and hides nothing of the others.
        steps = (np.arange(len(work)) >= first) & ~self.single
        if not work.is_waited_for(steps):
            self.unwaited = True
            return None
        usual = low_median(excess[steps])
        cost = work.cost_of(late, steps, beside)
        severe = severity(self.limits["cost"], cost.low)
        is_info = kind in {"worker", "node"} and cost.share >= INFO_COST and cost.low >= INFO_LOW
        # Of a run that was little in its steps so far, it is what a longer one will lose.
        is_info |= severity(self.limits["cost"], cost.low / max(work.in_steps, 1e-6)) is not None
        of_stage = work.stages is not None and kind in {"stage", "stage or worker"}
        one = Late.of(
            kind,
            "since" if first else "persistent",
            severe or "info",
            cost,
            usual,
            replace(figures, varies=is_varying(excess[steps]), beside=self.told_once),
            waits_ns=low_median(work.others_wait_ns(late)[steps]),
            ranks=self.numbers_of(late),
            hosts=tuple(self.hosts[np.unique(self.host_of[late])].tolist())
            if kind == "node"
            else (),
            stages=tuple(np.unique(work.stages[late]).tolist())
            if work.stages is not None and of_stage
            else (),
            since=int(work.numbers[first]) if first else None,
            last_share=round(float(last[steps].mean()), 6),
        )
        return Draft(one, Where(work, late, steps), slight=severe is None and not is_info)


def _most_of(count: int) -> int:
    """Return how many hosts may stand out: fewer than half, one at least."""
    return max(1, (count - 1) // 2)
