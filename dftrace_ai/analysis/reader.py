"""Reading the lines and events of one trace file, with their line numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from dftrace_ai.analysis.plain_stream import PlainStream, Tear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.files import TraceFile

__all__ = ["TraceReader", "is_whole_line"]

# Lines that frame the objects of a Chrome trace and carry none.
FRAMING = frozenset({b"", b"[", b"]"})


class TraceReader:
    """Reads a trace line by line, in memory that does not grow with the file.

    Attributes:
        file: the file that is read.
        tear: where reading had to stop; known after the last line, None when all
            was read. A last line without its newline is a tear unless it is whole.
        bad_lines: how many lines `events` passed over because they are no objects.

    Example::

        reader = TraceReader(open_trace_file("trace-host-1.pfw.gz"))
        for number, event in reader.events():
            print(f"{reader.file}:{number}: {event['name']}")
        if reader.tear:
            print(f"{reader.file}: {reader.tear}")
    """

    def __init__(self, file: TraceFile) -> None:
        self.file = file
        self.tear: Tear | None = None
        self.bad_lines = 0

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield line number, from 1, and bytes of each line without its newline.

        Raises:
            TraceError: the operating system refuses to read the file.
        """
        self.tear = None
        stream = PlainStream(self.file)
        number = 1
        plain_bytes = 0
        held: list[bytes] = []
        for chunk in stream:
            plain_bytes += len(chunk)
            first, *others = chunk.split(b"\n")
            held.append(first)
            if not others:
                continue
            yield number, b"".join(held)
            number += 1
            held = [others.pop()]
            for line in others:
                yield number, line
                number += 1
        self.tear = stream.tear
        rest = b"".join(held)
        if not rest:
            return
        if is_whole_line(rest):
            yield number, rest
        elif self.tear is None:
            self.tear = Tear(
                plain_bytes - len(rest), f"line {number} is cut; its plain text begins"
            )

    def events(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield line number and object of each event; lines that hold none are counted.

        Raises:
            TraceError: the operating system refuses to read the file.
        """
        self.bad_lines = 0
        loads = orjson.loads
        for number, line in self.lines():
            text = line.strip()
            if text in FRAMING:
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
    if line.strip() in FRAMING:
        return True
    try:
        return isinstance(orjson.loads(line.strip().removesuffix(b",")), dict)
    except orjson.JSONDecodeError:
        return False
