"""Every collective of torch.distributed as a span: the functions, DDP's buckets, FSDP's gathers.

All of them go through the operators ``c10d::*`` of torch's dispatcher. A kernel of ours for each,
at a key that lies above those of the devices and below those that trace programs, passes the call
on and records it. Nothing of the training's own is replaced, no other operator pays for it, and
when the kernels are taken out, the dispatcher is as it was.
"""

from __future__ import annotations

import inspect
import json
import logging
import threading
import weakref
from collections import defaultdict
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from dftrace_ai.integrations.nodes import asked
from dftrace_ai.integrations.swapping import NotInThisVersion, Swaps
from dftrace_ai.integrations.torch.collective_ends import ENQUEUED, Ends, Wait
from dftrace_ai.integrations.torch.inside import bytes_of, left_alone
from dftrace_ai.integrations.torch.joining import record_joining
from dftrace_ai.integrations.torch.pipelining import told_of
from dftrace_ai.run import emitting
from dftrace_ai.run.hooks import Hook, register
from dftrace_ai.run.run import current_run
from dftrace_ai.wording import described, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dftrace_ai.device.intervals import StreamTimes
    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.run.emitting import ApartSpan
    from dftrace_ai.run.run import Run

NAMES: Final = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "broadcast_": "bcast",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "barrier": "barrier",
    "monitored_barrier_": "barrier",
    "send": "send",
    "recv_": "receive",
    "recv_any_source_": "receive",
}
"""Names of spans, as the vocabulary has them, by name of the operation."""

_PEERS: Final = {"send": "dst", "recv_": "src"}

# Of a group, that pass before a flight recorder is told of it again.
AGAIN: Final = 200

CATEGORY = "comm"
TRACK = "collectives"
ON_STREAM: Final = "wait"  # for asynchronous collectives

KEY = "BackendSelect"

# Their works have no future with gloo, and are waited for in C++.
FUNCTIONAL = ("reduce_scatter_tensor", "reduce_scatter_tensor_coalesced")
WAIT = "wait_tensor"


def install(options: AutoOptions | None = None) -> Callable[[], None]:
    """Record every collective from now on, whoever asks for it, by the options' gate or always."""
    import torch.distributed as dist

    if not dist.is_available() or _switch.seam is not None:
        return lambda: None
    with Swaps() as swaps:
        record_joining(options, swaps)
        _Seam(options, swaps).build()
    return swaps.restore


