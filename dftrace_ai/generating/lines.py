"""The events of a step of a made rank: on which tracks, from when to when, and what they tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from dftrace_ai.generating.pipeline import DIRECTIONS, Pass, passes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

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
