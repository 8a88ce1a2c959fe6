"""Columns that grow while a file is read, and members of arguments that are taken meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.reading.scanning import MOST_LABEL_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dftrace_ai._reader import EventBlock

ROWS_AT_ONCE: Final = 32_768

NO_NUMBER: Final = -(2**63)
"""In place of a number, where arguments have none."""


class Wanted(NamedTuple):
    """Members of arguments that are taken with the columns, of events of some names."""

    of: Callable[[str, str], bool]  # by category and name
    whole: tuple[str, ...] = ()  # whole numbers
    micros: tuple[str, ...] = ()  # microseconds, as nanoseconds
    texts: tuple[str, ...] = ()  # places in `Members.texts`; -1 where there is none


@dataclass(frozen=True, repr=False)
class Members:
    """Members of arguments of events of some names; `NO_NUMBER` where there is none."""

    rows: NDArray[Any]  # the events, in order
    columns: dict[str, NDArray[Any]]  # by the name of the member
    texts: tuple[str, ...]  # each once

    def of(self, rows: NDArray[Any]) -> NDArray[Any] | None:
        """Return where rows that rise stand among these; None where one is none of them."""
        at = np.searchsorted(self.rows, rows)
        if not len(rows) or (at[-1] < len(self.rows) and np.array_equal(self.rows[at], rows)):
            return at
        return None


class Column:
    """A column that grows, in the narrowest whole numbers of some kinds that hold it."""

    def __init__(self, kinds: Sequence[type[np.integer[Any]]]) -> None:
        self._kinds = list(kinds)
        self._count = 0
        # What all rows have so far; such a column has no values yet.
        self._same: Any = None
        self._values: NDArray[Any] = np.empty(0, self._kinds[0])

    def add(self, piece: NDArray[Any]) -> None:
        """Add rows."""
        count = self._count + len(piece)
        while len(self._kinds) > 1 and not _fits(piece, self._kinds[0]):
            del self._kinds[0]
            self._values = self._values.astype(self._kinds[0])
        if self._same is None:
            self._same = piece[0]
        if len(self._values) or not (piece == self._same).all():
            if not len(self._values):
                self._values = np.full(self._count, self._same, self._kinds[0])
            if count > len(self._values):
                # Memory is moved, and not there twice.
                self._values.resize(count + count // 4, refcheck=False)
            self._values[self._count : count] = piece
        self._count = count

    def cut(self, count: int) -> None:
        """Let go of all rows but the first ones."""
        self._count = count

    def below(self, bound: int) -> int:
        """Return how many rows, which rise, are less."""
        if len(self._values) or not self._count:
            return int(np.searchsorted(self._values[: self._count], bound))
        return int(self._same < bound)

    def whole(self, *, kept: bool) -> NDArray[Any]:
        """Return all rows, a copy where more may come; a value that all have is there once."""
        if not len(self._values) and self._count:
            return np.broadcast_to(self._kinds[0](self._same), (self._count,))
        if kept:
            values: NDArray[Any] = self._values[: self._count].copy()
            return values
        self._values.resize(self._count, refcheck=False)
        return self._values


def _fits(piece: NDArray[Any], kind: type[np.integer[Any]]) -> bool:
    reach = np.iinfo(kind)
    return bool(reach.min <= piece.min() and piece.max() <= reach.max)


class Taking:
    """Takes members of arguments from blocks."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._names = (*wanted.whole, *wanted.micros, *wanted.texts)
        self._mask = bytearray()  # by label
        self._rows = Column((np.uint32, np.int64))
        self._columns = [Column((np.int32, np.int64)) for _ in self._names]
        self._texts: dict[str, int] = {}
        self._text_bytes = 0
        # Rows and values that came last: many small ones are put into columns together.
        self._last: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._last_rows = 0

    def add(self, block: EventBlock, before: int, labels: Sequence[tuple[str, str]]) -> None:
        """Take those of a block, before which so many rows were read."""
        more = labels[len(self._mask) :]
        self._mask.extend(self._wanted.of(*label) for label in more)
        found = block.members(
            self._mask, self._wanted.whole, self._wanted.micros, self._wanted.texts
        )
        rows = np.frombuffer(found[0], np.uint32)
        if not len(rows):
            return
        values = np.frombuffer(found[1], np.int64).reshape(len(rows), -1)
        if texts := len(self._wanted.texts):
            values = values.copy()
            places = np.array([*map(self._place, found[2]), -1], np.int64)
            values[:, -texts:] = places[np.maximum(values[:, -texts:], -1)]
        self._last.append((rows + np.int64(before), values))
        self._last_rows += len(rows)
        if self._last_rows >= ROWS_AT_ONCE:
            self._put()

    def _put(self) -> None:
        if self._last:
            rows, values = (np.concatenate(pieces) for pieces in zip(*self._last, strict=True))
            self._rows.add(rows)
            for at, column in enumerate(self._columns):
                column.add(values[:, at])
        self._last, self._last_rows = [], 0

    def _place(self, text: str) -> int:
        if text not in self._texts:
            self._text_bytes += len(text)
            if self._text_bytes > MOST_LABEL_BYTES:
                raise MemoryError
            self._texts[text] = len(self._texts)
        return self._texts[text]

    def cut(self, rows: int) -> None:
        """Let go of all but the first rows of the file."""
        count = self._rows.below(rows)
        for column in (self._rows, *self._columns):
            column.cut(count)

    def members(self, *, kept: bool) -> Members:
        """Return what was taken, copies where more may come."""
        self._put()
        pairs = zip(self._names, self._columns, strict=True)
        columns = {name: column.whole(kept=kept) for name, column in pairs}
        return Members(self._rows.whole(kept=kept), columns, tuple(self._texts))
