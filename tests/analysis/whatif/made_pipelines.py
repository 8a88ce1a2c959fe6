"""Made pipelines with one forward and one backward in turn, timed by the event heap.

Each rank has computes of its own and the messages between stages beside them, and at the end of a
step the ranks of a stage reduce their gradients. One of several things makes them slow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np
from event_heap import Script, ends_of

from dftrace_ai.analysis.ranks.job import RanksOfJob
from dftrace_ai.analysis.ranks.partials import (
    STEPS_OF_CHUNK,
    UNTOLD,
    CallRows,
    Group,
    Place,
    RankPartial,
    SilenceRows,
    SpanRows,
    StepRows,
    StepsChunk,
)

MS = 1_000_000
MICRO_BATCHES = 8
RANKS_OF_HOST = 4
NAMES = ("compute/forward", "compute/backward", "compute/step", "send", "receive", "reduce_scatter")
FORWARD, BACKWARD, OPTIMIZER, SEND, RECEIVE, REDUCE = range(6)

Plant = Literal["clean", "worker", "stage", "data", "pauses", "link", "slow group"]
PLANTS: tuple[Plant, ...] = get_args(Plant)
CAUSES: dict[Plant, str] = {
    "clean": "none",
    "worker": "worker",
    "stage": "stage",
    "data": "data",
    "pauses": "pauses",
    "link": "communication",
    "slow group": "communication",
}


class _Event(NamedTuple):
    """What an operation of the script is in a trace."""

    rank: int
    step: int
    name: int
    peer: int = UNTOLD
    tag: int = 0


@dataclass
class MadePipeline:
    """A pipeline of `dp` times `pp` ranks.

    Attributes:
        plant: what makes it slow.
        size: how much.
        rank: the slow worker, or who has a slow link.
        stage: the slow stage.
        script: what is done, and takes how long.
        events: of each operation what it is.
        begins: where each rank begins each step: with its first compute of it.
    """

    plant: Plant
    dp: int
    pp: int
    steps: int
    seed: int
    size: float = 0.0
    rank: int = 0
    stage: int = 0
    script: Script = field(default_factory=Script)
    events: list[_Event] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    queued: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        draw = np.random.default_rng([self.seed, PLANTS.index(self.plant)])
        self.size = float(draw.choice([0.3, 0.6, 1.0]))
        row, self.stage = int(draw.integers(self.dp)), int(draw.integers(self.pp))
        self.rank = row * self.pp + self.stage
        if self.plant == "stage":
            self.stage = self.pp - 1
        chips = np.exp(draw.normal(0, 0.007, (self.dp, self.pp)))
        last: dict[int, int] = {}
        tracks: dict[tuple[int, str, int], int] = {}
        for step in range(self.steps):
            lengths = np.ones((self.dp, MICRO_BATCHES))
            if self.plant == "data":
                lengths = np.exp(draw.normal(0, 0.1 + 0.25 * self.size, lengths.shape))
            self._step(draw, step, chips, lengths, row, last, tracks)
        self.ends = ends_of(self.script)
        self.starts = [0] * len(self.ends)
        for first, second in self.script.before:
            # A message begins when it is launched, though another is still under way.
            if (first, second) not in self.queued:
                self.starts[second] = max(self.starts[second], self.ends[first])

    @property
    def linked(self) -> list[int]:
        """Ranks of the slow link, or of the slow group."""
        if self.plant == "slow group":
            return list(range(self.stage, self.dp * self.pp, self.pp))
        one = self.rank - self.stage + min(self.stage, self.pp - 2)
        return [one, one + 1]

    def even_ns(self, first: int) -> tuple[int, int]:
        """Return what steps after the first of some take, and with even work: by the heap alone."""
        by_kind: dict[object, list[int]] = {}
        kinds = []
        for event, takes in zip(self.events, self.script.takes, strict=True):
            forward = event.peer % self.pp > event.rank % self.pp
            kinds.append((event.name, event.peer != UNTOLD and forward))
            by_kind.setdefault(kinds[-1], []).append(takes)
        level = {
            kind: int(np.median(takes)) if kind[0] >= SEND else round(float(np.mean(takes)))  # type: ignore[index]
            for kind, takes in by_kind.items()
        }
        even = ends_of(self.script, [level[kind] for kind in kinds])

        def took(ends: list[int]) -> int:
            run_in = (
                end for end, event in zip(ends, self.events, strict=True) if event.step <= first
            )
            return max(ends) - max(run_in)

        return took(self.ends), took(even)

    def _do(self, event: _Event, takes: float, *after: int | None) -> int:
        self.events.append(event)
        return self.script.do(max(takes, 1), *(one for one in after if one is not None))

    def _step(
        self,
        draw: np.random.Generator,
        step: int,
        chips: np.ndarray,
        lengths: np.ndarray,
        slow_row: int,
        last: dict[int, int],
        tracks: dict[tuple[int, str, int], int],
    ) -> None:
        computes: dict[tuple[int, int, int], int] = {}
        before = dict(last)
        for rank in range(self.dp * self.pp):
            row, stage = divmod(rank, self.pp)
            for name, batch in _order(stage, self.pp):
                takes = (10 if name == FORWARD else 20) * MS * chips[row, stage]
                takes *= np.exp(draw.normal(0, 0.02)) * lengths[row, batch]
                if self.plant == "worker" and rank == self.rank:
                    takes *= 1 + self.size
                if self.plant == "stage" and stage == self.stage:
                    takes *= 1 + self.size / 2
                if self.plant == "pauses" and name == FORWARD and draw.random() < 0.04:
                    takes += 60 * MS * (0.5 + self.size)
                last[rank] = self._do(_Event(rank, step, name), takes, last.get(rank))
                computes[rank, name, batch] = last[rank]
        for row in range(self.dp):
            for stage in range(self.pp - 1):
                slow = self.plant == "link" and row == slow_row
                slow = slow and stage == min(self.stage, self.pp - 2)
                for name, one, other in ((FORWARD, stage, stage + 1), (BACKWARD, stage + 1, stage)):
                    pair = row * self.pp + one, row * self.pp + other
                    self._messages(draw, step, name, pair, computes, before, tracks, slow=slow)
        for stage in range(self.pp):
            slow = self.plant == "slow group" and stage == self.stage
            usual = (15 + (400 * self.size if slow else 0)) * MS * draw.gamma(200, 1 / 200)
            members = []
            for rank in range(stage, self.dp * self.pp, self.pp):
                takes = usual * draw.uniform(0.95, 1.05)
                members.append(self._do(_Event(rank, step, REDUCE), takes, last[rank]))
                takes = 5 * MS * np.exp(draw.normal(0, 0.02))
                event = _Event(rank, step, OPTIMIZER)
                last[rank] = self._do(event, takes, members[-1], last[rank])
            self.script.meet(*members)

    def _messages(
        self,
        draw: np.random.Generator,
        step: int,
        name: int,
        pair: tuple[int, int],
        computes: dict[tuple[int, int, int], int],
        before: dict[int, int],
        tracks: dict[tuple[int, str, int], int],
        *,
        slow: bool,
    ) -> None:
        sender, receiver = pair
        for batch in range(MICRO_BATCHES):
            takes = MS * (1 + 25 * self.size * slow) * draw.gamma(50, 1 / 50)
            sends = (sender, "send", name)
            receives = (receiver, "receive", name)
            one = self._do(
                _Event(sender, step, SEND, receiver, name),
                takes,
                computes[sender, name, batch],
            )
            # It is posted when what is before its compute is through.
            posted = computes[receiver, name, batch - 1] if batch else before.get(receiver)
            other = self._do(_Event(receiver, step, RECEIVE, sender, name), takes, posted)
            self.script.before.append((other, computes[receiver, name, batch]))
            self.script.meet(one, other)
            queues = (tracks.get(sends), one), (tracks.get(receives), other)
            self.queued.update((first, second) for first, second in queues if first is not None)
            self.script.before += [pair for pair in self.queued.intersection(queues)]
            tracks[sends], tracks[receives] = one, other

    def job(self, clocks: np.ndarray | None = None) -> RanksOfJob:
        """Return what traces of all ranks say.

        Args:
            clocks: of each host, by how much its clock is before the others', and how much faster
                it goes, ``(hosts, 2)``.
        """
        return RanksOfJob.of([self._partial(rank, clocks) for rank in range(self.dp * self.pp)])

    def _partial(self, rank: int, clocks: np.ndarray | None) -> RankPartial:
        row, stage = divmod(rank, self.pp)
        host = rank // RANKS_OF_HOST
        mine = [at for at, event in enumerate(self.events) if event.rank == rank]
        spans = sorted((at for at in mine if self.events[at].name < SEND), key=self._when)
        calls = sorted((at for at in mine if self.events[at].name >= SEND), key=self._when)
        # A step begins where that before ends, and may wait for its first message.
        last = [
            max(at for at in spans if self.events[at].step == step) for step in range(self.steps)
        ]
        edges = [0, *(self.ends[at] for at in last)]

        def seen(times: list[int]) -> np.ndarray:
            found = np.array(times, np.int64)
            if clocks is not None:
                offset, rate = clocks[host]
                found = found + int(offset) + np.rint(found * rate).astype(np.int64)
            return found + 10**18

        def column(values: list[int]) -> np.ndarray:
            return np.array(values, np.int64)

        begin = [self.starts[at] for at in calls]
        step_of = np.maximum(np.searchsorted(edges, begin, side="right") - 1, 0)
        step_of = np.minimum(step_of, self.steps - 1)
        group = [0 if self.events[at].name == REDUCE else UNTOLD for at in calls]
        numbers = [UNTOLD] * len(calls)
        counts: dict[object, int] = {}
        for place, at in enumerate(calls):
            event = self.events[at]
            key = event.name, event.peer, event.tag
            numbers[place] = counts.get(key, 0)
            counts[key] = numbers[place] + 1
        none = np.zeros(self.steps, np.int64)
        time = np.diff(seen(edges))
        assert self.steps <= STEPS_OF_CHUNK
        chunk = StepsChunk(
            StepRows(np.arange(self.steps), seen(edges[:-1]), seen(edges[1:]), time, none, none),
            SpanRows(
                column([self.events[at].step for at in spans]),
                column([self.events[at].name for at in spans]),
                seen([self.starts[at] for at in spans]),
                seen([self.ends[at] for at in spans]),
                np.zeros(len(spans), np.int64),
            ),
            SilenceRows(*(np.zeros(0, np.int64) for _ in SilenceRows._fields)),
            CallRows(
                step=step_of,
                name=column([self.events[at].name for at in calls]),
                group=column(group),
                start_ns=seen(begin),
                end_ns=seen([self.ends[at] for at in calls]),
                late_ns=np.zeros(len(calls), np.int64),
                until=np.zeros(len(calls), np.int64),
                seq=column(numbers),
                nth=column(numbers),
                bytes=np.full(len(calls), 1 << 20),
                track=column(
                    [100 + 8 * self.events[at].name + self.events[at].tag for at in calls]
                ),
                peer=column([self.events[at].peer for at in calls]),
                tag=column([self.events[at].tag for at in calls]),
            ),
        )
        members = tuple(range(stage, self.dp * self.pp, self.pp))
        place = Place(
            rank,
            self.dp * self.pp,
            f"node{host}",
            f"node{host}",
            rank % RANKS_OF_HOST,
            (("dp", row), ("pp", stage)),
            "made",
            1,
            1000 + rank,
        )
        groups = (Group(f"dp of {stage}", "dp", members),)
        return RankPartial(place, NAMES, groups, "spans", {0: chunk}, self.steps)

    def _when(self, at: int) -> tuple[int, int]:
        return self.starts[at], self.ends[at]


def _order(stage: int, stages: int) -> list[tuple[int, int]]:
    """Return the computes of a stage: forwards first, as many as stages follow, then in turn."""
    ahead = min(stages - 1 - stage, MICRO_BATCHES)
    found = [(FORWARD, batch) for batch in range(ahead)]
    for batch in range(MICRO_BATCHES):
        if ahead + batch < MICRO_BATCHES:
            found.append((FORWARD, ahead + batch))
        found.append((BACKWARD, batch))
    return found
