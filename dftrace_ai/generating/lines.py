"""The events of a step of a made rank, and its trace of them, block by block.

Where they lie, from when to when, and what they tell; then times by the clock of a host as rows of
numbers. Apart from `writing`, which shares ranks out over processes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from dftrace_ai._native import MadeTrace
from dftrace_ai._version import __version__
from dftrace_ai.generating.hosts import START_NS, TIME_BASE_US
from dftrace_ai.generating.pipeline import DIRECTIONS, Pass, passes_of
from dftrace_ai.generating.timing import NOTICE_BOUND_NS, poll_bound
from dftrace_ai.trace_format.file_names import SUFFIX_OF

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dftrace_ai.generating.hosts import Host
    from dftrace_ai.generating.job import Job

STEPS: Final = 0x40000001
LANES: Final = 0x50000000
BUCKET_BYTES, LAYER_BYTES, NORM_BYTES, MESSAGE_BYTES = 26_214_400, 4_194_304, 4, 1_048_576
MEMORY_BYTES, MORE_MEMORY = 40_000_000_000, 1.4


class Number(NamedTuple):
    """A number among arguments: of step s it is ``each * s + first``, or what is told by a name."""

    each: int = 0
    first: int = 0
    told: Literal["", "took", "late", "loss"] = ""


class Event(NamedTuple):
    """An event that each step of a rank has."""

    ph: Literal["X", "C"]
    name: str
    cat: str
    tid: int
    begin: str  # by its name among the times of `Timing.next`
    end: str
    args: str  # members as they stand behind others, with places for numbers
    numbers: tuple[Number, ...]
    parent: str = ""  # the span that it lies in, by name and category
    item: bool = False
    only: Literal["", "gc", "checkpoint"] = ""  # in those steps alone that have one


STEP: Final = Number(1)


def _span(
    name: str, cat: str, tid: int, begin: str, end: str, parent: str = "", microbatch: int = 0
) -> Event:
    args = f',"epoch":0,"step":%d,"microbatch":{microbatch}'
    return Event("X", name, cat, tid, begin, end, args, (STEP,), parent)


def _collective(
    name: str,
    lane: int,
    times: tuple[str, str],
    group: str,
    size: int,
    seq: Number,
    parent: str = "",
) -> Event:
    # Within a backward DDP waits by itself, and ends are seen by looking; else the program waits.
    end = "late_us" if parent else "waited_us"
    args = f',"group":"{group}","epoch":0,"step":%d,"bytes":{size},"nth":%d,"seq":%d,"{end}":%t'
    numbers = (STEP, seq, seq, Number(told="late" if parent else "took"))
    return Event("X", name, "comm", LANES + lane, *times, args, numbers, parent)


def tracks_of(job: Job, pid: int) -> dict[int, str]:
    """Return the names of a rank's tracks, by their numbers."""
    lanes = _lanes(job)
    named = {LANES + at: f"collectives {at + 1}" if at else "collectives" for at in range(lanes)}
    messages = {LANES + lanes: "messages"} if job.pp > 1 else {}
    return {pid: "MainThread", STEPS: "steps", **named, **messages}


def _lanes(job: Job) -> int:
    return job.buckets + (job.tp > 1) + (job.pp > 1)


def events_of(job: Job, rank: int, pid: int) -> list[Event]:
    """Return the events of a step of a rank, on each track in the order of their ends."""
    kinds = {cause.kind for cause in job.causes}
    found = [_span("fetch.iter", "dataloader", pid, "begin", "fetched")._replace(item=True)]
    if "gc" in kinds:
        pause = _span("gc", "host", pid, "pause", "paused", "" if job.pp > 1 else "compute/forward")
        args = pause.args + ',"generation":2,"collected":0'
        found.append(pause._replace(args=args, only="gc"))
    found += _passes(job, rank, pid) if job.pp > 1 else _layers(job, rank, pid)
    if job.pp == 1 or job.replicas > 1:
        parent = "" if job.pp > 1 else "compute/backward"
        found += [
            _collective(
                "all_reduce",
                bucket,
                (f"reduce {bucket}", f"reduced {bucket}"),
                job.reducing(rank),
                BUCKET_BYTES,
                Number(job.buckets, bucket),
                parent,
            )
            for bucket in range(job.buckets)
        ]
    if job.pp > 1:
        norm = ("norm", "normed")
        found.append(_collective("all_reduce", job.buckets, norm, "0", NORM_BYTES, STEP))
    else:
        found.append(_span("backward", "compute", pid, "backward", "backward end"))
    found.append(_span("step", "compute", pid, "optimizer", "optimizer end"))
    found.append(_span("step.zero_grad", "compute", pid, "zeroing", "zeroed"))
    if "checkpoint" in kinds:
        save = _span("capture", "checkpoint", pid, "save", "saved")
        found.append(save._replace(only="checkpoint"))
    used = MEMORY_BYTES + 10_000_000 * (rank * 7919 % 31)
    if any(cause.kind == "memory" and cause.at == rank for cause in job.causes):
        used = round(used * MORE_MEMORY)
    memory = f',"used":{2 * MEMORY_BYTES},"process":{used}'
    at = ("zeroed", "zeroed")
    loss = (Number(told="loss"),)
    found.append(Event("C", "memory bytes", "counter", pid, *at, memory, ()))
    found.append(Event("C", "loss", "counter", pid, *at, ',"train":%t', loss))
    whole = _span("step", "pipeline", STEPS, "begin", "end")
    args = f',"epoch":0,"step":%d,"microbatches":{job.microbatches if job.pp > 1 else 1}'
    return [*found, whole._replace(tid=STEPS, args=args)]


