"""Reading a file through the rules: every line of it, or those that the native reader leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dftrace_ai.analysis.reading.given_lines import GivenLines
from dftrace_ai.analysis.reading.reader import LongLine
from dftrace_ai.analysis.validating import nesting
from dftrace_ai.analysis.validating.index_check import FoundFigures, block_message
from dftrace_ai.analysis.validating.nesting import NEVER, Nesting, overlap_message
from dftrace_ai.analysis.validating.rules import Fault, Rules
from dftrace_ai.trace_format.file_names import trace_name

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai._reader import Checking
    from dftrace_ai.analysis.reading.indexed.index_line import IndexedTrack
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import Tear

__all__ = ["CheckingPass", "NativePass", "PartTracks", "PlainPass", "checking_pass"]


class PartTracks:
    """Where tracks stood at the end of the part that was read last: the next one goes on there.

    Example::

        parts = PartTracks()
        for file in files:  # the parts of a process in their order
            checking_pass(file, 10, parts).run()
    """

    def __init__(self) -> None:
        self._next: tuple[Path, str, int] | None = None
        self._tracks: list[IndexedTrack] | None = None

    def before(self, file: Trace) -> list[IndexedTrack] | None:
        """Return the tracks before a file: none before the first part, None for not known."""
        part = place_of(file)
        if part[2] == 0:
            return []
        return self._tracks if part == self._next else None

    def after(self, file: Trace, tracks: list[IndexedTrack] | None) -> None:
        """Tell how they stand behind it; None for not known."""
        folder, base, part = place_of(file)
        self._next, self._tracks = (folder, base, part + 1), tracks


def place_of(file: Trace) -> tuple[Path, str, int]:
    """Return the folder of a file, the name of its process, and its number among the parts."""
    name = trace_name(file.path.name)
    base, part = (name.base, name.part) if name else (file.path.name, 0)
    return file.path.parent, base, part


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

    def block_faults(self) -> tuple[int, list[Fault]]:
        """Return how often a block is not what its head says, and the first ones."""

    @property
    def looked_at(self) -> int:
        """How many spans were sorted to see whether they nest."""

    @property
    def left_out(self) -> int:
        """How many more should have been."""


def checking_pass(file: Trace, limit: int, parts: PartTracks | None = None) -> CheckingPass:
    """Return a pass over a file: by the native reader, or in Python where it was not built.

    Args:
        file: the trace.
        limit: faults to keep.
        parts: what is known of the parts before.
    """
    try:
        from dftrace_ai import _reader
    except ImportError:
        return PlainPass(file, limit)
    return NativePass(file, limit, _reader.Checking(nesting.MOST_SPANS), parts)


class PlainPass:
    """Gives every line to the rules; see `CheckingPass`."""

    def __init__(self, file: Trace, limit: int, _parts: PartTracks | None = None) -> None:
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

    def block_faults(self) -> tuple[int, list[Fault]]:
        """Return none: heads of blocks are the native reader's."""
        return 0, []

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

    def __init__(
        self, file: Trace, limit: int, checking: Checking, parts: PartTracks | None = None
    ) -> None:
        self._file = file
        self._checking = checking
        self._parts = parts or PartTracks()
        before = self._parts.before(file)
        self._from_beginning = before is not None
        checking.resume(before or [])
        self.rules = Rules(
            str(file.path),
            limit,
            self,
            lambda: checking.counts,
            self._figures,
            place_of(file)[2],
        )
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
        found = self._figures()
        known = found and not self.tear and found.in_order and found.from_beginning
        self._parts.after(self._file, found.tracks if found and known else None)
        if checking.end():
            # The spans alone are looked at: no line is given.
            for _ in GivenLines(self._file.file, checking, given.end):
                pass
            checking.end()

    def _figures(self) -> FoundFigures | None:
        found = self._checking.figures()
        if found is None:
            return None
        (spans, others, tracks, reach), aside = found
        return FoundFigures(spans, others, tracks, reach, not aside, self._from_beginning)

    def add(self, pid: int, tid: int, start_ns: int, end_ns: int | None, line: int) -> None:
        """Take in a span of the line that the rules look at."""
        self._checking.add_span(
            pid, tid, min(start_ns, NEVER), NEVER if end_ns is None else min(end_ns, NEVER)
        )

    def overlaps(self, limit: int) -> tuple[int, list[tuple[int, str]]]:
        """Return how many spans overlap another in part; line and message of the first ones."""
        count, first = self._checking.overlaps(limit)
        return count, [(line, overlap_message(pid, tid, outer)) for pid, tid, line, outer in first]

    def block_faults(self) -> tuple[int, list[Fault]]:
        """Return how often a block is not what its head says, and the first ones."""
        count, first = self._checking.block_faults()
        path = self.rules.path
        return count, [Fault(path, line, block_message(*what)) for line, *what in first]

    @property
    def looked_at(self) -> int:
        """How many spans were sorted."""
        return self._checking.collected

    @property
    def left_out(self) -> int:
        """How many were not."""
        return self._checking.left_out
