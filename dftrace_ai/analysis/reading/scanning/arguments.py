"""The arguments of events, read when they are asked for: few are, and they are most of a trace."""

from __future__ import annotations

import os
import weakref
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from dftrace_ai.analysis.reading.scanning.blocks import argument_places, new_scanner
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.reading.scanning.blocks import TraceBlocks
    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["Arguments", "BlockArguments", "TraceArguments"]

# Who goes through the spans of a thread in the order of time stays in few blocks for long.
# Nearly all files of a job with many ranks are shorter, and not read a second time.
BYTES_AT_HAND = 4 * 1024 * 1024

# Of a job with many ranks only those that were asked last have blocks at hand.
TRACES_AT_ONCE = 8


class Arguments(Protocol):
    """The arguments of rows as JSON."""

    def text_of(self, row: int) -> memoryview:
        """Return those of a row; empty where it has none."""

    def texts_of(self, rows: NDArray[Any]) -> Iterable[memoryview]:
        """Return those of rows that rise; empty where one has none."""


class BlockArguments(NamedTuple):
    """The arguments of the rows of a block: where in its text those of each row begin and end."""

    text: memoryview
    begins: NDArray[Any]
    ends: NDArray[Any]

    @classmethod
    def of(cls, block: EventBlock) -> BlockArguments:
        """Return those of a block that was scanned."""
        return cls(block.text, *argument_places(block))

    def text_of(self, row: int) -> memoryview:
        """Return those of a row, as JSON; empty where it has none."""
        return self.text[int(self.begins[row]) : int(self.ends[row])]

    def texts_of(self, rows: NDArray[Any]) -> list[memoryview]:
        """Return those of rows, as JSON; empty where one has none."""
        text = self.text
        places = zip(self.begins[rows].tolist(), self.ends[rows].tolist(), strict=True)
        return [text[begin:end] for begin, end in places]


class _Kept(NamedTuple):
    """The arguments of a block that cannot be read again by itself, packed."""

    packed: bytes
    begins: NDArray[Any]
    ends: NDArray[Any]


@dataclass(repr=False)
class TraceArguments:
    """The arguments of the rows of a file: read again by blocks; the text of others is kept."""

    trace: Trace
    rows: int = 0
    _firsts: list[int] = field(default_factory=list)
    _pieces: list[tuple[int, int] | _Kept] = field(default_factory=list)
    _at_hand: dict[int, BlockArguments] = field(default_factory=dict)

    def add(self, block: EventBlock, blocks: TraceBlocks) -> None:
        """Take in the rows of the block that was read last."""
        if block.rows:
            self._firsts.append(self.rows)
            self._pieces.append(blocks.place or _kept(block))
            self.rows += block.rows
            if self._bytes_at_hand() + len(block.text) <= BYTES_AT_HAND:
                self._at_hand[len(self._pieces) - 1] = BlockArguments.of(block)
                _RECENT.use(self)

    def text_of(self, row: int) -> memoryview:
        """Return those of a row, as JSON; empty where it has none.

        Raises:
            TraceError: the file is not what it was when it was read.
        """
        piece = bisect_right(self._firsts, row) - 1
        return self._at(piece).text_of(row - self._firsts[piece])

    def texts_of(self, rows: NDArray[Any]) -> Iterator[memoryview]:
        """Yield those of rows that rise, as JSON; empty where one has none."""
        cuts = np.searchsorted(rows, [*self._firsts, self.rows]).tolist()
        for piece, (low, high) in enumerate(pairwise(cuts)):
            if low < high:
                yield from self._at(piece).texts_of(rows[low:high] - self._firsts[piece])

    def _at(self, piece: int) -> BlockArguments:
        found = self._at_hand.pop(piece, None)
        if found is None:
            found = self._read(piece)
            _RECENT.use(self)
            while self._at_hand and self._bytes_at_hand() + len(found.text) > BYTES_AT_HAND:
                # Another thread may have had it let go of all.
                self._at_hand.pop(next(iter(self._at_hand), -1), None)
        self._at_hand[piece] = found  # the last one that was asked for stands last
        return found

    def _bytes_at_hand(self) -> int:
        return sum(len(arguments.text) for arguments in [*self._at_hand.values()])

    def _read(self, piece: int) -> BlockArguments:
        which = self._pieces[piece]
        if isinstance(which, _Kept):
            import zstandard

            return BlockArguments(memoryview(zstandard.decompress(which.packed)), *which[1:])
        place, size = which
        file, scanner = self.trace.file, new_scanner()
        try:
            with file.opened() as raw:
                if file.codec == "plain":
                    text = os.pread(raw.fileno(), size, place)
                    block = scanner.scan(text if text.endswith(b"\n") else text + b"\n")
                else:
                    end = min(os.fstat(raw.fileno()).st_size, place + size)
                    read = scanner.read_block(raw.fileno(), file.codec, place, end)
                    block = read[0] if read else scanner.scan(b"")
        except OSError as error:
            raise TraceError(f"{self.trace}: cannot be read: {error.strerror}") from error
        rows = (*self._firsts, self.rows)[piece + 1] - self._firsts[piece]
        if block.rows != rows:
            raise TraceError(f"{self.trace}: was changed while it was read")
        return BlockArguments.of(block)


class _Recent:
    """The files that were asked last; those before them let go of their blocks."""

    def __init__(self) -> None:
        self._asked: list[weakref.ref[TraceArguments]] = []

    def use(self, asked: TraceArguments) -> None:
        """Note that a file is asked now."""
        there = [(one, one()) for one in self._asked]
        self._asked = [one for one, held in there if held is not None and held is not asked]
        self._asked.append(weakref.ref(asked))
        for one in self._asked[:-TRACES_AT_ONCE]:
            held = one()
            if held is not None:
                held._at_hand.clear()
        del self._asked[:-TRACES_AT_ONCE]


_RECENT = _Recent()


def _kept(block: EventBlock) -> _Kept:
    import zstandard

    packed = zstandard.ZstdCompressor(level=1).compress(block.text)
    # A block holds less text than 32 bits count.
    begins, ends = (places.astype(np.uint32) for places in argument_places(block))
    return _Kept(packed, begins, ends)
