"""Records that devices make: asked for now, on the host some steps later, and nothing waits."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from dftrace_ai.inspect.errors import InspectTypeError
from dftrace_ai.inspect.numerics.memory import local_part
from dftrace_ai.inspect.numerics.record import final_values
from dftrace_ai.inspect.numerics.ring import Generation, Landed, Ring
from dftrace_ai.inspect.numerics.writers import choose_writer
from dftrace_ai.inspect.output import trace_events

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_values
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from dftrace_ai.inspect.numerics.formats import Format
    from dftrace_ai.inspect.numerics.record import Record

Made = TypeVar("Made")


class Awaited:
    """A record that is on its way to the host."""

    __slots__ = ("come", "record")

    def __init__(self, come: Callable[[Record], None] | None = None) -> None:
        self.record: Record | None = None  # None until then
        self.come = come  # is given the record when it is there


class Asked(Awaited):
    """A record that a device makes, which has it until the ring comes round."""

    __slots__ = ("generation", "place", "ring", "stream")

    def __init__(
        self, ring: Ring[list[Asked]], place: int, come: Callable[[Record], None] | None = None
    ) -> None:
        self.record = None
        self.come = come
        self.ring, self.place = ring, place
        self.generation: Generation[list[Asked]] = ring.filling
        self.stream: int = ring.stream

    @property
    def row(self) -> Tensor:
        """The record on the device."""
        return self.ring.row_in(self.generation, self.place)

    def values(self, stats: Sequence[str]) -> dict[str, Tensor]:
        """Return statistics on the device; see `Ring.values_of`."""
        return self.ring.values_of(self, stats)

    def amax(self) -> Tensor:
        """Return the largest magnitude on the device; NaN where there is a NaN."""
        return self.values(["cur_amax"])["cur_amax"]


class LateValues(dict[str, Tensor]):
    """Statistics of a record that a device makes, which are computed when they are looked at."""

    def __init__(self, asked: Asked, stats: Sequence[str], device: torch.device) -> None:
        super().__init__(dict.fromkeys(stats))  # type: ignore[arg-type]  # no values yet
        self._asked: Asked | None = asked
        self._device = device

    def _computed(self) -> LateValues:
        asked = self._asked
        if asked is None:
            return self
        stats = tuple(super().keys())
        record = asked.record
        if record is None:
            found = asked.values(stats)
        else:
            # Where it lay on the device another one may lie by now.
            found = {
                stat: torch.full((), value, dtype=torch.float32, device=self._device)
                for stat, value in final_values(record, stats).items()
            }
        self._asked = None
        self.update(found)
        return self

    def __getitem__(self, stat: str) -> Tensor:
        return dict.__getitem__(self._computed(), stat)

    def get(self, stat: str, default: Any = None) -> Any:
        """Return a statistic, or another value where there is none."""
        return dict.get(self._computed(), stat, default)

    def values(self) -> dict_values[str, Tensor]:
        """Return the statistics."""
        return dict.values(self._computed())

    def items(self) -> dict_items[str, Tensor]:
        """Return names and statistics."""
        return dict.items(self._computed())

    def __iter__(self) -> Iterator[str]:
        # Of a dict that has it as it is, others copy what lies in it.
        return dict.__iter__(self._computed())

    def copy(self) -> dict[str, Tensor]:
        """Return the statistics as a plain dict."""
        return dict(self.items())

    def pop(self, *given: Any) -> Any:
        """Remove a statistic, and return it."""
        return dict.pop(self._computed(), *given)

    def popitem(self) -> tuple[str, Tensor]:
        """Remove the last statistic, and return it."""
        return dict.popitem(self._computed())

    def setdefault(self, *given: Any) -> Any:
        """Return a statistic; take in a value where there is none."""
        return dict.setdefault(self._computed(), *given)

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._computed(), dict(other) if isinstance(other, dict) else other)

    __hash__ = None  # as dicts have it

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __repr__(self) -> str:
        return repr(self.copy())

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)


class DeviceRing:
    """The ring of one device; the threads of autograd may share it."""

    def __init__(
        self,
        device: torch.device,
        make: Callable[[], Ring[list[Asked]]],
        captured: Callable[[], None],
        interrupted: Callable[[], None],
    ) -> None:
        self._device = device
        self._make = make
        self._captured = captured
        self._interrupted = interrupted
        self._ring: Ring[list[Asked]] | None = None
        self._asked: list[Asked] = []
        self._under_way = 0
        # Of the thread that has it a signal's handler gets it, too, and finds a ring half changed.
        self._lock = threading.RLock()
        self._is_changed = False

    def elements_of(self, tensor: Tensor) -> Tensor | None:
        """Return what this process has of a tensor, as `elements_of` does."""
        ring = self._ring
        if ring is not None and ring.takes is not None and ring.takes(tensor):
            return tensor
        return elements_of(tensor)

    def add(
        self,
        tensor: Tensor,
        *,
        cast: tuple[Format, float | Tensor] | None = None,
        come: Callable[[Record], None] | None = None,
    ) -> Asked | None:
        """Have the record of a tensor made."""
        # The tensor is plain, real, and has an element; see `elements_of`. None is returned while a
        # CUDA graph is captured, and in a signal's handler that has interrupted a call of this
        # thread.
        format_, scale = cast or (None, None)

        def added() -> Asked | None:
            ring = self._ring or self._ready()
            place = None if ring is None else ring.add(tensor, scale=scale, format=format_)
            return None if ring is None or place is None else self._asked_for(ring, place, come)

        return self._alone(added)

    def add_row(self, row: Tensor) -> Asked | None:
        """Take in a record that was made on the device in another way; as `add`."""

        def added() -> Asked | None:
            ring = self._ready()
            place = None if ring is None else ring.add_row(row)
            return None if ring is None or place is None else self._asked_for(ring, place)

        return self._alone(added)

    def add_all(self, tensors: Sequence[Tensor]) -> list[Asked] | None:
        """Have the records of tensors made together; as `add`."""

        def added() -> list[Asked] | None:
            ring = self._ready()
            places = None if ring is None else ring.add_all(tensors)
            if ring is None or places is None:
                return None
            return [self._asked_for(ring, place) for place in places]

        return self._alone(added)

    def _alone(self, change: Callable[[], Made | None], *, tells: bool = True) -> Made | None:
        """Change the ring, unless this is a signal's handler that came into a change of it."""
        with self._lock:
            if self._is_changed:
                if tells:
                    self._interrupted()
                return None
            self._is_changed = True
            try:
                return change()
            finally:
                self._is_changed = False

    def _ready(self) -> Ring[list[Asked]] | None:
        # Memory that the host shares must not be asked for in a capture, which it would end.
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            self._captured()
            return None
        if self._ring is None:
            self._ring = self._make()
        return self._ring

    def _asked_for(
        self,
        ring: Ring[list[Asked]],
        place: int,
        come: Callable[[Record], None] | None = None,
    ) -> Asked:
        asked = Asked(ring, place, come)
        self._asked.append(asked)
        return asked

    def send(self) -> None:
        """Send what was asked for on its way."""

        def sent() -> None:
            if self._asked and self._ring is not None:
                self._take(self._ring.landed())
                asked, self._asked = self._asked, []
                self._under_way += 1
                self._ring.end_generation(asked)
                # Whoever looks late at what was waited for has it from the host.
                self._take(self._ring.waited_for())

        self._alone(sent, tells=False)

    def receive(self, *, wait: bool = False) -> None:
        """Take in what has come; or wait for all that is under way."""

        def received() -> None:
            if self._ring is not None:
                self._take(self._ring.drain() if wait else self._ring.landed())

        self._alone(received, tells=False)

    @property
    def busy(self) -> bool:
        """Whether records are asked for that have not come."""
        return bool(self._asked) or self._under_way > 0

    def _take(self, generations: Iterable[Landed[list[Asked]]]) -> None:
        for generation in generations:
            self._under_way -= 1
            for asked, record in zip(generation.tag, generation.records, strict=True):
                asked.record = record
            for asked in generation.tag:
                if asked.come is not None and asked.record is not None:
                    asked.come(asked.record)


