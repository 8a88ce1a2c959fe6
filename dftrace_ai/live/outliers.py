"""Which ranks are not as the others: what a watcher looks for first."""

from __future__ import annotations

from collections import Counter
from statistics import median, median_low
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.live.jobs import jobs_of, ranks_alive
from dftrace_ai.live.model import NS, place_text
from dftrace_ai.live.stuck import waiting_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.live.model import RankStatus, Snapshot

# Ranks of a healthy job are at different places for a moment, and a step apart.
PATIENCE_S = 1.0
STEPS_APART = 2

# Fewer say nothing about what is usual.
LEAST_RANKS = 4
# A rate so many times the usual spread from the median is unusual, where it also differs in itself.
SPREADS = 5.0
LEAST_DIFFERENCE = 0.2
# The spread of a normal distribution by its median absolute deviation.
NORMAL_MAD = 1.4826


class Mark(NamedTuple):
    """Why a process is not as the others."""

    word: str
    """``dead``, ``unwritable``, ``drops``, ``elsewhere``, ``behind``, ``slow`` or ``busy``."""
    detail: str
    """The same with figures, for a wide screen."""


def judge(snapshot: Snapshot) -> dict[tuple[str, str], list[Mark]]:
    """Find the processes that differ from the others of their job.

    Args:
        snapshot: what the processes are doing.

    Returns:
        For each process, by its identity, why it differs; nothing for most of them.
        ``dead``: it has died. ``unwritable``: its trace cannot be written. ``drops``:
        it has lost events. And of ranks, not of their workers: ``elsewhere``: it has
        been for a second where most are not. ``behind``: two steps or more behind the
        median. ``slow`` or ``busy``: it records unusually few or many events a second.

    Example::

        for process in found.processes:
            print(process.label, [mark.word for mark in judge(found)[process.identity]])
    """
    marks: dict[tuple[str, str], list[Mark]] = {
        process.identity: _own_marks(process) for process in snapshot.processes
    }
    for job in jobs_of(snapshot):
        ranks = ranks_alive(job.processes)
        for rank, mark in (*_elsewhere(ranks), *_behind(ranks), *_unusual(ranks)):
            marks[rank.identity].append(mark)
    return marks


def _own_marks(process: RankStatus) -> list[Mark]:
    marks = []
    if process.state == "dead":
        marks.append(Mark("dead", "dead"))
    if process.write_error:
        marks.append(Mark("unwritable", f"trace: {process.write_error}"))
    if process.dropped:
        marks.append(Mark("drops", f"{process.dropped:,} events lost"))
    return marks


def _since_s(rank: RankStatus) -> float:
    """Seconds since the innermost open span began."""
    return (rank.seen_ns - rank.place[-1].start_ns) / NS if rank.place else 0.0


def _elsewhere(ranks: Sequence[RankStatus]) -> list[tuple[RankStatus, Mark]]:
    places = {rank.identity: rank.place[-1].label if rank.place else "" for rank in ranks}
    if len(ranks) < 2:
        return []
    usual, count = Counter(places.values()).most_common(1)[0]
    if 2 * count <= len(ranks):
        # No place is that of most; but who waits for others is not the one to look at.
        waiting = _waiting(ranks)
        if 2 * len(waiting) < len(ranks) or max(map(_since_s, waiting), default=0.0) < PATIENCE_S:
            return []
        return [
            (rank, Mark("elsewhere", f"others in {place_text(waiting[0].place[-1].label)}"))
            for rank in ranks
            if rank not in waiting
        ]
    return [
        (
            rank,
            Mark("elsewhere", f"others in {place_text(usual)}" if usual else "others in no span"),
        )
        for rank in ranks
        if places[rank.identity] != usual and _quiet_s(rank) >= PATIENCE_S
    ]


def _waiting(ranks: Sequence[RankStatus]) -> list[RankStatus]:
    """Those that wait for others more surely than some do."""
    at = {rank.identity: waiting_of(rank) for rank in ranks}
    least = max(at.values())
    return [rank for rank in ranks if rank.place and at[rank.identity] < least]


def _quiet_s(rank: RankStatus) -> float:
    return _since_s(rank) if rank.place else rank.quiet_s(rank.main) if rank.main else 0.0


def _behind(ranks: Sequence[RankStatus]) -> list[tuple[RankStatus, Mark]]:
    at = {rank.identity: (rank.epoch or 0, rank.step) for rank in ranks if rank.step is not None}
    if len(at) < 2:
        return []
    epoch, step = median_low(at.values())
    marks = []
    for rank in ranks:
        if rank.identity not in at:
            continue
        own_epoch, own_step = at[rank.identity]
        # Steps of the epochs between are not known: at least those of the newest one.
        steps = step - own_step if own_epoch == epoch else step + 1
        if own_epoch <= epoch and steps >= STEPS_APART:
            least = "" if own_epoch == epoch else " or more"
            marks.append((rank, Mark("behind", f"{steps:,}{least} steps behind")))
    return marks


def _unusual(ranks: Sequence[RankStatus]) -> list[tuple[RankStatus, Mark]]:
    rates = {rank.identity: rank.events_per_s for rank in ranks if rank.events_per_s is not None}
    if len(rates) < LEAST_RANKS:
        return []
    usual = median(rates.values())
    spread = NORMAL_MAD * median(abs(rate - usual) for rate in rates.values())
    least = max(SPREADS * spread, LEAST_DIFFERENCE * usual)
    return [
        (rank, Mark("slow" if rate < usual else "busy", f"{rate / usual:.0%} of the usual events"))
        for rank in ranks
        if (rate := rates.get(rank.identity)) is not None and usual and abs(rate - usual) > least
    ]
