"""Reading the lines and events of one trace file, with their line numbers, and its header line."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import orjson

from dftrace_ai.analysis.reading.decompression import PlainStream
from dftrace_ai.analysis.reading.trace_file import EMPTY, Tear
from dftrace_ai.trace_format.header_and_footer import header_of, late_rank_of
from dftrace_ai.trace_format.json_types import is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.reading.trace_file import TraceFile
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts
    from dftrace_ai.trace_format.json_types import EventLine

# Lines that frame the objects of a Chrome trace and carry none.
FRAMING = frozenset({b"", b"[", b"]"})

# A longer line is passed over: parsing one can take thirty times its length.
LINE_BYTES = 16 * 1024 * 1024

# Far beyond what any event may hold. Who goes on here is reading a bomb or a hole.
ENDLESS_BYTES = 2 * 1024 * 1024 * 1024

SHOWN_BYTES = 256


class LongLine(bytes):
    """The first bytes of a line of more than `LINE_BYTES`, which has `size` without its newline."""

    size: int


def _long_line(beginning: bytes, size: int) -> LongLine:
    line = LongLine(beginning[:SHOWN_BYTES])
    line.size = size
    return line


def as_line(line: bytes) -> bytes:
    """Return a line as the rules of its length have it: a `LongLine` where it is too long."""
    return line if len(line) <= LINE_BYTES else _long_line(line, len(line))


@dataclass(frozen=True)
class Start:
    """A place where a block begins, and a line: bytes, plain bytes and lines before it."""

    file_bytes: int = 0
    plain_bytes: int = 0
    lines: int = 0


class _HeldLine:
    """The beginning of a line whose end has not been read yet."""

    def __init__(self) -> None:
        self.text = bytearray()
        self.size = 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        self.text += part[: LINE_BYTES + 1 - len(self.text)]

    def take(self) -> bytes:
        text, size = bytes(self.text), self.size
        self.text.clear()
        self.size = 0
        return text if size <= LINE_BYTES else _long_line(text, size)


class TraceReader:
    """Reads a trace line by line, in memory that neither the file nor a line can raise.

    `tear` is known after the last line, None when all was read. A last line without its newline is
    one unless it is whole, and so are a line of more than two GiB, and a file without anything in
    it. `bad_lines` are those that `events` passed over, which are no objects.
    """

    def __init__(self, file: TraceFile) -> None:
        self.file = file
        self.tear: Tear | None = None
        self.bad_lines = 0

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield line number, from 1, and bytes of each line without its newline.

        A line of more than `LINE_BYTES` comes as a `LongLine`, which holds no event.
        """
        number = 1
        for text in self.texts():
            if isinstance(text, LongLine):
                yield number, text
                number += 1
                continue
            for line in text.removesuffix(b"\n").split(b"\n"):
                yield number, as_line(line)
                number += 1

    def texts(self, start: Start | None = None, end: int | None = None) -> Iterator[bytes]:
        """Yield the plain text in pieces of whole lines, from a place on to a byte of the file.

        Each line has its newline, a last one that is whole without, too. A line of more than
        `LINE_BYTES` comes by itself as a `LongLine`, if it is not within what was unpacked at once.
        """
        self.tear = None
        at = start or Start()
        stream = PlainStream(self.file, at.file_bytes, end)
        number = at.lines + 1
        plain_bytes = at.plain_bytes
        held = _HeldLine()
        for chunk in stream:
            plain_bytes += len(chunk)
            cut = chunk.rfind(b"\n") + 1
            begun = 0
            if cut and held.size:
                begun = chunk.find(b"\n") + 1
                held.add(chunk[: begun - 1])
                line = held.take()
                yield line if isinstance(line, LongLine) else line + b"\n"
                number += 1
            if begun < cut:
                text = chunk[begun:cut]
                yield text
                number += text.count(b"\n")
            held.add(chunk[cut:])
            if held.size > ENDLESS_BYTES:
                reason = f"line {number} has no end; it begins"
                self.tear = Tear(plain_bytes - held.size, reason, damaged=True)
                return
        self.tear = stream.tear
        rest = held.take()
        if not rest:
            if self.tear is None and at.file_bytes == plain_bytes == 0:
                self.tear = Tear(0, EMPTY)
            return
        if is_whole_line(rest):
            yield rest + b"\n"
        elif self.tear is None:
            size = rest.size if isinstance(rest, LongLine) else len(rest)
            self.tear = Tear(plain_bytes - size, f"line {number} is cut; its plain text begins")

    def events(self) -> Iterator[tuple[int, EventLine]]:
        """Yield line number and object of each event; lines that hold none are counted."""
        self.bad_lines = 0
        for number, line in self.lines():
            if line.strip() in FRAMING:
                continue
            event = event_of(line)
            if event is None:
                self.bad_lines += 1
            else:
                yield number, event


def event_of(line: bytes) -> EventLine | None:
    """Return the object on a line, behind which a comma may stand; None for anything else."""
    if isinstance(line, LongLine):
        return None
    try:
        value = orjson.loads(line.strip().removesuffix(b","))
    except orjson.JSONDecodeError:
        return None
    return value if is_object(value) else None


def is_whole_line(line: bytes) -> bool:
    """Return whether a last line without newline is complete all the same."""
    is_framing = not isinstance(line, LongLine) and line.strip() in FRAMING
    return is_framing or event_of(line) is not None


# The header stands among the first lines, behind the names of process and thread.
HEADER_LINES = 64

# As the recorder writes it, and as others do.
HEADER_NAME = b'"dftrace"'
# Of any letter of it, where it is written with escapes.
ESCAPED = b"\\u00"
LATE_RANK_NAME = b'"rank"'


def read_header(file: TraceFile) -> HeaderFacts | None:
    """Read the header of a trace; None where the first lines hold none."""
    return header_in(line for _, line in islice(TraceReader(file).lines(), HEADER_LINES))


# A rank that became known late did so before the first step, in the first of what is recorded.
LATE_RANK_BYTES = 8 * 1024 * 1024


def read_late_rank(file: TraceFile) -> tuple[int, int] | None:
    """Read the rank, and the size of the world, that a line of a trace tells; None for none."""
    read = 0
    for _, line in TraceReader(file).lines():
        if LATE_RANK_NAME in line:
            event = event_of(line)
            found = late_rank_of(event) if event else None
            if found is not None:
                return found
        read += len(line)
        if read > LATE_RANK_BYTES:
            break
    return None


def header_in(lines: Iterable[bytes]) -> HeaderFacts | None:
    """Return the header among the first lines of a trace; None where these hold none."""
    for line in lines:
        event = event_of(line) if HEADER_NAME in line or ESCAPED in line else None
        facts = header_of(event) if event else None
        if facts is not None:
            return facts
    return None
