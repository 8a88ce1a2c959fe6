"""What is true of a made job and its traces do not say: how clocks stand, what causes cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from dftrace_ai.generating.hosts import START_NS, Host
from dftrace_ai.generating.timing import Timing

if TYPE_CHECKING:
    from dftrace_ai.generating.causes import Cause
    from dftrace_ai.generating.job import Job

TRUTH_FILE: Final = "truth.json"


@dataclass(frozen=True)
class TruthOfCause:
    """What was planted, and what it cost.

    Attributes:
        cause: as it was asked for: ``slow-rank:17:6``.
        ranks: whom it makes late, or whose trace odd; empty for nobody in particular.
        steps: in how many steps.
        turns: of `rotating` the rank of each step.
        cost_ns: by how much longer the job took than the same one without it.
    """

    cause: str
    ranks: tuple[int, ...]
    steps: int
    turns: tuple[int, ...]
    cost_ns: int


@dataclass(frozen=True)
class Truth:
    """What ``truth.json`` says.

    Attributes:
        job: every argument.
        start_ns: when the job began, ns since 1970, in true time.
        took_ns: how long it took.
        hosts: each with what its clock shows more, ns, how much faster it runs, as a share, and
            when it was set: ns since the beginning, and by how many ns.
        causes: what was planted.
        format: version of this form.
        kind: by which this file is known.
    """

    job: dict[str, Any]
    start_ns: int
    took_ns: int
    hosts: tuple[Host, ...]
    causes: tuple[TruthOfCause, ...]
    format: Literal[1] = 1
    kind: Literal["dftrace generated"] = "dftrace generated"


def truth_of(job: Job, hosts: list[Host], took_ns: int) -> Truth:
    """Return the truth of a job that takes so long."""
    causes = tuple(_of_cause(job, at, took_ns) for at in range(len(job.causes)))
    said = asdict(job) | {"causes": [cause.words for cause in job.causes]}
    return Truth(said, START_NS, took_ns, tuple(hosts), causes)


def time_of(job: Job) -> int:
    """Return how long a job takes, ns."""
    timing, left, last = Timing(job), job.steps, 0
    while left:
        count = min(left, job.at_once)
        last = int(timing.next(count)["end"][-1].max())
        left -= count
    return last


def _of_cause(job: Job, at: int, took_ns: int) -> TruthOfCause:
    cause = job.causes[at]
    steps = job.steps
    if cause.kind == "checkpoint":
        steps //= cause.every
    elif cause.kind == "dead":
        steps = max(job.steps - int(cause.size), 0)
    elif cause.kind == "late-start":
        steps = 1
    turns = Timing(job).turns(job.steps).tolist() if cause.kind == "rotating" else []
    without = replace(job, causes=(*job.causes[:at], *job.causes[at + 1 :]))
    # What is odd in a trace alone costs nothing.
    costs = cause.kind not in {"memory", "dead"}
    cost_ns = took_ns - time_of(without) if costs else 0
    return TruthOfCause(cause.words, _ranks_of(job, cause), steps, tuple(turns), cost_ns)


def _ranks_of(job: Job, cause: Cause) -> tuple[int, ...]:
    ranks = np.arange(job.ranks)
    if cause.kind in {"slow-host", "link"}:
        return tuple(ranks[ranks // job.per_host == cause.at].tolist())
    if cause.kind == "stage":
        return tuple(ranks[ranks // job.a_stage == cause.at].tolist())
    return (
        (cause.at,) if cause.kind in {"slow-rank", "loader", "memory", "dead", "late-start"} else ()
    )
