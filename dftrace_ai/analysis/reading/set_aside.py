"""Bytes that are set aside in a file without a name, and read again when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dftrace_ai.analysis.reading.unnamed_file import UnnamedFile

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer

# Fewer are not worth a file; and each time it is written to it is by as many.
AT_HAND_BYTES = 1024 * 1024


class SetAside:
    """Bytes one behind the other, of which the last ones alone are in memory.

    Where no file can be written, or there is no room for more, they stay in memory. A copy by
    pickle has them all, and sets them aside for itself.
    """

    def __init__(self, content: bytes = b"") -> None:
        self._file: UnnamedFile | None = None
        self._last = bytearray(content)
        self._first = 0  # where the last ones begin
        self._is_full = False

    def add(self, content: Buffer) -> int:
        """Take bytes in; returns their place."""
        place = self._first + len(self._last)
        large = memoryview(content).nbytes >= AT_HAND_BYTES
        if not (large and self._let_go() and self._written(content)):
            self._last += content
            if len(self._last) >= AT_HAND_BYTES:
                self._let_go()
        return place

    def _let_go(self) -> bool:
        """Write what is in memory, and return whether it is not any more."""
        if self._written(self._last):
            self._last = bytearray()
        return not self._is_full

    def _written(self, content: Buffer) -> bool:
        try:
            if not self._is_full:
                self._file = self._file or UnnamedFile("dftrace-columns-")
                self._file.add(content)
                self._first += memoryview(content).nbytes
        except OSError:
            self._is_full = True
        return not self._is_full

    def __reduce__(self) -> tuple[object, ...]:
        before = self._file.read(0, self._first) if self._file else b""
        return SetAside, (before + self._last,)

    def read(self, place: int, size: int) -> bytes:
        """Return bytes that were taken in together; DftraceError: the disk does not give them."""
        if self._file and place < self._first:
            return self._file.read(place, size)
        place -= self._first
        return bytes(memoryview(self._last)[place : place + size])


class ColumnAside(NamedTuple):
    """A column of numbers that was set aside; where all are the same that one alone."""

    aside: SetAside
    place: int
    rows: int
    kind: np.dtype[Any]
    same: bool

    @classmethod
    def of(cls, values: NDArray[Any], aside: SetAside) -> ColumnAside:
        """Set a column aside."""
        same = values.strides == (0,)
        held = np.ascontiguousarray(values[:1] if same else values)
        return cls(aside, aside.add(held.data), len(values), values.dtype, same)

    @property
    def values(self) -> NDArray[Any]:
        """The numbers, read now; they may not be written to."""
        count = min(1, self.rows) if self.same else self.rows
        content = self.aside.read(self.place, count * self.kind.itemsize)
        return np.broadcast_to(np.frombuffer(content, self.kind), (self.rows,))
