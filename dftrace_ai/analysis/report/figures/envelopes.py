"""Many values as few that can be drawn: the least, the median and the greatest of each group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dftrace_ai.analysis.report.model import Envelope
from dftrace_ai.wording import shortened

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MOST_GROUPS", "briefly_named", "envelope", "rounded"]

MOST_GROUPS: Final = 600
DIGITS: Final = 9
NAME_LETTERS: Final = 200


def rounded(value: float, digits: int = DIGITS) -> float:
    """Return a number with so many digits, which a drawing has no use for more of."""
    return float(f"{value:.{digits}g}")


def briefly_named(name: str) -> str:
    """Return a name of so many letters at most: whoever chose it could fill a disk with it."""
    return shortened(name, NAME_LETTERS)


def envelope(
    at: NDArray[Any], values: NDArray[Any], *, by_place: bool = False, most: int = MOST_GROUPS
) -> Envelope:
    """Put values together, as many as follow each other."""
    count = len(values)
    if not count:
        return Envelope([], [], [], [], [], [])
    starts = _starts(at, count, most, by_place=by_place)
    values = values.astype(float)
    finite = np.isfinite(values)
    some = np.add.reduceat(finite, starts, dtype=np.int64)
    sizes = np.diff(np.append(starts, count))
    low = np.minimum.reduceat(np.where(finite, values, np.inf), starts)
    high = np.maximum.reduceat(np.where(finite, values, -np.inf), starts)
    pieces = (
        values[begin : begin + size][finite[begin : begin + size]]
        for begin, size in zip(starts.tolist(), sizes.tolist(), strict=True)
    )
    # Half of each, since two that are finite may have a sum that is not.
    middle = [float(np.median(piece / 2) * 2) if len(piece) else None for piece in pieces]
    has = some > 0
    return Envelope(
        first=at[starts].tolist(),
        last=at[starts + sizes - 1].tolist(),
        low=[rounded(v) if ok else None for v, ok in zip(low.tolist(), has, strict=True)],
        middle=[None if v is None else rounded(v) for v in middle],
        high=[rounded(v) if ok else None for v, ok in zip(high.tolist(), has, strict=True)],
        non_finite=(sizes - some).tolist(),
    )


def _starts(at: NDArray[Any], count: int, most: int, *, by_place: bool) -> NDArray[Any]:
    if count <= most:
        return np.arange(count)
    if not by_place:
        return np.linspace(0, count, most + 1).astype(np.int64)[:-1]
    width = max(float(at[-1]) - float(at[0]), 1e-300)
    group = np.minimum(((at - at[0]) / width * most).astype(np.int64), most - 1)
    return np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
