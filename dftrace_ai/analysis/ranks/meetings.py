"""What each collective and message took, who waited in it and how long, and who came last.

Nearly all of it goes by durations: who came last into a collective that all leave together was in
it for the shortest time, whatever the clocks say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.ranks.groups import MESSAGE, ROOTED_FROM, SEND
from dftrace_ai.analysis.ranks.matching import MOST_ODD
from dftrace_ai.analysis.ranks.ordering import any_in, begins, sorted_by
from dftrace_ai.analysis.ranks.partials import UNTIL, UNTOLD

if TYPE_CHECKING:
    from dftrace_ai.analysis.ranks.calls import RanksInOrder
    from dftrace_ai.analysis.ranks.clock_offsets import Clocks
    from dftrace_ai.analysis.ranks.matching import Matches
    from dftrace_ai.analysis.reading.event_columns import Integers

UNSEEN_LAST: Final = 4
"""What takes so many times as long as others has waited for somebody who has no trace."""

SURE: Final = 4
"""A time is told where it is so many times as long as what it may be wrong by."""


@dataclass(frozen=True, repr=False)
class Meetings:
    """What the collectives and messages of `Matches` took."""

    matches: Matches
    known: Integers  # of each, whether its times are; all else of it says nothing where not
    size: Integers  # of each, the most bytes that a member tells
    transfer_ns: Integers  # of each, what it took once all were there
    error_ns: Integers  # of each, what that may be too long
    last: Integers  # of each, who came last, index in the job; `UNTOLD` where that is not known
    imposed_ns: Integers  # of each, what it was later than the last but one
    left_ns: Integers  # of each call: the first end that was seen on its clock
    wait_ns: Integers  # of each call: how much longer than the transfer it was there
    broken: Integers  # of each, whether somebody left it before another had come, by clocks

    @classmethod
    def of(cls, matches: Matches, ranks: RanksInOrder, clocks: Clocks) -> Meetings:
        """Work out what they took; of clocks that are not known only durations count."""
        if not len(matches.first):
            no, none = np.zeros(0, bool), np.zeros(0, np.int64)
            return cls(matches, no, none, none, none, none, none, none, none, no)
        return _Working(matches, ranks, clocks).meetings()


class _Working:
    """Works out what collectives and messages took."""

    def __init__(self, matches: Matches, ranks: RanksInOrder, clocks: Clocks) -> None:
        calls = matches.calls
        self._matches, self._ranks, self._clocks = matches, ranks, clocks
        self._meeting = matches.meeting
        self._clock = ranks.clock[calls.rank]
        self._ends = ~any_in(calls.until > UNTIL["waited"], matches.first)
        self._joint = matches.name < ROOTED_FROM
        # Stretches of calls of one meeting with one clock.
        self._first = begins(self._meeting, self._clock)
        size = np.diff(self._first, append=len(self._clock))
        came = np.maximum.reduceat(calls.start_ns, self._first)
        left = np.maximum(np.minimum.reduceat(calls.end_ns, self._first), came)
        self._left = np.repeat(left, size)
        self._begun = self._effective()
        started = np.minimum.reduceat(calls.start_ns, self._first)
        was_set = clocks.set_within(started, left, self._clock[self._first])
        self._was_set = any_in(np.repeat(was_set, size), matches.first)

    def _effective(self) -> Integers:
        """Return when calls began: one that was queued behind another, when that had ended."""
        before = self._matches.before
        queued = (before != UNTOLD) & self._ends[self._meeting[before]]
        # A clock that was set back in between shows that one was over before the other.
        was_set = np.array([bool(line.later) for line in self._clocks.lines], bool)
        queued &= (self._left[before] <= self._left) | ~was_set[self._clock]
        start = self._matches.calls.start_ns
        begun: Integers = np.where(queued, np.maximum(start, self._left[before]), start)
        return begun

    def meetings(self) -> Meetings:
        """Return what they took."""
        matches, calls, joint = self._matches, self._matches.calls, self._joint
        first, meeting = matches.first, self._meeting
        took = np.where(joint[meeting], self._left, calls.end_ns) - self._begun
        took = np.maximum(took, 0)
        last, shortest, second = self._shortest(took)
        transfer, known = shortest.copy(), joint & self._ends
        wait = took - transfer[meeting]
        # Somebody may have waited for it later only.
        late = np.where(
            calls.until == UNTIL["waited"], np.maximum(calls.late_ns, took), calls.late_ns
        )
        error = np.minimum.reduceat(late, first)
        broken = self._by_clock(transfer, error)
        held = self._rooted(took, transfer, wait, last, known)
        self._messages(took, transfer, wait, error, last, known)
        known &= ~(broken | self._was_set)
        last[(~joint & (matches.name < MESSAGE) & ~held) | ~known] = UNTOLD
        last[self._unseen(transfer, known) | joint & ~self._clear(took)] = UNTOLD
        imposed = np.where(joint & known, second - shortest, 0)
        wait = np.maximum(np.where(joint[meeting], took - transfer[meeting], wait), 0)
        # What was sent while the rank went on lasts until somebody asks for it: nobody waited.
        wait[(calls.name == SEND) & (calls.until == UNTIL["waited"])] = 0
        size = np.maximum.reduceat(calls.bytes, first)
        return Meetings(
            matches, known, size, transfer, error, last, imposed, self._left, wait, broken
        )

    def _shortest(self, took: Integers) -> tuple[Integers, Integers, Integers]:
        """Return who was there for the shortest time, the lower rank of two; that; and the next."""
        first, rank = self._matches.first, self._matches.calls.rank
        ranks = len(self._ranks.clock)
        most = np.iinfo(np.int64).max
        both = np.minimum(took, most // ranks - 1) * ranks + rank
        least = np.minimum.reduceat(both, first)
        others = np.where(both == least[self._meeting], most, both)
        second = np.minimum.reduceat(others, first) // ranks
        shortest = least // ranks
        return least % ranks, shortest, np.where(second == most // ranks, shortest, second)

    def _clear(self, took: Integers) -> Integers:
        """Return of which it is known who was there for the shortest time.

        Within a host always; of several where it is shorter than those of others by more than how
        late their ranks see an end: now and then, which is what clocks are usually apart by, and
        all of them, which may be.
        """
        stretches = begins(self._meeting[self._first])
        size = np.diff(stretches, append=len(self._first))
        far = self._clocks.unsure_ns[self._clock[self._first]]
        here = np.minimum.reduceat(took, self._first)
        least = np.repeat(np.minimum.reduceat(here, stretches), size)
        is_least = here == least
        # Of clocks that say the same no one is it.
        alone = np.add.reduceat(is_least.astype(np.int64), stretches) == 1
        most = np.iinfo(np.int64).max
        others = np.minimum.reduceat(np.where(is_least, most, here - far), stretches)
        unsure = np.maximum.reduceat(np.where(is_least, here + far, 0), stretches)
        clear: Integers = alone & (others > unsure)
        return clear

    def _by_clock(self, transfer: Integers, error: Integers) -> Integers:
        """Take by clocks what those took that were on several hosts, and say what is broken."""
        matches, first = self._matches, self._matches.first
        far = self._clocks.error_ns[self._clock]
        several = np.zeros(len(first), bool)
        of = self._meeting[self._first]
        several[of[1:][of[1:] == of[:-1]]] = True
        several &= self._joint & self._ends & (np.minimum.reduceat(far, first) >= 0)
        # What a clock that was set back has shown twice is no time of its own.
        twice = self._clocks.shown_twice(matches.calls.start_ns, self._clock)
        several &= ~any_in(twice, first) & ~self._was_set
        broken: Integers = np.zeros(len(first), bool)
        if not several.any():
            return broken
        # By stretches of one clock: what is the first or last of it is that by any other.
        stretches = begins(of)
        clock = self._clock[self._first]

        def latest(times: Integers) -> Integers:
            there = self._clocks.of_clock(np.maximum.reduceat(times, self._first), clock)
            return np.maximum.reduceat(there, stretches)

        left = self._clocks.of_clock(self._left[self._first], clock)
        left = np.minimum.reduceat(left, stretches)
        unsure = 2 * np.maximum.reduceat(far, first)
        broken = several & (left < latest(matches.calls.start_ns) - unsure)
        count = int(matches.group.max()) + 1
        odd, all_ = (
            np.bincount(matches.group[mask], minlength=count) for mask in (broken, several)
        )
        broken = broken | several & (odd > MOST_ODD * all_)[matches.group]
        sure = several & (SURE * unsure <= transfer)
        by_clock = np.clip(left - latest(self._begun), 0, transfer)
        transfer[sure] = by_clock[sure]
        error[sure] += unsure[sure]
        return broken

    def _rooted(
        self,
        took: Integers,
        transfer: Integers,
        wait: Integers,
        last: Integers,
        known: Integers,
    ) -> Integers:
        """Of what has a root: that one is there as long as it takes, but for waiting for others.

        Returns:
            Of each whether the root was held until another had come, who is the last.
        """
        matches, calls = self._matches, self._matches.calls
        is_root = self._ranks.number[calls.rank] == calls.peer
        rooted = ~self._joint & (matches.name < MESSAGE) & self._ends
        rooted &= np.add.reduceat(is_root.astype(np.int64), matches.first) == 1
        # Where the root of each is.
        at = np.maximum.reduceat(np.where(is_root, np.arange(len(is_root)), 0), matches.first)
        root = at[self._meeting]
        end = calls.end_ns[root]
        comes = rooted[self._meeting] & (self._clock == self._clock[root])
        comes &= (self._begun > self._begun[root]) & (self._begun <= end)
        came = np.where(comes, self._begun, self._begun[root])
        latest = np.maximum.reduceat(came, matches.first)
        transfer[rooted] = np.maximum(calls.end_ns[at] - latest, 0)[rooted]
        held: Integers = rooted & (latest > self._begun[at])
        is_last = comes & (came == latest[self._meeting])
        who = np.maximum.reduceat(np.where(is_last, calls.rank, 0), matches.first)
        last[held] = who[held]
        known |= rooted
        mine = rooted[self._meeting]
        wait[mine] = (took - transfer[self._meeting])[mine]
        return held

    def _messages(
        self,
        took: Integers,
        transfer: Integers,
        wait: Integers,
        error: Integers,
        last: Integers,
        known: Integers,
    ) -> None:
        """Of messages: both have to be there, and the receiver's end counts."""
        matches, calls = self._matches, self._matches.calls
        at = np.flatnonzero(matches.name >= MESSAGE)
        if not len(at):
            return
        one = matches.first[at]
        sends = calls.name[one] == SEND
        receive, send = np.where(sends, one + 1, one), np.where(sends, one, one + 1)
        far, unsure_ns = self._clocks.error_ns[self._clock], self._clocks.unsure_ns[self._clock]
        same = self._clock[send] == self._clock[receive]
        unsure = np.where(same, 0, 2 * np.maximum(far[send], far[receive]))
        compared = same | ((far[send] >= 0) & (far[receive] >= 0))
        starts = self._clocks.of_clock(calls.start_ns, self._clock)
        end = self._clocks.of_clock(calls.end_ns, self._clock)[receive]
        latest = np.maximum(starts[send], starts[receive])
        # Without clocks: who was there for the shorter time, but for a sender that went on before.
        ended = calls.until[send] == UNTIL["end"]
        shorter = np.where(ended, np.minimum(took[send], took[receive]), took[receive])
        transfer[at] = np.where(compared, np.maximum(end - latest, 0), shorter)
        for side in (send, receive):
            wait[side] = np.where(compared, latest - starts[side], took[side] - shorter)
        wait[send[~compared]] = 0
        later = np.where(starts[send] > starts[receive], send, receive)
        beyond = np.where(same, 0, unsure_ns[send] + unsure_ns[receive])
        clear = np.abs(starts[send] - starts[receive]) > beyond
        last[at] = np.where(compared & clear, calls.rank[later], UNTOLD)
        waited = calls.until[receive] == UNTIL["waited"]
        error[at] = np.where(waited, took[receive], calls.late_ns[receive]) + unsure
        known[at] = calls.until[receive] <= UNTIL["waited"]

    def _unseen(self, transfer: Integers, known: Integers) -> Integers:
        """Return which may have waited for a member without a trace."""
        matches = self._matches
        unseen: Integers = ~matches.whole & self._joint & known
        if not unseen.any():
            return unseen
        at = np.flatnonzero(unseen)
        size = np.maximum.reduceat(matches.calls.bytes, matches.first)[at]
        kind, first = sorted_by((matches.group[at], matches.name[at], size))
        count = np.diff(first, append=len(at))
        of_kind = np.empty(len(at), np.int64)
        of_kind[kind] = np.repeat(np.arange(len(first)), count)
        in_order = np.lexsort((transfer[at], of_kind))
        usual = transfer[at][in_order][first + (count - 1) // 2]
        unseen[at] = transfer[at] > UNSEEN_LAST * usual[of_kind]
        return unseen
