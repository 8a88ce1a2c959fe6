"""Made trainings whose ranks launch all_reduces within their backward and wait for them at its end.

When everybody leaves a collective follows from who launched it last, step by step, without a graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

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
NAMES = ("dataloader/fetch.iter", "compute/forward", "compute/backward", "compute/step")
NAMES += ("all_reduce",)
BUCKETS = 3
# A rank's pieces of work in a step: fetch, forward, backward before each launch and after the last.
PIECES = ("fetch", "forward", "backward 0", "backward 1", "backward 2", "backward end", "step")
USUAL_MS = (1, 30, 20, 20, 20, 1, 8)
TRANSFER_MS = 4


@dataclass
class MadeHosts:
    """A data parallel training.

    Attributes:
        ranks: how many there are.
        steps: how many there are.
        seed: of what is drawn.
        hosts: over so many ranks are dealt.
        own: nanoseconds of each piece, ``(ranks, steps, pieces)``; plants are put into it.
        transfer: nanoseconds of each transfer, ``(steps, buckets)``.
    """

    ranks: int
    steps: int
    seed: int = 0
    hosts: int = 1
    own: np.ndarray = field(init=False)
    transfer: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        draw = np.random.default_rng(self.seed)
        size = (self.ranks, self.steps, len(PIECES))
        spread = np.exp(draw.normal(0, 0.02, size))
        self.own = (np.array(USUAL_MS) * MS * spread).astype(np.int64)
        gamma = draw.gamma(100, 1 / 100, (self.steps, BUCKETS))
        self.transfer = (TRANSFER_MS * MS * gamma).astype(np.int64)

    def times(self, own: np.ndarray, transfer: np.ndarray) -> _Times:
        """Return when everything happens with these times."""
        begin = np.zeros((self.ranks, self.steps + 1), np.int64)
        launch = np.zeros((self.ranks, self.steps, BUCKETS), np.int64)
        done = np.zeros((self.steps, BUCKETS), np.int64)
        for step in range(self.steps):
            at = begin[:, step] + own[:, step, :2].sum(1)
            for bucket in range(BUCKETS):
                at = at + own[:, step, 2 + bucket]
                launch[:, step, bucket] = at
                before = done[step, bucket - 1] if bucket else 0
                done[step, bucket] = max(int(at.max()), before) + transfer[step, bucket]
            begin[:, step + 1] = done[step, -1] + own[:, step, 5:].sum(1)
        return _Times(begin, launch, done)

    def even(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the times of even work."""
        mean = np.rint(self.own.mean(axis=(0, 1))).astype(np.int64)
        usual = np.median(self.transfer, axis=0).astype(np.int64)
        return np.broadcast_to(mean, self.own.shape), np.broadcast_to(usual, self.transfer.shape)

    def took(self, own: np.ndarray, transfer: np.ndarray, first: int) -> int:
        """Return what the steps after the first of some take."""
        begin = self.times(own, transfer).begin
        return int(begin[:, -1].max() - begin[:, first + 1].max())

    def job(self) -> RanksOfJob:
        """Return what the traces of all ranks say."""
        times = self.times(self.own, self.transfer)
        return RanksOfJob.of([self._partial(rank, times) for rank in range(self.ranks)])

    def _partial(self, rank: int, times: _Times) -> RankPartial:
        own, launch = self.own[rank], times.launch[rank]
        begin = times.begin[rank] + 10**18
        done = times.done + 10**18
        fetched = begin[:-1] + own[:, 0]
        forward = fetched + own[:, 1]
        through = done[:, -1] + own[:, 5]
        edges = np.stack((begin[:-1], fetched, forward, through, begin[1:]), 1)
        chunks = {}
        numbers = np.arange(self.steps)
        wait = done[:, -1] - (launch[:, -1] + 10**18)
        for chunk in range(-(-self.steps // STEPS_OF_CHUNK)):
            at = numbers[numbers // STEPS_OF_CHUNK == chunk]
            count = len(at)
            blocked = np.zeros((count, 4), np.int64)
            blocked[:, 2] = wait[at]
            calls = count * BUCKETS
            step = np.repeat(np.arange(count), BUCKETS)
            nth = at[0] * BUCKETS + np.arange(calls)
            last = np.arange(count) * BUCKETS + BUCKETS - 1
            chunks[chunk] = StepsChunk(
                StepRows(at, begin[at], begin[at + 1], begin[at + 1] - begin[at], wait[at], 0 * at),
                SpanRows(
                    np.repeat(np.arange(count), 4),
                    np.tile(np.arange(4), count),
                    edges[at, :-1].ravel(),
                    edges[at, 1:].ravel(),
                    blocked.ravel(),
                ),
                SilenceRows(launch[at, -1] + 10**18, done[at, -1], last),
                CallRows(
                    step=step,
                    name=np.full(calls, 4),
                    group=np.zeros(calls, np.int64),
                    start_ns=launch[at].ravel() + 10**18,
                    end_ns=done[at].ravel(),
                    late_ns=np.zeros(calls, np.int64),
                    until=np.zeros(calls, np.int64),
                    seq=nth,
                    nth=nth,
                    bytes=np.full(calls, 1 << 20),
                    track=1 + np.arange(calls) % BUCKETS,
                    peer=np.full(calls, UNTOLD),
                    tag=np.full(calls, UNTOLD),
                ),
            )
        host = f"node{rank * self.hosts // self.ranks}"
        place = Place(rank, self.ranks, host, "one", rank, (), "made", 1, 1000 + rank)
        groups = (Group("0", "world", tuple(range(self.ranks))),)
        return RankPartial(place, NAMES, groups, "spans", chunks, self.steps)


@dataclass(frozen=True)
class _Times:
    """When each rank begins each step and launches each bucket, and when each is done."""

    begin: np.ndarray
    launch: np.ndarray
    done: np.ndarray
