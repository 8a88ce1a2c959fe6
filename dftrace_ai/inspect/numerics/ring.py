"""Records of tensors on a GPU: written there, and brought to the host a step later.

Nothing waits for the GPU. What writes them is chosen in `writers`. Apart from `collecting`,
which knows layers and steps: here are tensors alone.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from dftrace_ai.inspect.numerics.plain import ROW_FIELDS
from dftrace_ai.inspect.numerics.record import record_of
from dftrace_ai.inspect.numerics.writers import CudaPass, choose_writer, current_stream
from dftrace_ai.wording import ToldOnce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from dftrace_ai.inspect.numerics.formats import Format
    from dftrace_ai.inspect.numerics.record import Record
    from dftrace_ai.inspect.numerics.writers import RowWriter

Tag = TypeVar("Tag")

GENERATIONS = 8
SLOTS = 256

ROW_BYTES = 8 * ROW_FIELDS


class Arrival(Protocol):
    """A copy to the host that is under way; an event of CUDA's behind it is one."""

    def query(self) -> bool:
        """Return whether all of it is there."""

    def synchronize(self) -> None:
        """Return when all of it is there."""


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
    address: int  # of the rows, where they are written by it


@dataclass(eq=False)
class Generation(Generic[Tag]):
    """The records of a step, or of whatever lies between two calls of `end_generation`."""

    blocks: list[_Block]
    used: int = 0
    tag: Tag | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    writers: dict[int, Any] = field(default_factory=dict)


class Kept(Protocol):
    """A record on its device, until its generation has come and the ring comes round."""

    generation: Generation[Any]
    place: int
    stream: int  # that writes it


def _has_come(generation: Generation[Any]) -> bool:
    return all(arrival.query() for arrival in generation.arrivals)


