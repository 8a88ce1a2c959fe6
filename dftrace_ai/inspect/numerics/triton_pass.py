"""The record of a tensor on a GPU, written where it is wanted, without waiting for the GPU."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dftrace_ai.inspect.numerics import fp8, plain
from dftrace_ai.inspect.numerics.memory import in_memory_order, local_part

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["ROW_FIELDS", "TritonPass", "has_triton"]

ROW_FIELDS = 17
# With 8 warps, larger ones need so many registers that one program fits a processor.
BLOCK = 2048
WARPS = 8
PROGRAMS_A_PROCESSOR = 4
_READ_AS_THEY_ARE = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def has_triton() -> bool:
    """Return whether Triton can be imported."""
    return find_spec("triton") is not None


class TritonPass:
    """Both kernels, with the memory that lies between them.

    Kernels run on the current stream. Each stream has rows of its own, so that a backward pass on
    another stream does not write over those of the forward pass.

    Args:
        device: of the tensors.
        kernels: the module with the kernels; for tests that interpret them.

    Example::

        row = torch.empty(ROW_FIELDS, dtype=torch.float64, device="cuda")
        TritonPass(row.device).write_row(gradient, row)
    """

    def __init__(self, device: torch.device, kernels: ModuleType | None = None) -> None:
        if kernels is None:
            from dftrace_ai.inspect.numerics import triton_kernels

            kernels = triton_kernels
        self._kernels: Any = kernels
        self._device = device
        processors = 2
        if device.type == "cuda":
            processors = torch.cuda.get_device_properties(device).multi_processor_count
        self._most_programs = PROGRAMS_A_PROCESSOR * processors
        self._rows: dict[int, Tensor] = {}

    def write_row(
        self,
        tensor: Tensor,
        row: Tensor,
        *,
        scale: float | Tensor | None = None,
        format: fp8.Format | None = None,
    ) -> None:
        """Have the tensor's record written to `row`.

        Args:
            tensor: real, with at least one element, on the device of this pass.
            row: 17 contiguous fp64 numbers on the same device; see `record.FIELDS`.
            scale: counts what `format` would clip or turn to zero under this scale. A tensor with
                one element stays on the device; nothing waits for it.
            format: E4M3 or E5M2; needed with a scale.
        """
        if self._device.type == "cuda":
            with torch.cuda.device(self._device):
                stream = torch.cuda.current_stream().cuda_stream
                self._launch(tensor, row, scale, format, self._rows_of(stream))
        else:
            self._launch(tensor, row, scale, format, self._rows_of(0))

    def _rows_of(self, stream: int) -> Tensor:
        rows = self._rows.get(stream)
        if rows is None:
            shape = (self._most_programs, ROW_FIELDS)
            rows = torch.empty(shape, dtype=torch.float64, device=self._device)
            self._rows[stream] = rows
        return rows

    def _launch(
        self,
        tensor: Tensor,
        row: Tensor,
        scale: float | Tensor | None,
        format: fp8.Format | None,
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
            factor, kind = float(scale), 1
        count = x.numel()
        blocks = -(-count // BLOCK)
        programs = min(blocks, self._most_programs)
        tiles = -(-blocks // programs)
        wide = x.dtype is torch.float64
        self._kernels.partial_rows[(programs,)](
            *(x, rows, limits, under, over, count, tiles),
            BLOCK=BLOCK,
            WIDE=wide,
            LIMITS=kind,
            num_warps=WARPS,
        )
        padded = 1 << (programs - 1).bit_length()
        self._kernels.finish_row[(1,)](
            *(rows, row, limits, factor, programs), PADDED=padded, LIMITS=kind, num_warps=WARPS
        )


def limits_on_device(scale: Tensor, format: fp8.Format, device: torch.device) -> Tensor:
    """Return both thresholds and the scale, as three fp32 numbers that the host never sees."""
    factor = scale.detach().reshape(()).to(device=device, dtype=torch.float32)
    under, over = plain.thresholds_of(factor, format)
    return torch.stack([under, over, factor])
