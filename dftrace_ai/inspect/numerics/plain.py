"""Records, statistics and 8-bit emulation in torch's own operations: any device, without waits.

A row is a record that stays on its device: a tensor of its numbers, in fp64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dftrace_ai.inspect.errors import InspectValueError
from dftrace_ai.inspect.numerics.formats import FP32_MAX, SMALLEST_SCALE
from dftrace_ai.inspect.numerics.record import FIELDS, NEUTRAL, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dftrace_ai.inspect.numerics.formats import Format, Grid

ROW_FIELDS = len(FIELDS)
_N_OVER, _N_TOTAL, _SQUARE_ERROR = map(FIELDS.index, ("n_over", "n_total", "square_error"))

PART_ELEMENTS = 1 << 24
"""Larger tensors are taken in parts: a part needs several times its memory in fp64."""

SQUARES_FIT = 2.0**480
"""Where magnitudes of fp64 numbers have a larger sum, they are multiplied before by"""
SMALLER = 2.0**-600


def _numbers(row: Tensor, dim: int = 0) -> Any:
    """Return the numbers of a row, or of each of several, by their names."""
    return tuple.__new__(Record, row.unbind(dim))


def row_of(
    tensor: Tensor,
    *,
    scale: float | Tensor | None = None,
    format: Format | None = None,
) -> Tensor:
    """Return a tensor's record as 17 fp64 numbers on its device; see `record.FIELDS`."""
    # The tensor is real and has an element. What `format` would clip or turn to zero under a scale
    # is counted; one in a tensor stays on its device.
    flat = tensor.detach().reshape(-1)
    factor = factor_of(scale, flat.device) if scale is not None else None
    limits = thresholds_of(factor, format) if factor is not None and format is not None else None
    rows = [_part_row(part, limits) for part in torch.split(flat, PART_ELEMENTS)]
    row = rows[0] if len(rows) == 1 else merged_rows(torch.stack(rows))
    if factor is not None:
        row[-2:] = factor  # scale_min and scale_max
    return row


def factor_of(scale: float | Tensor, device: torch.device) -> Tensor:
    """Return a scale as fp32 on a device."""
    if isinstance(scale, Tensor):
        return scale.detach().reshape(()).to(device=device, dtype=torch.float32)
    return torch.full((), scale, device=device, dtype=torch.float32)


def _part_row(part: Tensor, limits: tuple[Tensor, Tensor] | None) -> Tensor:
    narrow = part if part.dtype is torch.float64 else part.to(torch.float32)
    x = narrow.to(torch.float64)
    magnitude = x.abs()
    nan, zero, finite = x.isnan(), magnitude == 0, magnitude < math.inf
    n = finite.sum().to(torch.float64)
    at_least_one = n.clamp(min=1)
    numbers = torch.where(finite, x, 0.0)
    absolute = numbers.abs().sum()
    factor = torch.ones_like(absolute)
    if part.dtype is torch.float64:
        factor = torch.where(absolute > SQUARES_FIT, factor * SMALLER, factor)
        numbers = numbers * factor
    mean = numbers.sum() / at_least_one
    distance = torch.where(finite, numbers - mean, 0.0)
    rest = distance.sum()
    m2 = (distance * distance).sum() - rest * rest / at_least_one
    fields = [
        n,
        (mean + rest / at_least_one) / factor,
        m2.clamp(min=0) / factor / factor,
        absolute,
        torch.where(nan, math.inf, x).min(),
        torch.where(nan, -math.inf, x).max(),
        torch.where(nan | zero, math.inf, magnitude).min(),
        torch.where(nan, 0.0, magnitude).max(),
        nan.sum(),
        magnitude.isinf().sum(),
        zero.sum(),
    ]
    none = torch.zeros((), dtype=torch.float64, device=part.device)
    over = under = none
    if limits is not None:
        over, under = _lost(narrow.to(torch.float32).abs(), zero, limits)
    total = torch.full_like(none, part.numel())
    unknown = torch.full_like(none, math.nan)
    fields += [over, under, total, none, unknown, unknown]
    return torch.stack([field.to(torch.float64) for field in fields])


