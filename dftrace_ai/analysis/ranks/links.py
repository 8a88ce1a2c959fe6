"""Which links are slower than others of their kind: two ranks with messages, a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.groups import CALLS, MESSAGE, ROOTED_FROM, SEND
from dftrace_ai.analysis.ranks.ordering import any_in, begins
from dftrace_ai.analysis.ranks.partials import UNTIL
from dftrace_ai.analysis.robust_statistics import share_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.ranks.groups import GroupsOfJob
    from dftrace_ai.analysis.ranks.meetings import Meetings
    from dftrace_ai.analysis.ranks.partials import RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers

# Of fewer nobody knows which one is as it should be.
_FEWEST: Final = 4
_SCALES: Final = 6.0
_TIMES: Final = 1.5
_MOST_SHARE: Final = 0.1


class SlowLink(NamedTuple):
    """A link that is slower than others of its kind."""

    ranks: tuple[int, ...]  # whom it joins
    hosts: tuple[str, ...]
    name: str  # of the collective; ``send`` for messages
    group: str
    bytes: int | None  # that these have
    transfer_ns: int  # what they usually take
    usual_ns: int  # what others do
    links: int  # how many there are of its kind
    cost: float  # share of the steps that it takes longer
    low: float  # lower end of the 95 % interval of that


class _Link(NamedTuple):
    """Of which kind, and between whom."""

    name: int
    members: int
    bytes: int
    across: bool
    one: int  # ranks of a message, index in the job; else the group
    other: int

    @property
    def kind(self) -> tuple[int, int, int, bool]:
        """What links are compared by."""
        return self[:4]


class Links:
    """Compares links by the medians of what they take, a part of a run after the other."""

    def __init__(self, ranks: Sequence[RankPartial], groups: GroupsOfJob) -> None:
        self._ranks, self._groups = ranks, groups
        self.host = _hosts(ranks)
        self.across = np.array(
            [len(np.unique(self.host[inside])) > 1 for inside in groups.inside], bool
        )
        self._known: dict[_Link, list[tuple[int, int]]] = {}
        self._errors: dict[_Link, list[tuple[int, int]]] = {}

    def add(self, meetings: Meetings, some: Integers) -> None:
        """Take what some meetings took."""
        at = np.flatnonzero(some & _is_of_link(meetings))
        if not len(at):
            return
        links, number = self._links_of(meetings, at)
        # What nobody looked for may have been there long before.
        calls, first = meetings.matches.calls, meetings.matches.first
        unseen = any_in(calls.until == UNTIL["waited"], first)[at]
        took = meetings.transfer_ns[at]
        for known, values in (
            (self._known, took),
            (self._errors, np.maximum(meetings.error_ns[at], np.where(unseen, took, 0))),
        ):
            order = np.lexsort((values, number))
            first = begins(number[order])
            count = np.diff(first, append=len(order))
            middle = values[order][first + (count - 1) // 2]
            for link, median, times in zip(links, middle.tolist(), count.tolist(), strict=True):
                known.setdefault(link, []).append((median, times))

    def odd(self) -> dict[_Link, tuple[int, int, int]]:
        """Return which links are slow, with their time, the usual one, and how many there are."""
        kinds: dict[tuple[int, int, int, bool], list[_Link]] = {}
        for link in self._known:
            kinds.setdefault(link.kind, []).append(link)
        found: dict[_Link, tuple[int, int, int]] = {}
        for links in kinds.values():
            if len(links) < _FEWEST:
                continue
            took = np.array([_median(self._known[link]) for link in links])
            usual = int(np.sort(took)[(len(took) - 1) // 2])
            scale = 1.4826 * float(np.median(np.abs(took - usual)))
            slow = (took > _TIMES * usual) & (took - usual > _SCALES * scale)
            if not links[0].across:
                # On a host they wait for a processor, and for whoever looks for them late.
                slow &= took - usual > np.array([_median(self._errors[link]) for link in links])
            if 0 < slow.sum() <= max(1, _MOST_SHARE * len(links)):
                for at in np.flatnonzero(slow).tolist():
                    found[links[at]] = int(took[at]), usual, len(links)
        return found

    def longer_ns(self, meetings: Meetings, some: Integers, link: _Link, usual: int) -> Integers:
        """Return how much longer than usual those of a link took, and in which steps of a block."""
        at = np.flatnonzero(some & _is_of_link(meetings))
        links, number = self._links_of(meetings, at)
        mine = at[number == links.index(link)] if link in links else at[:0]
        return np.stack((meetings.matches.step[mine], meetings.transfer_ns[mine] - usual))

    def told(
        self, link: _Link, figures: tuple[int, int, int], longer: Integers, steps: Integers
    ) -> SlowLink:
        """Return a slow link with what it costs, of the longest time of each step."""
        share = share_of(longer, steps)
        group = None if link.name == SEND else self._groups.groups[link.one]
        numbers = [one.place.rank for one in self._ranks]
        ranks = (numbers[link.one], numbers[link.other]) if group is None else group.ranks
        at_hosts = [one.place.host for one in self._ranks if one.place.rank in set(ranks)]
        transfer, usual, links = figures
        return SlowLink(
            ranks=ranks,
            hosts=tuple(dict.fromkeys(at_hosts)),
            name=CALLS[link.name],
            group="" if group is None else group.name,
            bytes=link.bytes if link.bytes > 0 else None,
            transfer_ns=transfer,
            usual_ns=usual,
            links=links,
            cost=max(share.share, 0.0),
            low=share.low,
        )

    def across_of(self, meetings: Meetings) -> Integers:
        """Return which meetings are across hosts."""
        matches = meetings.matches
        rank, first = matches.calls.rank, matches.first
        other = np.minimum(first + 1, len(rank) - 1)
        between = self.host[rank[first]] != self.host[rank[other]]
        found: Integers = np.where(matches.name >= MESSAGE, between, self.across[matches.group])
        return found

    def _links_of(self, meetings: Meetings, at: Integers) -> tuple[list[_Link], Integers]:
        """Return the links of meetings, each once, and which is whose."""
        matches = meetings.matches
        calls, first = matches.calls, matches.first[at]
        is_message = matches.name[at] >= MESSAGE
        other = np.minimum(first + 1, len(calls.rank) - 1)
        sends = calls.name[first] == SEND
        one = np.where(sends, calls.rank[first], calls.rank[other])
        two = np.where(sends, calls.rank[other], calls.rank[first])
        columns = np.stack(
            (
                np.where(is_message, SEND, matches.name[at]),
                np.where(is_message, 2, self._groups.size[matches.group[at]]),
                meetings.size[at],
                self.across_of(meetings)[at],
                np.where(is_message, one, matches.group[at]),
                np.where(is_message, two, 0),
            )
        )
        order = np.lexsort(columns[::-1])
        starts = begins(*columns[:, order])
        number = np.empty(len(at), np.int64)
        number[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(at)))
        rows = columns[:, order[starts]].T.tolist()
        return [_Link(row[0], row[1], row[2], bool(row[3]), row[4], row[5]) for row in rows], number


def _is_of_link(meetings: Meetings) -> Integers:
    """Return which meetings are of what all members take part in alike."""
    name = meetings.matches.name
    mask: Integers = (name < ROOTED_FROM) | (name >= MESSAGE)
    return mask


def _hosts(ranks: Sequence[RankPartial]) -> Integers:
    names = [one.place.host or one.place.clock for one in ranks]
    number = {name: at for at, name in enumerate(dict.fromkeys(names))}
    return np.array([number[name] for name in names], np.int64)


def _median(parts: Sequence[tuple[int, int]]) -> int:
    """Return the median of medians, each of so many values."""
    half, seen = sum(count for _, count in parts) / 2, 0
    for median, count in sorted(parts):
        seen += count
        if seen >= half:
            return median
    return 0
