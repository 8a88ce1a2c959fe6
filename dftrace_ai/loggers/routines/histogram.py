"""Histograms: of values, and of the weights and gradients of a model, for iterations and epochs.

Values are counted in bins that are the same for all tensors, so that counts can be added. A bin
holds the numbers of fp32 that have sign, exponent and the first three bits of the mantissa in
common (IEEE 754): 4,096 in all, each an eighth of a power of two wide. Their edges are exact, and
so are counts between any two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dftrace_ai.loggers.records import HistogramRecord
from dftrace_ai.loggers.routines.base import BaseLogger
from dftrace_ai.run.late_import import loaded_torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.records import Point, Record

MANTISSA_BITS = 3
SHIFT = 23 - MANTISSA_BITS
BINS = 1 << (32 - SHIFT)
HALF = BINS // 2
# Of each sign: those of finite numbers; infinities and what is no number lie above.
FINITE = 255 << MANTISSA_BITS

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


class Counted(NamedTuple):
    """What is known of values that were counted; two of them can be added.

    All but `non_finite` is of finite values: their counts in 2 x 2,040 bins, ascending from -inf to
    inf, and, where there are none, inf and -inf for the least and the greatest.
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


class HistogramLogger(BaseLogger):
    """Logs how values are distributed: of each iteration, and of all since the last epoch."""

    key: ClassVar[str] = "hist"
    packages: ClassVar[tuple[str, ...]] = ("numpy",)
    accepts: ClassVar[str] = (
        "a tensor or array of real numbers, a list of numbers, a module (weights and gradients of "
        "its parameters), or a mapping of names to tensors"
    )

    def __init__(self, settings: EntryConfig) -> None:
        super().__init__(settings)
        self.since_epoch: dict[str, Counted] = {}

    def take(self, value: Any) -> Any:
        """Count the values as they are now: that is quicker than to copy them."""
        return {part: _counted(tensor) for part, tensor in _tensors(value)}

    def records(self, name: str, taken: Any, at: Point) -> Iterable[Record]:
        """Make a record of each tensor."""
        for part, found in taken.items():
            full = f"{name}/{part}" if part else name
            before = self.since_epoch.get(full)
            self.since_epoch[full] = found if before is None else before.plus(found)
            yield _record_of(full, found, self.settings.bins, at)

    def epoch_records(self, at: Point) -> Iterable[Record]:
        """Make records of all values since the epoch before."""
        found, self.since_epoch = self.since_epoch, {}
        for name, values in found.items():
            yield _record_of(f"epoch/{name}", values, self.settings.bins, at)


def _tensors(value: Any) -> Iterator[tuple[str, Any]]:
    torch = loaded_torch()
    if torch is not None and isinstance(value, torch.nn.Module):
        for name, parameter in value.named_parameters():
            yield name, parameter
            if parameter.grad is not None:
                yield f"{name}.grad", parameter.grad
    elif isinstance(value, Mapping):
        for name, tensor in value.items():
            yield str(name), tensor
    else:
        yield "", value


def _counted(value: Any) -> Counted:
    """Count the values of a tensor or array, of real numbers, as fp32."""
    import numpy as np

    torch = loaded_torch()
    if torch is not None and isinstance(value, torch.Tensor):
        from dftrace_ai.inspect.numerics.collect import histogram

        found = histogram(value)
        if found is None:
            return _nothing()
        record, counts = found
        finite = record.n_finite
        total = record.mean * finite if finite else 0.0
        squares = record.m2 + record.mean * total if finite else 0.0
        bins, non_finite = _in_order(np.frombuffer(counts, np.uint64))
        least, greatest = record.min, record.max
        if non_finite and finite:
            # The record's are those of all but NaN.
            finite_values = value.detach()[value.detach().isfinite()]
            least, greatest = float(finite_values.min()), float(finite_values.max())
        return (
            Counted(bins, least, greatest, total, squares, non_finite)
            if finite
            else (_nothing()._replace(non_finite=non_finite))
        )
    array = np.asarray(value)
    if array.dtype.kind not in "buif":
        raise TypeError(f"an array of {array.dtype}")
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32).reshape(-1)
    bins, non_finite = _in_order(np.bincount(narrow.view(np.uint32) >> SHIFT, minlength=BINS))
    wide = narrow[np.isfinite(narrow)].astype(np.float64)
    if not wide.size:
        return _nothing()._replace(non_finite=non_finite)
    least, greatest, total = float(wide.min()), float(wide.max()), float(wide.sum())
    return Counted(bins, least, greatest, total, float((wide * wide).sum()), non_finite)


def _nothing() -> Counted:
    import numpy as np

    return Counted(np.zeros(2 * FINITE, np.int64), np.inf, -np.inf, 0.0, 0.0, 0)


def _in_order(of_code: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """Return the counts of finite numbers, ascending, and how many others there are."""
    import numpy as np

    upward, downward = of_code[:HALF], of_code[HALF:]
    bins = np.concatenate([downward[:FINITE][::-1], upward[:FINITE]]).astype(np.int64)
    return bins, int(upward[FINITE:].sum() + downward[FINITE:].sum())


@cache
def _edges() -> NDArray[np.float64]:
    """Return the edges of all bins, ascending; that of both zeros stands once."""
    import numpy as np

    codes = np.arange(FINITE + 1, dtype=np.uint32) << np.uint32(SHIFT)
    upward = codes.view(np.float32).astype(np.float64)
    upward[-1] = 2.0**128
    return np.concatenate([-upward[:0:-1], upward])


def _record_of(name: str, found: Counted, most: int, at: Point) -> HistogramRecord:
    """Make a record of at most so many bins between the least and the greatest value.

    They are as wide as each other where the fine bins allow it.
    """
    import numpy as np

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
    if shown[0] >= shown[1]:
        shown[0] = np.nextafter(shown[1], -np.inf)
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
