"""What the flight recorder of each rank of a made job dumps when the job hangs.

The form is that of PyTorch's recorder for NCCL, version 2.10.
"""

from __future__ import annotations

import json
import os
import pickle
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dftrace_ai.generating.lines import events_of
from dftrace_ai.generating.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from dftrace_ai.generating.causes import Cause
    from dftrace_ai.generating.hosts import Host
    from dftrace_ai.generating.job import Job
    from dftrace_ai.generating.lines import Event

DUMP_NAME: Final = "nccl_trace_rank_"
VERSION, LIBRARY_VERSION = "2.10", "2.27.3"
# So many steps are in a ring of so many calls.
_MOST_STEPS, _MOST_CALLS = 20, 2_000
TIMEOUT_NS: Final = 600_000_000_000
_OPS: Final = {"all_gather": "_all_gather_base", "receive": "recv"}
_BYTES_OF_NUMBER: Final = 4
_SEEN_LATER_NS: Final = 20_000

_Frame: TypeAlias = "dict[str, str | int]"
_Tensors: TypeAlias = "dict[str, str | list[str] | list[list[int]]]"
_Member: TypeAlias = (
    "bool | int | str | tuple[str, str] | list[str] | list[list[int]] | list[_Frame] | None"
)


class _Call(NamedTuple):
    """A collective or message that a rank calls in each step."""

    event: Event
    group: str
    bytes: int
    peer: int | None

    @property
    def is_message(self) -> bool:
        return self.peer is not None


def write_dumps(job: Job, hosts: list[Host], folder: Path) -> int:
    """Write a dump of each rank of a job that hangs; return how many that are."""
    cause = job.hang
    if cause is None:
        return 0
    step = int(cause.size)
    told = min(step + 1, _MOST_STEPS)
    timing, left = Timing(job), step + 1 - told
    while left:
        timing.next(count := min(left, job.at_once))
        left -= count
    times = timing.next(told)
    for rank in range(job.ranks):
        calls = calls_of(job, rank)
        host = hosts[job.host_of(rank)]
        shown = {
            name: host.shown(times[name][:, rank])
            for call in calls
            for name in (call.event.begin, call.event.end)
        }
        entries = [*_entries(job, rank, calls, shown, step, cause)][-_MOST_CALLS:]
        groups = {
            name: {"name": name, "desc": what, "ranks": json.dumps([*ranks])}
            for name, what, ranks in job.groups_of(rank)
        }
        dump = {
            "version": VERSION,
            "comm_lib_version": LIBRARY_VERSION,
            "pg_config": groups,
            "pg_status": {},
            "entries": entries,
        }
        path = folder / f"{DUMP_NAME}{rank}"
        path.write_bytes(pickle.dumps(dump, protocol=2))
        # As old as if the watchdog had written it, by which readers know how long calls wait.
        written = max(int(shown[calls[-1].event.end][-1]), 0) + TIMEOUT_NS
        os.utime(path, ns=(written, written))
    return job.ranks


def calls_of(job: Job, rank: int) -> list[_Call]:
    """Return what a rank calls in each step, in its order."""
    found = []
    for event in events_of(job, rank, rank):
        if event.cat == "comm":
            members = event.args[1:].replace("%d", "0").replace("%t", "0")
            said = json.loads(f"{{{members}}}")
            found.append(_Call(event, said["group"], said["bytes"], said.get("peer")))
    return found


def _entries(
    job: Job,
    rank: int,
    calls: list[_Call],
    shown: dict[str, NDArray[np.int64]],
    step: int,
    cause: Cause,
) -> Iterator[dict[str, _Member]]:
    """Yield what the ring of a rank holds, from the steps before the hang up to where it stands."""
    steps = len(shown[calls[0].event.begin])
    names = {name: what for name, what, _ in job.groups_of(rank)}
    sizes = {name: len(ranks) for name, _, ranks in job.groups_of(rank)}
    messages = sum(call.is_message for call in calls)
    for row, at in enumerate(range(step + 1 - steps, step + 1)):
        sent = at * messages
        for number, (call, state) in enumerate(_states(job, rank, calls, cause, hangs=at == step)):
            sent += call.is_message
            begin, end = (int(shown[one][row]) for one in (call.event.begin, call.event.end))
            seq = call.event.numbers[1]
            is_odd = at == step and state == "started" and rank == cause.at
            yield {
                "record_id": at * len(calls) + number,
                "pg_id": list(names).index(call.group),
                "process_group": (call.group, names[call.group]),
                "collective_seq_id": at if call.is_message else seq.each * at + seq.first + 1,
                "p2p_seq_id": sent if call.is_message else 0,
                "op_id": at * len(calls) + number + 1,
                "is_p2p": call.is_message,
                "time_created_ns": begin,
                "timeout_ms": TIMEOUT_NS // 1_000_000,
                "state": state,
                "retired": state == "completed",
                "time_discovered_started_ns": None
                if state == "scheduled"
                else begin + _SEEN_LATER_NS,
                "time_discovered_completed_ns": end if state == "completed" else None,
                "frames": _frames(call),
                **_tensors(job, rank, call, sizes[call.group], cause.kind if is_odd else ""),
            }


def _states(
    job: Job, rank: int, calls: list[_Call], cause: Cause, *, hangs: bool
) -> Iterator[tuple[_Call, str]]:
    """Yield what a rank has called in a step, and how far each call has come."""
    target = job.reducing(cause.at) if job.replicas > 1 else "0"
    is_stuck = False
    for call in calls:
        reduces = call.event.name == "all_reduce"
        if not hangs or not reduces or (not is_stuck and call.group not in {target, "0"}):
            yield call, "completed"
        elif is_stuck:
            # Gradients are reduced behind each other, without waiting; the norm of them waits.
            if call.group != target:
                return
            yield call, "scheduled"
        elif rank == cause.at and cause.kind == "flight:missing":
            return
        else:
            is_stuck = True
            is_late = rank == cause.at and cause.kind == "flight:unstarted"
            yield call, "scheduled" if is_late else "started"


def _tensors(job: Job, rank: int, call: _Call, size: int, kind: str) -> _Tensors:
    """Return what is called, and with what; `kind` makes that odd."""
    op = _OPS.get(call.event.name, call.event.name)
    name = "broadcast" if kind == "flight:op" else op
    if call.is_message:
        ranks = f"{rank}->{call.peer}", f"{rank}<-{call.peer}"
        name += f" {ranks[op == 'recv']}"
    numel = call.bytes // _BYTES_OF_NUMBER * (2 if kind == "flight:size" else 1)
    into = [] if op == "recv" else [[numel]]
    out = [] if op == "send" else [[numel * size if op == "_all_gather_base" else numel]]
    dtype = "BFloat16" if kind == "flight:dtype" else "Float"
    return {
        "profiling_name": f"nccl:{name}",
        "input_sizes": into,
        "input_dtypes": [dtype] * len(into),
        "output_sizes": out,
        "output_dtypes": [dtype] * len(out),
    }


def _frames(call: _Call) -> list[_Frame]:
    """Return where it was called."""
    line = {"all_gather": 41, "all_reduce": 57, "send": 33, "receive": 31}[call.event.name]
    library = "/opt/torch/distributed/distributed_c10d.py"
    return [
        {"name": call.event.name, "filename": library, "line": 2_800},
        {"name": "train_step", "filename": "/home/user/train.py", "line": line},
    ]
