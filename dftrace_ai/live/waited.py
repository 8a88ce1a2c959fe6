"""Whom the ranks of a host wait for in collectives: now, and over the last seconds.

Clocks of one host are one. A collective that nobody leaves before the last has come begins for all
when that one comes: so long the others wait for it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.live.jobs import ranks_alive
from dftrace_ai.live.model import NS, WaitedFor
from dftrace_ai.trace_format.names_and_phases import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dftrace_ai.live.jobs import Job
    from dftrace_ai.spools.outcome_types import SpoolLook

JOINT: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""Those that all leave together."""

# As many as a look into a spool has of a thread.
MOST_CALLS: Final = 256

Key = tuple[str, str, int]
"""A collective: its group, its name, and how many of these there were before."""


class Call(NamedTuple):
    """A collective of a process; without an end it is in it now."""

    key: Key
    start_ns: int
    end_ns: int | None


class Calls(NamedTuple):
    """The newest collectives of a process, all of those from one moment to that of the look."""

    calls: tuple[Call, ...]
    since_ns: int
    seen_ns: int


def calls_of(look: SpoolLook, window_s: float) -> Calls:
    """Return the collectives that a spool tells of."""
    since_ns = max(look["now_ns"] - round(window_s * NS), look["started_ns"])
    found: list[Call] = []
    for thread in look["threads"]:
        if len(thread["calls"]) >= MOST_CALLS:
            since_ns = max(since_ns, thread["calls"][-1][2])
        for name, start_ns, end_ns, args in thread["calls"]:
            found += _call(name, args, start_ns, end_ns)
        for span in (*thread["open"], *thread["tasks"]):
            if span["name"] and span["name"][1] == COLLECTIVES:
                found += _call(span["name"][0], span["args"], span["start_ns"], None)
    return Calls(tuple(found), since_ns, look["now_ns"])


def _call(name: str, args: str, start_ns: int, end_ns: int | None) -> Iterator[Call]:
    if name not in JOINT:
        return
    try:
        told = json.loads(f"{{{args[1:]}}}")
    except (ValueError, RecursionError):
        return  # it was overwritten while it was read
    group, number = told.get("group"), told.get("nth", told.get("seq"))
    if isinstance(group, str) and type(number) is int:
        yield Call((group, name, number), start_ns, end_ns)


def waited_for(jobs: Sequence[Job], calls: Mapping[tuple[str, str], Calls]) -> list[WaitedFor]:
    """Return whom the others wait for, by the collectives of processes; those of most first."""
    found: list[WaitedFor] = []
    for job in jobs:
        hosts: dict[str, dict[int, Calls]] = defaultdict(dict)
        runs: dict[tuple[str, int], str] = {}
        for process in ranks_alive(job.processes):
            known = calls.get(process.identity)
            if known is not None and process.rank is not None:
                hosts[process.host][process.rank] = known
                runs[process.host, process.rank] = process.run
        for host, by_rank in hosts.items():
            waits = _Waits(by_rank)
            found += [waits.of(runs[host, rank], host, rank) for rank in waits.ranks]
    return sorted(found, key=lambda one: (-one.alone_s, -one.now_s, one.host, one.rank))


class _Waits:
    """What the ranks of a job that are on one host have waited for."""

    def __init__(self, calls: Mapping[int, Calls]) -> None:
        self._seen_ns = {rank: each.seen_ns for rank, each in calls.items()}
        self._now_ns = min(self._seen_ns.values())
        self._since_ns = min(max(each.since_ns for each in calls.values()), self._now_ns)
        self._alone_ns: dict[int, int] = defaultdict(int)
        self._last: dict[int, int] = defaultdict(int)
        self._of: dict[int, int] = defaultdict(int)
        self._now: dict[int, tuple[str, int]] = {}
        members: dict[str, set[int]] = defaultdict(set)
        met: dict[Key, dict[int, Call]] = defaultdict(dict)
        for rank, each in calls.items():
            for call in each.calls:
                members[call.key[0]].add(rank)
                met[call.key][rank] = call
        for key, by_rank in met.items():
            self._take(key[1], members[key[0]], by_rank)

    def _take(self, name: str, members: set[int], by_rank: Mapping[int, Call]) -> None:
        missing = members - by_rank.keys()
        starts = sorted((call.start_ns, -rank) for rank, call in by_rank.items())
        if not missing:
            last_ns, last = starts[-1]
            if len(members) < 2 or last_ns < self._since_ns:
                return
            self._alone(-last, starts[-2][0], last_ns)
            self._last[-last] += 1
            for rank in members:
                self._of[rank] += 1
        elif len(missing) <= len(by_rank) and all(c.end_ns is None for c in by_rank.values()):
            # All who are there stand in it, and most are.
            come_ns = starts[-1][0]
            for rank in missing:
                # One that was looked at before the others came may have come, too.
                if self._seen_ns[rank] > come_ns:
                    self._now[rank] = f"{COLLECTIVES}.{name}", self._seen_ns[rank] - come_ns
            if len(missing) == 1:
                self._alone(missing.pop(), come_ns, self._now_ns)

    def _alone(self, rank: int, from_ns: int, to_ns: int) -> None:
        self._alone_ns[rank] += max(min(to_ns, self._now_ns) - max(from_ns, self._since_ns), 0)

    @property
    def ranks(self) -> list[int]:
        """Those that were waited for."""
        return sorted({*self._last, *self._now})

    def of(self, run: str, host: str, rank: int) -> WaitedFor:
        """Return how long one of them was."""
        place, now_ns = self._now.get(rank, ("", 0))
        return WaitedFor(
            run=run,
            host=host,
            rank=rank,
            now=place,
            now_s=now_ns / NS,
            last=self._last[rank],
            of=self._of[rank],
            alone_s=self._alone_ns[rank] / NS,
            covered_s=(self._now_ns - self._since_ns) / NS,
        )