class _Seam:
    """The kernels, and what they share."""

    def __init__(self, options: AutoOptions | None, swaps: Swaps) -> None:
        self._gate = options.gate if options is not None else None
        self._training = options.training if options is not None else None
        self._swaps = swaps
        self._stream_times = _stream_times_of(options)
        self._groups = Groups()
        self._ends = Ends()
        self._told = False
        self._has_works_of_streams = False

    def build(self) -> None:
        import torch

        needed = _needed()
        swaps = self._swaps
        library: Any = torch.library.Library
        swaps.then(self._groups.forget)
        swaps.then(self._ends.give_up)
        swaps.swap(needed.work, "wait", self._waiting)
        swaps.swap(torch.Future, "wait", self._ends.by_future)
        if self._training is not None:
            # DDP waits in C++, within its backward, and its forward for buffers.
            self._training.follow(self._ends.telling, self._ends.settle)
            swaps.then(partial(self._training.follow, {}, None))
        collectives = library("c10d", "IMPL")
        swaps.then(collectives._destroy)
        for operation in needed.operations:
            kernel = _kernel_of(operation.op, partial(_collective, operation, needed))
            collectives.impl(operation.op, kernel, KEY, with_keyset=True)
        functional = library("_c10d_functional", "IMPL")
        swaps.then(functional._destroy)
        for op in (*FUNCTIONAL, WAIT):
            overload = getattr(getattr(torch.ops._c10d_functional, op, None), "default", None)
            if overload is not None:
                made = _waiting if op == WAIT else _functional
                kernel = _kernel_of(op, partial(made, overload, needed))
                functional.impl(op, kernel, KEY, with_keyset=True)
        swaps.then(_switch.off)
        _switch.seam = self
        register(_HOOK)

    def run_begins(self) -> None:
        """Tell of the groups in the trace of another run, too."""
        self._groups.forget()

    def run_ends(self) -> None:
        """End what is done, while it can be recorded."""
        self._ends.settle()

    def forked(self) -> None:
        """Leave what is under way to the parent."""
        self._ends.forget()

    def call(
        self,
        operation: Operation,
        needed: _Needed,
        passed_on: Callable[[], Any],
        args: tuple[Any, ...],
    ) -> Any:
        """Pass a call on, and record it where that is wanted."""
        if not self._records():
            return passed_on()
        span, end_on_stream = self._begun(operation, needed, args)
        # Some have no work: the call itself waits.
        wait = Wait.begun() if operation.work_at is None else None
        try:
            result = passed_on()
        except BaseException as error:
            if span is not None:
                span.end(None, type(error))
            raise
        finally:
            if end_on_stream is not None:
                end_on_stream()
        if span is not None and wait is not None:
            span.end(wait.told())
        elif span is not None:
            self._follow(span, operation, needed, args, result)
        return result

    def wait(self, waiting: Callable[[], Any], tensor: Any) -> Any:
        """Wait for a functional collective, as torch does by itself."""
        if tensor.is_cpu:
            return self._ends.within(waiting)
        return self._timed(waiting)

    def _waiting(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        def of_streams(work: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._has_works_of_streams:
                return wait(work, *args, **kwargs)
            waiting = partial(wait, work, *args, **kwargs)
            return self._timed(waiting, work.is_completed)

        return self._ends.seen_by(wait, of_streams)

    def _timed(self, waiting: Callable[[], Any], is_over: Callable[[], bool] = bool) -> Any:
        """Have the current stream wait; the interval is what it stands still, and the host not."""
        times = self._stream_times() if self._stream_times is not None and self._records() else None
        interval = None if times is None else times.begin()
        # Not asked while a graph is captured, when there is no interval either.
        of_stream = times is not None and interval is not None and not asked(is_over)
        try:
            return waiting()
        finally:
            if times is not None and interval is not None:
                told = CATEGORY, ON_STREAM, self._numbers()
                times.end(interval, told) if of_stream else times.drop(interval)

    def _records(self) -> bool:
        return emitting.is_recording() and (self._gate is None or self._gate.recording)

    def _numbers(self) -> Mapping[str, int]:
        """Return step and epoch, where they are known and recorded."""
        training = self._training
        return training.numbers_here() if training is not None and training.recorded else {}

    def _begun(
        self, operation: Operation, needed: _Needed, args: tuple[Any, ...]
    ) -> tuple[ApartSpan | None, Callable[[], None] | None]:
        try:
            group = needed.process_group.unbox(args[operation.group_at])
            told = self._arguments(operation, group, args)
            span = emitting.begin(operation.name, told, category=CATEGORY, track=TRACK)
            times = None if self._stream_times is None else self._stream_times()
            return span, None if times is None else _on_stream(times, operation, span, told, args)
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            self._tell(operation, error)
            return None, None

    def _arguments(
        self, operation: Operation, handle: Any, args: tuple[Any, ...]
    ) -> dict[str, int | str]:
        group = self._groups.of(handle)
        told: dict[str, int | str] = {"group": group.name, **self._numbers()}
        if operation.sized:
            # What goes to all, or comes from all: the larger of the two.
            sizes = [bytes_of(args[at]) for at in operation.tensors_at]
            known = [size for size in sizes if size is not None]
            if len(known) == len(sizes):
                told["bytes"] = max(known)
        if operation.tag_at is not None:
            tag = args[operation.tag_at]
            peer = None if operation.peer_at is None else group.rank(args[operation.peer_at])
            told |= {"seq": next(group.begun[operation.name, peer, tag]), "tag": tag}
            told |= {"direction": operation.name} | ({} if peer is None else {"peer": peer})
            return told | told_of(first_tensor([args[at] for at in operation.tensors_at]))
        told["nth"] = next(group.begun[operation.name])
        number = group.collectives(handle)
        if number is not None:
            told["seq"] = number
        if operation.root_at is not None:
            told["root"] = group.rank(args[operation.root_at])
        return told

    def _follow(
        self,
        span: ApartSpan,
        operation: Operation,
        needed: _Needed,
        args: tuple[Any, ...],
        result: Any,
    ) -> None:
        try:
            boxed = result if operation.alone else result[operation.work_at]
            tensor = first_tensor([args[at] for at in operation.tensors_at])
            # The work of a device is done when it is handed to it.
            if boxed is None or tensor is None or not tensor.is_cpu:
                self._has_works_of_streams |= boxed is not None and tensor is not None
                span.end(ENQUEUED)
                return
            work = needed.work.unbox(boxed)
            future = self._future_of(work)
            if future is None and _here.functional:  # it is waited for in C++
                span.end(ENQUEUED)
            else:
                self._ends.follow(span, work, future)
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            span.end(ENQUEUED)
            self._tell(operation, error)

    def _future_of(self, work: Any) -> Any:
        """Return what says when a work is done, None where nothing does."""
        try:
            return work.get_future()
        except RuntimeError:  # how a backend says that this one has none
            return None

    def _tell(self, operation: Operation, error: Exception) -> None:
        if not self._told:
            self._told = True
            tell(
                logging.WARNING,
                "a collective (%s) is not recorded as it should be, and the training goes on: %s",
                operation.op,
                described(error),
            )


def _stream_times_of(options: AutoOptions | None) -> Callable[[], StreamTimes | None] | None:
    if options is None or "device" not in options.companions:
        return None
    from dftrace_ai.device.companions import stream_times

    return stream_times


def _on_stream(
    times: StreamTimes,
    operation: Operation,
    span: ApartSpan,
    told: Mapping[str, int | str],
    args: tuple[Any, ...],
) -> Callable[[], None] | None:
    """Begin the interval of the stream that a collective is work of; return what ends it."""
    at = operation.async_at
    # What is asynchronous goes to a stream of the backend's, which nobody else reaches.
    if at is None or len(args) <= at or args[at]:
        return None
    tensor, moment = first_tensor([args[at] for at in operation.tensors_at]), span.moment
    if tensor is None or tensor.is_cpu or moment is None:
        return None
    interval = times.begin(moment)
    if interval is None:
        return None
    return partial(times.end, interval, (CATEGORY, operation.name, told))


class _Here(threading.local):
    """How deep in functional collectives this thread is."""

    functional = 0


_here = _Here()


class _Switch:
    """What the kernels record with."""

    # Torch keeps the functions that kernels were made of for ever: they are made once, and hold
    # nothing of those who have them installed.
    def __init__(self) -> None:
        self.seam: _Seam | None = None
        self.kernels: dict[str, Callable[..., Any]] = {}

    def off(self) -> None:
        self.seam = None


_switch = _Switch()


def _kernel_of(op: str, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    if op not in _switch.kernels:
        _switch.kernels[op] = make()
    return _switch.kernels[op]


def _collective(operation: Operation, needed: _Needed) -> Callable[..., Any]:
    redispatch, below = operation.overload.redispatch, needed.below

    def collective(keys: Any, *args: Any, **kwargs: Any) -> Any:
        seam = _switch.seam
        if seam is None:
            return redispatch(keys & below, *args, **kwargs)
        passed_on = partial(redispatch, keys & below, *args, **kwargs)
        return seam.call(operation, needed, passed_on, args)

    return left_alone(collective)


def _functional(overload: Any, needed: _Needed) -> Callable[..., Any]:
    redispatch, below = overload.redispatch, needed.below

    def functional(keys: Any, *args: Any, **kwargs: Any) -> Any:
        _here.functional += 1
        try:
            return redispatch(keys & below, *args, **kwargs)
        finally:
            _here.functional -= 1

    return left_alone(functional)


def _waiting(overload: Any, needed: _Needed) -> Callable[..., Any]:
    redispatch, below = overload.redispatch, needed.below

    def waiting(keys: Any, *args: Any, **kwargs: Any) -> Any:
        seam = _switch.seam
        if seam is None:
            return redispatch(keys & below, *args, **kwargs)
        return seam.wait(partial(redispatch, keys & below, *args, **kwargs), args[0])

    return left_alone(waiting)


class _Needed(NamedTuple):
    """What of torch's inside the kernels stand on."""

    process_group: Any
    work: Any
    below: Any
    operations: list[Operation]


def _needed() -> _Needed:
    """Find it, in the version of torch that is here."""
    import torch

    try:
        from torch._C._distributed_c10d import ProcessGroup, Work

        below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, KEY))
        found = list(operations())
    except (ImportError, AttributeError) as error:
        raise NotInThisVersion(str(error)) from error
    lacking = [
        name
        for name, there in {
            "Library.impl(with_keyset)": "with_keyset"
            in inspect.signature(torch.library.Library.impl).parameters,
            "Library._destroy": hasattr(torch.library.Library, "_destroy"),
            "ProcessGroup.unbox": hasattr(ProcessGroup, "unbox"),
            "ProcessGroup.group_name": hasattr(ProcessGroup, "group_name"),
            "Work.unbox": hasattr(Work, "unbox"),
            "Work.get_future": hasattr(Work, "get_future"),
            "OpOverload.redispatch": all(hasattr(one.overload, "redispatch") for one in found),
            "torch.ops.c10d": bool(found),
        }.items()
        if not there
    ]
    if lacking:
        raise NotInThisVersion(", ".join(lacking))
    return _Needed(ProcessGroup, Work, below, found)


def _now(what: Callable[[_Seam], None]) -> Callable[[Run], None]:
    def call(_run: Run) -> None:
        if _switch.seam is not None:
            what(_switch.seam)

    return call


_HOOK = Hook(
    "collectives",
    on_begin=_now(_Seam.run_begins),
    on_end=_now(_Seam.run_ends),
    after_fork=_now(_Seam.forked),
)


class Operation(NamedTuple):
    """One of those below all interfaces, in the version of torch that is here."""

    op: str
    name: str  # that of its spans
    overload: Any
    group_at: int
    # What is given to others and got from them; a barrier's tensor names its device alone.
    tensors_at: tuple[int, ...]
    sized: bool
    root_at: int | None  # the rank that alone gives or gets
    peer_at: int | None  # the rank at the other end of a message
    tag_at: int | None  # None where it is no message
    async_at: int | None  # whether it goes to another stream than the current; older ones all do
    # What the caller may wait for, among its results, or alone; None where it waits itself.
    work_at: int | None
    alone: bool


def operations() -> Iterator[Operation]:
    """Yield those that this version of torch has, and that say which group they are of."""
    import torch

    present = set(torch._C._dispatch_get_all_op_names())
    for op, name in NAMES.items():
        if f"c10d::{op}" not in present:
            continue
        overload = getattr(torch.ops.c10d, op).default
        schema = overload._schema
        at = {argument.name: position for position, argument in enumerate(schema.arguments)}
        if "process_group" not in at:
            continue
        results = [str(result.type) for result in schema.returns]
        works = [position for position, kind in enumerate(results) if kind.endswith("c10d.Work")]
        tensors = (
            position
            for position, argument in enumerate(schema.arguments)
            if "Tensor" in str(argument.type) and argument.name != "sparse_indices"
        )
        yield Operation(
            op=op,
            name=name,
            overload=overload,
            group_at=at["process_group"],
            tensors_at=tuple(tensors),
            sized=name != "barrier",
            root_at=at.get("root_rank"),
            peer_at=at.get(_PEERS.get(op, "")),
            tag_at=at.get("tag"),
            async_at=at.get("async_op", at.get("asyncOp")),
            work_at=works[0] if works else None,
            alone=len(results) == 1,
        )


def first_tensor(given: Sequence[Any]) -> Any:
    """Return the first tensor in lists of any depth; None where there is none."""
    for one in given:
        found = first_tensor(one) if isinstance(one, (list, tuple)) else one
        if found is not None:
            return found
    return None


Message: TypeAlias = "tuple[str, int | None, int]"
"""What messages are counted by: direction, peer and tag."""


class Group:
    """A process group, and how often it was met since it was told of."""

    def __init__(self, group: Any) -> None:
        self.name: str = group.group_name
        self.description = asked(lambda: str(group.group_desc or "")) or ""
        if self.description == "undefined":
            self.description = ""
        self.ranks = _ranks_of(group)
        self._reference = weakref.ref(group)
        self.used = 0
        self._counts = True
        # How many were begun: collectives by their name, messages by direction, peer and tag. To
        # take the next number is one operation, which no handler of a signal comes into.
        self.begun: defaultdict[str | Message, Iterator[int]] = defaultdict(count)

    def is_of(self, group: Any) -> bool:
        """Return whether these are the facts of a group: names may be used again."""
        return self._reference() is group

    def rank(self, number: int) -> int:
        """Return the rank in the job of a number in the group."""
        return self.ranks[number] if self.ranks and 0 <= number < len(self.ranks) else number

    def collectives(self, group: Any) -> int | None:
        """Return how many collectives the group has had; None where its backend does not count."""
        if not self._counts:
            return None
        had: int | None = asked(group._get_sequence_number_for_group)
        self._counts = had is not None  # to raise costs more than all the rest
        return had


def _ranks_of(group: Any) -> list[int] | None:
    import torch.distributed as dist

    # None: it was made beside torch's own functions.
    return asked(lambda: list(dist.get_process_group_ranks(group)))


def _fades() -> bool:
    """Whether what is recorded now is forgotten in time."""
    run = current_run()
    return run is not None and run._config_in_force().flight_recorder


class Groups:
    """All groups that have been met, each told once in a run, and in each part of its trace."""

    # A flight recorder keeps what was last: it is told again and again.
    def __init__(self) -> None:
        self._known: dict[str, Group] = {}
        self._told: dict[tuple[str, str, tuple[int, ...]], Group] = {}
        self._fades = _fades()

    def of(self, group: Any) -> Group:
        """Return what is known of a group, and write it into the trace when it is new."""
        name = group.group_name
        known = self._known.get(name)
        if known is None or not known.is_of(group):
            known = self._known[name] = Group(group)
            facts = (known.name, known.description, tuple(known.ranks or ()))
            # One that is made again goes on with the numbers of the one before.
            before = self._told.setdefault(facts, known)
            if before is known:
                self._write(known)
            else:
                known.begun = before.begun
        elif self._fades and known.used >= AGAIN:
            known.used = 0
            self._write(known)
        known.used += 1
        return known

    def forget(self) -> None:
        """Begin anew: another run has begun, or the groups are of no concern any more."""
        self._known.clear()
        self._told.clear()
        self._fades = _fades()

    def _write(self, group: Group) -> None:
        said = {"name": group.name, "description": group.description, "ranks": group.ranks}
        text = json.dumps(said, ensure_ascii=False)
        emitting.metadata("process_group", text, in_every_part=True)
