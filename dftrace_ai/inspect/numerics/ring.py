"""Records of tensors on a GPU, brought to the host a step later, without waiting for the GPU."""

from __future__ import annotations

import time
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.memory import local_part
from dftrace_ai.inspect.numerics.plain import ROW_FIELDS, values_of_row
from dftrace_ai.inspect.numerics.record import record_of
from dftrace_ai.inspect.numerics.triton_pass import TritonPass, has_triton, raw_stream
from dftrace_ai.wording import ToldOnce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from dftrace_ai.inspect.numerics.formats import Format
    from dftrace_ai.inspect.numerics.record import Record

Tag = TypeVar("Tag")

GENERATIONS = 8
SLOTS = 256


class RowWriter(Protocol):
    """Whatever writes a tensor's record to a row on its device; `TritonPass` does."""

    def write_row(
        self,
        tensor: Tensor,
        row: Tensor,
        *,
        scale: float | Tensor | None = None,
        format: Format | None = None,
    ) -> None:
        """Have the tensor's record written to `row`."""

    def write_rows(self, tensors: Sequence[Tensor], rows: Tensor) -> None:
        """Have the records of tensors written to as many rows that lie one after the other."""

    def values_of(self, row: Tensor, stats: Sequence[str]) -> dict[str, Tensor]:
        """Return the statistics of a record that was written; see `values_of_row`."""


class Arrival(Protocol):
    """A copy to the host that is under way; an event of CUDA's behind it is one."""

    def query(self) -> bool:
        """Return whether all of it is there."""

    def synchronize(self) -> None:
        """Return when all of it is there."""


class _TorchWriter:
    """Torch's own operations, where there is no Triton."""

    def write_row(
        self,
        tensor: Tensor,
        row: Tensor,
        *,
        scale: float | Tensor | None = None,
        format: Format | None = None,
    ) -> None:
        row.copy_(plain.row_of(local_part(tensor), scale=scale, format=format))

    def write_rows(self, tensors: Sequence[Tensor], rows: Tensor) -> None:
        for tensor, row in zip(tensors, rows, strict=True):
            self.write_row(tensor, row)

    def values_of(self, row: Tensor, stats: Sequence[str]) -> dict[str, Tensor]:
        return values_of_row(row, stats)


class _SideStream:
    """Copies of a CUDA device's rows on a stream of their own, after those that wrote them."""

    def __init__(self, device: torch.device) -> None:
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copy(self, rows: Tensor, to: Tensor, writers: Iterable[Any]) -> Arrival:
        for writer in writers:
            self._stream.wait_event(writer.record_event())
        with torch.cuda.stream(self._stream):
            to.copy_(rows, non_blocking=True)
            event: Arrival = self._stream.record_event()
            return event


@dataclass(frozen=True)
class Landed(Generic[Tag]):
    """The records of one generation."""

    tag: Tag  # what `end_generation` was given
    records: list[Record]  # one for each `add`, in their order


@dataclass
class _Block:
    rows: Tensor
    on_host: Tensor


@dataclass
class _Generation(Generic[Tag]):
    blocks: list[_Block]
    used: int = 0
    tag: Tag | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    writers: dict[int, Any] = field(default_factory=dict)


def _has_come(generation: _Generation[Any]) -> bool:
    return all(arrival.query() for arrival in generation.arrivals)


def _wait_for(generation: _Generation[Any]) -> None:
    for arrival in generation.arrivals:
        arrival.synchronize()


