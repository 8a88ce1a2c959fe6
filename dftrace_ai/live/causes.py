"""Of those that are stuck: who waits, and who is waited for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import median_high
from typing import TYPE_CHECKING

from dftrace_ai.live.model import NS
from dftrace_ai.live.verdict import Finding, finding_of
from dftrace_ai.live.waiting import Waiting, waiting_at, waiting_of
from dftrace_ai.live.wording import age_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.live.model import HiddenProcess, RankStatus

__all__ = ["with_causes"]

# Ranks that came to a collective closer together than this came together.
TOGETHER_S = 1.0

OPTIMIZER = "compute.step"


def with_causes(
    found: Sequence[Finding], processes: Sequence[RankStatus], hidden: Sequence[HiddenProcess]
) -> list[Finding]:
    """Say which findings are likely to be what the others wait for.

    Ranks in a collective wait for those that are not in it, and so may ranks in a
    backward pass, which reduces the gradients: for one that died or is missing, for
    one that is stuck elsewhere, or for one that goes on elsewhere. When all wait in the
    same way, the one is named that is at an earlier step, in another collective than
    most, or came last.

    Args:
        found: what is stuck or dead in a job, at least one of them stuck.
        processes: all processes of the job.
        hidden: those of other hosts, of this job or another.

    Returns:
        The findings, with causes, and behind them ranks that go on elsewhere.
    """
    findings = [replace(one, cause="it died") if one.what == "dead" else one for one in found]
    waiting = _Waiters(findings)
    if not waiting.findings:
        return findings
    findings += _missing(processes, hidden)
    findings = _stuck_elsewhere(findings, waiting)
    if not any(one.cause for one in findings):
        findings += _going_on(findings, processes, waiting)
    if not any(one.cause for one in findings):
        findings = _last_of_all(findings, waiting.findings)
    return findings


class _Waiters:
    """The ranks that are stuck, by how surely they wait for others.

    Attributes:
        findings: where they wait: in collectives, or in backward passes if nobody is in one.
        place: where most of them are.
        least: how surely the one of them waits of which it is said least.
    """

    def __init__(self, found: Iterable[Finding]) -> None:
        self._ranks: dict[tuple[str | None, int | None], Waiting] = {}
        stuck = [one for one in found if one.what == "stuck"]
        for one in stuck:
            # A worker waits for nobody; any thread of a rank may.
            at = Waiting.NOT if one.worker else waiting_at(one)
            self._ranks[_process(one)] = min(at, self.of(one))
        ranks = [self.of(one) for one in stuck if not one.worker]
        most = min(ranks, default=Waiting.NOT)
        self.least = max(ranks, default=Waiting.NOT)
        self.findings = [
            one
            for one in stuck
            if not one.worker and waiting_at(one) == most and most is not Waiting.NOT
        ]
        places = Counter(one.place for one in self.findings).most_common(1)
        self.place = places[0][0] if places else ""

    def of(self, one: Finding) -> Waiting:
        """How surely the process of a finding waits."""
        return self._ranks.get(_process(one), Waiting.NOT)

    def is_waited_for(self, one: Finding) -> bool:
        """Whether a rank waits less surely than others that are stuck."""
        return self.of(one) == self.least and any(at < self.least for at in self._ranks.values())

    def have_passed(self, one: Finding) -> bool:
        """Whether a rank has left behind it what the others are in: the optimizer comes later."""
        if one.place != OPTIMIZER or one.step is None:
            return False
        at = (one.epoch or 0, one.step)
        return all(
            waiting_at(other) is Waiting.PERHAPS
            and other.step is not None
            and (other.epoch or 0, other.step) <= at
            for other in self.findings
        )


def _process(one: Finding) -> tuple[str | None, int | None]:
    return one.host, one.pid


def _missing(processes: Sequence[RankStatus], hidden: Sequence[HiddenProcess]) -> list[Finding]:
    sizes = {process.world_size for process in processes if process.world_size is not None}
    known = {process.rank for process in processes} | {process.rank for process in hidden}
    # Of which ranks the hidden processes are is not always known.
    if len(sizes) != 1 or None in known:
        return []
    (size,) = sizes
    # A made-up size would make a list of any length.
    if size - len(known) > len(known) + 1024:
        return []
    return [
        Finding("missing", f"rank {rank}", rank, cause="no process of it is there")
        for rank in range(size)
        if rank not in known
    ]


def _stuck_elsewhere(found: Sequence[Finding], waiting: _Waiters) -> list[Finding]:
    elsewhere = {
        one.rank: one.place
        for one in found
        if one.what == "stuck"
        and not one.worker
        and waiting.is_waited_for(one)
        and not waiting.have_passed(one)
    }
    findings = []
    for one in found:
        cause = one.cause
        if one.what == "stuck" and waiting.is_waited_for(one):
            if not one.worker:
                if not waiting.have_passed(one):
                    cause = f"the others wait for it in {waiting.place}"
            elif one.rank is not None and one.rank in elsewhere:
                cause = f"rank {one.rank} waits for it in {elsewhere[one.rank]}"
        findings.append(one if cause == one.cause else replace(one, cause=cause))
    return findings


def _going_on(
    found: Sequence[Finding], processes: Sequence[RankStatus], waiting: _Waiters
) -> list[Finding]:
    known = {_process(one) for one in found}
    elsewhere = [
        replace(
            finding_of("goes on", process, process.main),
            cause=f"the others wait for it in {waiting.place}",
        )
        for process in processes
        if process.state == "alive"
        and not process.worker
        and (process.host, process.pid) not in known
        and waiting_of(process) > waiting.least
    ]
    return [one for one in elsewhere if not waiting.have_passed(one)]


def _last_of_all(found: Sequence[Finding], waiting: Sequence[Finding]) -> list[Finding]:
    if len(waiting) < 2:
        return list(found)
    cause = _earlier_step(waiting) or _other_place(waiting) or _came_last(waiting)
    return [replace(one, cause=cause.get(id(one), one.cause)) for one in found]


def _earlier_step(waiting: Sequence[Finding]) -> dict[int, str]:
    at = {id(one): (one.epoch or 0, one.step) for one in waiting if one.step is not None}
    if len(at) < len(waiting) or min(at.values()) == max(at.values()):
        return {}
    first, usual = min(at.values()), median_high(at.values())
    if first == usual:
        return {}
    return {
        one: f"it is at step {first[1]:,}, the others at {usual[1]:,}"
        for one, position in at.items()
        if position == first
    }


def _other_place(waiting: Sequence[Finding]) -> dict[int, str]:
    (place, count), *others = Counter(one.place for one in waiting).most_common()
    if not others or 2 * count <= len(waiting):
        return {}
    return {id(one): f"the others are in {place}" for one in waiting if one.place != place}


def _came_last(waiting: Sequence[Finding]) -> dict[int, str]:
    # Who began the backward pass last has not come last to the collective in it.
    if any(waiting_at(one) is not Waiting.SURELY for one in waiting):
        return {}
    *_, before, last = sorted(waiting, key=lambda one: one.moved_ns)
    late_s = (last.moved_ns - before.moved_ns) / NS
    if late_s < TOGETHER_S:
        return {}
    return {id(last): f"it came last, {age_text(late_s)} after the others"}
