"""What makes the records of tensors on a device, and the one place that chooses it.

The native kernels on GPUs of NVIDIA's, Triton's on others, torch's own operations elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext
from ctypes import c_float
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

import dftrace_ai._native as _native
from dftrace_ai.inspect.numerics import fp8, plain
from dftrace_ai.inspect.numerics.memory import ELEMENTS, in_memory_order, local_part
from dftrace_ai.inspect.numerics.plain import ROW_FIELDS, VALUES, check_values, values_of_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import ModuleType

    from dftrace_ai.inspect.numerics.formats import Format

DRIVER = "libcuda.so.1"
TABLES = 16
"""So many tables stay on the device: tensors that do not move need none anew."""
_ON_HOST, _ON_GPU = 1, 2  # as DLPack numbers them

# What torch's own compiled code asks; a torch without CUDA has neither.
_ask_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def current_stream(device: torch.device) -> Callable[[], int]:
    """Return what tells the address of a device's current stream; 0 for a device that has none."""
    if device.type != "cuda":
        return int
    index = torch.cuda.current_device() if device.index is None else device.index
    if _ask_stream is not None:
        return partial(_ask_stream, index)

    def ask() -> int:
        stream: Any = torch.cuda.current_stream(device)
        return int(stream.cuda_stream)

    return ask


class _Table(NamedTuple):
    """Where tensors of one format lie, as the kernels find them, and room for one launch."""

    entries: Tensor
    scratch: Tensor
    blocks: int


class CudaPass:
    """The native kernels on one device; RuntimeError where its driver does not take them."""

    # Each stream has memory of its own between the blocks of a launch, so that a backward pass on
    # another stream does not write over that of the forward pass.

    def __init__(self, device: torch.device, driver: str = DRIVER) -> None:
        self._device = device
        self._current_stream = current_stream(device)
        with _current(device):
            kind = _ON_GPU if device.type == "cuda" else _ON_HOST
            # A thread has a context of the driver's when it has used the device.
            torch.empty(1, device=device)
            self._kernels = _native.GpuStatistics(driver, kind)
        self.holds_plain = self._kernels.holds_plain
        """Tells whether `write_at` takes a tensor as it is, and its memory is there."""
        self._write_tensor = self._kernels.write_tensor
        self._scratch: dict[int, tuple[int, Tensor]] = {}
        self._tables: dict[tuple[int, tuple[tuple[int, int, int], ...]], _Table] = {}

    def write_at(self, tensor: Tensor, address: int, stream: int) -> bool | None:
        """Have the record of a tensor written to an address, on the current stream."""
        # False for a tensor that is not as `holds_plain` wants it, None while the stream is
        # captured: nothing is written then.
        found = self._scratch.get(stream)
        scratch = found[0] if found is not None else self._new_scratch(stream)
        return self._write_tensor(tensor, address, scratch, stream)

    def _new_scratch(self, stream: int) -> int:
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return 0  # nothing is launched
        made = self._zeros(self._kernels.scratch_bytes())
        self._scratch[stream] = made.data_ptr(), made
        return made.data_ptr()

    def _zeros(self, count: int) -> Tensor:
        with torch.inference_mode(mode=False):
            return torch.zeros(count, dtype=torch.uint8, device=self._device)

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
        stream = self._current_stream()
        address = row.data_ptr()
        if scale is None and self.write_at(tensor, address, stream):
            return
        x = _readable(tensor)
        code, factor, at = -1, 1.0, 0
        if scale is not None and format is not None:
            code = format.code
            if isinstance(scale, Tensor):
                scale = scale.detach().reshape(()).to(device=self._device, dtype=torch.float32)
                at = scale.data_ptr()
            else:
                factor = scale
        found = self._scratch.get(stream)
        scratch = found[0] if found is not None else self._new_scratch(stream)
        place = (x.data_ptr(), x.numel(), ELEMENTS[x.dtype], address, scratch, stream)
        _launched(self._kernels.write_stretch(*place, code, factor, at))

    def values_of(self, row: Tensor, stats: Sequence[str]) -> dict[str, Tensor]:
        """Return the statistics of a record as `values_of_row` does, by one launch."""
        check_values(stats)
        values = torch.empty(len(VALUES), dtype=torch.float32, device=self._device)
        stream = self._current_stream()
        _launched(self._kernels.write_values(row.data_ptr(), values.data_ptr(), stream))
        return {stat: values[VALUES.index(stat)] for stat in stats}

    def write_rows(self, tensors: Sequence[Tensor], rows: Tensor) -> None:
        """Have the records of many tensors written, with one launch for each of their formats."""
        # The rows are contiguous, of shape (number of tensors, 17).
        stream = self._current_stream()
        alike: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        held: list[Tensor] = []  # until all has been launched
        for place, tensor in enumerate(tensors):
            found = self._kernels.stretch_of(tensor)
            if found is None:
                x = _readable(tensor)
                held.append(x)
                found = x.data_ptr(), x.numel(), ELEMENTS[x.dtype]
            alike[found[2]].append((*found[:2], place))
        for element, stretches in alike.items():
            table = self._table_of(stream, element, tuple(stretches))
            where = (table.entries.data_ptr(), len(stretches), table.blocks)
            at = (rows.data_ptr(), table.scratch.data_ptr(), stream)
            _launched(self._kernels.write_rows(element, *where, *at))

    def _table_of(
        self, stream: int, element: int, stretches: tuple[tuple[int, int, int], ...]
    ) -> _Table:
        key = stream, ((element, 0, 0), *stretches)
        table = self._tables.pop(key, None)
        if table is None:
            made, blocks = self._kernels.table(element, list(stretches))
            scratch = self._zeros(self._kernels.scratch_bytes(len(stretches), blocks))
            table = _Table(self._sent(made), scratch, blocks)
        # The one that was used last is the last to go.
        self._tables[key] = table
        if len(self._tables) > TABLES:
            del self._tables[next(iter(self._tables))]
        return table

    def _sent(self, made: bytes) -> Tensor:
        here = torch.frombuffer(bytearray(made), dtype=torch.uint8)
        if self._device.type != "cuda":
            return here
        # The allocator of pinned memory keeps it until the copy has been made.
        return here.pin_memory().to(self._device, non_blocking=True)


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Make a device the current one: its context is that of the thread."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _readable(tensor: Tensor) -> Tensor:
    """Return elements as the kernels read them."""
    x = in_memory_order(local_part(tensor))
    return x if x.dtype in ELEMENTS else x.to(torch.float32)


