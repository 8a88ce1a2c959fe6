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
    from dftrace_ai.analysis.summary.totals import SpanFigures

__all__ = ["Spread"]

MANTISSA: Final = (1 << MANTISSA_BITS + 1) - 1


class Spread:
    """Durations that are added up; percentiles are those of the native reader."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self.own_ns = 0
        self._least = self._greatest = 0
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
        self._least = min(self._least, least) if self.count else least
        self._greatest = max(self._greatest, greatest)
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
        self._least = min(self._least, other._least)
        self._greatest = max(self._greatest, other._greatest)
        self.count += other.count
        self.total_ns += other.total_ns
        self.own_ns += other.own_ns
        self._coarse.update(other._coarse)

    def _coarsen(self, durations_ns: Integers) -> None:
        for code, count in enumerate(np.bincount(_first_bits(durations_ns)).tolist()):
            if count:
                self._coarse[(code & MANTISSA) << (code >> MANTISSA_BITS + 1)] += count

    def figures(self, cat: str, name: str) -> SpanFigures:
        """Return the figures as the native reader has them."""
        p50, p95, p99 = self._quantiles(0.5, 0.95, 0.99)
        return (
            *(cat, name, self.count, self.total_ns, self.own_ns),
            *(self._least, self._greatest, p50, p95, p99),
        )

    def _quantiles(self, *shares: float) -> tuple[float, ...]:
        if self._exact is not None:
            times = sorted(self._exact)
            ends = list(range(1, len(times) + 1))
        else:
            times = sorted(self._coarse)
            ends = list(accumulate(self._coarse[time] for time in times))

        def at(rank: int) -> float:
            if rank == 0:
                return float(self._least)
            if rank == self.count - 1:
                return float(self._greatest)
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
        return min(max(middle, float(self._least)), float(self._greatest))


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
