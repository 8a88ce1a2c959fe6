"""What the values of a metric come to: those of an epoch, and those of a run that is read."""

from __future__ import annotations

import math


class Figures:
    """Last, least, greatest and mean of the values that were added since `begin`."""

    # `count` finite values make the figures, NaN where there are none; `non_finite` others are in
    # none but `last`, which was logged last by the clock, for `last_step`.

    __slots__ = (
        *("_last_s", "_lost", "_sum", "count", "last", "last_step", "max", "min"),
        "non_finite",
    )

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was added."""
        self.count = self.non_finite = self.last_step = 0
        self.min = self.max = self.last = math.nan
        self._sum = self._lost = 0.0
        self._last_s = -1.0

    @property
    def mean(self) -> float:
        """Mean of the finite values; NaN where there are none."""
        if not self.count:
            return math.nan
        total = self._sum + self._lost
        if math.isfinite(total):
            return total / self.count
        return self._sum / self.count

    def add(self, value: float, step: int = 0, time_s: float = 0.0) -> None:
        """Take a value."""
        if time_s >= self._last_s:
            self._last_s, self.last, self.last_step = time_s, value, step
        if not math.isfinite(value):
            self.non_finite += 1
            return
        if self.count:
            if value < self.min:
                self.min = value
            elif value > self.max:
                self.max = value
        else:
            self.min = self.max = value
        self.count += 1
        # Kahan's sum, as Neumaier mended it (Z. Angew. Math. Mech. 54, 1974): of a million losses
        # the mean is right to the last digit.
        total = self._sum + value
        if abs(self._sum) >= abs(value):
            self._lost += (self._sum - total) + value
        else:
            self._lost += (value - total) + self._sum
        self._sum = total
