"""A second way to when operations end: events in order of time, nothing shared with the graph."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field


@dataclass
class Script:
    """Operations, in the order in which they were made.

    Attributes:
        takes: what each takes.
        meeting: its meeting, or None.
        gives: whether others of the meeting wait for it.
        waits: whether it waits for others of the meeting.
        before: pairs: the first has to end before the second begins.
    """

    takes: list[int] = field(default_factory=list)
    meeting: list[int | None] = field(default_factory=list)
    gives: list[bool] = field(default_factory=list)
    waits: list[bool] = field(default_factory=list)
    before: list[tuple[int, int]] = field(default_factory=list)
    meetings: int = 0

    def do(self, takes: float, *after: int) -> int:
        """Add an operation that begins when some others have ended."""
        self.takes.append(max(int(takes), 0))
        self.meeting.append(None)
        self.gives.append(True)
        self.waits.append(True)
        self.before += [(one, len(self.takes) - 1) for one in after]
        return len(self.takes) - 1

    def meet(self, *members: int) -> None:
        """Let operations begin when the last of them can."""
        for one in members:
            self.meeting[one] = self.meetings
        self.meetings += 1


def ends_of(script: Script, takes: list[int] | None = None) -> list[int]:
    """Return when each operation ends; -1 for those that never begin."""
    takes = script.takes if takes is None else takes
    count = len(takes)
    missing = [0] * count
    following: list[list[int]] = [[] for _ in range(count)]
    for first, second in script.before:
        missing[second] += 1
        following[first].append(second)
    givers: list[list[int]] = [[] for _ in range(script.meetings)]
    waiters: list[list[int]] = [[] for _ in range(script.meetings)]
    for one, number in enumerate(script.meeting):
        if number is not None:
            if script.gives[one]:
                givers[number].append(one)
            if script.waits[one]:
                waiters[number].append(one)
    to_come = [len(some) for some in givers]
    came: dict[int, int] = {}
    ends = [-1] * count
    events: list[tuple[int, int, str, int]] = []
    order = 0

    def put(time: int, what: str, one: int) -> None:
        nonlocal order
        order += 1
        heapq.heappush(events, (time, order, what, one))

    for one in range(count):
        if not missing[one]:
            put(0, "come", one)
    for number in range(script.meetings):
        if not to_come[number]:
            put(0, "open", number)
    while events:
        time, _, what, one = heapq.heappop(events)
        if what == "come":
            came[one] = time
            number = script.meeting[one]
            if number is not None and script.gives[one]:
                to_come[number] -= 1
                if not to_come[number]:
                    put(time, "open", number)
            # Members that others wait for, too, are let go when the meeting opens.
            waits = number is not None and script.waits[one]
            if not waits or (not script.gives[one] and not to_come[number]):
                put(time + takes[one], "end", one)
        elif what == "open":
            for member in waiters[one]:
                if member in came and ends[member] < 0:
                    put(time + takes[member], "end", member)
        elif ends[one] < 0:
            ends[one] = time
            for other in following[one]:
                missing[other] -= 1
                if not missing[other]:
                    put(time, "come", other)
    return ends


def random_script(seed: int) -> Script:
    """Return operations of a few ranks that meet in ways that can be, as a seed has it."""
    draw = random.Random(seed)
    ranks = draw.randint(1, 12)
    script = Script()
    lanes: list[list[int]] = [[] for _ in range(ranks)]
    # Events in one order, each on some ranks, so that nobody waits in a circle.
    for _ in range(draw.randint(1, 60)):
        what = draw.choice("wwwmmg")
        if what == "w":
            lane = draw.randrange(ranks)
            lanes[lane].append(script.do(draw.choice([0, draw.randrange(1, 1000)])))
            continue
        several = 2 if what == "m" else draw.randint(1, ranks)
        members = []
        for lane in draw.sample(range(ranks), min(several, ranks)):
            members.append(script.do(draw.randrange(300)))
            lanes[lane].append(members[-1])
        script.meet(*members)
        if what == "m":
            # Who sends may be through at once; what comes from a root waits for it alone.
            script.waits[members[0]] = draw.random() < 0.5
            script.gives[members[-1]] = draw.random() < 0.5
    for lane in lanes:
        for at, one in enumerate(lane):
            script.before += [
                (other, one) for other in lane[max(0, at - 4) : at] if draw.random() < 0.6
            ]
    return script
