"""Recordings that are read while they are written: each event once, whatever is written anew."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai import system
from dftrace_ai.analysis.otlp.placing import PlacedSpans
from dftrace_ai.analysis.reading.scanning import BEGIN
from dftrace_ai.analysis.reading.trace_end import read_end
from dftrace_ai.analysis.reading.trace_file import OPEN_FILES, HeldFile
from dftrace_ai.errors import TraceError, readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.otlp.messages import Resource, Span
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.reading.reader import Start
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.where import Where

# By its last bytes a block is known again; no write is longer than so many blocks.
LAST_BYTES: Final = 64
BLOCKS_KNOWN: Final = 16

# How a part ends behind which another one comes.
GOES_ON: Final = "rotated"


class _Read(NamedTuple):
    """A place up to which a file was read, the last bytes there, and what the last block had."""

    whole: Start
    last: bytes
    ids: Integers | None


class _File:
    """A file of a recording, and how far it was read."""

    def __init__(self, trace: Trace, *, live: bool) -> None:
        self.trace = _held(trace) if live else trace
        self.is_closed = False
        self.read: deque[_Read] = deque([_Read(BEGIN, b"", None)], BLOCKS_KNOWN)

    def whole(self, again: set[int]) -> Start:
        """Return where to read on; what was read and is there no more is added to `again`."""
        with readable(self.trace), self.trace.file.opened() as raw:
            # A block behind the end that the recorder goes by is cut off by its next write.
            while len(self.read) > 1 and self.read[-1].last != _bytes_before(
                raw.fileno(), self.read[-1].whole.file_bytes
            ):
                ids = self.read.pop().ids
                again.update(() if ids is None else ids[ids > 0].tolist())
        return self.read[-1].whole

    def note(self, whole: Start, ids: Integers) -> None:
        """Take in that a block was read."""
        with readable(self.trace), self.trace.file.opened() as raw:
            self.read.append(_Read(whole, _bytes_before(raw.fileno(), whole.file_bytes), ids))

    def close(self) -> None:
        """Read no more of it; how it ends is known from now on, whoever deletes it."""
        self.is_closed = True
        with suppress(TraceError):  # it was read while it was written, too
            self.trace.know_end(read_end(self.trace.file))
        self.trace.file = replace(self.trace.file, held=None)


def _held(trace: Trace) -> Trace:
    """Return a trace that stays readable when its recorder deletes it, where there is room."""
    held = copy(trace)
    with suppress(OSError):
        if len(os.listdir(OPEN_FILES)) < system.open_files() // 2:  # noqa: PTH208 - numbers alone
            held.file = replace(trace.file, held=HeldFile(trace.path), kept=None)
    return held


def _bytes_before(descriptor: int, place: int) -> bytes:
    return system.read_at(descriptor, min(place, LAST_BYTES), max(0, place - LAST_BYTES))


class Recording:
    """The files of a process, whose spans are read as far as they are written.

    Args:
        trace: the first of them.
        where: which spans are told.
        live: it may still be written.

    Attributes:
        placed: where its spans get their places.
        is_over: all of it has been read.
    """

    def __init__(self, trace: Trace, where: Where | None = None, *, live: bool = False) -> None:
        self.placed = PlacedSpans(trace, where, live=live)
        self._files: list[_File] = []
        self._live = live
        self.is_over = False

    @property
    def resource(self) -> Resource:
        """The process."""
        return self.placed.resource

    @property
    def files(self) -> list[Trace]:
        """Its files, in their order."""
        return [file.trace for file in self._files]

    def add(self, trace: Trace) -> None:
        """Take in a file, one of those behind the others."""
        if all(file.trace.path != trace.path for file in self._files):
            self._files.append(_File(trace, live=self._live))
            self._files.sort(key=lambda file: file.trace.part)

    def read(self, *, last: bool = True) -> Iterator[list[Span]]:
        """Yield the spans that have a place now, as far as files are written.

        `last`: nothing follows; all spans get a place, and that of the process is told.

        Raises:
            TraceError: a file cannot be read any more; while it may be written, that is a note.
        """
        for file in self._files:
            if file.is_closed or self.is_over:
                continue
            self.placed.ended = None
            yield from self._live_spans(file, last=last) if self._live else self._spans(file.trace)
            last |= self._live and self.placed.ended not in {None, GOES_ON}
        if last:
            yield self.end()

    def _spans(self, trace: Trace) -> Iterator[list[Span]]:
        for placed in self.placed.read(trace):
            yield placed.spans

    def _live_spans(self, file: _File, *, last: bool) -> Iterator[list[Span]]:
        try:
            start = file.whole(self.placed.again)
            for whole, spans, ids in self.placed.read(file.trace, start, to_end=last):
                file.note(whole, ids)
                yield spans
        except TraceError as error:
            # What is behind it may be readable.
            self.placed.notes.append(str(error))
            file.close()
        if self.placed.ended is not None:
            file.close()

    def end(self) -> list[Span]:
        """Return the spans that have no place yet, and that of the process; once."""
        if self.is_over:
            return []
        self.is_over = True
        return self.placed.end()
