"""Reading a file through the rules: every line of it, or those that the native reader leaves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from dftrace_ai.analysis.reading.reader import LongLine, Start, as_line
from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.analysis.validating import nesting
from dftrace_ai.analysis.validating.nesting import NEVER, Nesting, overlap_message
from dftrace_ai.analysis.validating.rules import Rules
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from dftrace_ai._reader import Checking
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Tear

__all__ = ["CheckingPass", "NativePass", "PlainPass", "checking_pass"]


class CheckingPass(Protocol):
    """A file that is read and held against the format.

    Attributes:
        rules: what was found, but for spans that overlap.
    """

    rules: Rules

    def run(self) -> None:
        """Read the file.

        Raises:
            TraceError: the operating system refuses to read it.
        """

    @property
    def lines(self) -> int:
        """Lines of the file."""

    @property
    def tear(self) -> Tear | None:
        """Where the file stops being readable."""

    def overlaps(self, limit: int) -> tuple[int, list[tuple[int, str]]]:
        """Return how many spans overlap another in part; line and message of the first ones."""

    @property
    def looked_at(self) -> int:
        """How many spans were sorted to see whether they nest."""

    @property
    def left_out(self) -> int:
        """How many more should have been."""


def checking_pass(file: Trace, limit: int) -> CheckingPass:
    """Return a pass over a file: by the native reader, or in Python where it was not built.

    Args:
        file: the trace.
        limit: faults to keep.
    """
    try:
        from dftrace_ai import _reader
    except ImportError:
        return PlainPass(file, limit)
    return NativePass(file, limit, _reader.Checking(nesting.MOST_SPANS))


class PlainPass:
    """Gives every line to the rules; see `CheckingPass`."""

    def __init__(self, file: Trace, limit: int) -> None:
        self._nesting = Nesting()
        self.rules = Rules(str(file.path), limit, self._nesting, dict)
        self._reader = file.reader()
        self.lines = 0

    def run(self) -> None:
        """Read the file."""
        plain_bytes = 0
        for number, line in self._reader.lines():
            self.rules.line(number, line, plain_bytes)
            plain_bytes += (line.size if isinstance(line, LongLine) else len(line)) + 1
            self.lines = number

    @property
    def tear(self) -> Tear | None:
        """Where the file stops being readable."""
        return self._reader.tear

    def overlaps(self, limit: int) -> tuple[int, list[tuple[int, str]]]:
        """Return how many spans overlap another in part; line and message of the first ones."""
        return self._nesting.overlaps(limit)

    @property
    def looked_at(self) -> int:
        """How many spans were sorted."""
        return len(self._nesting)

    @property
    def left_out(self) -> int:
        """How many were not looked at."""
        return self._nesting.left_out


class NativePass:
    """Gives the rules what the native reader has not found to be plainly right; see `CheckingPass`.

    Where spans are in such a disorder that they have to be sorted, the file is read a second
    time, up to where it ended before.
    """

    def __init__(self, file: Trace, limit: int, checking: Checking) -> None:
        self._file = file
        self._checking = checking
        self.rules = Rules(str(file.path), limit, self, lambda: checking.counts)
        self.tear: Tear | None = None
        self.lines = 0

    def run(self) -> None:
        """Read the file."""
        end = self._read(None)
        self.lines = self._checking.lines
        if self._checking.end():
            self._read(end)
            self._checking.end()

    def _read(self, end: int | None) -> int:
        checking = self._checking
        place = plain_bytes = 0
        try:
            with open_regular(self._file.file.content) as raw:
                if end is None:
                    end = os.fstat(raw.fileno()).st_size
                codec = self._file.file.codec
                if codec != "plain":
                    checking.open_blocks(raw.fileno(), codec, end)
                    while place < end and (size := checking.read_block(place)):
                        place += size
                        self._give_lines()
                    plain_bytes = checking.plain_bytes
        except OSError as error:
            raise TraceError(f"{self._file}: cannot be read: {error.strerror}") from error
        if place < end:
            self._read_texts(Start(place, plain_bytes, checking.lines), end)
        return end

    def _read_texts(self, start: Start, end: int) -> None:
        """Read on where the native reader stopped."""
        checking = self._checking
        reader = self._file.reader()
        for text in reader.texts(start, end):
            if isinstance(text, LongLine):
                self.rules.line(checking.lines + 1, text, checking.plain_bytes)
                checking.pass_over(text.size + 1)
                checking.certify(self.rules.plain_style())
            else:
                checking.add_lines(text if text.endswith(b"\n") else text + b"\n")
                self._give_lines()
        self.tear = reader.tear

    def _give_lines(self) -> None:
        checking, rules = self._checking, self.rules
        while (given := checking.next_line()) is not None:
            number, plain_bytes, line = given
            rules.line(number, as_line(line), plain_bytes)
            checking.certify(rules.plain_style())

    def add(self, pid: int, tid: int, start_ns: int, end_ns: int | None, line: int) -> None:
        """Take in a span of the line that the rules look at."""
        self._checking.add_span(
            pid, tid, min(start_ns, NEVER), NEVER if end_ns is None else min(end_ns, NEVER)
        )

    def overlaps(self, limit: int) -> tuple[int, list[tuple[int, str]]]:
        """Return how many spans overlap another in part; line and message of the first ones."""
        count, first = self._checking.overlaps(limit)
        return count, [(line, overlap_message(pid, tid, outer)) for pid, tid, line, outer in first]

    @property
    def looked_at(self) -> int:
        """How many spans were sorted."""
        return self._checking.collected

    @property
    def left_out(self) -> int:
        """How many were not."""
        return self._checking.left_out
