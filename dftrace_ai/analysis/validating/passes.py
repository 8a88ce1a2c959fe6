"""Reading a file through the rules: every line of it, or those that the native reader leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dftrace_ai.analysis.reading.given.lines import GivenLines
from dftrace_ai.analysis.reading.reader import LongLine
from dftrace_ai.analysis.validating import nesting
from dftrace_ai.analysis.validating.nesting import NEVER, Nesting, overlap_message
from dftrace_ai.analysis.validating.rules import Rules

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
        checking, rules = self._checking, self.rules
        given = GivenLines(self._file.file, checking)
        for number, plain_bytes, line in given:
            rules.line(number, line, plain_bytes)
            checking.certify(rules.plain_style())
        self.tear = given.tear
        self.lines = checking.lines
        if checking.end():
            # The spans alone are looked at: no line is given.
            for _ in GivenLines(self._file.file, checking, given.end):
                pass
            checking.end()

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
