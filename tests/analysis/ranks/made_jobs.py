"""Made jobs of any number of ranks that train together, clean or with one cause of lateness.

What ranks do by themselves is drawn at random; then they are put together as a training is: in each
step all meet at the end of backward, and whoever comes early waits there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from dftrace_ai.analysis.ranks.findings import Late
from dftrace_ai.analysis.ranks.job import RanksOfJob
from dftrace_ai.analysis.ranks.partials import (
    STEPS_OF_CHUNK,
    CallRows,
    Place,
    RankPartial,
    SilenceRows,
    SpanRows,
    StepRows,
    StepsChunk,
)
from dftrace_ai.analysis.reading.event_columns import Integers

MS = 1_000_000
LOADER, FORWARD, BACKWARD = "dataloader/fetch.iter", "compute/forward", "compute/backward"
OPTIMIZER, CHECKPOINT = "compute/step", "checkpoint/capture"
USUAL = {LOADER: 2 * MS, FORWARD: 60 * MS, BACKWARD: 120 * MS, OPTIMIZER: 18 * MS, CHECKPOINT: 0}
STEP = sum(USUAL.values())
MOST_APART = 5  # steps
EXCHANGE = 8 * MS  # what an all_reduce takes when all are there
MOST_OF_HOST = 8

Shape = Literal["normal", "skewed", "heavy"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
SPREADS = (0.01, 0.02, 0.03)


@dataclass
class MadeJob:
    """What ranks of a job do by themselves in each step; plants are put into `own`.

    Attributes:
        random: draws everything.
        ranks: how many there are.
        steps: how many there are.
        spread: how much spans usually differ.
        shape: how that is distributed.
        stages: so many stages of a pipeline, over which ranks are dealt.
    """

    random: np.random.Generator
    ranks: int
    steps: int = 200
    spread: float = 0.02
    shape: Shape = "normal"
    stages: int = 1
    own: dict[str, Integers] = field(init=False)
    peaks: Integers = field(init=False)

    def __post_init__(self) -> None:
        draw, size = self.random, (self.ranks, self.steps)
        # Processors of one make differ, so do hosts; a rank is warmer or cooler for a while; and
        # batches are longer or shorter for all.
        chips = (
            draw.normal(0, 0.007, self.ranks)
            + draw.normal(0, 0.004, self.hosts.max() + 1)[self.hosts]
        )
        warmth = np.zeros(size)
        for step in range(1, self.steps):
            warmth[:, step] = 0.9 * warmth[:, step - 1]
            warmth[:, step] += draw.normal(0, 0.3 * self.spread, self.ranks)
        batches = 1 + 0.03 * np.sin(np.arange(self.steps) / 25)
        speed = np.exp(chips)[:, None] * batches
        self.own = {
            name: usual * speed * np.maximum(1 + warmth + self._noise(size), 0.5)
            for name, usual in USUAL.items()
        }
        self.own[LOADER] *= draw.lognormal(0, 0.5, size)
        # Whatever the size of a job, a few hiccups.
        often = 0.002 / max(1, self.ranks / 64)
        self.own[FORWARD] += (draw.random(size) < often) * draw.exponential(20 * MS, size)
        # The first step compiles, allocates and connects.
        self.own[FORWARD][:, 0] += 3000 * MS
        self.peaks = draw.normal(40e9, 0.3e9, self.ranks)

    @property
    def ranks_of_host(self) -> int:
        """How many ranks share a host; there are two hosts at least."""
        return min(MOST_OF_HOST, self.ranks // 2)

    @property
    def hosts(self) -> Integers:
        """The number of the host of each rank."""
        return np.arange(self.ranks) // self.ranks_of_host

    @property
    def stage_of(self) -> Integers:
        """The stage of each rank."""
        return np.arange(self.ranks) % self.stages

    def _noise(self, size: tuple[int, int]) -> Integers:
        if self.shape == "normal":
            return self.random.normal(0, self.spread, size)
        if self.shape == "skewed":
            return self.random.gamma(1.25, 0.8 * self.spread, size)
        return 0.7 * self.spread * self.random.standard_t(4, size)

    def partials(self, first: int = 0) -> list[RankPartial]:
        """What each rank says; its steps have numbers from `first` on."""
        own = {name: ns.astype(np.int64) for name, ns in self.own.items()}
        total = sum(own.values())
        leave = np.asarray(total).max(axis=0) + EXCHANGE
        return [self._partial(rank, own, leave - total[rank], first) for rank in range(self.ranks)]

    def job(self) -> RanksOfJob:
        """The ranks together."""
        return RanksOfJob.of(self.partials())

    def _partial(
        self, rank: int, own: dict[str, Integers], wait: Integers, first: int
    ) -> RankPartial:
        blocked = {name: wait if name == BACKWARD else np.zeros_like(wait) for name in own}
        took = np.stack([own[name][rank] + blocked[name] for name in own], axis=1)
        time = took.sum(axis=1)
        start = np.cumsum(time) - time
        ends = start[:, None] + np.cumsum(took, axis=1)
        numbers = first + np.arange(self.steps)
        none = np.zeros(self.steps, np.int64)
        chunks: dict[int, StepsChunk] = {}
        for number in np.unique(numbers // STEPS_OF_CHUNK).tolist():
            at = numbers // STEPS_OF_CHUNK == number
            count = int(at.sum())
            chunks[number] = StepsChunk(
                StepRows(numbers[at], start[at], (start + time)[at], time[at], wait[at], none[at]),
                SpanRows(
                    np.repeat(np.arange(count), len(own)),
                    np.tile(np.arange(len(own)), count),
                    (ends - took)[at].ravel(),
                    ends[at].ravel(),
                    np.stack([blocked[name][at] for name in own], axis=1).ravel(),
                ),
                SilenceRows(*(np.zeros(0, np.int64) for _ in SilenceRows._fields)),
                CallRows(*(np.zeros(0, np.int64) for _ in CallRows._fields)),
            )
        host = f"node{self.hosts[rank]}"
        stage = int(self.stage_of[rank])
        layout = (("dp", rank // self.stages), ("pp", stage)) if self.stages > 1 else ()
        local = rank % self.ranks_of_host
        place = Place(rank, self.ranks, host, host, local, layout, "made", 1, 1000 + rank)
        return RankPartial(
            place, tuple(own), (), "spans", chunks, self.steps, int(self.peaks[rank])
        )


@dataclass(frozen=True)
class Planted:
    """What a job has to be found to have."""

    kind: str
    ranks: tuple[int, ...] = ()
    name: str = ""
    since: int | None = None


Plant = Callable[[MadeJob, int, float], Planted]
"""Plants something into a job, at a rank where it is of one, of so many steps' length."""