def elements_of(tensor: Tensor) -> Tensor | None:
    """Return what this process has of a tensor, None where that is nothing."""
    if tensor.is_complex():
        raise InspectTypeError("a complex tensor has no statistics; take those of its parts")
    local = local_part(tensor)
    return local if local.numel() else None


class Rings:
    """The rings of all devices that have one."""

    def __init__(
        self,
        say_once: Callable[[Hashable, str, int], None],
        devices: Iterable[str] = ("cuda",),
        make: Callable[..., Ring[Any]] = Ring,
    ) -> None:
        self._say_once = say_once
        self._devices = frozenset(devices)
        self._make = make
        self._rings: dict[torch.device, DeviceRing | None] = {}
        self.stalls = 0
        """How often a device was waited for because its ring was full."""
        self.stalled_ns = 0
        """How long, in nanoseconds."""

    def of(self, tensor: Tensor) -> DeviceRing | None:
        """Return the ring into which a tensor goes, None where its record is made at once."""
        device = tensor.device
        try:
            return self._rings[device]
        except KeyError:
            ring = self._new(device) if device.type in self._devices else None
            return self._rings.setdefault(device, ring)

    def _new(self, device: torch.device) -> DeviceRing:
        def make() -> Ring[list[Asked]]:
            choice = choose_writer(device)
            if device.type == "cuda":
                told = f"Statistics of tensors on {device} are made by {choice.told}."
                self._say_once(("made by", device), told, logging.INFO)
                trace_events.made_by(device, choice.told)
            return self._make(
                device,
                writer=choice.writer,
                on_stall=lambda ns: self._stalled(device, ns),
                stalled=trace_events.RING_STALL,
                on_capture=self._captured,
            )

        return DeviceRing(device, make, self._captured, self._interrupted)

    def _stalled(self, device: torch.device, waited_ns: int) -> None:
        self.stalls += 1
        self.stalled_ns += waited_ns
        self._say_once(
            ("stall", device),
            f"The statistics of several steps were under way on {device}, and the oldest were "
            f"waited for, {waited_ns / 1e6:.1f} ms. This is told once; the trace has each time.",
            logging.WARNING,
        )

    def _captured(self) -> None:
        self._say_once(
            "capture",
            "A CUDA graph is being captured: tensors in it have no statistics.",
            logging.WARNING,
        )

    def send(self) -> None:
        """Send what was asked for since the last call on its way to the host."""
        for ring in self._present():
            ring.send()

    def receive(self, *, wait: bool = False) -> None:
        """Take in what has come; or send the rest and wait for all that is under way."""
        if wait:
            self.send()
        for ring in self._present():
            ring.receive(wait=wait)

    def receive_sent(self) -> None:
        """Wait for all that is under way, and not for what was asked for since the last `send`."""
        for ring in self._present():
            ring.receive(wait=True)

    @property
    def busy(self) -> bool:
        """Whether records are asked for that have not come."""
        return any(ring.busy for ring in self._present())

    def _present(self) -> list[DeviceRing]:
        return [ring for ring in list(self._rings.values()) if ring is not None]

    def _interrupted(self) -> None:
        self._say_once(
            "interrupted",
            "The handler of a signal asked for statistics while its thread made others: those that "
            "it asked for are left out, which is told once.",
            logging.WARNING,
        )


