"""Ranks that say what a test wants, with calls in steps of equal length."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dftrace_ai.analysis.ranks.groups import CALLS
from dftrace_ai.analysis.ranks.job import RanksOfJob
from dftrace_ai.analysis.ranks.partials import (
    STEPS_OF_CHUNK,
    UNTIL,
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

BASE = 1_795_000_000_000_000_000
STEP = 100_000_000


@dataclass(frozen=True)
class Call:
    """A call of a rank; times in nanoseconds since the beginning of the run."""

    name: str
    group: Group | None
    start: int
    end: int
    step: int = UNTOLD
    seq: int = UNTOLD
    nth: int = UNTOLD
    bytes: int = 1_000
    late: int = 0
    until: str = "end"
    peer: int = UNTOLD
    tag: int = UNTOLD
    truth: object = None  # what it is a call of


@dataclass
class Rank:
    """A rank with its calls, in order of their starts."""

    rank: int
    calls: list[Call] = field(default_factory=list)
    host: str = "node0"
    layout: tuple[tuple[str, int], ...] = ()
    steps: range = range(20)
    step_ns: int = STEP
    offset: int = 0  # by how much its clock is ahead
    drift: float = 0.0
    clock_offset_ns: int | None = None


def job(ranks: list[Rank], world: int | None = None) -> RanksOfJob:
    """Return ranks as they say it."""
    world = len(ranks) if world is None else world
    return RanksOfJob.of([_partial(rank, world) for rank in ranks])


def _partial(rank: Rank, world: int) -> RankPartial:
    rank = replace(rank, calls=sorted(rank.calls, key=lambda call: call.start))
    groups = tuple(dict.fromkeys(call.group for call in rank.calls if call.group is not None))
    place = Place(
        rank.rank, world, rank.host, rank.host, None, rank.layout, "run", 1, 1000 + rank.rank,
        clock_offset_ns=rank.clock_offset_ns,
    )  # fmt: skip
    chunks = {}
    for number in sorted({step // STEPS_OF_CHUNK for step in rank.steps}):
        steps = [step for step in rank.steps if step // STEPS_OF_CHUNK == number]
        last = number == max(rank.steps) // STEPS_OF_CHUNK
        first = number == min(rank.steps) // STEPS_OF_CHUNK
        low, high = steps[0] * rank.step_ns, (steps[-1] + 1) * rank.step_ns
        calls = [
            call
            for call in rank.calls
            if (call.start >= low or first) and (call.start < high or last)
        ]
        chunks[number] = _chunk(rank, steps, calls, groups)
    return RankPartial(place, CALLS, groups, "steps", chunks, len(rank.steps))


def clocked(rank: Rank, times: list[int]) -> np.ndarray:
    """Return times as the clock of a rank shows them."""
    at = np.array(times, np.int64)
    return BASE + at + rank.offset + np.round(at * rank.drift).astype(np.int64)


def _chunk(
    rank: Rank, steps: list[int], calls: list[Call], groups: tuple[Group, ...]
) -> StepsChunk:
    length, none = rank.step_ns, np.zeros(0, np.int64)
    whole = np.full(len(steps), length)
    step_rows = StepRows(
        np.array(steps),
        clocked(rank, [step * length for step in steps]),
        clocked(rank, [(step + 1) * length for step in steps]),
        whole,
        np.zeros_like(whole),
        np.zeros_like(whole),
    )
    row = {step: at for at, step in enumerate(steps)}
    columns = {
        "step": [row.get(call.step, UNTOLD) for call in calls],
        "name": [CALLS.index(call.name) for call in calls],
        "group": [UNTOLD if call.group is None else groups.index(call.group) for call in calls],
        "late_ns": [call.late for call in calls],
        "until": [UNTIL[call.until] for call in calls],
        "track": [0 for _ in calls],
    }
    columns |= {
        name: [getattr(call, name) for call in calls]
        for name in ("seq", "nth", "bytes", "peer", "tag")
    }
    numbers = {name: np.array(values, np.int64) for name, values in columns.items()}
    numbers["start_ns"] = clocked(rank, [call.start for call in calls])
    numbers["end_ns"] = clocked(rank, [call.end for call in calls])
    return StepsChunk(
        step_rows, SpanRows(*[none] * 5), SilenceRows(*[none] * 3), CallRows(**numbers)
    )
