"""The header line of a trace file: what it says of its process."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import orjson

from dftrace_ai.analysis.reading.reader import LongLine, TraceReader
from dftrace_ai.trace_format.header_and_footer import header_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.analysis.reading.trace_file import TraceFile
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts

__all__ = ["HEADER_LINES", "header_in", "read_header"]

# The header stands among the first lines, behind the names of process and thread.
HEADER_LINES = 64

# As the recorder writes it, and as others do.
HEADER_NAME = b'"dftrace"'


def read_header(file: TraceFile) -> HeaderFacts | None:
    """Read the header of a trace; None where the first lines hold none."""
    return header_in(line for _, line in islice(TraceReader(file).lines(), HEADER_LINES))


def header_in(lines: Iterable[bytes]) -> HeaderFacts | None:
    """Return the header among the first lines of a trace; None where these hold none."""
    for line in lines:
        if HEADER_NAME not in line or isinstance(line, LongLine):
            continue
        try:
            event = orjson.loads(line.strip().removesuffix(b","))
        except orjson.JSONDecodeError:
            continue
        facts = header_of(event) if isinstance(event, dict) else None
        if facts is not None:
            return facts
    return None
