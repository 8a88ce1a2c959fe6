"""What durations come to: count, sums and percentiles, in little memory; needs NumPy."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.summary.totals import MANTISSA_BITS, MOST_EXACT

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.summary.totals import CategoryFigures, SpanFigures

__all__ = ["Spread"]

MANTISSA: Final = (1 << MANTISSA_BITS + 1) - 1


class Spread:
    """Durations that are added up; percentiles are those of the native reader.

    Attributes:
        count: how many there are.
        total_ns: their sum.
        own_ns: the part of it that no spans take which lie inside.
        least_ns: the shortest.
        greatest_ns: the longest.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self.own_ns = 0
        self.least_ns = self.greatest_ns = 0
        self._exact: list[int] | None = []
        # The first seven bits of durations, with how many have them.
        self._coarse: Counter[int] = Counter()

    def add(self, durations_ns: Integers, own_ns: int) -> None:
        """Add durations.

        Args:
            durations_ns: at least one.
            own_ns: the part of them that no spans take which lie inside.
        """
        least, greatest = int(durations_ns.min()), int(durations_ns.max())
        self.least_ns = min(self.least_ns, least) if self.count else least
        self.greatest_ns = max(self.greatest_ns, greatest)
        self.count += len(durations_ns)
        self.total_ns += _sum(durations_ns, greatest)
        self.own_ns += own_ns
        if self._exact is not None and self.count <= MOST_EXACT:
            self._exact += durations_ns.tolist()
            return
        if self._exact:
            durations_ns = np.concatenate([durations_ns, np.array(self._exact, np.int64)])
        self._exact = None
        self._coarsen(durations_ns)

    def take(self, other: Spread) -> None:
        """Add what was added to another one, which is not used any more."""
        if not self.count:
            self.__dict__.update(other.__dict__)
            return
        if other._exact is not None:
            self.add(np.array(other._exact, np.int64), other.own_ns)
            return
        if self._exact:
            self._coarsen(np.array(self._exact, np.int64))
        self._exact = None
        self.least_ns = min(self.least_ns, other.least_ns)
        self.greatest_ns = max(self.greatest_ns, other.greatest_ns)
        self.count += other.count
        self.total_ns += other.total_ns
        self.own_ns += other.own_ns
        self._coarse.update(other._coarse)

    def _coarsen(self, durations_ns: Integers) -> None:
        for code, count in enumerate(np.bincount(_first_bits(durations_ns)).tolist()):
            if count:
                self._coarse[(code & MANTISSA) << (code >> MANTISSA_BITS + 1)] += count

    def figures(self, cat: str, name: str, wall_ns: int | None) -> SpanFigures:
        """Return the figures of a name as the native reader has them.

        Args:
            cat: its category.
            name: the name.
            wall_ns: of what wall time; None where that is not known.
        """
        return (cat, name, *self._told(), wall_ns)

    def of_category(self, cat: str, wall_ns: int | None, *, bodies: bool) -> CategoryFigures:
        """Return the figures of a category; `bodies`: of the bodies of its loops."""
        return (cat, bodies, *self._told(), wall_ns)

    def _told(self) -> tuple[int, int, int, int, int, float, float, float]:
        p50, p95, p99 = self.quantiles(0.5, 0.95, 0.99)
        return (
            *(self.count, self.total_ns, self.own_ns),
            *(self.least_ns, self.greatest_ns, p50, p95, p99),
        )

    def quantiles(self, *shares: float) -> tuple[float, ...]:
        """Return percentiles, nanoseconds; there is at least one duration."""
        if self._exact is not None:
            times = sorted(self._exact)
            ends = list(range(1, len(times) + 1))
        else:
            times = sorted(self._coarse)
            ends = list(accumulate(self._coarse[time] for time in times))

        def at(rank: int) -> float:
            if rank == 0:
                return float(self.least_ns)
            if rank == self.count - 1:
                return float(self.greatest_ns)
            time = times[bisect_right(ends, rank)]
            return float(time) if self._exact is not None else self._middle(time)

        found = []
        for share in shares:
            place = share * (self.count - 1)
            below = int(place)
            low, high = at(below), at(min(below + 1, self.count - 1))
            found.append(low + (high - low) * (place - below))
        return tuple(found)

    def _middle(self, low: int) -> float:
        """Return what stands for all durations with the same first bits."""
        width = 1 << max(low.bit_length() - 1 - MANTISSA_BITS, 0)
        if width == 1:
            return float(low)
        middle = 2 * float(low) * (low + width) / (2 * low + width)
        return min(max(middle, float(self.least_ns)), float(self.greatest_ns))


def _sum(times: Integers, greatest: int) -> int:
    if greatest * len(times) < 2**63:
        return int(times.sum())
    return sum(times.tolist())


def _first_bits(times: Integers) -> Integers:
    """Return the first bits of times, with the number of those behind them above these."""
    bits = np.frexp(times.astype(np.float64))[1].astype(np.int64)
    # A number that was rounded up to a power of two has a bit too many.
    bits -= (times >> np.maximum(bits - 1, 0)) == 0
    octave = np.maximum(bits - 1 - MANTISSA_BITS, 0)
    return octave << MANTISSA_BITS + 1 | times >> octave
