"""Reading the lines and events of one trace file, with their line numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from dftrace_ai.analysis.reading.decompression import PlainStream
from dftrace_ai.analysis.reading.trace_file import EMPTY, Tear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.trace_file import TraceFile
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["FRAMING", "LINE_BYTES", "LongLine", "Start", "TraceReader", "as_line", "is_whole_line"]

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

        Each line has its newline, but for a last one that is whole without. A line of more than
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
            yield rest
        elif self.tear is None:
            size = rest.size if isinstance(rest, LongLine) else len(rest)
            self.tear = Tear(plain_bytes - size, f"line {number} is cut; its plain text begins")

    def events(self) -> Iterator[tuple[int, JsonObject]]:
        """Yield line number and object of each event; lines that hold none are counted."""
        self.bad_lines = 0
        loads = orjson.loads
        for number, line in self.lines():
            text = line.strip()
            if text in FRAMING:
                continue
            if isinstance(line, LongLine):
                self.bad_lines += 1
                continue
            try:
                event = loads(text.removesuffix(b","))
            except orjson.JSONDecodeError:
                self.bad_lines += 1
                continue
            if isinstance(event, dict):
                yield number, event
            else:
                self.bad_lines += 1


def is_whole_line(line: bytes) -> bool:
    """Return whether a last line without newline is complete all the same."""
    if isinstance(line, LongLine):
        return False
    if line.strip() in FRAMING:
        return True
    try:
        return isinstance(orjson.loads(line.strip().removesuffix(b",")), dict)
    except orjson.JSONDecodeError:
        return False
