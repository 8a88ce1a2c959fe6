"""Writes a made job and its truth: each process knows the times of all ranks, and writes some."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from dftrace_ai.errors import DftraceError
from dftrace_ai.generating.causes import FORMS
from dftrace_ai.generating.hanging import DUMP_NAME, write_dumps
from dftrace_ai.generating.hosts import START_NS, Host, hosts_of
from dftrace_ai.generating.lines import Rows, events_of
from dftrace_ai.generating.timing import Timing
from dftrace_ai.interpreters import begun, ended
from dftrace_ai.trace_format.json_types import JsonObject  # noqa: TC001 - pydantic evaluates it
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dftrace_ai.generating.causes import Cause
    from dftrace_ai.generating.job import Job


# Below this a second process would take longer to begin than it saves.
_WORTH_IT: Final = 2_000_000
# So many ranks write at a time: each holds what its trace adds up to.
_AT_A_TIME: Final = 512


@dataclass(frozen=True)
class Generated:
    """What `dftrace generate --json` prints.

    Attributes:
        out: the folder.
        files: traces in it.
        bytes: of the files.
        dumps: of the flight recorder, where the job hangs.
        format: version of this form; it grows when a member goes or means something else.
        kind: ``dftrace generate``, by which its JSON is known.
    """

    out: str
    files: int
    bytes: int
    dumps: int = 0
    format: Literal[1] = 1
    kind: Literal["dftrace generate"] = "dftrace generate"


def generate(
    job: Job,
    out: str | os.PathLike[str],
    *,
    compression: str = "gzip",
    index: bool = True,
    jobs: int | None = None,
) -> Generated:
    """Write the traces of a made job, and what is true of it, into a folder.

    The same job gives the same bytes, whatever `jobs` and machine.

    Args:
        job: what it is like.
        out: a folder that is empty, or is made.
        compression: of the traces: ``gzip``, ``zstd`` or ``none``.
        index: whether traces end with an index, by which `summary` need not read them.
        jobs: processes that write; by default, where it is worth it, one for each processor.

    Returns:
        What was written.

    Raises:
        DftraceError: there are files in the folder, or it cannot be written.

    Example:
        >>> generate(Job(ranks=4, steps=10), "made").files  # doctest: +SKIP
        4
    """
    folder = Path(out)
    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise DftraceError(
                f"there are files in {quoted(str(folder))}; name a folder without any"
            )
        try:
            took_ns = _write_all(job, folder, compression, index, jobs)
            dumps = write_dumps(job, hosts_of(job), folder)
            truth = truth_of(job, hosts_of(job), took_ns)
            text = json.dumps(asdict(truth), indent=1) + "\n"
            (folder / TRUTH_FILE).write_text(text, encoding="utf-8")
        except BaseException:
            # A half of a job is of no use, and in the way of the next try.
            for path in [
                *folder.glob("train-*"),
                *folder.glob(f"{DUMP_NAME}*"),
                folder / TRUTH_FILE,
            ]:
                path.unlink(missing_ok=True)
            if is_new:
                folder.rmdir()
            raise
        sizes = [path.stat().st_size for path in folder.glob("train-*")]
        return Generated(str(folder), len(sizes), sum(sizes), dumps)
    except OSError as error:
        raise DftraceError(f"{quoted(str(folder))}: {error.strerror or error}") from error


@dataclass(frozen=True)
class _Share:
    """What a process writes: the traces of some ranks."""

    job: Job
    ranks: list[int]
    folder: Path
    compression: str
    index: bool

    def write(self) -> int:
        """Write them; return when the last of all ranks has ended, ns."""
        lots = np.array_split(np.array(self.ranks), -(-len(self.ranks) // _AT_A_TIME))
        return max(self._write(lot) for lot in lots)

    def _write(self, ranks: NDArray[np.int64]) -> int:
        """Write those that are written side by side, some steps of each at a time."""
        job, folder, hosts, timing = self.job, self.folder, hosts_of(self.job), Timing(self.job)
        traces = [
            (at, Rows(job, rank, hosts[job.host_of(rank)], self.compression, worker))
            for at, rank in enumerate(ranks.tolist())
            for worker in (None, *range(job.workers))
        ]
        for _, trace in traces:
            _append(folder / trace.name, trace.opening(), "xb")
        last_ns = np.zeros(0, np.int64)
        for first in range(0, job.steps, job.at_once):
            found = timing.next(min(job.at_once, job.steps - first))
            names = {name: at for at, name in enumerate(found)}
            # Of each rank what it did side by side: (ranks, steps, names).
            times = np.empty((len(ranks), len(found["end"]), len(names)), np.int64)
            for name, at in names.items():
                times[:, :, at] = found[name][:, ranks].T
            for at, trace in traces:
                _append(folder / trace.name, trace.steps(first, names, times[at]))
            last_ns = found["end"][-1]
        for at, trace in traces:
            end_ns = int(last_ns[ranks[at]])
            _append(folder / trace.name, trace.ending(end_ns, index=self.index))
        return int(last_ns.max())


def _write_all(job: Job, folder: Path, compression: str, index: bool, jobs: int | None) -> int:
    """Write all traces; return how long the job takes."""
    events = job.ranks * job.steps * len(events_of(job, 0, 0))
    most = jobs or (len(os.sched_getaffinity(0)) if events > _WORTH_IT else 1)
    shares = [
        _Share(job, ranks.tolist(), folder.absolute(), compression, index)
        for ranks in np.array_split(np.arange(job.ranks), min(most, job.ranks))
    ]
    if len(shares) == 1:
        return shares[0].write()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for share in shares:
            process = begun(__name__, "serve", (), subprocess.PIPE, given=subprocess.PIPE)
            processes.append(process)
            if process.stdin is not None:
                pickle.dump(share, process.stdin, pickle.HIGHEST_PROTOCOL)
                process.stdin.close()
        return max(_answer(process) for process in processes)
    finally:
        for process in processes:
            ended(process)


def _append(path: Path, block: bytes, mode: str = "ab") -> None:
    # Not held open: there may be more of them than a process may hold.
    with path.open(mode) as file:
        file.write(block)


def _answer(process: subprocess.Popen[bytes]) -> int:
    """Wait for what a process says of its share."""
    said = process.stdout.read() if process.stdout is not None else b""
    answer = pickle.loads(said) if said else None  # noqa: S301 - of a process of ours
    if isinstance(answer, OSError):
        raise answer
    if not isinstance(answer, int):
        raise DftraceError(f"a process that wrote has ended with {process.wait()}")
    return answer


def serve(_: Sequence[str]) -> int:
    """Write the share that comes on standard input, and say on standard output how it went."""
    share: _Share = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that began this one
    answer: int | OSError
    try:
        answer = share.write()
    except OSError as error:
        answer = error
    pickle.dump(answer, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
    return 0


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

    job: JsonObject
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
    elif cause.hangs or cause.kind == "dead":
        steps = max(job.steps - int(cause.size), 0)
    elif cause.kind == "late-start":
        steps = 1
    turns = Timing(job).turns(job.steps).tolist() if cause.kind == "rotating" else []
    without = replace(job, causes=(*job.causes[:at], *job.causes[at + 1 :]))
    # What is odd in a trace alone costs nothing.
    costs = not cause.hangs and cause.kind not in {"memory", "dead"}
    cost_ns = took_ns - time_of(without) if costs else 0
    return TruthOfCause(cause.words, _ranks_of(job, cause), steps, tuple(turns), cost_ns)


def _ranks_of(job: Job, cause: Cause) -> tuple[int, ...]:
    ranks = np.arange(job.ranks)
    if cause.kind in {"slow-host", "link"}:
        return tuple(ranks[ranks // job.per_host == cause.at].tolist())
    if cause.kind == "stage":
        return tuple(ranks[ranks // job.a_stage == cause.at].tolist())
    return (cause.at,) if FORMS[cause.kind].of == "rank" else ()
