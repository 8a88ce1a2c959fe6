"""The list of a tensor's statistics: the name of each. A new one goes here.

The formulas are in the native module, `native/src/tensor/statistics.cpp`; those for devices in
`plain`.
"""

from __future__ import annotations

TENSOR_STATS = ("min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range")
"""The statistics of a tensor's own elements, which `LogTensorStats` accepts, by their canonical
names."""

PLAIN_FP8_STATS = ("underflows%", "overflows%", "mse", "scale_inv_min", "scale_inv_max")
"""The statistics of an 8-bit format, which `LogFp8TensorStats` accepts, by the scale that is used:
what it does to a tensor, whatever its elements."""

FP8_PREFIXES = ("fp8_current_scaling_", "fp8_delayed_scaling_")
"""What may stand before them; the scale in the record decides."""

FP8_STATS = (
    *PLAIN_FP8_STATS,
    *(prefix + stat for prefix in FP8_PREFIXES for stat in PLAIN_FP8_STATS),
)
"""All statistics of 8-bit formats, with prefixes and without."""

_KINDS = (*TENSOR_STATS, *PLAIN_FP8_STATS)

NUMBERS = {stat: number for number, stat in enumerate(_KINDS)} | {
    prefix + stat: _KINDS.index(stat) for prefix in FP8_PREFIXES for stat in PLAIN_FP8_STATS
}
"""The number that the native module has for each."""
