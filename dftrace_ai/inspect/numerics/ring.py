"""Records of tensors on a GPU: written there, and brought to the host a step later.

Nothing waits for the GPU. Two kernels of Triton's write them, or torch's own operations.
Apart from `collecting`, which knows layers and steps: here are tensors alone.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from contextlib import nullcontext
from ctypes import c_float
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from dftrace_ai.inspect.numerics import fp8, plain
from dftrace_ai.inspect.numerics.memory import in_memory_order, local_part
from dftrace_ai.inspect.numerics.plain import ROW_FIELDS, VALUES, check_values, values_of_row
from dftrace_ai.inspect.numerics.record import record_of
from dftrace_ai.wording import ToldOnce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import ModuleType

    from dftrace_ai.inspect.numerics.formats import Format
    from dftrace_ai.inspect.numerics.record import Record

Tag = TypeVar("Tag")

GENERATIONS = 8
SLOTS = 256

# With 8 warps, larger ones need so many registers that one program fits a processor.
BLOCK = 2048
WARPS = 8
PROGRAMS_A_PROCESSOR = 4
TABLES = 16
"""So many tables stay on the device: tensors that do not move need none anew."""
# By the names that Triton has for them.
_READ_AS_THEY_ARE = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.float64: "float64",
}
_ALIGNED = 16  # bytes of an address, and what Triton looks for in whole numbers
_OTHER_BOUND = 8  # which older versions look for, too

Key = tuple[object, ...]

# What torch's own compiled code asks; a torch without CUDA has neither.
_ask_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)


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


def has_triton() -> bool:
    """Return whether Triton can be imported."""
    return find_spec("triton") is not None


class Launcher:
    """A kernel on one device."""

    # Triton compiles a kernel anew where an address is aligned, a whole number is 1, can be divided
    # by 16 or needs 64 bits, and looks at each argument in each launch to find out. What it has
    # compiled can be launched without that, in half the time of the host. The kernel's constants
    # stand behind all other arguments.

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._compiled: dict[Key, Any] = {}
        self._is_direct = True

    def __call__(
        self, programs: int, given: tuple[Any, ...], constants: Mapping[str, int], *, warps: int
    ) -> None:
        """Launch the kernel on the current stream of the current device, which is the kernel's."""
        key = (*map(_kind, given), *constants.values(), warps)
        compiled = self._compiled.get(key)
        if compiled is not None:
            compiled[(programs, 1, 1)](*given, *constants.values())
            return
        compiled = self._kernel[(programs,)](*given, **constants, num_warps=warps)
        if compiled is None or not self._is_direct:
            return
        try:
            # Once more, with the same result: whether this version takes the arguments so.
            compiled[(programs, 1, 1)](*given, *constants.values())
        except TypeError:
            self._is_direct = False
        else:
            self._compiled[key] = compiled


def _kind(argument: object) -> object:
    """Return all that Triton may ask of an argument before it takes what it has compiled."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % _ALIGNED == 0
    if isinstance(argument, int):
        if argument == 1:
            return 1
        return argument % _ALIGNED == 0, argument % _OTHER_BOUND == 0, argument.bit_length() > 31
    return float


def raw_stream(device: torch.device) -> int:
    """Return the address of a CUDA device's current stream."""
    if _ask_stream is None:
        stream: Any = torch.cuda.current_stream(device)
        return int(stream.cuda_stream)
    index = torch.cuda.current_device() if device.index is None else device.index
    return _ask_stream(index)


class _Table(NamedTuple):
    """Tensors of one format; the kernels find them by it."""

    # On the device, five numbers a tensor: address, count, first row, number of rows, place of the
    # row of the whole.
    entries: Tensor
    owners: Tensor  # on the device, the tensor of each program
    most: int  # rows of one tensor