class Ring(Generic[Tag]):
    """Rows for several steps: while the GPU fills those of one, those of earlier ones travel."""

    # Nothing waits for the device but `drain`, and `end_generation` when all generations are under
    # way. Nothing is written while the stream is being captured into a CUDA graph. `slots` are
    # records that a step is expected to have, more get more memory; `generations` are steps that
    # may be under way. `on_stall` is told how many nanoseconds were waited for a full ring.

    def __init__(
        self,
        device: torch.device,
        *,
        slots: int = SLOTS,
        generations: int = GENERATIONS,
        on_stall: Callable[[int], None] | None = None,
        stalled: AbstractContextManager[object] | None = None,
        on_capture: Callable[[], None] | None = None,
        writer: RowWriter | None = None,
        copy: Callable[[Tensor, Tensor], Arrival] | None = None,
    ) -> None:
        self._device = device
        self._slots = slots
        self._on_stall = on_stall
        self._stalled = nullcontext() if stalled is None else stalled
        self._on_capture = on_capture
        self._told_of_capture = ToldOnce()
        self._side = _SideStream(device) if device.type == "cuda" and copy is None else None
        self._copy = copy
        if writer is None:
            triton = device.type == "cuda" and has_triton()
            writer = TritonPass(device) if triton else _TorchWriter()
        self._writer = writer
        self._free: deque[_Generation[Tag]] = deque(
            _Generation([self._new_block()]) for _ in range(generations)
        )
        self._filling = self._free.popleft()
        self._travelling: deque[_Generation[Tag]] = deque()
        self._waited_for: list[Landed[Tag]] = []

    def _new_block(self) -> _Block:
        shape = (self._slots, ROW_FIELDS)
        pinned = self._device.type == "cuda"
        # Tensors that are made in inference mode cannot be written to outside of it.
        with torch.inference_mode(mode=False):
            return _Block(
                torch.empty(shape, dtype=torch.float64, device=self._device),
                torch.empty(shape, dtype=torch.float64, device="cpu", pin_memory=pinned),
            )

    def add(
        self,
        tensor: Tensor,
        *,
        scale: float | Tensor | None = None,
        format: Format | None = None,
    ) -> int | None:
        """Have a tensor's record made on its device."""
        # The tensor is real and has an element; a scale with one element stays on the device.
        # Returned is the place of its record in `Landed.records`, or None while a CUDA graph is
        # captured.
        if not self._may_write():
            return None
        place = self._filling.used
        self._writer.write_row(tensor, self.row(place), scale=scale, format=format)
        self._filling.used += 1
        return place

    def add_all(self, tensors: Sequence[Tensor]) -> range | None:
        """Have the records of tensors made together, which costs little more than that of one."""
        if not self._may_write():
            return None
        filling = self._filling
        first = filling.used
        left = tensors
        while left:
            slot = filling.used % self._slots
            part, left = left[: self._slots - slot], left[self._slots - slot :]
            self.row(filling.used)  # makes memory for it
            rows = filling.blocks[filling.used // self._slots].rows
            self._writer.write_rows(part, rows[slot : slot + len(part)])
            filling.used += len(part)
        return range(first, filling.used)

    def add_row(self, row: Tensor) -> int | None:
        """Take in a record that was made on the device in another way."""
        # It is 17 numbers; see `record.FIELDS`.
        if not self._may_write():
            return None
        place = self._filling.used
        self.row(place).copy_(row)
        self._filling.used += 1
        return place

    def row(self, place: int) -> Tensor:
        """Return where a record lies on the device; it is written over some generations later."""
        block, slot = divmod(place, self._slots)
        if block == len(self._filling.blocks):
            self._filling.blocks.append(self._new_block())
        return self._filling.blocks[block].rows[slot]

    def values_of(self, row: Tensor, stats: Sequence[str]) -> dict[str, Tensor]:
        """Return statistics of a record on the device, which nothing waits for."""
        return self._writer.values_of(row, stats)

    def _may_write(self) -> bool:
        """Note that the current stream writes, unless it is being captured."""
        if self._device.type != "cuda":
            return True
        if torch.cuda.is_current_stream_capturing():
            if self._told_of_capture.first() and self._on_capture is not None:
                self._on_capture()
            return False
        stream = raw_stream(self._device)
        if stream not in self._filling.writers:
            self._filling.writers[stream] = torch.cuda.current_stream(self._device)
        return True

    def end_generation(self, tag: Tag) -> None:
        """Send the records added since the last call on their way to the host."""
        # Waits where all generations are under way, and reports that.
        generation = self._filling
        if not generation.used:
            return
        generation.tag = tag
        left = generation.used
        for block in generation.blocks:
            part = min(left, self._slots)
            if part <= 0:
                break
            rows, on_host = block.rows[:part], block.on_host[:part]
            if self._copy is not None:
                generation.arrivals.append(self._copy(rows, on_host))
            elif self._side is not None:
                writers = generation.writers.values()
                generation.arrivals.append(self._side.copy(rows, on_host, writers))
            else:
                on_host.copy_(rows)
            left -= part
        self._travelling.append(generation)
        if not self._free:
            oldest = self._travelling.popleft()
            if not _has_come(oldest):
                self._stall(oldest)
            self._waited_for.append(self._taken(oldest))
        self._filling = self._free.popleft()

    def _stall(self, generation: _Generation[Tag]) -> None:
        begun = time.perf_counter_ns()
        with self._stalled:
            _wait_for(generation)
        if self._on_stall is not None:
            self._on_stall(time.perf_counter_ns() - begun)

    def _taken(self, generation: _Generation[Tag]) -> Landed[Tag]:
        """Read a generation that has come, and make it free again."""
        records: list[Record] = []
        for block in generation.blocks:
            part = min(generation.used - len(records), self._slots)
            records += map(record_of, block.on_host[:part].tolist())
        tag = generation.tag
        self._free.append(_Generation(generation.blocks))
        return Landed(tag, records)  # type: ignore[arg-type]  # the tag is set when it is sent

    def landed(self) -> list[Landed[Tag]]:
        """Return the generations whose records have come, the oldest first; each once."""
        found, self._waited_for = self._waited_for, []
        while self._travelling and _has_come(self._travelling[0]):
            found.append(self._taken(self._travelling.popleft()))
        return found

    def drain(self) -> list[Landed[Tag]]:
        """Wait for all generations that are under way and return them, the oldest first."""
        found, self._waited_for = self._waited_for, []
        while self._travelling:
            _wait_for(self._travelling[0])
            found.append(self._taken(self._travelling.popleft()))
        return found
