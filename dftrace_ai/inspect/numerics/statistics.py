"""The list of a tensor's statistics: the name of each. A new one goes here.

The formulas are in the native module, `native/src/tensor/statistics.cpp`; those for devices in
`plain`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TENSOR_STATS = ("min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range")
"""The statistics of a tensor's own elements, which `LogTensorStats` accepts, by their canonical
names."""

PLAIN_FP8_STATS = ("underflows%", "overflows%", "mse", "scale_inv_min", "scale_inv_max")
"""The statistics of an 8-bit format, which `LogFp8TensorStats` accepts, by the scale that is used:
what it does to a tensor, whatever its elements."""

FP8_PREFIXES = ("fp8_current_scaling_", "fp8_delayed_scaling_")
"""What may stand before them; the scale in the record decides."""

BLOCK_PREFIXES = ("mxfp8_", "fp8_block_scaling_")
"""As these, of formats in which blocks have a scale of their own."""

COLUMNWISE = "_columnwise"
"""What may stand behind them: blocks are parts of columns; one scale is the same both ways."""

FP8_STATS = tuple(
    prefix + stat + suffix
    for prefix in ("", *FP8_PREFIXES, *BLOCK_PREFIXES)
    for suffix in ("", COLUMNWISE)
    for stat in PLAIN_FP8_STATS
)
"""All statistics of 8-bit formats, with prefixes and without."""

NVFP4_STATS = ("nvfp4_underflows%", "nvfp4_mse")
"""Those of NVFP4, which `LogNvfp4TensorStats` accepts, with the prefix and without."""

_KINDS = (*TENSOR_STATS, *PLAIN_FP8_STATS)


def _kind(stat: str) -> str:
    plain = stat.removesuffix(COLUMNWISE)
    for prefix in (*FP8_PREFIXES, *BLOCK_PREFIXES, "nvfp4_"):
        plain = plain.removeprefix(prefix)
    return plain


NUMBERS = {stat: _KINDS.index(_kind(stat)) for stat in (*TENSOR_STATS, *FP8_STATS, *NVFP4_STATS)}
"""The number that the native module has for each."""

BLOCK_RANGE = "max_blockwise_dynamic_range"
"""A statistic of `LogTensorStats` with keys of its own: the largest dynamic range of a block."""


class BlockRange(NamedTuple):
    """What is asked for with it."""

    block_size: int = 32  # so many neighbours of a row
    dims: int = 1  # 2 for squares of so many rows, too
    # Whether those of a column count, too: the tensor is used as it is and transposed.
    both_ways: bool = False

    def __str__(self) -> str:
        suffix = "_max_over_orientations" if self.both_ways else ""
        return f"{BLOCK_RANGE}_block_size_{self.block_size}_dims_{self.dims}{suffix}"

    @classmethod
    def of(cls, stat: str, tensor: str) -> BlockRange | None:
        """Return what a name in the config asks of a tensor, None for another statistic."""
        found = re.fullmatch(rf"{BLOCK_RANGE}_block_size_(\d+)_dims_([12])", stat)
        both_ways = tensor in {"activation", "weight"}
        return cls(int(found[1]), int(found[2]), both_ways) if found else None
