"""Random numbers that are the same on every machine, by name.

A generator's own normal numbers go through functions of the C library and through NumPy's kernels,
whose last binary places differ between machines. Here raw bits choose from tables of rounded
quantiles. Each name has a stream of its own, so what one option draws changes nothing else.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVELS: Final = 1 << 16
_PLACES: Final = 6
# A factor is a whole number of 2^-20.
_SHIFT: Final = 20
_IN_A_WORD: Final = 4


class Draws:
    """Streams of random numbers of a seed, by their names."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[str, np.random.PCG64] = {}

    def levels(self, name: str, rows: int, columns: int) -> NDArray[np.uint16]:
        """Return numbers below `LEVELS`, all as likely, whatever rows are asked for at a time."""
        if name not in self._streams:
            seeds = np.random.SeedSequence([self._seed, crc32(name.encode())])
            self._streams[name] = np.random.PCG64(seeds)
        words = -(-columns // _IN_A_WORD)
        raw = np.asarray(self._streams[name].random_raw(rows * words), "<u8")
        return raw.view("<u2").reshape(rows, words * _IN_A_WORD)[:, :columns]

    def normal(self, name: str, rows: int, columns: int) -> NDArray[np.float64]:
        """Return standard normal numbers."""
        return _quantiles()[self.levels(name, rows, columns)]

    def lognormal(
        self, name: str, mean_ns: int, sigma: float, rows: int, columns: int
    ) -> NDArray[np.int64]:
        """Return times of a mean, whose logarithms spread by `sigma`."""
        found: NDArray[np.int64] = _factors(sigma)[self.levels(name, rows, columns)]
        took: NDArray[np.int64] = found * mean_ns >> _SHIFT
        return took

    def share(self, name: str, rows: int, columns: int) -> NDArray[np.float64]:
        """Return numbers from 0 up to 1, without 1."""
        return self.levels(name, rows, columns) / LEVELS

    def below(self, name: str, most: int, rows: int) -> NDArray[np.int64]:
        """Return a number of a row from 0 up to `most`, without it."""
        drawn = self.levels(name, rows, 1)[:, 0].astype(np.int64)
        found: NDArray[np.int64] = drawn * most >> 16
        return found


@lru_cache
def _quantiles() -> NDArray[np.float64]:
    """Return a standard normal number for each level."""
    normal = NormalDist()
    half = [
        round(normal.inv_cdf((level + 0.5) / LEVELS), _PLACES)
        for level in range(LEVELS // 2, LEVELS)
    ]
    upper = np.array(half)
    return np.concatenate([-upper[::-1], upper])


@lru_cache
def _factors(sigma: float) -> NDArray[np.int64]:
    """Return a lognormal number of mean 1 for each level, in 2^-20."""
    exact = np.exp(sigma * _quantiles() - sigma * sigma / 2)
    found: NDArray[np.int64] = np.rint(exact * (1 << _SHIFT)).astype(np.int64)
    return found
