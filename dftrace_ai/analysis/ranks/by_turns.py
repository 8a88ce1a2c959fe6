"""What ranks lose by turns or now and then: pauses, bursts of one, data, jitter, a single step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.drafts import INFO_LOW, SCALES, Draft, Rules
from dftrace_ai.analysis.ranks.findings import Late
from dftrace_ai.analysis.ranks.model import Evidence
from dftrace_ai.analysis.ranks.named_work import MOST_OF_IT, Where
from dftrace_ai.analysis.ranks.own_work import FEWEST_PAUSES, low_median, lower_scale, part_of
from dftrace_ai.analysis.ranks.partials import GARBAGE
from dftrace_ai.analysis.robust_statistics import Share
from dftrace_ai.analysis.thresholds import severity

if TYPE_CHECKING:
    from dftrace_ai.analysis.ranks.model import Kind
    from dftrace_ai.analysis.ranks.own_work import OwnWork
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.thresholds import Severity

# A pause is so much of a step. Pauses hold so much of all straggling: of one rank, which makes so
# much of theirs, in any number of steps, of several ranks in few.
PAUSE: Final = 0.25
FEW_STEPS: Final = 0.25
ONE_RANK: Final = 0.8
# On a host with fewer processors than ranks, of all straggling: there it is by turns, and one makes
# 0.8 of it at most.
ONE_OF_CROWD: Final = 0.9
# Of steps of ranks so many may be pauses where nearly every step has one.
PAUSES_OF_RANKS: Final = 0.2
# Who is last in so many steps is told by its number, though it is by turns.
MOSTLY: Final = 0.75
# Data: how forward and backward go together, and how much ranks differ, of a step.
CORRELATED: Final = 0.7
SPREAD: Final = 0.03
# Numbers of steps that are told of a finding.
TOLD_STEPS: Final = 10
VALUES_OF_SCALE: Final = 1_000_000


class ByTurns(Rules):
    """Rules for who is late now and then, where nobody is as a rule."""

    def judge(self) -> None:
        """Add what ranks lose by turns, if any, or one of them in bursts."""
        work = self.work
        straggle = work.straggle_ns
        every = max(work.excess_ns.size // VALUES_OF_SCALE, 1)
        scale = max(lower_scale(work.excess_ns[:, ::every]), self.least)
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
        of_host = np.bincount(self.host_of)
        crowded = self.most_crowded
        figures = replace(
            self._in_steps(steps) if pausing else Evidence(),
            scale_ns=round(scale),
            ranks_of_host=crowded.ranks if crowded else int(of_host.max()),
            cpus=crowded.cpus if crowded else None,
        )
        last = np.bincount(work.last, minlength=work.ranks) / len(work)
        most = int(last.argmax())
        mostly = not pausing and last[most] >= MOSTLY
        if mostly:
            figures = replace(figures, mostly=self.places[most].rank)
        kind: Kind = "pauses" if pausing else "jitter"
        one = Late.of(
            kind,
            "rotating",
            severe,
            cost,
            low_median(straggle),
            figures,
            last_share=round(float(last[most]), 6) if mostly else 0.0,
        )
        where = Where(work, beyond_ns=far if pausing else 0)
        self.drafts.append(Draft(one, where, rotates=True))

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
        by_turns = self.crowd(late) and part_of(straggle, its) < ONE_OF_CROWD
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
                ranks=self.numbers_of(late),
                last_share=round(float(late[work.last[steps]].mean()), 6),
            )
            self.drafts.append(Draft(one, Where(work, late, its), slight=severe is None))
            return severe is not None
        few = steps.sum() <= FEW_STEPS * len(work) and part_of(straggle, steps) >= MOST_OF_IT
        cost = work.share_of(np.where(steps, straggle, 0))
        severe = self._of_few_steps(cost) if few else None
        if severe is None:
            return False
        one = Late.of("pauses", "rotating", severe, cost, low_median(straggle[steps]), figures)
        beyond = SCALES * (figures.scale_ns or 0)
        self.drafts.append(Draft(one, Where(work, steps=steps, beyond_ns=beyond)))
        return True

    def _of_few_steps(self, cost: Share) -> Severity | None:
        """Return how severe that is whose interval is wide, since few steps make it."""
        limit = self.limits["cost"]
        severe = severity(limit, cost.low)
        if severe is None and cost.share >= limit.warning and cost.low >= INFO_LOW:
            return "warning"
        return severe

    def judge_once(self) -> None:
        """Add who held up a single step, or two; more are bursts."""
        work, its = self.work, self.single
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
            ranks=self.numbers_of(late),
            last_share=1.0,
        )
        self.drafts.append(Draft(one, Where(work, late, this)))


def of_turns(one: Late, work: OwnWork, correlation: float | None) -> Late:
    """Return what being late by turns is, by how forward and backward go together."""
    if correlation is None:
        return one
    one = replace(one, figures=replace(one.figures, correlation=round(correlation, 6)))
    if one.names and one.names[0].name == GARBAGE:
        return one
    wide = work.spread_ns >= SPREAD * work.step_ns
    return replace(one, kind="data") if correlation >= CORRELATED and wide else one