def _lost(magnitude: Tensor, zero: Tensor, limits: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    under, over = limits
    return (magnitude > over).sum(), ((magnitude <= under) & ~zero).sum()


def merged_rows(rows: Tensor) -> Tensor:
    """Return the row of all elements of several rows, which lie in a tensor one after the other."""
    parts = _numbers(rows, 1)
    n = parts.n_finite
    mean = (n / n.sum().clamp(min=1) * parts.mean).sum()
    # Rows without elements have a mean that says nothing.
    distance = torch.where(n > 0, parts.mean - mean, 0.0)
    no_min, no_max = parts.scale_min.isnan(), parts.scale_max.isnan()
    scale_min = torch.where(no_min, math.inf, parts.scale_min).min()
    scale_max = torch.where(no_max, -math.inf, parts.scale_max).max()
    merged = _numbers(rows.sum(dim=0))._replace(
        mean=mean,
        m2=(parts.m2 + n * distance * distance).sum(),
        min=parts.min.min(),
        max=parts.max.max(),
        amin_nonzero=parts.amin_nonzero.min(),
        amax=parts.amax.max(),
        scale_min=torch.where(no_min.all(), math.nan, scale_min),
        scale_max=torch.where(no_max.all(), math.nan, scale_max),
    )
    return torch.stack(list(merged))


def row_with_quantisation(row: Tensor, quantised: Tensor) -> Tensor:
    """Return `record.with_quantisation` for rows that stay on their device."""
    return torch.cat(
        (
            row[:_N_OVER],
            quantised[_N_OVER:_N_TOTAL],
            row[_N_TOTAL:_SQUARE_ERROR],
            quantised[_SQUARE_ERROR:],
        )
    )


def scale_of(
    amax: Tensor,
    format: Format,
    margin: int = 0,
    previous: float | Tensor = 1.0,
) -> Tensor:
    """Return `fp8.scale_of` for an amax that stays on its device."""
    narrow = amax.detach().to(torch.float32).reshape(())
    power = max(-1000, min(1000, margin))
    # In fp64, where neither step leaves the range, and rounded to fp32 after each.
    first = _quotient(format.fmax, narrow.to(torch.float64)).to(torch.float32)
    second = (first.to(torch.float64) * 2.0**-power).to(torch.float32)
    usable = (narrow > 0) & (narrow < math.inf)
    return torch.where(usable, second.clamp(SMALLEST_SCALE, FP32_MAX), previous)


def _quotient(number: float, divisor: Tensor) -> Tensor:
    # A plain `number / divisor` would multiply by the reciprocal, which is rounded twice.
    return torch.full_like(divisor, number) / divisor


def thresholds_of(scale: Tensor, format: Format) -> tuple[Tensor, Tensor]:
    """Return `fp8.thresholds` for a scale that stays on its device."""
    half_smallest = 2.0 ** (format.smallest_exponent - format.mantissa_bits - 1)
    # The quotient is within a rounding of the edge: its neighbours are tried.
    nearest = _quotient(half_smallest, scale).clamp(max=FP32_MAX).view(torch.int32)
    steps = torch.arange(-4, 5, dtype=torch.int32, device=scale.device)
    tried = (nearest + steps).clamp(0, 0x7F7FFFFF).view(torch.float32)
    under = torch.where(tried * scale <= half_smallest, tried, 0.0).amax()
    over = (_quotient(format.fmax, scale) * (1 + 2.0**-22)).clamp(max=FP32_MAX)
    return under, over


def _rounded(numbers: Tensor, dropped: int) -> Tensor:
    """Return fp32 numbers without their last bits, rounded to even."""
    bits = numbers.view(torch.int32)
    rounded = bits + ((1 << (dropped - 1)) - 1) + ((bits >> dropped) & 1)
    return (rounded & -(1 << dropped)).view(torch.float32)


def on_its_shard(tensor: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply what works on single elements to those of a DTensor that are here."""
    # Its own `view` of other numbers came with torch 2.5.
    sharded: Any = tensor
    if not hasattr(sharded, "to_local") or not hasattr(sharded, "placements"):
        return function(tensor)
    made: Tensor = type(sharded).from_local(
        function(sharded.to_local()),
        sharded.device_mesh,
        sharded.placements,
        run_check=False,
        shape=sharded.shape,
        stride=sharded.stride(),
    )
    return made


def fake_quantise(
    tensor: Tensor,
    format: Format,
    scale: float | Tensor,
    *,
    with_counts: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return a tensor as an 8-bit format gives it back, and its row where counts are wanted."""
    factor = factor_of(scale, tensor.device)
    output = there_and_back(tensor, format, factor)
    return output, lost_row(tensor, output, format, factor) if with_counts else None


def there_and_back(tensor: Tensor, format: Format | Grid, factor: Tensor) -> Tensor:
    """Return what is left of numbers that are multiplied, cast, and divided again."""
    narrow = tensor.to(torch.float32)
    scaled = narrow * factor
    clipped = scaled.abs().clamp(max=format.fmax)
    dropped = 23 - format.mantissa_bits
    normal = on_its_shard(clipped, lambda shard: _rounded(shard, dropped))
    # Added and taken off again, it rounds to multiples of the format's smallest number.
    magic = 1.5 * 2.0 ** (23 + format.smallest_exponent - format.mantissa_bits)
    subnormal = (clipped + magic) - magic
    on_grid = torch.where(clipped < 2.0**format.smallest_exponent, subnormal, normal)
    on_grid = torch.where(clipped.isnan(), clipped, on_grid)
    reciprocal = (1.0 / factor).clamp(max=FP32_MAX)
    return torch.copysign(on_grid * reciprocal, scaled).to(tensor.dtype)


def neutral_row(device: torch.device) -> Tensor:
    """Return `record.NEUTRAL`, the row of no elements, on a device; nothing waits for it."""
    row = torch.zeros(ROW_FIELDS, dtype=torch.float64, device=device)
    for place, number in enumerate(NEUTRAL):
        if number:
            # Filled where it is: a number that is assigned may be copied from the host.
            row[place].fill_(number)
    return row


def lost_row(tensor: Tensor, output: Tensor, format: Format, scale: float | Tensor) -> Tensor:
    """Return the row that `fp8.fake_quantise` describes."""
    factor = factor_of(scale, tensor.device)
    narrow = tensor.to(torch.float32)
    over, under = _lost(narrow.abs(), narrow == 0, thresholds_of(factor, format))
    error = narrow.to(torch.float64) - output.to(torch.float64)
    return row_with(
        neutral_row(narrow.device),
        n_over=over,
        n_under=under,
        n_total=narrow.numel(),
        square_error=(error * error).sum(),
        scale_min=factor,
        scale_max=factor,
    )


def row_with(row: Tensor, **fields: Tensor | float) -> Tensor:
    """Return a row with other values for some of its numbers."""
    changed = row.clone()
    for name, number in fields.items():
        place = changed[FIELDS.index(name)]
        if isinstance(number, Tensor):
            place.copy_(number)
        else:
            place.fill_(number)
    return changed


def _where_finite(row: Any, value: Tensor, otherwise: float | Tensor) -> Tensor:
    return torch.where(row.n_inf > 0, otherwise, value)


def _mean(row: Any) -> Tensor:
    negative_only = torch.where(row.max == math.inf, math.nan, -math.inf)
    infinite = torch.where(row.min > -math.inf, math.inf, negative_only)
    return _where_finite(row, row.mean, infinite.to(row.mean.dtype))


def _std(row: Any) -> Tensor:
    spread = torch.sqrt(row.m2 / (row.n_finite - 1).clamp(min=1))
    return _where_finite(row, torch.where(row.n_finite > 1, spread, math.nan), math.nan)


def _l2_norm(row: Any) -> Tensor:
    return _where_finite(row, torch.sqrt(row.m2 + row.n_finite * row.mean * row.mean), math.inf)


def _dynamic_range(row: Any) -> Tensor:
    decades = torch.log2(row.amax) - torch.log2(row.amin_nonzero)
    finite = torch.where(row.amax == 0, 0.0, decades)
    only_infinities = row.amin_nonzero == math.inf
    infinite = torch.where(only_infinities, math.nan, math.inf).to(finite.dtype)
    # Where zeros were not looked for there is no answer.
    return torch.where(row.amin_nonzero.isnan(), math.nan, _where_finite(row, finite, infinite))


_FORMULAS: dict[str, Callable[[Any], Tensor]] = {
    "min": lambda row: row.min,
    "max": lambda row: row.max,
    "mean": _mean,
    "std": _std,
    "l1_norm": lambda row: _where_finite(row, row.absolute_sum, math.inf),
    "l2_norm": _l2_norm,
    "cur_amax": lambda row: row.amax,
    "dynamic_range": _dynamic_range,
}
VALUES = tuple(_FORMULAS)
"""What can be made on a device, in the order in which a kernel writes it."""


def check_values(stats: Sequence[str]) -> None:
    """Raise where a statistic cannot be made on a device."""
    for stat in stats:
        if stat not in _FORMULAS:
            raise InspectValueError(f"statistic {stat!r} is not made on a device")


def values_of_row(row: Tensor, stats: Sequence[str]) -> dict[str, Tensor]:
    """Return the statistics of a row, as `statistics` has their formulas."""
    # They are fp32 tensors without dimensions; NaN where the record has no elements.
    check_values(stats)
    numbers = _numbers(row)
    unknown = (numbers.n_nan > 0) | (numbers.n_total == 0)
    return {
        stat: torch.where(unknown, math.nan, _FORMULAS[stat](numbers)).to(torch.float32)
        for stat in stats
    }
