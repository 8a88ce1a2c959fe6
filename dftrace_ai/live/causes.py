"""Of those that are stuck: who waits, and who is waited for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import median_high
from typing import TYPE_CHECKING

from dftrace_ai.live.findings import Finding, finding
from dftrace_ai.live.judging import COLLECTIVE
from dftrace_ai.live.model import NS
from dftrace_ai.live.wording import age_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.live.model import HiddenProcess, RankStatus

__all__ = ["with_causes"]

# Ranks that came to a collective closer together than this came together.
TOGETHER_S = 1.0


def with_causes(
    found: Sequence[Finding], processes: Sequence[RankStatus], hidden: Sequence[HiddenProcess]
) -> list[Finding]:
    """Say which findings are likely to be what the others wait for.

    Ranks in a collective wait for those that are not in it: for one that died or is
    missing, for one that is stuck elsewhere, or for one that goes on elsewhere. When
    all are in a collective, the one is named that is at an earlier step, in another
    collective than most, or came last.

    Args:
        found: what is stuck or dead in a job, at least one of them stuck.
        processes: all processes of the job.
        hidden: those of other hosts, of this job or another.

    Returns:
        The findings, with causes, and behind them ranks that go on elsewhere.
    """
    told = [replace(one, cause="it died") if one.what == "dead" else one for one in found]
    waiting = _in_collective(told)
    if not waiting:
        return told
    place = Counter(one.place for one in waiting).most_common(1)[0][0]
    told += _missing(processes, hidden)
    told = _stuck_elsewhere(told, place)
    if not any(one.cause for one in told):
        told += _going_on(told, processes, place)
    if not any(one.cause for one in told):
        told = _last_of_all(told)
    return told


def _in_collective(found: Iterable[Finding]) -> list[Finding]:
    return [one for one in found if one.what == "stuck" and one.category == COLLECTIVE]


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


def _stuck_elsewhere(found: Sequence[Finding], place: str) -> list[Finding]:
    # A rank may wait in any of its threads: gradients are reduced behind the main thread's back.
    waiting = {_process(one) for one in _in_collective(found)}
    elsewhere = {
        one.rank: one.place
        for one in found
        if one.what == "stuck" and not one.worker and _process(one) not in waiting
    }
    told = []
    for one in found:
        cause = one.cause
        if one.what == "stuck" and _process(one) not in waiting:
            if not one.worker:
                cause = f"the others wait for it in {place}"
            elif one.rank is not None and one.rank in elsewhere:
                cause = f"rank {one.rank} waits for it in {elsewhere[one.rank]}"
        told.append(replace(one, cause=cause))
    return told


def _going_on(
    found: Sequence[Finding], processes: Sequence[RankStatus], place: str
) -> list[Finding]:
    known = {_process(one) for one in found}
    return [
        replace(
            finding("goes on", process, process.main), cause=f"the others wait for it in {place}"
        )
        for process in processes
        if process.state == "alive"
        and not process.worker
        and (process.host, process.pid) not in known
        and not any(t.place and t.place[-1].cat == COLLECTIVE for t in process.threads)
    ]


def _last_of_all(found: Sequence[Finding]) -> list[Finding]:
    waiting = _in_collective(found)
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
    *_, before, last = sorted(waiting, key=lambda one: one.moved_ns)
    late_s = (last.moved_ns - before.moved_ns) / NS
    if late_s < TOGETHER_S:
        return {}
    return {id(last): f"it came last, {age_text(late_s)} after the others"}