class TritonPass:
    """Both kernels, with the memory that lies between them."""

    # Kernels run on the current stream. Each stream has rows of its own, so that a backward pass on
    # another stream does not write over those of the forward pass.

    def __init__(self, device: torch.device, kernels: ModuleType | None = None) -> None:
        if kernels is None:
            from dftrace_ai.inspect.numerics import triton_kernels

            kernels = triton_kernels
        self._kernels: Any = kernels
        self._launch_parts = Launcher(self._kernels.partial_rows)
        self._launch_whole = Launcher(self._kernels.finish_row)
        self._launch_values = Launcher(self._kernels.write_values)
        self._device = device
        processors = 2
        if device.type == "cuda":
            processors = torch.cuda.get_device_properties(device).multi_processor_count
        self._most_programs = PROGRAMS_A_PROCESSOR * processors
        self._rows: dict[int, Tensor] = {}
        self._tables: dict[tuple[int, tuple[tuple[int, int, int], ...]], _Table] = {}

    def write_row(
        self,
        tensor: Tensor,
        row: Tensor,
        *,
        scale: float | Tensor | None = None,
        format: Format | None = None,
    ) -> None:
        """Have the tensor's record written to `row`."""
        # The tensor is real, with an element, and on the device of this pass; the row is 17
        # contiguous fp64 numbers there, see `record.FIELDS`. A scale with one element stays there;
        # nothing waits for it.
        with self._current():
            self._launch(tensor, row, scale, format, self._rows_of(self._stream()))

    def _current(self) -> AbstractContextManager[object]:
        """Make this device the current one, which nearly always it is."""
        index = self._device.index
        if self._device.type != "cuda" or index in (None, torch.cuda.current_device()):
            return nullcontext()
        return torch.cuda.device(self._device)

    def _stream(self) -> int:
        return raw_stream(self._device) if self._device.type == "cuda" else 0

    def values_of(self, row: Tensor, stats: Sequence[str]) -> dict[str, Tensor]:
        """Return the statistics of a record as `values_of_row` does, by one launch."""
        check_values(stats)
        values = torch.empty(len(VALUES), dtype=torch.float32, device=self._device)
        with self._current():
            self._launch_values(1, (row, values), {}, warps=1)
        found = dict(zip(VALUES, values.unbind(), strict=True))
        return {stat: found[stat] for stat in stats}

    def write_rows(self, tensors: Sequence[Tensor], rows: Tensor) -> None:
        """Have the records of many tensors written, with two launches for each of their formats."""
        # What is launched costs the host about as much for one small tensor as for a hundred. They
        # are contiguous, of shape (number of tensors, 17).
        with self._current():
            self._launch_many(tensors, rows, self._stream())

    def _launch_many(self, tensors: Sequence[Tensor], rows: Tensor, stream: int) -> None:
        alike: dict[tuple[torch.dtype, bool], list[tuple[int, Tensor]]] = defaultdict(list)
        for place, tensor in enumerate(tensors):
            x = in_memory_order(local_part(tensor))
            aligned = x.data_ptr() % _ALIGNED == 0 and x.numel() % _ALIGNED == 0
            alike[x.dtype, aligned].append((place, x))
        for (dtype, aligned), placed in alike.items():
            if dtype in _READ_AS_THEY_ARE and len(placed) > 1:
                self._launch_table(dtype, placed, rows, stream, aligned=aligned)
            else:
                for place, x in placed:
                    self._launch(x, rows[place], None, None, self._rows_of(stream))

    def _launch_table(
        self,
        dtype: torch.dtype,
        placed: Sequence[tuple[int, Tensor]],
        rows: Tensor,
        stream: int,
        *,
        aligned: bool,
    ) -> None:
        tensors = tuple((x.data_ptr(), x.numel(), place) for place, x in placed)
        table = self._table_of(stream, tensors)
        programs = len(table.owners)
        parts = self._rows_of(stream, programs)
        language = self._kernels.tl
        self._kernels.partial_table[(programs,)](
            *(table.entries, table.owners, parts),
            BLOCK=BLOCK,
            WIDE=dtype is torch.float64,
            ELEMENT=getattr(language, _READ_AS_THEY_ARE[dtype]),
            ALIGNED=aligned,
            num_warps=WARPS,
        )
        self._kernels.finish_table[(len(placed),)](
            *(table.entries, parts, rows), PADDED=_padded(table.most), num_warps=WARPS
        )

    def _table_of(self, stream: int, tensors: tuple[tuple[int, int, int], ...]) -> _Table:
        key = stream, tensors
        table = self._tables.pop(key, None)
        if table is None:
            table = self._new_table(tensors)
        # The one that was used last is the last to go.
        self._tables[key] = table
        if len(self._tables) > TABLES:
            del self._tables[next(iter(self._tables))]
        return table

    def _new_table(self, tensors: Iterable[tuple[int, int, int]]) -> _Table:
        """Share the programs out by size, as even as whole tiles allow."""
        blocks = [-(-count // BLOCK) for _, count, _ in tensors]
        tiles = -(-sum(blocks) // self._most_programs)
        programs = [-(-one // tiles) for one in blocks]
        entries: list[int] = []
        owners: list[int] = []
        for index, (address, count, place) in enumerate(tensors):
            entries += (address, count, len(owners), programs[index], place)
            owners += [index] * programs[index]
        return _Table(self._sent(entries), self._sent(owners), max(programs))

    def _sent(self, numbers: list[int]) -> Tensor:
        here = torch.tensor(numbers, dtype=torch.int64, device="cpu")
        if self._device.type != "cuda":
            return here
        # The allocator of pinned memory keeps it until the copy has been made.
        return here.pin_memory().to(self._device, non_blocking=True)

    def _rows_of(self, stream: int, programs: int = 0) -> Tensor:
        rows = self._rows.get(stream)
        if rows is None or len(rows) < programs:
            shape = (max(self._most_programs, programs), ROW_FIELDS)
            rows = torch.empty(shape, dtype=torch.float64, device=self._device)
            self._rows[stream] = rows
        return rows

    def _launch(
        self,
        tensor: Tensor,
        row: Tensor,
        scale: float | Tensor | None,
        format: Format | None,
        rows: Tensor,
    ) -> None:
        x = in_memory_order(local_part(tensor))
        if x.dtype not in _READ_AS_THEY_ARE:
            x = x.to(torch.float32)
        under = over = factor = 0.0
        limits, kind = rows, 0
        if isinstance(scale, Tensor) and format is not None:
            limits, kind = limits_on_device(scale, format, self._device), 2
        elif isinstance(scale, (int, float)) and format is not None:
            under, over = fp8.thresholds(scale, format)
            factor, kind = c_float(scale).value, 1
        count = x.numel()
        blocks = -(-count // BLOCK)
        programs = min(blocks, self._most_programs)
        tiles = -(-blocks // programs)
        wide = x.dtype is torch.float64
        parts = (x, rows, limits, under, over, count, tiles)
        constants = {"BLOCK": BLOCK, "WIDE": wide, "LIMITS": kind}
        self._launch_parts(programs, parts, constants, warps=WARPS)
        whole = (rows, row, limits, factor, programs)
        constants = {"PADDED": _padded(programs), "LIMITS": kind}
        self._launch_whole(1, whole, constants, warps=WARPS)


def _padded(programs: int) -> int:
    return 1 << (programs - 1).bit_length()


def limits_on_device(scale: Tensor, format: Format, device: torch.device) -> Tensor:
    """Return both thresholds and the scale, as three fp32 numbers that the host never sees."""
    factor = scale.detach().reshape(()).to(device=device, dtype=torch.float32)
    under, over = plain.thresholds_of(factor, format)
    return torch.stack([under, over, factor])


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
        writer: TritonPass | _TorchWriter | None = None,
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