def _wait_for(generation: Generation[Any]) -> None:
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
        self._writer = writer = writer or choose_writer(device).writer
        self._direct = writer if isinstance(writer, CudaPass) else None
        self.takes = None if self._direct is None else self._direct.holds_plain
        """Tells whether a tensor is taken as it is, without a look at what it has here."""
        self._current_stream = current_stream(device)
        self._free: deque[Generation[Tag]] = deque(
            Generation([self._new_block()]) for _ in range(generations)
        )
        self.filling = self._free.popleft()
        """The generation to which records are added."""
        self.stream = 0
        """The stream that writes the last one that was added."""
        self._travelling: deque[Generation[Tag]] = deque()
        self._waited_for: list[Landed[Tag]] = []

    def _new_block(self) -> _Block:
        shape = (self._slots, ROW_FIELDS)
        pinned = self._device.type == "cuda"
        # Tensors that are made in inference mode cannot be written to outside of it.
        with torch.inference_mode(mode=False):
            rows = torch.empty(shape, dtype=torch.float64, device=self._device)
            on_host = torch.empty(shape, dtype=torch.float64, device="cpu", pin_memory=pinned)
        return _Block(rows, on_host, 0 if self._direct is None else rows.data_ptr())

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
        if scale is None and self._direct is not None:
            written = self._add_directly(self._direct, tensor)
            if written is not False:
                return written
        if not self._may_write():
            return None
        place = self.filling.used
        self._writer.write_row(tensor, self.row(place), scale=scale, format=format)
        self.filling.used += 1
        return place

    def _add_directly(self, writer: CudaPass, tensor: Tensor) -> int | Literal[False] | None:
        """Do what `add` does for a tensor that is taken as it is; False for any other."""
        filling = self.filling
        place = filling.used
        block, slot = divmod(place, self._slots)
        if block == len(filling.blocks):
            return False  # memory has to be made for it
        self.stream = stream = self._current_stream()
        address = filling.blocks[block].address + slot * ROW_BYTES
        written = writer.write_at(tensor, address, stream)
        if written is None:
            self._is_captured()
            return None
        if not written:
            return False
        if stream not in filling.writers and self._device.type == "cuda":
            filling.writers[stream] = torch.cuda.current_stream(self._device)
        filling.used = place + 1
        return place

    def add_all(self, tensors: Sequence[Tensor]) -> range | None:
        """Have the records of tensors made together, which costs little more than that of one."""
        if not self._may_write():
            return None
        filling = self.filling
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
        place = self.filling.used
        self.row(place).copy_(row)
        self.filling.used += 1
        return place

    def row(self, place: int) -> Tensor:
        """Return where a record lies on the device; it is written over some generations later."""
        block, slot = divmod(place, self._slots)
        if block == len(self.filling.blocks):
            self.filling.blocks.append(self._new_block())
        return self.filling.blocks[block].rows[slot]

    def row_in(self, generation: Generation[Tag], place: int) -> Tensor:
        """Return where a record of a generation lies."""
        block, slot = divmod(place, self._slots)
        return generation.blocks[block].rows[slot]

    def values_of(self, kept: Kept, stats: Sequence[str]) -> dict[str, Tensor]:
        """Return statistics of a record on the device, which nothing waits for."""
        if self._device.type != "cuda":
            return self._writer.values_of(self.row_in(kept.generation, kept.place), stats)
        stream: Any = torch.cuda.current_stream(self._device)
        generation = kept.generation
        writer = generation.writers.get(kept.stream)
        if writer is not None and writer != stream:
            stream.wait_stream(writer)
        values = self._writer.values_of(self.row_in(generation, kept.place), stats)
        if generation is self.filling:
            generation.writers.setdefault(stream.cuda_stream, stream)
        elif generation in self._travelling:
            # Not before they have been read is the row written over.
            generation.arrivals.append(stream.record_event())
        return values

    def _is_captured(self) -> None:
        if self._told_of_capture.first() and self._on_capture is not None:
            self._on_capture()

    def _may_write(self) -> bool:
        """Note that the current stream writes, unless it is being captured."""
        if self._device.type != "cuda":
            return True
        if torch.cuda.is_current_stream_capturing():
            self._is_captured()
            return False
        self.stream = stream = self._current_stream()
        if stream not in self.filling.writers:
            self.filling.writers[stream] = torch.cuda.current_stream(self._device)
        return True

    def end_generation(self, tag: Tag) -> None:
        """Send the records added since the last call on their way to the host."""
        # Waits where all generations are under way, and reports that.
        generation = self.filling
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
        self.filling = self._free.popleft()

    def _stall(self, generation: Generation[Tag]) -> None:
        begun = time.perf_counter_ns()
        with self._stalled:
            _wait_for(generation)
        if self._on_stall is not None:
            self._on_stall(time.perf_counter_ns() - begun)

    def _taken(self, generation: Generation[Tag]) -> Landed[Tag]:
        """Read a generation that has come, and make it free again."""
        records: list[Record] = []
        for block in generation.blocks:
            part = min(generation.used - len(records), self._slots)
            records += map(record_of, block.on_host[:part].tolist())
        tag = generation.tag
        self._free.append(Generation(generation.blocks))
        return Landed(tag, records)  # type: ignore[arg-type]  # the tag is set when it is sent

    def waited_for(self) -> list[Landed[Tag]]:
        """Return the generations that `end_generation` has waited for; each once."""
        found, self._waited_for = self._waited_for, []
        return found

    def landed(self) -> list[Landed[Tag]]:
        """Return the generations whose records have come, the oldest first; each once."""
        found = self.waited_for()
        while self._travelling and _has_come(self._travelling[0]):
            found.append(self._taken(self._travelling.popleft()))
        return found

    def drain(self) -> list[Landed[Tag]]:
        """Wait for all generations that are under way and return them, the oldest first."""
        found = self.waited_for()
        while self._travelling:
            _wait_for(self._travelling[0])
            found.append(self._taken(self._travelling.popleft()))
        return found
