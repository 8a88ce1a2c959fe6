"""Traces that a viewer takes as they lie on the disk: sent without being unpacked and packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dftrace_ai.analysis.converting.to_perfetto import gzip_member
from dftrace_ai.analysis.reading.given_lines import lines_near
from dftrace_ai.analysis.reading.regular_file import open_regular
from dftrace_ai.analysis.reading.time_window import TimeWindow
from dftrace_ai.analysis.summary.adding import add_traces
from dftrace_ai.analysis.track_order import NamedTracks
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["Straight", "straight"]

PIECE_BYTES = 1024 * 1024


class Straight:
    """The bytes of a file; an iterator over them that ends where the file ended before.

    Behind them stands a block with the order of the tracks, if there are several, and further ones.

    Attributes:
        size: of all bytes.
    """

    def __init__(self, trace: Trace, size: int, behind: bytes) -> None:
        self.size = size + len(behind)
        self._trace = trace
        self._behind = behind

    def __iter__(self) -> Iterator[bytes]:
        left = self.size - len(self._behind)
        try:
            with open_regular(self._trace.file.content) as raw:
                while left:
                    piece = raw.read(min(left, PIECE_BYTES))
                    if not piece:
                        raise TraceError(f"{self._trace}: was cut while it was sent")
                    left -= len(piece)
                    yield piece
        except OSError as error:
            raise TraceError(f"{self._trace}: cannot be read: {error.strerror}") from error
        if self._behind:
            yield self._behind


def straight(
    traces: Sequence[Trace],
    window: TimeWindow | None,
    tracks: Mapping[Path, Sequence[bytes]] | None = None,
) -> Straight | None:
    """Return the bytes of a trace that can be sent as it is; None where it has to be merged.

    That is one whole trace of the recorder's, by gzip: its lines are read to see that each is an
    event, and that they are as many as its closing line says.

    Args:
        traces: what is to be shown.
        window: which part of it; None for everything.
        tracks: further lines to show, by the trace whose process and time they are of.

    Raises:
        TraceError: it cannot be read any more.
    """
    if len(traces) != 1 or window is not None:
        return None
    (trace,) = traces
    file, header, footer = trace.file, trace.header, trace.end.footer
    ours = header is not None and header.run is not None and file.framed
    if file.codec != "gzip" or file.copy or not ours or footer is None:
        return None
    try:
        size = file.content.stat().st_size
    except OSError as error:
        raise TraceError(f"{trace}: cannot be read: {error.strerror}") from error
    added = add_traces([trace])
    totals = added.totals
    whole = not (added.tears or added.skipped or added.long_lines or totals.unreadable)
    if not whole or totals.events != footer.events:
        return None
    return Straight(trace, size, _behind(trace, (tracks or {}).get(trace.path, ())))


def _behind(trace: Trace, lines: Sequence[bytes]) -> bytes:
    named = NamedTracks()
    # No event is before all times: what is given are lines without one.
    for line in lines_near(trace, TimeWindow(-2.0, -1.0), 0):
        named.add(line.strip().removesuffix(b","))
    for line in lines:
        if b'"ph":"M"' in line:
            named.add(line)
    behind = [*lines, *named.order()]
    return gzip_member(b"\n".join(behind) + b"\n") if behind else b""
