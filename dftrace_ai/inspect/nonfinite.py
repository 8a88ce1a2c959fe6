"""Where values that are not finite were seen first: marks, and the watch over a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.output import trace_events
from dftrace_ai.inspect.output.log_files import tell_on_stderr
from dftrace_ai.run import emitting
from dftrace_ai.wording import ToldOnce

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from dftrace_ai.inspect.numerics.record import Record
    from dftrace_ai.run.emitting import Moment


class Counts(NamedTuple):
    """What was found in a tensor."""

    nan: int  # elements that are NaN
    inf: int  # elements that are infinite
    total: int  # all elements

    @classmethod
    def of(cls, record: Record) -> Counts:
        """Take the counts out of a record."""
        return cls(int(record.n_nan), int(record.n_inf), int(record.n_total))


class Place(NamedTuple):
    """Where and when a tensor was seen."""

    layer: str
    tensor: str
    step: int  # the iteration
    micro_batch: int  # which forward of the layer in the step, from 0
    moment: Moment  # when, and in which span

    @classmethod
    def now(cls, layer: str, tensor: str, micro_batch: int) -> Place:
        """Return the place of what is seen in this moment."""
        return cls(layer, tensor, MARKS.step, micro_batch, emitting.moment())


class Marks:
    """Which tensors have non-finite values at present; it marks and tells what is new."""

    # A tensor is marked in the trace when its counts leave zero, and again when they do so after
    # they were zero. The first one of all is also told in the log.

    def __init__(self) -> None:
        self.step = 0
        """The present iteration."""
        self.tell: Callable[[str], None] | None = None
        """Writes a line to the log of a session; without one it goes to standard error."""
        self._bad: set[tuple[str, str]] = set()
        self.told = ToldOnce()
        """What is told once in a session, or once without one."""

    def reset(self) -> None:
        """Forget what was found."""
        self._bad.clear()
        self.told.forget()

    def begin(self, step: int, tell: Callable[[str], None]) -> None:
        """Begin anew, with a session that has a log."""
        self.reset()
        self.step = step
        self.tell = tell

    def end(self) -> None:
        """Take in that the session is over."""
        self.reset()
        self.tell = None

    def stepped(self, step: int | None) -> None:
        """Take in the number of the next step; without a session, None, they are counted."""
        for stepped in WATCHES:
            stepped()
        self.step = self.step + 1 if step is None else step

    def counted(
        self, place: Place, counts: Counts, causes: Callable[[], dict[str, Counts]] | None = None
    ) -> None:
        """Take in the counts of a tensor."""
        key = place.layer, place.tensor
        if not counts.nan and not counts.inf:
            self._bad.discard(key)
            return
        if key in self._bad:
            return
        self._bad.add(key)
        found = {"n_nan": counts.nan, "n_inf": counts.inf, "n": counts.total}
        made_of = causes() if causes is not None else {}
        for name, one in made_of.items():
            found |= {f"{name}_n_nan": one.nan, f"{name}_n_inf": one.inf}
        first = self.told.first("non-finite")
        trace_events.nonfinite(
            place.layer,
            place.tensor,
            place.moment,
            {"iteration": place.step, "micro_batch": place.micro_batch, "first": first, **found},
        )
        if first:
            self._say(place, counts, made_of)

    def seen(
        self,
        layer: str,
        tensor: str,
        record: Record,
        micro_batch: int,
        causes: Callable[[], dict[str, Counts]] | None = None,
    ) -> None:
        """Take in the record of a tensor of this moment; as `counted`."""
        if record.n_nan or record.n_inf or (layer, tensor) in self._bad:
            self.counted(Place.now(layer, tensor, micro_batch), Counts.of(record), causes)

    def _say(self, place: Place, counts: Counts, made_of: dict[str, Counts]) -> None:
        message = (
            f"{place.layer}: {place.tensor} has {counts.nan} NaN and {counts.inf} infinities in "
            f"{counts.total} elements, the first ones seen: iteration {place.step}, "
            f"micro-batch {place.micro_batch}"
        )
        told = [
            f"{name} {'is finite' if not (one.nan or one.inf) else 'has such values, too'}"
            for name, one in made_of.items()
        ]
        if told:
            message += f"; its {', and its '.join(told)}"
        self.say(message)

    def say(self, message: str) -> None:
        """Write a line to the log of the session, to standard error without one."""
        if self.tell is not None:
            self.tell(message)
        else:
            tell_on_stderr(f"dftrace: {message}")


MARKS = Marks()
"""Those of the process: attached layers and watches share them."""


WATCHES: list[Callable[[], None]] = []
"""What the watches that are on do when a step has ended."""

WATCHED = ("output", "gradient")
CAUSES = ("activation", "weight")

PENDING_MOST = 4096
"""After so many looks at tensors of another device their counts are fetched."""


class LayerWatch:
    """The watch over one layer."""

    def __init__(
        self, name: str, elsewhere: DeviceCounts, failed: Callable[[str, str, Exception], None]
    ) -> None:
        self.name = name
        self._elsewhere = elsewhere
        self._failed = failed

    def wants(self, tensor_name: str) -> bool:
        """Tell whether a tensor is looked at."""
        return tensor_name in WATCHED or tensor_name in CAUSES

    def look(
        self,
        tensor_name: str,
        tensor: Tensor,
        record: Record | None,
        micro_batch: int,
        made_of: Mapping[str, weakref.ref[Tensor]],
    ) -> None:
        """Look at what comes out of a layer, or its gradient."""
        if not _has_floats(tensor):
            return
        try:
            if record is None:
                if not tensor.is_cpu:
                    place = Place.now(self.name, tensor_name, micro_batch)
                    self._elsewhere.add(place, tensor.detach())
                    return
                record = collect(tensor, zeros=False)
            if record is not None:
                causes = (lambda: _counts_of(made_of)) if tensor_name == "output" else None
                MARKS.seen(self.name, tensor_name, record, micro_batch, causes)
        except Exception as error:  # noqa: BLE001 - a watch must not end the training
            self._failed(self.name, tensor_name, error)


def _has_floats(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and not tensor.is_meta


def _counts_of(made_of: Mapping[str, weakref.ref[Tensor]]) -> dict[str, Counts]:
    """Count what an output is made of, as far as it is still there."""
    found: dict[str, Counts] = {}
    for name, reference in made_of.items():
        tensor = reference()
        seen = tensor is not None and _has_floats(tensor)
        record = collect(tensor, zeros=False) if tensor is not None and seen else None
        if record is not None:
            found[name] = Counts.of(record)
    return found


class _Pending(NamedTuple):
    place: Place
    counts: Tensor


class _Fetched(NamedTuple):
    pending: list[_Pending]
    counts: Tensor  # on the host, a row for each
    arrived: Any  # an event of CUDA's; None where they are there already


class DeviceCounts:
    """Counts of tensors on other devices, which are fetched without waiting for the device."""

    def __init__(self) -> None:
        self._waiting: list[_Pending] = []
        self._under_way: list[_Fetched] = []

    def add(self, place: Place, tensor: Tensor) -> None:
        """Have a tensor counted on its device."""
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        nan = tensor.isnan().sum()
        bad = tensor.numel() - tensor.isfinite().sum()
        total = torch.full_like(nan, tensor.numel())
        self._waiting.append(_Pending(place, torch.stack((nan, bad - nan, total))))
        if len(self._waiting) >= PENDING_MOST:
            self.fetch()

    def fetch(self) -> None:
        """Begin to fetch what was counted."""
        by_device: dict[torch.device, list[_Pending]] = {}
        for pending in self._waiting:
            by_device.setdefault(pending.counts.device, []).append(pending)
        self._waiting = []
        for counted in by_device.values():
            there = torch.stack([pending.counts for pending in counted])
            on_cuda = there.is_cuda
            here = torch.empty(there.shape, dtype=there.dtype, device="cpu", pin_memory=on_cuda)
            here.copy_(there, non_blocking=True)
            arrived: Any = None
            if on_cuda:
                make: Callable[[], Any] = torch.cuda.Event
                arrived = make()
                arrived.record(torch.cuda.current_stream(there.device))
            self._under_way.append(_Fetched(counted, here, arrived))

    def arrived(self, *, wait: bool = False) -> list[tuple[Place, Counts]]:
        """Return the counts that have come, in the order in which they were counted."""
        told: list[tuple[Place, Counts]] = []
        while self._under_way:
            pending, counts, event = self._under_way[0]
            if event is not None and wait:
                event.synchronize()
            if event is not None and not event.query():
                break
            self._under_way.pop(0)
            rows = zip(pending, counts.tolist(), strict=True)
            told += [(counted.place, Counts(*row)) for counted, row in rows]
        return told