# Weights, which are all asked for when the first of a step is seen


class _Version(NamedTuple):
    address: int
    elements: int
    dtype: torch.dtype
    changes: int


def _version_of(elements: Tensor) -> _Version | None:
    if elements.is_inference():
        return None
    return _Version(elements.data_ptr(), elements.numel(), elements.dtype, elements._version)


class WeightsAhead:
    """Has the records of all weights that are due made together."""

    # Kernels over many small weights cost less than their launches. Nothing is told of a weight
    # whose layer does not run; one that is another, or has changed, when it does is looked at anew,
    # and by itself from then on: such are those that sharded training puts together for each use.

    def __init__(self) -> None:
        self._weights: list[DueWeight] = []
        self._begun: set[DeviceRing] = set()
        self._asked: dict[DueWeight, tuple[_Version, Asked]] = {}
        self._lock = threading.RLock()  # a signal's handler may run the model, too

    def weight(self, find: Callable[[], object], due: Callable[[], bool]) -> DueWeight:
        """Take in a weight."""
        # To find it must change nothing.
        weight = DueWeight(self, find, due)
        self._weights.append(weight)
        return weight

    def remove(self, weight: DueWeight) -> None:
        """Let go of a weight."""
        self._weights.remove(weight)
        self._asked.pop(weight, None)

    def of(self, weight: DueWeight, ring: DeviceRing, elements: Tensor) -> Asked | None:
        """Return the record that was asked for before, None where one has to be made now."""
        version = _version_of(elements)
        if version is None or not weight.stays:
            return None
        with self._lock:
            if ring not in self._begun:
                self._begun.add(ring)
                self._ask(ring, elements.device)
            before, asked = self._asked.pop(weight, (None, None))
        if before is not None:
            weight.stays = before == version
        return asked if weight.stays else None

    def _ask(self, ring: DeviceRing, device: torch.device) -> None:
        found: list[tuple[DueWeight, _Version, Tensor]] = []
        for weight in self._weights:
            if not (weight.stays and weight.due()):
                continue
            tensor = weight.find()
            if not isinstance(tensor, Tensor) or tensor.device != device:
                continue
            try:
                elements = elements_of(tensor)
            except InspectTypeError:
                continue  # it may have elements when its layer runs, which is told otherwise
            version = None if elements is None else _version_of(elements)
            if elements is not None and version is not None:
                found.append((weight, version, elements))
        if len(found) < 2:
            return
        everyone = ring.add_all([elements for _, _, elements in found])
        for (weight, version, _), asked in zip(found, everyone or (), strict=False):
            self._asked[weight] = version, asked

    def end_step(self) -> None:
        """Forget what was asked for and not looked at."""
        with self._lock:
            self._begun.clear()
            self._asked.clear()


class DueWeight:
    """A weight that may be looked at before its layer runs; see `WeightsAhead.weight`."""

    def __init__(
        self, ahead: WeightsAhead, find: Callable[[], object], due: Callable[[], bool]
    ) -> None:
        self._ahead = ahead
        self.find = find
        self.due = due
        self.stays = True
        """Whether it was the same up to now when its layer ran."""

    def asked(self, ring: DeviceRing, elements: Tensor) -> Asked | None:
        """Return the record that was asked for before, None where one has to be made now."""
        return self._ahead.of(self, ring, elements)
