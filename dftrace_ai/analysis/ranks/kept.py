"""What a rank says, in few bytes: in memory, or beside its trace and believed as an index is.

A chunk of steps is read when it is asked for, and let go of then: of a job with a thousand ranks
their steps do not fit into memory.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
import zlib
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, get_args

import numpy as np
import orjson

from dftrace_ai._reader import pack_columns, unpack_columns
from dftrace_ai.analysis.ranks.partials import (
    STEPS_OF_CHUNK,
    UNTIL,
    UNTOLD,
    CallRows,
    Group,
    RankPartial,
    SilenceRows,
    SpanRows,
    StepRows,
    StepsChunk,
)
from dftrace_ai.analysis.reading.clocks import LATEST_NS
from dftrace_ai.analysis.reading.index_file import (
    IndexFileError,
    TracedFile,
    check_place,
    identity_of,
    index_path,
    opened_beside,
    write_beside,
)
from dftrace_ai.analysis.steps.calls import LATE_NS, LATE_SHARE
from dftrace_ai.analysis.steps.detection import FoundBy
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.file_names import RANK_FILE_SUFFIX
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dftrace_ai.analysis.ranks.partials import Place
    from dftrace_ai.analysis.reading import Trace
    from dftrace_ai.analysis.reading.event_columns import Integers

MARK: Final = b"dftrace rank 2 "
DIGEST_BYTES: Final = 64
# Behind the mark: the checksum of the head, and how long it is.
LENGTH_BYTES: Final = 10
MOST_HEAD_BYTES: Final = 64 * 1024 * 1024
MOST_BYTES: Final = 2**40
MOST_ROWS: Final = 2**26
MOST_IN_MEMORY: Final = 64 * 1024 * 1024

KINDS: Final = (StepRows, SpanRows, SilenceRows, CallRows)
COLUMNS: Final = tuple(len(kind._fields) for kind in KINDS)
# Columns of steps and spans, which whoever asks for no calls needs alone.
FIRST: Final = COLUMNS[0] + COLUMNS[1]

NO_SILENCES: Final = SilenceRows(*[np.zeros(0, np.int64)] * COLUMNS[2])
NO_CALLS: Final = CallRows(*[np.zeros(0, np.int64)] * COLUMNS[3])


class Source(Protocol):
    """Where packed chunks are."""

    def read(self, place: int, size: int) -> bytes:
        """Return some bytes."""


class InMemory(NamedTuple):
    """Chunks one behind the other."""

    content: bytes

    def read(self, place: int, size: int) -> bytes:
        """Return some bytes."""
        return self.content[place : place + size]


class Beside(NamedTuple):
    """A file beside a trace."""

    path: Path

    def read(self, place: int, size: int) -> bytes:
        """Return some bytes."""
        try:
            with self.path.open("rb") as file:
                return os.pread(file.fileno(), size, place)
        except OSError as error:
            raise TraceError(f"{self.path}: cannot be read: {error.strerror}") from error


class Piece(NamedTuple):
    """Where a chunk is, how many rows it has of each kind; of steps and spans the first bytes."""

    place: int
    size: int
    rows: tuple[int, int, int, int]
    check: int  # of all its bytes, and of the first
    first_size: int
    first_check: int


class PackedChunks(Mapping[int, StepsChunk]):
    """Chunks that are unpacked each time when they are asked for."""

    def __init__(
        self, source: Source, pieces: Mapping[int, Piece], names: int, groups: int
    ) -> None:
        self._source = source
        self.pieces = pieces
        self._bounds = names, groups
        self._believed: set[tuple[int, bool]] = set()

    def __getitem__(self, number: int) -> StepsChunk:
        piece = self.pieces[number]
        content = self._read(piece.place, piece.size, piece.check)
        parts = content[: piece.first_size], content[piece.first_size :]
        return self._believed_one(number, _unpacked(parts, piece.rows), whole=True)

    def first(self, number: int) -> StepsChunk:
        """Return a chunk without its calls and silences, in half of the time."""
        piece = self.pieces[number]
        content = self._read(piece.place, piece.first_size, piece.first_check)
        return self._believed_one(number, _unpacked((content,), piece.rows), whole=False)

    def _read(self, place: int, size: int, check: int) -> bytes:
        content = self._source.read(place, size)
        if zlib.crc32(content) != check:
            raise TraceError(f"{self._told}: is damaged, or was changed while it was read")
        return content

    def _believed_one(self, number: int, chunk: StepsChunk | None, *, whole: bool) -> StepsChunk:
        known = (number, whole) in self._believed
        if chunk is None or not (known or _can_be(chunk, number, *self._bounds)):
            raise TraceError(f"{self._told}: says what cannot be")
        self._believed.add((number, whole))
        return chunk

    @property
    def _told(self) -> str:
        return str(getattr(self._source, "path", "what was read of a rank"))

    def __contains__(self, number: object) -> bool:
        return number in self.pieces

    def __iter__(self) -> Iterator[int]:
        return iter(self.pieces)

    def __len__(self) -> int:
        return len(self.pieces)


class Kept(NamedTuple):
    """What is kept beside the trace of a process: what the rank says; None for no rank."""

    partial: RankPartial | None


class Spill:
    """What is not kept beside traces: in memory, beyond some of it in a file without a name."""

    def __init__(self) -> None:
        self._in_memory = 0
        self._number = -1
        self._size = 0
        self._lock = threading.Lock()

    def packed(self, partial: RankPartial) -> RankPartial:
        """Return a rank whose chunks are packed."""
        content, pieces = _packed(partial)
        whole = b"".join(content)
        with self._lock:
            if self._in_memory + len(whole) <= MOST_IN_MEMORY:
                self._in_memory += len(whole)
                return replace(partial, chunks=_chunks(partial, InMemory(whole), pieces))
            first = self._add(whole)
        moved = {at: piece._replace(place=piece.place + first) for at, piece in pieces.items()}
        return replace(partial, chunks=_chunks(partial, self, moved))

    def _add(self, content: bytes) -> int:
        try:
            if self._number < 0:
                self._number, name = tempfile.mkstemp(prefix="dftrace-ranks-")
                weakref.finalize(self, os.close, self._number)
                Path(name).unlink()
            first = self._size
            while self._size < first + len(content):
                behind = content[self._size - first :]
                self._size += os.pwrite(self._number, behind, self._size)
        except OSError as error:
            place = quoted(tempfile.gettempdir())
            raise TraceError(f"{place}: cannot be written: {error.strerror}") from error
        return first

    def read(self, place: int, size: int) -> bytes:
        """Return some bytes."""
        return os.pread(self._number, size, place)


def write_kept(
    parts: Sequence[Trace], files: Sequence[TracedFile], partial: RankPartial | None
) -> None:
    """Keep beside traces, which were `files` before they were read, what their process says."""
    path = rank_path(parts)
    check_place(path, (MARK,))
    content, pieces = ([], {}) if partial is None else _packed(partial)
    mode = 0o777
    for trace in parts:
        mode &= trace.file.content.stat().st_mode
    said = {
        "files": [tuple(one) for one in files],
        "rank": partial is not None,
        "chunks": [(number, *piece) for number, piece in pieces.items()],
    }
    if partial is not None:
        names = ("names", "found_by", "step_count", "peak_bytes")
        said |= {name: getattr(partial, name) for name in names}
        said["groups"] = [tuple(group) for group in partial.groups]
    head = orjson.dumps(said)
    begin = MARK + sha256(head).hexdigest().encode() + b" %010d\n" % len(head)
    write_beside(path, [begin, head, *content], mode)


def read_kept(parts: Sequence[Trace], place: Place) -> Kept | None:
    """Return what is kept beside traces; None without it, or for what was made of other files.

    What is not to be believed is an IndexFileError.
    """
    path = rank_path(parts)
    file = opened_beside(path, parts, most_bytes=MOST_BYTES)
    if file is None:
        return None
    with file:
        begin = file.read(len(MARK) + DIGEST_BYTES + LENGTH_BYTES + 2)
        digest, _, length = begin[len(MARK) :].partition(b" ")
        if not begin.startswith(MARK) or not length.strip().isdigit():
            raise IndexFileError("is damaged")
        head = file.read(min(int(length), MOST_HEAD_BYTES))
        size = os.fstat(file.fileno()).st_size - len(begin) - len(head)
        if sha256(head).hexdigest().encode() != digest:
            raise IndexFileError("is damaged")
        try:
            said = orjson.loads(head)
            files = [TracedFile(*one) for one in said["files"]]
            partial = _taken_apart(said, path, len(begin) + len(head), size, place)
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise IndexFileError("is damaged") from error
        # The trace lies beside it: what is damaged is made again, and not told in the middle.
        if partial is not None and not _are_whole(partial.chunks, file.fileno()):
            raise IndexFileError("is damaged")
    if files != [identity_of(trace) for trace in parts]:
        raise IndexFileError("was made before the trace changed")
    return Kept(partial)


def _are_whole(chunks: Mapping[int, StepsChunk], file: int) -> bool:
    pieces = chunks.pieces.values() if isinstance(chunks, PackedChunks) else ()
    return all(zlib.crc32(os.pread(file, one.size, one.place)) == one.check for one in pieces)


def rank_path(parts: Sequence[Trace]) -> Path:
    """Return where it is kept what a rank says: beside its traces, called as they are."""
    return index_path(parts, RANK_FILE_SUFFIX)


def _taken_apart(said: Any, path: Path, begin: int, size: int, place: Place) -> RankPartial | None:
    """Return what stands in the head of a file; whether chunks can be is for others to see."""
    if said["rank"] is False:
        return None
    pieces: dict[int, Piece] = {}
    for number, at, bytes_of, rows, *checks in said["chunks"]:
        figures = (number, at, bytes_of, *checks, *rows)
        whole = len(rows) == len(KINDS) and len(figures) == len(KINDS) + len(Piece._fields)
        if not whole or not all(type(one) is int and 0 <= one < 2**62 for one in figures):
            raise ValueError("no chunk")
        if at + bytes_of > size or checks[1] > bytes_of or sum(rows) > MOST_ROWS:
            raise ValueError("no chunk of this file")
        pieces[number] = Piece(begin + at, bytes_of, tuple(rows), *checks)
    names = tuple(said["names"])
    groups = tuple(Group(name, about, tuple(ranks)) for name, about, ranks in said["groups"])
    told = (*names, *(text for group in groups for text in group[:2]))
    counts = (said["step_count"], said["peak_bytes"], *(one for of in groups for one in of.ranks))
    if not all(type(one) is str for one in told) or not all(type(one) is int for one in counts):
        raise TypeError("no names, or no counts")
    if said["found_by"] not in get_args(FoundBy) or list(pieces) != sorted(pieces):
        raise ValueError("no steps")
    chunks = PackedChunks(Beside(path), pieces, len(names), len(groups))
    return RankPartial(place, names, groups, said["found_by"], chunks, *counts[:2])


def packed(partial: RankPartial, *, calls: bool = True) -> RankPartial:
    """Return a rank whose chunks are packed in memory, with its calls and silences or without."""
    content, pieces = _packed(partial, calls=calls)
    source = InMemory(b"".join(content))
    return replace(partial, chunks=_chunks(partial, source, pieces))


def _chunks(partial: RankPartial, source: Source, pieces: Mapping[int, Piece]) -> PackedChunks:
    return PackedChunks(source, pieces, len(partial.names), len(partial.groups))


def _packed(partial: RankPartial, *, calls: bool = True) -> tuple[list[bytes], dict[int, Piece]]:
    content: list[bytes] = []
    pieces: dict[int, Piece] = {}
    place = 0
    for number, chunk in partial.chunks.items():
        some = chunk if calls else chunk._replace(calls=NO_CALLS, silences=NO_SILENCES)
        told = [np.ascontiguousarray(column, np.int64) for column in _told(some)]
        first, rest = pack_columns(told[:FIRST]), pack_columns(told[FIRST:])
        content.append(first + rest)
        rows = tuple(len(kind[0]) for kind in some)
        checks = zlib.crc32(content[-1]), len(first), zlib.crc32(first)
        pieces[number] = Piece(place, len(content[-1]), rows, *checks)  # type: ignore[arg-type]
        place += len(content[-1])
    return content, pieces


def _told(chunk: StepsChunk) -> Iterator[Integers]:
    """Yield columns of which most are smaller numbers than those of the chunk."""
    steps, spans, silences, calls = chunk
    length = steps.end_ns - steps.start_ns
    yield from steps._replace(end_ns=length, time_ns=steps.time_ns - length)
    yield from spans._replace(end_ns=spans.end_ns - spans.start_ns)
    yield from silences._replace(end_ns=silences.end_ns - _usual_end(silences, calls))
    length = calls.end_ns - calls.start_ns
    yield from calls._replace(end_ns=length, late_ns=calls.late_ns - _usual_lateness(length))


def _unpacked(parts: Sequence[bytes], rows: Sequence[int]) -> StepsChunk | None:
    """Return a chunk of both parts or the first; None where these are none of so many rows."""
    values: list[Integers] = []
    for content, these in zip(parts, (slice(2), slice(2, 4)), strict=False):
        counts = [
            count
            for count, columns in zip(rows[these], COLUMNS[these], strict=True)
            for _ in range(columns)
        ]
        # Of a column without differences the first number says all.
        forms = content[: len(counts)].ljust(len(counts), b"\1")
        lengths = [
            min(count, 1) if not form else count for form, count in zip(forms, counts, strict=True)
        ]
        try:
            numbers = unpack_columns(content, tuple(lengths))
        except ValueError:
            return None
        place = 0
        for count, length in zip(counts, lengths, strict=True):
            strides = (8 if length == count else 0,)
            values.append(np.ndarray(count, np.int64, numbers, place, strides))
            place += 8 * length
    steps, spans = StepRows(*values[: COLUMNS[0]]), SpanRows(*values[COLUMNS[0] : FIRST])
    steps = steps._replace(
        end_ns=steps.start_ns + steps.end_ns, time_ns=steps.time_ns + steps.end_ns
    )
    spans = spans._replace(end_ns=spans.start_ns + spans.end_ns)
    if len(values) == FIRST:
        return StepsChunk(steps, spans, NO_SILENCES, NO_CALLS)
    silences = SilenceRows(*values[FIRST : FIRST + COLUMNS[2]])
    calls = CallRows(*values[FIRST + COLUMNS[2] :])
    late = calls.late_ns + _usual_lateness(calls.end_ns)
    calls = calls._replace(end_ns=calls.start_ns + calls.end_ns, late_ns=late)
    if len(silences.call) and silences.call.max() >= len(calls.end_ns):
        return None
    silences = silences._replace(end_ns=silences.end_ns + _usual_end(silences, calls))
    return StepsChunk(steps, spans, silences, calls)


def _usual_end(silences: SilenceRows, calls: CallRows) -> Integers:
    """Return where silences end as a rule: with the call that ended them."""
    if not len(calls.end_ns):
        return silences.start_ns
    at = np.maximum(silences.call, 0)
    return np.where(silences.call < 0, silences.start_ns, calls.end_ns[at])


def _usual_lateness(length_ns: Integers) -> Integers:
    return LATE_NS + length_ns // LATE_SHARE


def _can_be(chunk: StepsChunk, number: int, names: int, groups: int) -> bool:
    """Hold what is not checked any more when it is calculated with."""
    steps, spans, silences, calls = chunk
    count = len(steps.number)
    within = (
        (steps.number // STEPS_OF_CHUNK, number, number + 1),
        (np.diff(steps.number), 1, LATEST_NS),
        *((rows.step, UNTOLD, count) for rows in (spans, calls)),
        *((rows.name, 0, names) for rows in (spans, calls)),
        (calls.group, UNTOLD, groups),
        (calls.until, 0, len(UNTIL)),
        (silences.call, UNTOLD, len(calls.step)),
        *((np.diff(rows.start_ns), 0, LATEST_NS) for rows in (steps, spans, silences, calls)),
        *((rows.start_ns, -LATEST_NS, LATEST_NS) for rows in (steps, spans, silences, calls)),
        *((rows.end_ns - rows.start_ns, 0, LATEST_NS) for rows in (steps, spans, silences, calls)),
        (steps.time_ns - steps.blocked_ns, 0, LATEST_NS),
    )
    return bool(count) and all(
        not len(column) or bool(column.min() >= least and column.max() < bound)
        for column, least, bound in within
    )
