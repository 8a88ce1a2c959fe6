"""The events of files for programs that take Arrow's columns, without a copy and without a package.

What is handed over are the structures of Arrow's C data interface in capsules
(arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html), which the native reader
makes of its blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dftrace_ai import _reader
from dftrace_ai.analysis.reading.scanning.blocks import TraceBlocks, new_scanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["ArrowBatch", "ArrowEvents"]


@dataclass(frozen=True, repr=False)
class ArrowBatch:
    """Events that follow each other in a file; `TraceSet.arrow` gives them."""

    block: EventBlock
    file: int
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return self.block.rows

    def __repr__(self) -> str:
        return f"<{len(self)} events: {', '.join(self.columns)}>"

    def __arrow_c_schema__(self) -> object:
        """Return the types of the columns in a capsule."""
        return _reader.arrow_schema(self.columns)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Return types and columns in capsules; each column lives as long as somebody holds it."""
        return _reader.arrow_array(self.block, self.file, self.columns)


class ArrowEvents:
    """Iterates over events in batches; as a whole a stream. `tell` gets what was not read."""

    def __init__(
        self,
        files: Sequence[Trace],
        columns: tuple[str, ...],
        tell: Callable[[list[str]], Any],
        first: int = 0,
    ) -> None:
        self._files = files
        self._columns = columns
        self._tell = tell
        self._first = first

    def __repr__(self) -> str:
        return f"<stream of events: {', '.join(self._columns)}>"

    def __iter__(self) -> Iterator[ArrowBatch]:
        """Yield the events, file by file, as many as a block of the file has."""
        for block, file in self._blocks():
            yield ArrowBatch(block, file, self._columns)

    def __arrow_c_schema__(self) -> object:
        """Return the types of the columns in a capsule."""
        return _reader.arrow_schema(self._columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a stream in a capsule, which reads the files when it is asked for their events."""
        return _reader.arrow_stream(self._blocks(), self._columns)

    def _blocks(self) -> Iterator[tuple[EventBlock, int]]:
        # One for all files, so that a name has one number.
        scanner = new_scanner()
        notes: list[str] = []
        for number, trace in enumerate(self._files, self._first):
            blocks = TraceBlocks(scanner, trace)
            for block in blocks:
                if block.rows:
                    yield block, number
            notes += blocks.notes
        self._tell(notes)