def _layers(job: Job, rank: int, pid: int) -> Iterator[Event]:
    """Yield the forward of a rank that has all layers."""
    forward = "compute/forward"
    for layer in range(job.layers):
        if job.tp > 1:
            yield _gather(job, rank, str(layer), Number(job.layers, layer), forward)
        begin = f"layer {layer - 1}" if layer else "paused"
        yield _span(f"forward.layer{layer}", "compute", pid, begin, f"layer {layer}", forward)
    yield _span("forward", "compute", pid, "forward", "forward end")


def _gather(job: Job, rank: int, name: str, seq: Number, parent: str = "") -> Event:
    times, lane = (f"gather {name}", f"gathered {name}"), _lanes(job) - 1
    return _collective("all_gather", lane, times, job.sharing(rank), LAYER_BYTES, seq, parent)


def _passes(job: Job, rank: int, pid: int) -> Iterator[Event]:
    """Yield what a stage of a pipeline computes, and its messages."""
    stage = job.stage_of(rank)
    passes = passes_of(stage, job.pp, job.microbatches)
    for number, one in enumerate(passes):
        if 0 <= (before := one.before(stage)) < job.pp:
            times = (f"receive {one.name}", f"received {one.name}")
            yield _message("receive", job, rank, rank + (before - stage) * job.a_stage, one, times)
        if job.tp > 1:
            yield _gather(job, rank, one.name, Number(len(passes), number))
        times = (f"compute {one.name}", f"computed {one.name}")
        name = DIRECTIONS[one.direction]
        yield _span(name, "compute", pid, *times, microbatch=one.microbatch)
        if 0 <= (behind := one.behind(stage)) < job.pp:
            times = (f"send {one.name}", f"sent {one.name}")
            yield _message("send", job, rank, rank + (behind - stage) * job.a_stage, one, times)


def _message(name: str, job: Job, rank: int, peer: int, of: Pass, times: tuple[str, str]) -> Event:
    args = (
        f',"group":"0","epoch":0,"step":%d,"microbatch":{of.microbatch},"bytes":{MESSAGE_BYTES}'
        f',"seq":%d,"tag":0,"direction":"{name}","peer":{peer},"stage_index":{job.stage_of(rank)}'
        ',"until":"waited","waited_us":%t'
    )
    numbers = (STEP, Number(job.microbatches, of.microbatch), Number(told="took"))
    return Event("X", name, "comm", LANES + _lanes(job), *times, args, numbers)


def loads_of(pid: int) -> list[Event]:
    """Return the events of a batch that a loader process of a rank makes."""
    args = ',"epoch":0,"step":%d'
    item = Event("X", "item", "data", pid, "load", "loaded", args, (STEP,))
    return [item, item._replace(name="preprocess.collate", begin="loaded", end="collated")]


FIRST_PID, PIDS_OF_RANK, PARENT_PID = 4000, 100, 3999
_COLUMNS: Final = 6
_NEVER: Final = -1
# Behind the events that tell of groups.
_FIRST_ID: Final = 16