def _worker(job: MadeJob, rank: int, size: float) -> Planted:
    name = (FORWARD, BACKWARD)[int(job.random.integers(2))]
    job.own[name][rank] += size * STEP
    return Planted("worker", (rank,), name)


def _loader(job: MadeJob, rank: int, size: float) -> Planted:
    job.own[LOADER][rank] += size * STEP
    return Planted("worker", (rank,), LOADER)


def _node(job: MadeJob, rank: int, size: float) -> Planted:
    there = job.hosts == job.hosts[rank]
    for ns in job.own.values():
        ns[there] *= 1 + size
    return Planted("node", tuple(np.flatnonzero(there).tolist()))


def _stage(job: MadeJob, _: int, size: float) -> Planted:
    there = job.stage_of == job.stages - 1
    for ns in job.own.values():
        ns[there] *= 1 + max(size, 0.15)
    return Planted("stage", tuple(np.flatnonzero(there).tolist()))


def _data(job: MadeJob, _: int, size: float) -> Planted:
    lengths = job.random.lognormal(0, 0.08 + 0.2 * size, (job.ranks, job.steps))
    job.own[FORWARD] *= lengths
    job.own[BACKWARD] *= lengths
    return Planted("data")


def _pauses(job: MadeJob, _: int, size: float) -> Planted:
    there = job.random.random((job.ranks, job.steps)) < 1.2 / job.ranks
    longs = job.random.uniform(0.5, 1.5, (job.ranks, job.steps)) * max(size, 0.4) * STEP
    job.own[FORWARD] += there * longs
    return Planted("pauses", name=FORWARD)


def _rare_pauses(job: MadeJob, _: int, __: float) -> Planted:
    there = job.random.random((job.ranks, job.steps)) < 0.1 / job.ranks
    job.own[FORWARD] += there * 300 * MS
    return Planted("pauses", name=FORWARD)


def _throttled(job: MadeJob, rank: int, size: float) -> Planted:
    since = int(job.random.integers(job.steps // 4, 3 * job.steps // 4))
    for name in (FORWARD, BACKWARD):
        job.own[name][rank, since:] *= 1 + max(size, 0.2)
    return Planted("worker", (rank,), BACKWARD, since)


def _checkpoint(job: MadeJob, _: int, size: float) -> Planted:
    job.own[CHECKPOINT][0, ::20] += max(size, 0.5) * 1000 * MS
    return Planted("bursts", (0,), CHECKPOINT)


def _memory(job: MadeJob, rank: int, _: float) -> Planted:
    job.peaks[rank] *= 1.4
    return Planted("memory", (rank,))


PLANTS: dict[str, Plant] = {
    "a slow rank": _worker,
    "a slow loader": _loader,
    "a slow host": _node,
    "a slow stage": _stage,
    "uneven data": _data,
    "many pauses": _pauses,
    "few pauses": _rare_pauses,
    "a rank that is throttled": _throttled,
    "a checkpoint by one rank": _checkpoint,
    "more memory": _memory,
}
SIZES = (0.12, 0.2, 0.4, 1.0)
STAGES = 4


def seeded(*words: str | int) -> np.random.Generator:
    """A generator of random numbers that is the same for the same words."""
    return np.random.default_rng([ord(char) for char in "/".join(map(str, words))])


def planted_job(name: str, ranks: int, seed: int) -> tuple[MadeJob, Planted]:
    """A job with a plant of some size, in noise of some kind."""
    random = seeded("planted", name, ranks, seed)
    job = MadeJob(
        random,
        ranks,
        spread=float(random.choice(SPREADS)),
        shape=SHAPES[int(random.integers(len(SHAPES)))],
        stages=STAGES if name == "a slow stage" else 1,
    )
    rank, size = int(random.integers(ranks)), float(random.choice(SIZES))
    return job, PLANTS[name](job, rank, size)


def clean_job(ranks: int, shape: Shape, spread: float, seed: int) -> MadeJob:
    """A job in which nobody is late; of every other one ranks are dealt over stages."""
    random = seeded("clean", ranks, shape, spread, seed)
    stages = STAGES if ranks >= 2 * STAGES and seed % 2 else 1
    return MadeJob(random, ranks, spread=spread, shape=shape, stages=stages)


def is_told(late: Late, planted: Planted) -> bool:
    """Whether a finding is of what was planted: who, in which span, and since when."""
    names = [one.name for one in late.names[:1]]
    apart = abs((late.since or 0) - (planted.since or 0))
    return (
        late.kind == planted.kind
        and planted.ranks in {late.ranks, ()}
        and planted.name in {*names, ""}
        and (planted.since is None) == (late.since is None)
        and apart <= MOST_APART
    )