def _launched(launched: bool | None) -> None:
    if launched is None:
        raise RuntimeError("statistics are not made while a CUDA graph is captured")


# With 8 warps, larger ones need so many registers that one program fits a processor.
BLOCK = 2048
WARPS = 8
PROGRAMS_A_PROCESSOR = 4
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


class _TritonTable(NamedTuple):
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
        self._current_stream = current_stream(device)
        processors = 2
        if device.type == "cuda":
            processors = torch.cuda.get_device_properties(device).multi_processor_count
        self._most_programs = PROGRAMS_A_PROCESSOR * processors
        self._rows: dict[int, Tensor] = {}
        self._tables: dict[tuple[int, tuple[tuple[int, int, int], ...]], _TritonTable] = {}

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
            self._launch(tensor, row, scale, format, self._rows_of(self._current_stream()))

    def _current(self) -> AbstractContextManager[object]:
        """Make this device the current one, which nearly always it is."""
        index = self._device.index
        if self._device.type != "cuda" or index in (None, torch.cuda.current_device()):
            return nullcontext()
        return torch.cuda.device(self._device)

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
            self._launch_many(tensors, rows, self._current_stream())

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

    def _table_of(self, stream: int, tensors: tuple[tuple[int, int, int], ...]) -> _TritonTable:
        key = stream, tensors
        table = self._tables.pop(key, None)
        if table is None:
            table = self._new_table(tensors)
        # The one that was used last is the last to go.
        self._tables[key] = table
        if len(self._tables) > TABLES:
            del self._tables[next(iter(self._tables))]
        return table

    def _new_table(self, tensors: Iterable[tuple[int, int, int]]) -> _TritonTable:
        """Share the programs out by size, as even as whole tiles allow."""
        blocks = [-(-count // BLOCK) for _, count, _ in tensors]
        tiles = -(-sum(blocks) // self._most_programs)
        programs = [-(-one // tiles) for one in blocks]
        entries: list[int] = []
        owners: list[int] = []
        for index, (address, count, place) in enumerate(tensors):
            entries += (address, count, len(owners), programs[index], place)
            owners += [index] * programs[index]
        return _TritonTable(self._sent(entries), self._sent(owners), max(programs))

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


class RowWriter(Protocol):
    """Makes records on a device, of which nothing waits; a row is 17 contiguous fp64 numbers."""

    def write_row(
        self,
        tensor: Tensor,
        row: Tensor,
        *,
        scale: float | Tensor | None = None,
        format: Format | None = None,
    ) -> None:
        """Have the record of a tensor written to a row."""

    def write_rows(self, tensors: Sequence[Tensor], rows: Tensor) -> None:
        """Have the records of tensors written to as many rows."""

    def values_of(self, row: Tensor, stats: Sequence[str]) -> dict[str, Tensor]:
        """Return statistics of a record, as `plain.values_of_row`."""


class _TorchWriter:
    """Torch's own operations, on any device."""

    def write_row(
        self,
        tensor: Tensor,
        row: Tensor,
        *,
        scale: float | Tensor | None = None,
        format: Format | None = None,
    ) -> None:
        """Write the record of a tensor to a row."""
        row.copy_(plain.row_of(local_part(tensor), scale=scale, format=format))

    def write_rows(self, tensors: Sequence[Tensor], rows: Tensor) -> None:
        """Write the records of tensors to as many rows."""
        for tensor, row in zip(tensors, rows, strict=True):
            self.write_row(tensor, row)

    def values_of(self, row: Tensor, stats: Sequence[str]) -> dict[str, Tensor]:
        """Return statistics of a record."""
        return values_of_row(row, stats)


class Choice(NamedTuple):
    """What makes the records on a device."""

    writer: RowWriter
    told: str  # that, and why not what comes before it


def choose_writer(device: torch.device) -> Choice:
    """Return what makes records on a device; here alone that is chosen."""
    # On a GPU of NVIDIA's the native kernels, on others Triton's, and where neither can be had
    # torch's own operations.
    why = ""
    if device.type == "cuda" and torch.version.cuda is not None:
        try:
            return Choice(CudaPass(device), "the native kernels")
        except RuntimeError as error:
            why = f", since there are no native kernels: {error}"
    if device.type == "cuda":
        if has_triton():
            return Choice(TritonPass(device), f"Triton's kernels{why}")
        why = why and f"{why}, and no Triton"
    return Choice(_TorchWriter(), f"torch's operations{why}")
