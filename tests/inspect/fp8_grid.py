"""The grids of the 8-bit formats, from their definition and in fp64: nothing of torch's casts."""

from __future__ import annotations

import torch
from torch import Tensor

from dftrace_ai.inspect.numerics.formats import Format


def magnitudes(format: Format) -> Tensor:
    """Every finite magnitude by its code, from 0 on; codes that are odd have an odd mantissa."""
    mantissa, bias, last = (3, 7, 0x7E) if format is Format.E4M3 else (2, 15, 0x7B)
    values = []
    for code in range(last + 1):
        exponent, fraction = code >> mantissa, code & ((1 << mantissa) - 1)
        leading = 1 if exponent else 0
        values.append((leading + fraction / 2**mantissa) * 2.0 ** (max(exponent, 1) - bias))
    return torch.tensor(values, dtype=torch.float64)


def nearest(scaled: Tensor, format: Format) -> Tensor:
    """fp64 numbers on the grid: to the nearest, ties to the even code, beyond the last to the last."""
    grid = magnitudes(format)
    middles = (grid[1:] + grid[:-1]) / 2
    size = scaled.abs()
    known = size.nan_to_num(nan=0.0, posinf=grid[-1].item())
    code = torch.searchsorted(middles, known, right=False)
    tie = (code < len(middles)) & (middles[code.clamp(max=len(middles) - 1)] == known)
    code = code + (tie & (code % 2 == 1)).long()
    return torch.where(size.isnan(), size, torch.copysign(grid[code], scaled))


def quantised(x: Tensor, format: Format, scale: float) -> Tensor:
    """What comes back, in the dtype of x. Products of two fp32 numbers are exact in fp64."""
    scaled = (x.to(torch.float32).double() * scale).to(torch.float32).double()
    reciprocal = float(torch.tensor(1 / scale, dtype=torch.float64).to(torch.float32))
    back = (nearest(scaled, format) * reciprocal).to(torch.float32)
    return back.to(x.dtype)


def same_numbers(a: Tensor, b: Tensor) -> bool:
    """Equal in value and in the sign of zeros; NaN is NaN whatever its bits."""
    same = (a == b) & (a.signbit() == b.signbit())
    return bool((same | (a.isnan() & b.isnan())).all())
