"""The process groups of a job: those of all ranks together, and who is in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.partials import MESSAGES, ROOTED, UNTOLD, Group
from dftrace_ai.trace_format.names_and_phases import JOINT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.analysis.ranks.partials import RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers

CALLS: Final = (*sorted(JOINT), *sorted(ROOTED), *sorted(MESSAGES))
"""The names of calls, by the number that they have here."""
ROOTED_FROM: Final = len(JOINT)
MESSAGE: Final = len(JOINT) + len(ROOTED)
"""Numbers of calls from this on are messages, those from `ROOTED_FROM` on before them rooted."""
SEND: Final = CALLS.index("send")

# What torch calls the group that all ranks are in.
_WORLD: Final = "default_pg"


@dataclass(frozen=True, repr=False)
class GroupsOfJob:
    """Groups of one name and with the same ranks are one; with other ranks they are others."""

    groups: tuple[Group, ...]  # all of them; of some nobody tells the ranks
    size: Integers  # how many ranks each has; 0 where nobody tells
    seen: Integers  # how many of them have a trace
    # ``(groups, ranks)``: which ranks are in which; of ranks their index in the job
    inside: Integers
    order: Integers  # the ranks, those with one clock beside each other
    calls: Integers  # what the names of each rank are in `CALLS`, those of all ranks in a row
    # what the groups of each rank are in `groups`; its last is of calls without one
    of_rank: Integers
    first_name: Integers  # where the names of each rank begin in `calls`
    first_group: Integers  # where its groups begin in `of_rank`

    def with_ranks(
        self, group: int, cells: Sequence[Sequence[int]], numbers: Integers
    ) -> GroupsOfJob:
        """Return these with groups, by indices of ranks, for one of which nobody tells these."""
        old, count = self.groups[group], len(self.groups)
        inside = np.zeros((len(cells), self.inside.shape[1]), bool)
        of_rank = self.of_rank.copy()
        ends = np.append(self.first_group[1:], len(of_rank))
        for at, ranks in enumerate(cells):
            inside[at, list(ranks)] = True
            for rank in ranks:
                mine = of_rank[self.first_group[rank] : ends[rank]]
                mine[mine == group] = count + at
        sizes = np.array([len(ranks) for ranks in cells], np.int64)
        called = [tuple(numbers[list(ranks)].tolist()) for ranks in cells]
        return replace(
            self,
            groups=(*self.groups, *(old._replace(ranks=ranks) for ranks in called)),
            size=np.append(self.size, sizes),
            seen=np.append(self.seen, sizes),
            inside=np.concatenate((self.inside, inside)),
            of_rank=of_rank,
        )

    @cached_property
    def place(self) -> Integers:
        """How many of each group stand before each rank, ``(groups, ranks)``."""
        before = np.cumsum(self.inside[:, self.order], axis=1, dtype=np.int32)
        place = np.empty_like(before)
        place[:, self.order] = before - self.inside[:, self.order]
        return place

    @classmethod
    def of(cls, ranks: Sequence[RankPartial], order: Integers) -> GroupsOfJob:
        """Put the groups of ranks together."""
        told, lines = _told(ranks), Lines(ranks)
        numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        groups: list[Group] = []
        calls: list[int] = []
        of_rank: list[int] = []
        first_name, first_group = [], []
        for one in ranks:
            first_name.append(len(calls))
            calls += [_CALL.get(name.rpartition("/")[2], UNTOLD) for name in one.names] or [UNTOLD]
            first_group.append(len(of_rank))
            for group in (*one.groups, Group("", "", ())):
                whole = _with_ranks(group, one, told, lines)
                key = whole.name, whole.ranks
                if key not in numbers:
                    numbers[key] = len(groups)
                    groups.append(whole)
                elif whole.description and not groups[numbers[key]].description:
                    groups[numbers[key]] = whole
                of_rank.append(numbers[key])
        at = {one.place.rank: index for index, one in enumerate(ranks)}
        inside = np.zeros((len(groups), len(ranks)), bool)
        for number, group in enumerate(groups):
            inside[number, [at[rank] for rank in group.ranks if rank in at]] = True
        names = (np.array(one, np.int64) for one in (calls, of_rank, first_name, first_group))
        size = np.array([len(group.ranks) for group in groups], np.int64)
        return cls(tuple(groups), size, inside.sum(1), inside, order, *names)


_CALL: Final = {name: number for number, name in enumerate(CALLS)}


def _told(ranks: Iterable[RankPartial]) -> dict[str, set[tuple[int, ...]]]:
    """Return whom the groups of each name have, as somebody tells."""
    told: dict[str, set[tuple[int, ...]]] = {}
    for one in ranks:
        for group in one.groups:
            if group.ranks:
                told.setdefault(group.name, set()).add(tuple(sorted(set(group.ranks))))
    return told


def _with_ranks(
    group: Group, one: RankPartial, told: dict[str, set[tuple[int, ...]]], lines: Lines
) -> Group:
    """Return a group with its ranks, as others tell them or as its name says."""
    if group.ranks:
        return group._replace(ranks=tuple(sorted(set(group.ranks))))
    mine = [some for some in told.get(group.name, ()) if one.place.rank in some]
    if not mine and group.description == _WORLD and one.place.world_size:
        return group._replace(ranks=tuple(range(one.place.world_size)))
    if not mine:
        return group._replace(ranks=lines.along((group.name,), one))
    return group._replace(ranks=mine[0] if len(mine) == 1 else ())


class Lines:
    """Ranks that differ in some dimensions of the layout alone."""

    def __init__(self, ranks: Sequence[RankPartial]) -> None:
        self._ranks = ranks
        self._known: dict[tuple[str, ...], dict[_Rest, list[int]]] = {}

    def along(self, dimensions: tuple[str, ...], one: RankPartial) -> tuple[int, ...]:
        """Return the ranks that differ from one in dimensions alone; none where it lacks one."""
        if dimensions not in self._known:
            found: dict[_Rest, list[int]] = {}
            for other in self._ranks:
                if (rest := _rest(other, dimensions)) is not None:
                    found.setdefault(rest, []).append(other.place.rank)
            self._known[dimensions] = found
        rest = _rest(one, dimensions)
        return () if rest is None else tuple(sorted(self._known[dimensions][rest]))


_Rest = frozenset[tuple[str, int]]


def _rest(one: RankPartial, dimensions: tuple[str, ...]) -> _Rest | None:
    place = dict(one.place.layout)
    if any(place.pop(name, None) is None for name in dimensions):
        return None
    return frozenset(place.items())
