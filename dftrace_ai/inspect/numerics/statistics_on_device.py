"""The formulas of `statistics` for a record that stays on its device: nothing waits for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from dftrace_ai.inspect.errors import InspectValueError
from dftrace_ai.inspect.numerics.positions import N_TOTAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["VALUES", "check_values", "values_of_row"]


class _Row(NamedTuple):
    n_finite: Tensor
    mean: Tensor
    m2: Tensor
    absolute_sum: Tensor
    min: Tensor
    max: Tensor
    amin_nonzero: Tensor
    amax: Tensor
    n_nan: Tensor
    n_inf: Tensor


def _where_finite(row: _Row, value: Tensor, otherwise: float | Tensor) -> Tensor:
    return torch.where(row.n_inf > 0, otherwise, value)


def _mean(row: _Row) -> Tensor:
    negative_only = torch.where(row.max == math.inf, math.nan, -math.inf)
    infinite = torch.where(row.min > -math.inf, math.inf, negative_only)
    return _where_finite(row, row.mean, infinite.to(row.mean.dtype))


def _std(row: _Row) -> Tensor:
    spread = torch.sqrt(row.m2 / (row.n_finite - 1).clamp(min=1))
    return _where_finite(row, torch.where(row.n_finite > 1, spread, math.nan), math.nan)


def _l2_norm(row: _Row) -> Tensor:
    return _where_finite(row, torch.sqrt(row.m2 + row.n_finite * row.mean * row.mean), math.inf)


def _dynamic_range(row: _Row) -> Tensor:
    decades = torch.log2(row.amax) - torch.log2(row.amin_nonzero)
    finite = torch.where(row.amax == 0, 0.0, decades)
    only_infinities = row.amin_nonzero == math.inf
    infinite = torch.where(only_infinities, math.nan, math.inf).to(finite.dtype)
    # Where zeros were not looked for there is no answer.
    return torch.where(row.amin_nonzero.isnan(), math.nan, _where_finite(row, finite, infinite))


_FORMULAS: dict[str, Callable[[_Row], Tensor]] = {
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
    """Return the statistics of a record on its device; nothing waits for the device."""
    # They are fp32 tensors without dimensions; NaN where the record has no elements.
    check_values(stats)
    numbers = _Row(*row.unbind()[: len(_Row._fields)])
    unknown = (numbers.n_nan > 0) | (row[N_TOTAL] == 0)
    return {
        stat: torch.where(unknown, math.nan, _FORMULAS[stat](numbers)).to(torch.float32)
        for stat in stats
    }
