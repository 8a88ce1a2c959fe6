"""The two 8-bit formats, others by their numbers, and the fp32 numbers that scales lie between."""

from __future__ import annotations

import enum
from typing import NamedTuple

FP32_MAX = 3.4028234663852886e38
SMALLEST_SCALE = 2.0**-126
"""A smaller one is no normal number in fp32, and could not be undone."""


class Format(enum.Enum):
    """An 8-bit format; `Format("E4M3")` finds one by name."""

    E4M3 = "E4M3"
    E5M2 = "E5M2"

    code: int  # its number in the native module
    # Its largest number. E4M3 has no infinities (Micikevicius et al., FP8 Formats for Deep
    # Learning, 2022, table 1).
    fmax: float
    mantissa_bits: int  # without the leading one
    smallest_exponent: int  # of a normal number

    def __init__(self, name: str) -> None:
        first = name == "E4M3"
        self.code = 0 if first else 1
        self.fmax = 448.0 if first else 57344.0
        self.mantissa_bits = 3 if first else 2
        self.smallest_exponent = -6 if first else -14


class Grid(NamedTuple):
    """The numbers of a format that is narrower still; called as in `Format`."""

    fmax: float
    mantissa_bits: int
    smallest_exponent: int
