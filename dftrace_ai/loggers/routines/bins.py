"""Counting values in bins that are the same for all tensors, so that counts can be added.

A bin holds the numbers of fp32 that have sign, exponent and the first three bits of the mantissa in
common (IEEE 754): 4,096 in all, each an eighth of a power of two wide. Their edges are exact, and
so are counts between any two of them.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dftrace_ai.loggers.records import HistogramRecord, Point

__all__ = ["QUANTILES", "Counted", "counted", "record_of"]

MANTISSA_BITS = 3
SHIFT = 23 - MANTISSA_BITS
BINS = 1 << (32 - SHIFT)
HALF = BINS // 2
# Of each sign: those of finite numbers; infinities and what is no number lie above.
FINITE = 255 << MANTISSA_BITS

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


class Counted(NamedTuple):
    """What is known of values that were counted; two of them can be added.

    Attributes:
        bins: how many finite values lie in each bin, ascending from -inf to inf; of 2 x 2,040.
        minimum: of the finite values; inf where there are none.
        maximum: likewise, -inf.
        total: sum of the finite values.
        total_squares: sum of their squares.
        non_finite: how many values are not finite.
    """

    bins: NDArray[np.int64]
    minimum: float
    maximum: float
    total: float
    total_squares: float
    non_finite: int

    def plus(self, other: Counted) -> Counted:
        """Return what is known of the values of both."""
        return Counted(
            self.bins + other.bins,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            self.total + other.total,
            self.total_squares + other.total_squares,
            self.non_finite + other.non_finite,
        )


def counted(value: Any) -> Counted:
    """Count the values of a tensor or array.

    Args:
        value: real numbers of any dtype and shape; they are looked at as fp32.

    Raises:
        TypeError: it holds no real numbers.
    """
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.is_complex():
            raise TypeError(f"a tensor of {value.dtype}")
        numbers = value.detach().reshape(-1).float()
        codes = numbers.view(torch.int32).bitwise_right_shift(SHIFT).bitwise_and_(BINS - 1)
        of_code = torch.bincount(codes, minlength=BINS).cpu().numpy()
        finite = numbers[torch.isfinite(numbers)].double()
        figures = _figures(finite) if finite.numel() else None
    else:
        array = np.asarray(value)
        if array.dtype.kind not in "buif":
            raise TypeError(f"an array of {array.dtype}")
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32).reshape(-1)
        of_code = np.bincount(narrow.view(np.uint32) >> SHIFT, minlength=BINS)
        wide = narrow[np.isfinite(narrow)].astype(np.float64)
        figures = _figures(wide) if wide.size else None
    minimum, maximum, total, squares = figures or (np.inf, -np.inf, 0.0, 0.0)
    upward, downward = of_code[:HALF], of_code[HALF:]
    bins = np.concatenate([downward[:FINITE][::-1], upward[:FINITE]]).astype(np.int64)
    non_finite = int(upward[FINITE:].sum() + downward[FINITE:].sum())
    return Counted(bins, minimum, maximum, total, squares, non_finite)


def _figures(finite: Any) -> tuple[float, float, float, float]:
    return (
        float(finite.min()),
        float(finite.max()),
        float(finite.sum()),
        float((finite * finite).sum()),
    )


@cache
def _edges() -> NDArray[np.float64]:
    """Return the edges of all bins, ascending; that of both zeros stands once."""
    import numpy as np

    codes = np.arange(FINITE + 1, dtype=np.uint32) << np.uint32(SHIFT)
    upward = codes.view(np.float32).astype(np.float64)
    upward[-1] = 2.0**128
    return np.concatenate([-upward[:0:-1], upward])


def record_of(name: str, found: Counted, most: int, at: Point) -> HistogramRecord:
    """Make a record of at most so many bins between the least and the greatest value.

    Args:
        name: what the values are of.
        found: their counts.
        most: bins; they are as wide as each other where the fine bins allow it.
        at: when it was logged.
    """
    import numpy as np

    from dftrace_ai.loggers.records import HistogramRecord

    count = int(found.bins.sum())
    if not count:
        return HistogramRecord(name, (0.0, 1.0), (0,), 0.0, 0.0, 0.0, 0.0, found.non_finite, {}, at)
    filled = np.flatnonzero(found.bins)
    first, last = int(filled[0]), int(filled[-1]) + 1
    edges = _edges()
    wanted = np.linspace(edges[first], edges[last], most + 1)
    chosen = np.unique(np.clip(np.searchsorted(edges, wanted), first, last))
    chosen = chosen if len(chosen) > 1 else np.array([first, last])
    running = np.concatenate([[0], np.cumsum(found.bins)])
    counts = np.diff(running[chosen])
    shown = edges[chosen]
    # What is known of the ends is more than their bins say.
    shown[0], shown[-1] = found.minimum, found.maximum
    if shown[-1] <= shown[-2]:
        shown[-1] = np.nextafter(shown[-2], np.inf)
    return HistogramRecord(
        name,
        tuple(shown.tolist()),
        tuple(counts.tolist()),
        found.minimum,
        found.maximum,
        found.total,
        found.total_squares,
        found.non_finite,
        {share: _quantile(found, running, share, count) for share in QUANTILES},
        at,
    )


def _quantile(found: Counted, running: NDArray[np.int64], share: float, count: int) -> float:
    """Return a quantile, taking the values of a bin to lie evenly in it."""
    import numpy as np

    edges = _edges()
    place = share * count
    index = int(np.clip(np.searchsorted(running, place, side="left") - 1, 0, len(found.bins) - 1))
    inside = (place - running[index]) / max(1, int(found.bins[index]))
    value = edges[index] + (edges[index + 1] - edges[index]) * inside
    return float(min(max(value, found.minimum), found.maximum))