class Rows:
    """The trace of a process of a made job: a rank, or one of its loader processes."""

    def __init__(
        self, job: Job, rank: int, host: Host, compression: str, worker: int | None = None
    ) -> None:
        self._job, self._rank, self._host, self._worker = job, rank, host, worker
        local = rank % job.per_host
        of_rank = FIRST_PID + local * PIDS_OF_RANK
        pid = of_rank if worker is None else of_rank + 1 + worker
        self.name = f"train-{host.name}-{pid}{SUFFIX_OF[compression]}"
        name = f"rank {rank} · {host.name}"
        header = {
            "version": __version__,
            "rank": rank,
            "world_size": job.ranks,
            "local_rank": local,
            "launcher": "torchrun",
            **({"layout": job.layout_of(rank)} if job.layout_of(rank) else {}),
            "cpus": 64,
            "memory_bytes": 540_951_887_872,
            "cores": 32,
            "generated": {"seed": job.seed, "causes": [cause.words for cause in job.causes]},
        }
        self._trace = MadeTrace(
            host=host.name,
            pid=pid,
            parent_pid=PARENT_PID if worker is None else of_rank,
            run=job.run,
            time_base_us=TIME_BASE_US,
            process_name_json=json.dumps(name, ensure_ascii=False),
            header_json="," + json.dumps(header, separators=(",", ":"))[1:-1],
            compression=compression,
            boot_id=host.boot_id,
            pid_namespace=4_026_531_836 + host.number,
            process_start=43_200_000 + local,
            epoch_offset_ns=host.clock_offset_ns,
            realtime_ns=START_NS + host.offset_ns,
            synchronised=host.synchronised,
            clock_error_us=abs(host.offset_ns) // 1000,
            frequency=0,
        )
        self._pid = pid
        self._tracks = {pid: "MainThread"} if worker is not None else tracks_of(job, pid)
        self._events = events_of(job, rank, pid) if worker is None else loads_of(pid)
        self._dead = min(
            (
                cause.size
                for cause in job.causes
                if cause.hangs or (cause.kind == "dead" and cause.at == rank)
            ),
            default=None,
        )
        self._plan(self._events)

    def _plan(self, events: list[Event]) -> None:
        """Work out what is the same in the rows of all steps."""
        offset = {f"{one.cat}/{one.name}": at for at, one in enumerate(events)}
        width = _COLUMNS + max(len(one.numbers) for one in events)
        self._each = np.zeros((len(events), width), np.int64)
        self._first = np.zeros((len(events), width), np.int64)
        self._told: list[tuple[int, int, str]] = []
        level = {one: 1 + bool(one.parent) for one in events}
        for at, one in enumerate(events):
            head = f'"name":{json.dumps(one.name)},"cat":"{one.cat}"'
            pattern = self._trace.add_pattern(one.ph, head, one.tid, level[one], one.args)
            self._first[at, 0] = pattern
            self._each[at, 3], self._first[at, 3] = len(events), _FIRST_ID + at
            if one.parent:
                self._each[at, 4] = len(events)
                self._first[at, 4] = _FIRST_ID + offset[one.parent]
            self._each[at, 5] = int(one.item)
            self._first[at, 5] = 1 if one.item else _NEVER
            for place, number in enumerate(one.numbers, _COLUMNS):
                self._each[at, place], self._first[at, place] = number.each, number.first
                if number.told:
                    self._told.append((at, place, number.told))

    def opening(self) -> bytes:
        """Return the first blocks: who it is, its tracks and groups."""
        found = self._trace.opening(self._tracks)
        if self._worker is not None:
            return found
        rows = []
        for number, (name, description, ranks) in enumerate(self._job.groups_of(self._rank), 1):
            group = {"name": name, "description": description, "ranks": list(ranks)}
            value = json.dumps(json.dumps(group))
            args = f',"name":"process_group","value":{value}'
            pattern = self._trace.add_pattern(
                "M", '"name":"CM","cat":"dftracer"', self._pid, 1, args
            )
            rows.append([pattern, START_NS, START_NS, number, 0, _NEVER])
        return found + self._trace.rows(np.array(rows, np.int64), _COLUMNS)

    def steps(self, first: int, names: dict[str, int], times: NDArray[np.int64]) -> bytes:
        """Return blocks of some steps from one on; `times` are (steps, names), from the start."""
        steps = np.arange(first, first + len(times))
        if self._worker is not None:
            mine = steps % self._job.workers == self._worker
            steps, times = steps[mine], times[mine]
        if self._dead is not None:
            alive = steps < self._dead
            steps, times = steps[alive], times[alive]
        if not len(steps):
            return b""
        events = self._events
        rows = self._each * steps[:, None, None] + self._first
        shown = self._host.shown(times)
        rows[:, :, 1] = shown[:, [names[one.begin] for one in events]]
        rows[:, :, 2] = shown[:, [names[one.end] for one in events]]
        for at, place, told in self._told:
            rows[:, at, place] = self._number(told, rows[:, at, 2] - rows[:, at, 1], steps)
        kept = [
            self._has(one.only, steps) if one.only else np.ones(len(steps), bool) for one in events
        ]
        # A clock that is set back in the middle of a span would make it shorter than nothing.
        rows[:, :, 2] = np.maximum(rows[:, :, 2], rows[:, :, 1])
        flat = rows[np.stack(kept, axis=1)] if any(one.only for one in events) else rows
        return self._trace.rows(np.ascontiguousarray(flat), rows.shape[2])

    def _number(
        self, told: str, took: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        if told == "loss":
            return 250_000 // (100 + steps)
        if told == "took":
            return np.maximum(took, 0)
        late = np.full(len(took), NOTICE_BOUND_NS)
        return late + poll_bound(took) if self._job.poll else late

    def _has(self, only: str, steps: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return in which steps something comes that comes now and then."""
        found = np.zeros(len(steps), bool)
        for cause in self._job.causes:
            if cause.kind == only == "gc":
                found |= (steps + 7 * self._rank) % cause.every == 0
            elif cause.kind == only:
                found |= steps % cause.every == cause.every - 1
        return found

    def ending(self, last_ns: int, *, index: bool) -> bytes:
        """Return index and closing line; nothing of a process that has died."""
        if self._dead is not None:
            return b""
        return self._trace.ending(int(self._host.shown(np.array([last_ns]))[0]), index)
