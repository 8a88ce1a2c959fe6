"""Real trainings of four ranks, of which one is late in a known way or none: what is told of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dftrace_ai.analysis.ranks.job import read_ranks
from dftrace_ai.analysis.ranks.lateness import lateness_of
from dftrace_ai.analysis.reading import open_traces

RANKS = 4
TRAINING = Path(__file__).with_name("real_training.py")
SPANS = {
    "forward": "compute/forward",
    "backward": "compute/backward",
    "loader": "dataloader/fetch.iter",
    "nowhere": "not annotated",
}
# By turns, so to say: whoever is let wait is accused by no rule, but may be told in these words; and
# a pipeline fills and drains.
NOBODY = {"jitter", "pauses", "data", "bubble"}


class Job(NamedTuple):
    """A training, and who sleeps where in it."""

    training: str
    where: str = "none"
    rank: int = 0
    ms: int = 0

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.training}_{self.where}{self.rank}_{self.ms}"

    @property
    def row(self) -> str:
        """The row of the table in which it counts."""
        return f"{self.training}, {self.where}" if self.ms else f"{self.training}, nobody"


def all_jobs() -> Iterable[Job]:
    """Each rank is late in each place of DDP; in the other trainings some are."""
    for rank in range(RANKS):
        yield Job("ddp", "backward", rank, 100)
        yield Job("ddp", "backward", rank, 60)
        yield Job("ddp", "forward", rank, 50)
        yield Job("ddp", "loader", rank, 60)
    yield Job("fsdp", "backward", 1, 100)
    yield Job("fsdp", "forward", 2, 100)
    yield Job("tensor", "backward", 3, 100)
    yield Job("tensor", "forward", 1, 100)
    yield Job("pipeline", "forward", 2, 50)
    yield Job("interleaved", "forward", 2, 40)
    yield Job("own", "nowhere", 1, 100)
    kinds = ("ddp", "fsdp", "tensor", "pipeline", "interleaved", "own")
    yield from (Job(kind) for kind in kinds)


def run(job: Job, folder: Path) -> Path:
    """Trains and returns the folder of its traces; of a job that is there already nothing is run."""
    out = folder / job.name
    if out.exists():
        return out
    programs = Path(sys.executable).parent
    given = [job.training, "--where", job.where, "--rank", str(job.rank), "--ms", str(job.ms)]
    torchrun = [programs / "torchrun", "--standalone", f"--nproc-per-node={RANKS}", TRAINING]
    subprocess.run([programs / "dftrace", "run", "-o", out, "--", *torchrun, *given], check=True)
    return out


def is_right(job: Job, traces: Path) -> bool:
    """Whether the rank that sleeps is told, in its span; of a clean job that nobody is accused."""
    found = lateness_of(read_ranks(open_traces([traces])), scores=False).found
    if not job.ms:
        return {late.kind for late in found} <= NOBODY
    return [(late.ranks, late.names[0].name) for late in found] == [((job.rank,), SPANS[job.where])]
