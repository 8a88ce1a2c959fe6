"""One trace file with all that can be asked of it."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

from dftrace_ai.analysis.reading.reader import TraceReader, read_header, read_late_rank
from dftrace_ai.analysis.reading.trace_end import read_end
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.file_names import trace_name
from dftrace_ai.trace_format.header_and_footer import HeaderFacts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace_end import TraceEnd
    from dftrace_ai.analysis.reading.trace_file import TraceFile
    from dftrace_ai.trace_format.json_types import EventLine


class Trace:
    """A trace file; what is asked of it is read when it is first asked, and then kept.

    Attributes:
        file: where it lies and how it is compressed.

    Example::

        (trace,) = open_traces(["trace-host-1.pfw.gz"])
        for number, event in trace.events():
            print(f"{trace}:{number}: {event['name']}")
    """

    def __init__(self, file: TraceFile) -> None:
        self.file = file

    def __str__(self) -> str:
        return str(self.file)

    def __repr__(self) -> str:
        return f"<trace {self.file}>"

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return self.file.path

    @property
    def part(self) -> int:
        """Its number among the parts of its recording, from 0."""
        name = trace_name(self.path.name)
        return name.part if name else 0

    @property
    def recording(self) -> tuple[Path, str]:
        """Its folder, and what all parts of its recording are called."""
        name = trace_name(self.path.name)
        return self.path.parent, name.base if name else self.path.name

    @cached_property
    def header(self) -> HeaderFacts | None:
        """What the file says of its process; None for a file without a header line.

        Raises:
            TraceError: the operating system refuses to read the file.
        """
        if self.file.copy and self.file.copy.header:
            return self.file.copy.header
        header = self.file.header or read_header(self.file)
        return header and self._with_late_rank(header)

    def _with_late_rank(self, header: HeaderFacts) -> HeaderFacts:
        """Return the header with the rank that process groups made known after it was written."""
        # What starts one process for each rank says which of its host that is, and knows it.
        is_sure = header.local_rank is not None and header.launcher != "slurm"
        if header.run is None or (header.rank is not None and is_sure):
            return header
        footer = self.end.footer
        if footer is None:  # it is not closed yet
            found = read_late_rank(self.file)
            return header if found is None else header.placed(*found, None)
        if footer.rank is None:
            return header
        return header.placed(footer.rank, footer.world_size, footer.local_rank)

    def know_place(self, header: HeaderFacts) -> None:
        """Take in which rank it is of, as another part of the same recording says."""
        self.__dict__["header"] = self.said.placed(
            header.rank, header.world_size, header.local_rank
        )

    @property
    def said(self) -> HeaderFacts:
        """The same, with nothing in it where there is none, or it cannot be read."""
        try:
            return self.header or HeaderFacts()
        except TraceError:
            return HeaderFacts()  # whoever reads the file tells why it cannot be read

    @cached_property
    def end(self) -> TraceEnd:
        """How the file ends, read without what comes before.

        Raises:
            TraceError: the operating system refuses to read the file.
        """
        return read_end(self.file)

    def know_end(self, end: TraceEnd) -> None:
        """Take in how the file ends, for which all of it may have to be read."""
        self.__dict__["end"] = end

    def moved(self, by_us: int) -> Trace:
        """Return the same file with times that count from so much later."""
        moved = copy(self)
        if (header := self.header) is not None:
            moved.header = header._replace(
                clock_offset_ns=(header.clock_offset_ns or 0) + by_us * 1000,
                time_base_us=(header.time_base_us or 0) + by_us,
            )
        return moved

    def reader(self) -> TraceReader:
        """Return a new reader, which tells afterwards where reading had to stop."""
        return TraceReader(self.file)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield number, from 1, and bytes of each line, as far as the file can be read.

        Raises:
            TraceError: the operating system refuses to read the file.
        """
        return self.reader().lines()

    def events(self) -> Iterator[tuple[int, EventLine]]:
        """Yield number and object of each line that holds one.

        Raises:
            TraceError: the operating system refuses to read the file.
        """
        return self.reader().events()
