"""Orders of arrival as `dftrace ranks` tells them, held against the truth of made jobs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.clock_offsets import Clocks, clocks_of
from dftrace_ai.analysis.ranks.job import RanksOfJob, read_ranks
from dftrace_ai.analysis.ranks.matching import Matching
from dftrace_ai.analysis.ranks.meetings import Meetings
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.generating import Job, JobClocks, cause_of, generate
from dftrace_ai.generating.job import Jump
from dftrace_ai.generating.timing import Timing

S, MS = 1_000_000_000, 1_000_000


class Found(NamedTuple):
    """What is known of a job, from its traces and from the truth."""

    job: Job
    folder: Path
    ranks: RanksOfJob
    clocks: Clocks

    @classmethod
    def of(cls, job: Job, folder: Path) -> Found:
        """Make a job, and read its traces."""
        generate(job, folder, jobs=1)
        ranks = read_ranks(open_traces([folder]))
        return cls(job, folder, ranks, clocks_of(ranks))


def job_of(seed: int, clocks: JobClocks, *causes: str, poll: bool = False) -> Job:
    """Sixteen ranks on four hosts."""
    planted = tuple(map(cause_of, causes))
    return Job(
        ranks=16, steps=220, per_host=4, layers=1, seed=seed, clocks=clocks, causes=planted, poll=poll
    )  # fmt: skip


def any_job(seed: int) -> Job:
    """One with clocks apart, most of them set once or twice, beside links and ranks that are slow."""
    chance = random.Random(seed)
    jumps = tuple(
        Jump(
            chance.randrange(4),
            round(chance.uniform(0.8, 4.5) * S),
            chance.choice((-1, 1)) * round(10 ** chance.uniform(5.5, 8.9)),
        )
        for _ in range(chance.randrange(3))
    )
    late = ((chance.randrange(4), chance.randrange(500_000)),) if seed % 5 == 4 else ()
    causes = [f"slow-rank:{chance.randrange(16)}:{chance.choice((2, 6, 20))}"]
    causes += [f"link:{chance.randrange(4)}:100"] if seed % 2 else []
    clocks = JobClocks(2.0, 50.0, jumps, late_hosts=late)
    return job_of(seed, clocks, *causes, poll=seed % 5 == 3)


def orders_told(found: Found) -> tuple[int, int]:
    """Of how many collectives it is told who came last, and of how many of these it was another."""
    job, matching, times = found.job, Matching(found.ranks.ranks), Timing(found.job)
    came = times.next(job.steps)
    true = np.stack([came[f"reduce {bucket}"] for bucket in range(job.buckets)], axis=1)
    told = wrong = 0
    for block in found.ranks.blocks("steps", "calls"):
        for matches in matching.take(block):
            last = Meetings.of(matches, matching.ranks, found.clocks).last
            # By torch's own numbers, since a clock that is set back shows the same steps twice.
            calls, table = matches.calls, block.tables.calls
            seq = table.rows.seq[table.edges[calls.rank] + calls.row]
            for at in np.flatnonzero(last >= 0).tolist():
                arrived = true[divmod(int(seq[matches.first[at]]), job.buckets)]
                told += 1
                wrong += int(arrived[last[at]] < arrived.max())
    return told, wrong
