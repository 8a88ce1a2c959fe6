"""Columns of whole numbers that are long, in few bytes: each stretch as narrow as it can be."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from dftrace_ai.analysis.reading.set_aside import SetAside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Integers: TypeAlias = NDArray[Any]

ROWS_AT_ONCE = 65_536
"""So many rows are a stretch, about."""

Way = Literal["apart", "beside", "behind"]
"""What is held of a stretch: by how much each value is above the lowest; above a line from the
first to the last; or above the one before it."""

# So many pieces of a column that grows are no more memory than it takes time to pack them.
MOST_GROWING: Final = 4

# Lines that rise by more from row to row are none that numbers or rows have.
STEEPEST: Final = 2**31


class _Stretch(NamedTuple):
    """Some rows of a column, all of them `base` where they have no kind."""

    rows: int
    kind: np.dtype[Any] | None
    place: int  # where its bytes are set aside
    base: int
    rise: int  # from row to row
    way: Way


def _packed(values: Integers, way: Way) -> tuple[Integers | None, int, int, Way]:
    """Return values in the narrowest numbers, and what has to be added to them."""
    least, most = int(values.min()), int(values.max())
    if least == most:
        return None, least, 0, "apart"
    rise = 0
    if way == "beside":
        rise = (int(values[-1]) - int(values[0])) // max(1, len(values) - 1)
        rise = rise if abs(rise) < STEEPEST else 0
        values = values - rise * np.arange(len(values))
        least, most = int(values.min()), int(values.max())
    elif way == "behind" and most - least >= 2**32:
        above = np.diff(values, prepend=values[:1])
        if above.min() >= 0 and above.max() < 2**32:
            return above.astype(np.uint32), int(values[0]), 0, way
    if most - least >= 2**63:
        return values, 0, rise, "apart"
    kind = np.min_scalar_type(most - least)
    return (values - least).astype(kind), least, rise, "apart"


class LongColumn(np.lib.mixins.NDArrayOperatorsMixin):
    """A column in stretches, which is an array for whoever asks for some rows of it, or for all.

    Args:
        way: how stretches are held, where that takes fewer bytes.
        kind: the numbers that it gives.
        aside: where their bytes go, together with those of others.
    """

    def __init__(
        self, way: Way = "apart", kind: Any = np.int64, aside: SetAside | None = None
    ) -> None:
        self.dtype: Final = np.dtype(kind)
        self._way: Final = way
        self._stretches: list[_Stretch] = []
        self._aside: Final = aside or SetAside()
        self._firsts = [0]
        self._begins = np.zeros(0, np.int64)

    def add(self, values: Integers) -> None:
        """Take in the next rows, which are a stretch."""
        self._add(len(values), *_packed(values.astype(np.int64, copy=False), self._way))

    def replace(self, number: int, values: Integers) -> None:
        """Put other rows, maybe more, in place of those of a stretch."""
        self.add(values)
        self._stretches[number] = self._stretches.pop()
        rows = [stretch.rows for stretch in self._stretches]
        self._firsts = [0, *accumulate(rows)]
        self._begins = self._begins[:0]

    def _add(self, rows: int, values: Integers | None, base: int, rise: int, way: Way) -> None:
        kind, place = (None, 0) if values is None else (values.dtype, self._aside.add(values.data))
        self._stretches.append(_Stretch(rows, kind, place, base, rise, way))
        self._firsts.append(self._firsts[-1] + rows)

    def _values(self, stretch: _Stretch, first: int, behind: int) -> Integers:
        """Return what is held of some rows of a stretch that are not all the same."""
        size = np.dtype(stretch.kind).itemsize
        content = self._aside.read(stretch.place + first * size, (behind - first) * size)
        return np.frombuffer(content, stretch.kind)

    @property
    def cuts(self) -> list[int]:
        """Where each stretch begins, and where the last ends."""
        return self._firsts

    def rows(self, first: int, behind: int) -> Integers:
        """Return rows that follow each other."""
        low = max(0, bisect_right(self.cuts, first) - 1)
        found = np.empty(max(0, behind - first), self.dtype)
        for number in range(low, len(self.cuts) - 1):
            begin, end = self.cuts[number], self.cuts[number + 1]
            if begin >= behind:
                break
            begins, ends = max(first, begin), min(behind, end)
            self._put(number, begins - begin, found[begins - first : ends - first])
        return found

    def _put(self, number: int, first: int, into: Integers) -> None:
        """Put rows of a stretch into others."""
        stretch = self._stretches[number]
        behind = first + len(into)
        if stretch.kind is None:
            into[:] = np.array(stretch.base).astype(self.dtype)
        elif stretch.way == "behind":
            into[:] = np.cumsum(self._values(stretch, 0, behind), dtype=np.int64)[first:]
            into += stretch.base
        elif self.dtype == np.int64 and not stretch.rise:
            values = self._values(stretch, first, behind)
            np.add(values, np.int64(stretch.base), out=into, dtype=np.int64)
        else:
            values = self._values(stretch, first, behind)
            found = np.add(values, np.int64(stretch.base), dtype=np.int64)
            found += stretch.rise * np.arange(first, behind)
            into[:] = found.astype(self.dtype, copy=False)

    def each(self, which: Integers) -> Iterator[tuple[int, int, Integers]]:
        """Yield by stretch its begin and end, and rows of it: by a mask, or rising indices."""
        cuts = self.cuts
        inner = None if which.dtype == bool else np.searchsorted(which, cuts)
        for number in range(len(cuts) - 1):
            begin, end = cuts[number], cuts[number + 1]
            if inner is None:
                here = np.flatnonzero(which[begin:end])
            else:
                here = which[inner[number] : inner[number + 1]] - begin
            if len(here):
                yield begin, end, here

    def __len__(self) -> int:
        return self.cuts[-1]

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            first, behind, step = which.indices(len(self))
            return self.rows(first, max(first, behind)) if step == 1 else np.asarray(self)[which]
        if not isinstance(which, np.ndarray) or not which.ndim:
            place = int(which)
            place += len(self) if place < 0 else 0
            if not 0 <= place < len(self):
                raise IndexError(f"{which} of {len(self)} rows")
            return self.rows(place, place + 1)[0]
        if which.dtype != bool and len(which) and (which[0] < 0 or (np.diff(which) < 0).any()):
            which = np.where(which < 0, which + len(self), which)
            order = np.argsort(which, kind="stable")
            found = np.empty(len(which), self.dtype)
            found[order] = self[which[order]]
            return found
        pieces = [self.rows(begin, end)[here] for begin, end, here in self.each(which)]
        return np.concatenate(pieces) if pieces else np.zeros(0, self.dtype)

    def searchsorted(self, asked: Any, side: Any = "left", sorter: Any = None) -> Any:
        """Return where values would stand among these, which rise."""
        values = np.asarray(asked)
        if sorter is not None or not values.size or len(self.cuts) < 3:
            return np.asarray(self).searchsorted(asked, side, sorter)
        if len(self._begins) != len(self.cuts) - 1:
            self._begins = np.array([self[at] for at in self.cuts[:-1]])
        flat = values.ravel()
        number = np.maximum(np.searchsorted(self._begins, flat, side) - 1, 0)
        order = np.argsort(number, kind="stable")
        bounds = np.searchsorted(number, np.arange(len(self.cuts)), sorter=order).tolist()
        found = np.empty(len(flat), np.int64)
        for at, (low, high) in enumerate(pairwise(bounds)):
            if low < high:
                which, first = order[low:high], self.cuts[at]
                some = self.rows(first, self.cuts[at + 1]).searchsorted(flat[which], side)
                found[which] = first + some
        return found.reshape(values.shape)[()]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Integers:
        return self.rows(0, len(self)).astype(dtype or self.dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **named: Any) -> Any:
        arrays = [np.asarray(one) if isinstance(one, LongColumn) else one for one in given]
        return getattr(ufunc, method)(*arrays, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def brief(self) -> Integers:
        """Return it, or if all values are the same that one alone."""
        same = {stretch.base if stretch.kind is None else None for stretch in self._stretches}
        if len(same) == 1 and None not in same:
            return np.broadcast_to(self.dtype.type(*same), len(self))
        return cast("Integers", self)

    @property
    def strides(self) -> tuple[int, ...]:
        """Other than of what has one value for all."""
        return (self.dtype.itemsize,)

    def max(self, **named: Any) -> Any:
        """Return the greatest value."""
        each = (self.rows(*pair) for pair in zip(self.cuts, self.cuts[1:], strict=False))
        return np.array([one.max() for one in each]).max(**named)

    def min(self, **named: Any) -> Any:
        """Return the lowest value."""
        each = (self.rows(*pair) for pair in zip(self.cuts, self.cuts[1:], strict=False))
        return np.array([one.min() for one in each]).min(**named)


class SumColumn(LongColumn):
    """What two columns come to together, such as a beginning and a length."""

    def __init__(self, first: LongColumn, second: LongColumn) -> None:
        super().__init__()
        self._both = first, second

    @property
    def cuts(self) -> list[int]:
        """Where each stretch begins, and where the last ends."""
        return self._both[0].cuts

    def _put(self, number: int, first: int, into: Integers) -> None:
        one, other = self._both
        one._put(number, first, into)
        more = np.empty_like(into)
        other._put(number, first, more)
        into += more


class Growing:
    """A column that comes in pieces: a few of them stay arrays."""

    def __init__(self, way: Way, aside: SetAside) -> None:
        self._way: Final[Way] = way
        self._aside: Final = aside
        self._pieces: list[Integers] = []
        self._long: LongColumn | None = None

    def add(self, values: Integers) -> None:
        """Take in the next rows."""
        if not len(values):
            return
        self._pieces.append(values)
        if self._long is None and len(self._pieces) > MOST_GROWING:
            self._long = LongColumn(self._way, aside=self._aside)
        while self._long is not None and self._pieces:
            self._long.add(self._pieces.pop(0))

    def whole(self) -> Integers:
        """Return all of them."""
        if self._long is not None:
            return cast("Integers", self._long)
        if len(self._pieces) > 1:
            self._pieces = [np.concatenate(self._pieces)]
        return self._pieces[0] if self._pieces else np.zeros(0, np.int64)
