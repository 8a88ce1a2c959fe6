"""Profiles, of torch.profiler and others: JSON with events, taken apart natively into lines.

They are read once. Times keep their digits; those that cannot be are put right. What a document
says beside its events, the time since which it counts and the rank, becomes the header of the
trace. Where several documents stand one behind the other, as in files that were put together, each
is a trace.
Loaded where there is a profile.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from dftrace_ai._reader import Documents
from dftrace_ai.analysis.reading.decompression import PlainStream
from dftrace_ai.analysis.reading.importing.copies import Copied, CopiedText
from dftrace_ai.analysis.reading.importing.file_kinds import json_told
from dftrace_ai.analysis.reading.reader import LINE_BYTES, TraceReader
from dftrace_ai.analysis.reading.trace_file import Copy, SkippedFile, Tear, TraceFile
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.header_and_footer import HeaderFacts
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.source import Source

NS_PER_US: Final = 1000

# Far more than anybody puts together.
MOST_DOCUMENTS: Final = 1_000


def opened_documents(source: Source, *, listed: bool) -> list[TraceFile]:
    """Return the documents of a file as traces; the file itself where it turns out to be of lines.

    `listed` tells whether the events are in a list, or stand one behind the other.
    """
    file = source.file
    stream = PlainStream(file)
    documents = _Documents(file, stream, listed=listed)
    with file.opened() as raw:
        original = file.codec, os.fstat(raw.fileno()).st_size
    traces: list[TraceFile] = []
    for number in range(1, MOST_DOCUMENTS + 1):
        shown = file if number == 1 else replace(file, path=file.path / str(number))
        begins_at = documents.native.place
        copied, copy = documents.copied()
        if documents.is_trace():
            lines = replace(shown, codec=copied.codec, framed=True, named=False)
            traces.append(replace(lines, copy=replace(copy, original=original), kept=None))
        elif number == 1 and documents.is_line():
            return [file]
        elif number == 1:
            raise TraceError(f"{file}: not a trace file: {documents.told()}")
        else:
            behind = f"what stands behind the first document, at byte {begins_at}, is no trace"
            source.skipped.append(SkippedFile(str(file), f"{behind}: {documents.told()}"))
        if documents.tear or stream.tear:
            return traces
        if not documents.goes_on():
            if stream.tear:
                reason = f"what stands behind the last document is not read: {stream.tear}"
                source.skipped.append(SkippedFile(str(file), reason))
            return traces
        documents.native.begin()
    place = documents.native.place
    reason = f"what stands behind {MOST_DOCUMENTS} documents, at byte {place}, is not read"
    source.skipped.append(SkippedFile(str(file), reason))
    return traces


class _Documents:
    """The documents of a file, one after the other."""

    def __init__(self, file: TraceFile, stream: PlainStream, *, listed: bool) -> None:
        self.native = Documents(listed, LINE_BYTES)
        self.tear: Tear | None = None
        self._file = file
        self._stream = stream
        # One without a byte says that there are no more.
        self._chunks = filter(None, stream)

    def copied(self) -> tuple[Copied, Copy]:
        """Read a document."""
        with CopiedText() as text:
            text.add(b"[\n")
            while not self.native.over:
                text.add(self.native.add(next(self._chunks, b"")))
            torn = self.native.tear
            self.tear = torn and Tear(torn[0], torn[1], damaged=torn[2])
            if not (self._stream.tear or self.tear):
                text.add(b"]\n")
        notes: tuple[str, ...] = ()
        copied = text.copied
        if mending := self.native.mending():
            notes = tuple(_mending_told(*mending))
            copied = self._mended(copied)
        tear = self._stream.tear or self.tear
        copy = Copy(copied.path, copied, True, self._header(), tear, notes)
        return copied, copy

    def _mended(self, copied: Copied) -> Copied:
        copy = Copy(copied.path, copied)
        lines = replace(self._file, codec=copied.codec, copy=copy, held=None, kept=None)
        with CopiedText() as text:
            for piece in TraceReader(lines).texts():
                text.add(self.native.mend(piece))
        return text.copied

    def goes_on(self) -> bool:
        """Return whether there is another document, or anything else."""
        while (more := self.native.goes_on()) is None:
            self.native.add(next(self._chunks, b""))
        return more

    def is_trace(self) -> bool:
        """Return whether what was read is a trace, or the beginning of one."""
        if self.tear and not self.tear.damaged:
            return True
        is_list, has_events, entries, events = self.native.counts
        # One that is broken from its first event on is told of as a trace is, and not refused.
        return events > 0 or (has_events and not entries and not (is_list and self.tear))

    def is_line(self) -> bool:
        """Return whether it is the first of lines, each with an event."""
        return self.native.counts[3] == 0 and b'"ph"' in self.native.members

    def told(self) -> str:
        """Return what it is, for people, where it is no trace."""
        if self.tear:
            return f"{self.tear}, before any event"
        is_list, has_events, _, _ = self.native.counts
        names = map(_value, self.native.members)
        return json_told(names, is_list=is_list, has_events=has_events)

    def _header(self) -> HeaderFacts:
        facts = {name: _value(text) for name, text in self.native.facts.items()}
        base_ns = facts.get("baseTimeNanoseconds")
        distributed = facts.get("distributedInfo")
        said = distributed if isinstance(distributed, dict) else {}
        return HeaderFacts.of(
            {
                "host": facts.get("host_name"),
                "pid": self.native.pid,
                "time_base_us": base_ns // NS_PER_US if isinstance(base_ns, int) else None,
                "rank": said.get("rank"),
                "world_size": said.get("world_size"),
            }
        )


def _value(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text.decode("utf-8", "replace")  # numbers beyond all, and halves of letters


def _mending_told(left_out: int, durations: int) -> Iterator[str]:
    if left_out:
        count = counted(left_out, "event")
        yield f"{count} at times that cannot be, far from all others, left out"
    if durations:
        count = counted(durations, "duration")
        yield (
            f"{count} that cannot be, cut where the next event of a stream of the GPU begins "
            "or the trace ends"
        )
