"""Which ranks work longer than the others, all the time or by turns, and what that costs.

Rules over own work, which is what a rank does while nobody keeps it waiting: durations of its own
clock alone. Who is late has the most of it, and the least waiting.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.findings import Late, Lateness
from dftrace_ai.analysis.ranks.memory import memory_of
from dftrace_ai.analysis.ranks.model import LIMITS, Evidence, bubble_share, is_in_one_span
from dftrace_ai.analysis.ranks.named_work import MOST_OF_IT, Naming, Scoring, Where
from dftrace_ai.analysis.ranks.own_work import (
    FEWEST_PAUSES,
    OwnWork,
    is_varying,
    levels_of,
    low_median,
    lower_scale,
    onset_of,
    part_of,
    single_steps,
)
from dftrace_ai.analysis.robust_statistics import Share
from dftrace_ai.analysis.thresholds import severity

if TYPE_CHECKING:
    from dftrace_ai.analysis.ranks.findings import Silence
    from dftrace_ai.analysis.ranks.job import RanksOfJob
    from dftrace_ai.analysis.ranks.model import Kind
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.thresholds import Limits, Severity

# Who stands out is so many scales beyond the others, and such a part of a step; of few ranks or
# hosts more, since the others say little of what is usual.
SCALES: Final = 6
FLOOR: Final = 0.03
FLOOR_OF_FEW: Final = 0.05
FEW: Final = 4
# No scale is less than this part of a step, nor than so many errors of what it is made of.
LEAST_SCALE: Final = 0.005
ERRORS: Final = 2
# Of a stage, of the step and of its own work.
STAGE_FLOOR: Final = 0.05
# Of hosts so many may stand out, one at least.
MOST_OF_HOSTS: Final = 0.1
# Ranks that stand out are a host where they are nearly all of it, and it so much of them.
ALL_OF_A_HOST: Final = 0.85
OF_THE_LATE: Final = 0.5
# A rank is late as its host is where it is so by this part of that.
AS_ITS_HOST: Final = 0.5
# Where it costs less than a warning it is told for information from here on.
INFO_COST: Final = 0.03
INFO_LOW: Final = 0.02
# The last part of the steps is judged by itself, if it has so many.
LAST_PART: Final = 3
FEWEST_LAST: Final = 20
# A pause is so much of a step. Pauses hold so much of all straggling: of one rank, which makes so
# much of theirs, in any number of steps, of several ranks in few.
PAUSE: Final = 0.25
FEW_STEPS: Final = 0.25
ONE_RANK: Final = 0.8
# On a host with fewer processors than ranks, of all straggling: there it is by turns, and one makes
# 0.8 of it at most.
ONE_OF_CROWD: Final = 0.9
# One rank is so much later than all others that are late.
LEADS: Final = 2
# So many ranks that are late are looked at one by one: they may be so in other spans each.
MOST_APART: Final = 8
# Of steps of ranks so many may be pauses where nearly every step has one.
PAUSES_OF_RANKS: Final = 0.2
# Data: how forward and backward go together, and how much ranks differ, of a step.
CORRELATED: Final = 0.7
SPREAD: Final = 0.03
# Numbers of steps that are told of a finding.
TOLD_STEPS: Final = 10
VALUES_OF_SCALE: Final = 1_000_000
FEWEST_SCORED: Final = 5


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


class _Crowd(NamedTuple):
    """Ranks of a host that has fewer processors."""

    ranks: int
    cpus: int


class _Draft(NamedTuple):
    """A finding whose spans are not known yet."""

    late: Late
    where: Where
    slight: bool = False
    rotates: bool = False  # whether data, pauses or jitter, its correlation says
    each: tuple[Where, ...] = ()  # of several ranks that may be late in other spans each

    def is_of(self, ranks: Integers) -> bool:
        """Return whether all of some ranks, a mask, are told by it."""
        return self.where.ranks is not None and bool(self.where.ranks[ranks].all())


class _Rules:
    """The rules in their order; the first ones exclude that it is nobody in particular."""

    def __init__(self, work: OwnWork, limits: Limits) -> None:
        self.work = work
        self.limits = limits
        self.unwaited = False
        self._drafts: list[_Draft] = []
        self._places = [rank.place for rank in work.job.ranks]
        hosts = [place.host or place.clock for place in self._places]
        self._hosts, self._host_of = np.unique(np.array(hosts, object), return_inverse=True)
        self._least = LEAST_SCALE * work.step_ns if len(work) else 0.0
        # What nobody is late by, by step: beside a slow host of two it is no median of all.
        self._base_ns: Integers = np.zeros(len(work), np.int64)

    def judge(self) -> None:
        """Go through the rules over own work."""
        self._stages()
        slow = self._nodes()
        late, scale = self._standing_out()
        every = late | slow | self._out_beside(slow)
        if slow.any() and (every & ~slow).any() and not every.all():
            late = every
            self._base_ns = low_median(self.work.excess_ns[~late], 0)
        self._workers(late, scale)
        if not self._drafts and not late.any():
            self._nobody_in_particular()
        self._once()

    @property
    def wheres(self) -> list[Where]:
        """Where the spans of findings are looked for."""
        return [where for draft in self._drafts for where in (draft.where, *draft.each)]

    def told(self, naming: Naming) -> _Told:
        """Return what was found with its spans."""
        late: list[Late] = []
        slight: list[Late] = []
        at = 0
        for draft in self._drafts:
            each = range(at + 1, at + 1 + len(draft.each))
            one = replace(draft.late, names=naming.names_of(at))
            at = each.stop
            if draft.rotates:
                one = self._of_turns(one, naming.correlation)
            # A machine is slow in all that it does.
            if one.kind == "stage or worker" and is_in_one_span(one.names):
                one = replace(one, kind="stage")
            if apart := self._apart(draft, naming, each):
                late += apart
            else:
                (slight if draft.slight else late).append(one)
        return _Told(tuple(late), tuple(slight))

    def _apart(self, draft: _Draft, naming: Naming, each: range) -> list[Late]:
        """Return late ranks by the spans in which they are so; none where these are the same."""
        by_name: dict[str, list[int]] = {}
        for at in each:
            names = naming.names_of(at)
            if not names or names[0].part < MOST_OF_IT:
                return []
            by_name.setdefault(names[0].name, []).append(at)
        if len(by_name) < 2:
            return []
        found: list[Late] = []
        numbers = [place.rank for place in self._places]
        rank = {at: numbers.index(one) for at, one in zip(each, draft.late.ranks, strict=True)}
        every = np.arange(self.work.ranks)
        for ats in by_name.values():
            late = np.isin(every, [rank[at] for at in ats])
            beside = np.isin(every, [rank[at] for at in each if at not in ats])
            figures = replace(draft.late.figures, beside_ranks=self._numbers_of(beside))
            part = self._drafted("worker", late, figures, beside=beside)
            if part is None or part.slight:
                return []
            found.append(replace(part.late, names=naming.names_of(*ats)))
        return sorted(found, key=lambda one: -one.cost)

    def slowest(self) -> tuple[int, float]:
        """Return who works longest as a rule, and what that costs."""
        usual = self.work.usual_excess_ns()
        at = int(usual.argmax())
        late = np.arange(len(usual)) == at
        return self._places[at].rank, round(self.work.cost_of(late).share, 6)

    def of_bubble(self) -> tuple[Late, ...]:
        """Return what all wait since a pipeline fills and drains, where nobody is slow."""
        work = self.work
        always = ("persistent", "since")
        slow = any(draft.late.turn in always for draft in self._drafts if not draft.slight)
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

    # Somebody in particular.

    def _stages(self) -> None:
        work, stages = self.work, self.work.stages
        if stages is None:
            return
        levels = levels_of(work.own_ns, stages)
        excess = levels - low_median(levels, 0)
        usual = low_median(excess, 1)
        slow = usual > STAGE_FLOOR * max(work.step_ns, low_median(levels))
        # Of work that was laid out unevenly there is more in nearly every step.
        slow &= np.array([not is_varying(by_step[onset_of(by_step) :]) for by_step in excess])
        if slow.any():
            late = np.isin(stages, np.unique(stages)[slow])
            last = np.isin(levels.argmax(axis=0), np.flatnonzero(slow))
            self._add(self._of_a_stage, late, low_median(excess[slow], 0), last, Evidence())

    @property
    def _of_a_stage(self) -> Kind:
        stages = self.work.stages
        alone = stages is not None and np.unique(stages, return_counts=True)[1].min() < 2
        return "stage or worker" if alone else "stage"

    def _nodes(self) -> Integers:
        """Add hosts that are slow as a whole; return their ranks, whatever these cost."""
        work = self.work
        count = len(self._hosts)
        nobody = np.zeros(work.ranks, bool)
        if count < 2 or np.bincount(self._host_of).min() < 2:
            return nobody
        levels = levels_of(work.excess_ns, self._host_of)
        excess = levels - low_median(levels, 0)
        usual = low_median(excess, 1)
        scale = max(lower_scale(usual), self._least)
        slow = usual > max(SCALES * scale, self._floor_of(count))
        # Half of its ranks make the level of a host: the others may have nothing.
        of_rank = work.usual_excess_ns() - low_median(low_median(levels, 1))
        slow &= self._are_all_of(of_rank >= AS_ITS_HOST * usual[self._host_of])
        if not slow.any() or slow.sum() > max(1, MOST_OF_HOSTS * count):
            return nobody
        late = np.isin(self._host_of, np.flatnonzero(slow))
        figures = Evidence(scale_ns=round(scale))
        self._add("node", late, low_median(excess[slow], 0), late[work.last], figures)
        return late

    def _are_all_of(self, ranks: Integers) -> Integers:
        """Return of which hosts some ranks, a mask, are nearly all."""
        return np.bincount(self._host_of, ranks) >= ALL_OF_A_HOST * np.bincount(self._host_of)

    def _standing_out(self) -> tuple[Integers, float]:
        """Return which ranks do, over all steps or the last of them, and the scale of ranks."""
        late, scale = self._out_of(slice(None))
        last = len(self.work) // LAST_PART
        if last >= FEWEST_LAST:
            recent, recent_scale = self._out_of(slice(len(self.work) - last, None))
            if (recent & ~late).any():
                late, scale = recent, recent_scale
        return self._without_crowds(late), scale

    def _without_crowds(self, late: Integers) -> Integers:
        for at in np.flatnonzero(late).tolist():
            excess = self.work.excess_ns[at]
            if self._crowd(np.arange(len(late)) == at) and is_varying(excess[onset_of(excess) :]):
                late[at] = False
        return late

    def _out_beside(self, slow: Integers) -> Integers:
        """Return which ranks of other hosts than slow ones stand out among themselves."""
        if not slow.any():
            return slow
        usual = self.work.usual_excess_ns()
        usual = usual - low_median(usual[~slow])
        errors = ERRORS * self.work.noise_ns(slice(None))
        scale = max(lower_scale(usual[~slow]), self._least, errors)
        far = usual > max(SCALES * scale, self._floor_of(int((~slow).sum())))
        return self._without_crowds(far & ~slow)

    def _out_of(self, steps: slice) -> tuple[Integers, float]:
        work = self.work
        usual = work.usual_excess_ns(steps)
        scale = max(lower_scale(usual), self._least, ERRORS * work.noise_ns(steps))
        return usual > max(SCALES * scale, self._floor_of(work.ranks)), scale

    def _floor_of(self, count: int) -> float:
        return (FLOOR_OF_FEW if count < FEW else FLOOR) * self.work.step_ns

    def _workers(self, late: Integers, scale: float) -> None:
        if not late.any():
            return
        # Who is far beyond all others is told alone: what these cost shows when it is like them.
        usual = self.work.usual_excess_ns() - low_median(self._base_ns)
        leads = late & (usual > LEADS * np.sort(usual)[-2])
        beside = np.zeros(len(late), bool)
        for some in (leads, *self._hosts_apart(late & ~leads, usual)):
            if beside.any():
                # Without who is beside them they may cost what they do not beside these.
                self._drafts = [one for one in self._drafts if not (one.slight and one.is_of(some))]
            if some.any() and not any(draft.is_of(some) for draft in self._drafts):
                self._worker(some, scale, beside)
            beside = beside | some

    def _hosts_apart(self, late: Integers, usual: Integers) -> list[Integers]:
        """Return late ranks that are hosts and those that are not, the later ones first."""
        hosts = np.isin(self._host_of, self._hosts_of(late))
        parts = [part for part in (late & hosts, late & ~hosts) if part.any()]
        return sorted(parts, key=lambda part: -low_median(usual[part]))

    def _worker(self, late: Integers, scale: float, beside: Integers) -> None:
        hosts = self._hosts_of(late)
        is_half = not hosts and late.sum() > max(1, (self.work.ranks - 1) // 2)
        kind: Kind = "node" if hosts else "split" if is_half else "worker"
        stages = self.work.stages
        if stages is not None and len(np.unique(stages)) == len(stages):
            kind = self._of_a_stage
        figures = Evidence(scale_ns=round(scale), beside_ranks=self._numbers_of(beside))
        draft = self._drafted(kind, late, figures, beside=beside)
        if draft is None:
            return
        # Stages may have unlike work as they were laid out; and who comes next costs nothing yet.
        if (is_half and kind != "split") or (beside.any() and draft.late.severity == "info"):
            draft = draft._replace(slight=True)
        places = np.flatnonzero(late)
        if kind in {"worker", "split"} and 1 < len(places) <= MOST_APART:
            alone = (np.arange(len(late)) == at for at in places)
            steps = draft.where.steps
            draft = draft._replace(each=tuple(Where(self.work, one, steps) for one in alone))
        self._drafts.append(draft)

    def _hosts_of(self, late: Integers) -> list[int]:
        """Return the hosts that ranks are, where these are nearly all of them, and few others."""
        of_host = np.bincount(self._host_of)
        hosts = np.flatnonzero((of_host >= 2) & self._are_all_of(late))
        few = len(hosts) <= max(1, MOST_OF_HOSTS * len(of_host)) and len(of_host) > 1
        ours = int(np.isin(self._host_of[late], hosts).sum())
        return hosts.tolist() if few and ours >= OF_THE_LATE * late.sum() else []

    def _drafted(
        self, kind: Kind, late: Integers, figures: Evidence, *, beside: Integers
    ) -> _Draft | None:
        """Return ranks that are late as a rule, as if those beside them were as all others are."""
        excess = low_median(self.work.excess_ns[late], 0) - self._base_ns
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
            self._drafts.append(draft)

    def _as_a_rule(
        self,
        kind: Kind,
        late: Integers,
        excess: Integers,
        last: Integers,
        figures: Evidence,
        beside: Integers,
    ) -> _Draft | None:
        """Return who is late as a rule; none where nobody waits for them."""
        work = self.work
        first = onset_of(excess)
        # What held up a single step is told by itself, and hides nothing of the others.
        steps = (np.arange(len(work)) >= first) & ~self._single
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
            replace(figures, varies=is_varying(excess[steps]), beside=self._beside),
            waits_ns=low_median(work.others_wait_ns(late)[steps]),
            ranks=self._numbers_of(late),
            hosts=tuple(self._hosts[np.unique(self._host_of[late])].tolist())
            if kind == "node"
            else (),
            stages=tuple(np.unique(work.stages[late]).tolist())
            if work.stages is not None and of_stage
            else (),
            since=int(work.numbers[first]) if first else None,
            last_share=round(float(last[steps].mean()), 6),
        )
        return _Draft(one, Where(work, late, steps), slight=severe is None and not is_info)

    def _crowd(self, ranks: Integers) -> _Crowd | None:
        """Return the host of some ranks that has most ranks for a processor, if that is several."""
        of_host = np.bincount(self._host_of).tolist()
        crowds = [
            _Crowd(of_host[self._host_of[at]], cpus)
            for at in np.flatnonzero(ranks).tolist()
            if (cpus := self._places[at].cpus) and of_host[self._host_of[at]] > cpus
        ]
        return max(crowds, key=lambda crowd: crowd.ranks / crowd.cpus, default=None)

    def _numbers_of(self, late: Integers) -> tuple[int, ...]:
        return tuple(self._places[at].rank for at in np.flatnonzero(late).tolist())

    # Nobody in particular.

    def _nobody_in_particular(self) -> None:
        work = self.work
        straggle = work.straggle_ns
        every = max(work.excess_ns.size // VALUES_OF_SCALE, 1)
        scale = max(lower_scale(work.excess_ns[:, ::every]), self._least)
        far = SCALES * scale
        pauses = straggle > max(PAUSE * work.step_ns, far)
        if pauses.sum() >= FEWEST_PAUSES:
            figures = replace(self._in_steps(pauses), scale_ns=round(scale))
            if self._in_few_steps(straggle, pauses, figures):
                return
        cost = work.share_of(straggle)
        severe = severity(self.limits["rotating"], cost.low)
        if severe is None:
            return
        if not work.is_waited_for(slice(None)):
            self.unwaited = True
            return
        hit = np.asarray(work.excess_ns > far)
        steps = np.asarray(hit.any(axis=0))
        few = float(hit.mean()) <= PAUSES_OF_RANKS
        pausing = few and part_of(straggle, steps) >= MOST_OF_IT
        of_host = np.bincount(self._host_of)
        crowded = self._crowd(np.ones(work.ranks, bool))
        figures = replace(
            self._in_steps(steps) if pausing else Evidence(),
            scale_ns=round(scale),
            ranks_of_host=crowded.ranks if crowded else int(of_host.max()),
            cpus=crowded.cpus if crowded else None,
        )
        kind: Kind = "pauses" if pausing else "jitter"
        one = Late.of(kind, "rotating", severe, cost, low_median(straggle), figures)
        where = Where(work, beyond_ns=far if pausing else 0)
        self._drafts.append(_Draft(one, where, rotates=True))

    def _in_steps(self, steps: Integers) -> Evidence:
        work = self.work
        return Evidence(
            steps=int(steps.sum()),
            step_numbers=tuple(work.numbers[steps][:TOLD_STEPS].tolist()),
            ranks_hit=len(np.unique(work.last[steps])),
        )

    def _in_few_steps(self, straggle: Integers, steps: Integers, figures: Evidence) -> bool:
        """Add bursts of one rank, or pauses of several; return whether they cost enough."""
        work = self.work
        if not work.is_waited_for(steps):
            return False
        # By the waiting that each makes: hiccups of others among the bursts of one are small.
        more = np.maximum(straggle - low_median(straggle), 0)
        of_rank = np.bincount(work.last[steps], more[steps], minlength=work.ranks)
        at = int(of_rank.argmax())
        its = steps & (work.last == at)
        # Beside what it makes wait for long, hiccups of its own are small, too.
        its &= straggle >= PAUSE * straggle[its].mean() if its.any() else its
        late = np.arange(work.ranks) == at
        # A crowded host lets one wait as often as not, and another one the next time.
        by_turns = self._crowd(late) and part_of(straggle, its) < ONE_OF_CROWD
        most = FEW_STEPS * len(work) if by_turns else len(work)
        is_one = of_rank[at] >= max(ONE_RANK * more[steps].sum(), MOST_OF_IT * more.sum())
        if is_one and FEWEST_PAUSES <= its.sum() <= most:
            cost = work.cost_of(late)
            severe = self._of_few_steps(cost)
            one = Late.of(
                "bursts",
                "bursts",
                severe or "info",
                cost,
                round(straggle[its].mean()),
                replace(self._in_steps(its), scale_ns=figures.scale_ns),
                waits_ns=work.others_wait_on_average_ns(late),
                ranks=self._numbers_of(late),
                last_share=round(float(late[work.last[steps]].mean()), 6),
            )
            self._drafts.append(_Draft(one, Where(work, late, its), slight=severe is None))
            return severe is not None
        few = steps.sum() <= FEW_STEPS * len(work) and part_of(straggle, steps) >= MOST_OF_IT
        cost = work.share_of(np.where(steps, straggle, 0))
        severe = self._of_few_steps(cost) if few else None
        if severe is None:
            return False
        one = Late.of("pauses", "rotating", severe, cost, low_median(straggle[steps]), figures)
        beyond = SCALES * (figures.scale_ns or 0)
        self._drafts.append(_Draft(one, Where(work, steps=steps, beyond_ns=beyond)))
        return True

    def _of_few_steps(self, cost: Share) -> Severity | None:
        """Return how severe that is whose interval is wide, since few steps make it."""
        limit = self.limits["cost"]
        severe = severity(limit, cost.low)
        if severe is None and cost.share >= limit.warning and cost.low >= INFO_LOW:
            return "warning"
        return severe

    @cached_property
    def _single(self) -> Integers:
        """A single step that is far longer than the others, or two, as a mask."""
        work = self.work
        return single_steps(work.time_ns, work.straggle_ns, work.last, work.is_waited_for)

    @property
    def _beside(self) -> tuple[int, ...]:
        return tuple(self.work.numbers[self._single].tolist())

    def _once(self) -> None:
        """Add who held up a single step, or two; more are bursts."""
        work, its = self.work, self._single
        if not its.any():
            return
        straggle = work.straggle_ns
        worst = int(np.where(its, straggle, -1).argmax())
        late, this = np.arange(work.ranks) == work.last[worst], np.arange(len(work)) == worst
        own = work.own_ns[:, its]
        saved = own.max(axis=0) - own.max(axis=0, where=~late[:, None], initial=0)
        lost = int(saved.sum()) / max(int(work.time_ns.sum()), 1)
        cost = Share(work.of_time(lost), 0.0, 0.0)
        one = Late.of(
            "once",
            "once",
            severity(self.limits["cost"], cost.share) or "info",
            cost,
            int(straggle[worst]),
            replace(self._in_steps(its), step_numbers=(int(work.numbers[worst]),)),
            waits_ns=work.others_wait_on_average_ns(late),
            ranks=self._numbers_of(late),
            last_share=1.0,
        )
        self._drafts.append(_Draft(one, Where(work, late, this)))

    def _of_turns(self, one: Late, correlation: float | None) -> Late:
        """Return what being late by turns is, by how forward and backward go together."""
        if correlation is None:
            return one
        one = replace(one, figures=replace(one.figures, correlation=round(correlation, 6)))
        wide = self.work.spread_ns >= SPREAD * self.work.step_ns
        return replace(one, kind="data") if correlation >= CORRELATED and wide else one
