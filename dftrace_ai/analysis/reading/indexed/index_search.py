"""Finding the last index line of a file without reading what comes before it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai import _reader
from dftrace_ai.analysis.reading.decompression import BrokenBlockError, block_decoder
from dftrace_ai.analysis.reading.indexed.index_line import index_of
from dftrace_ai.analysis.reading.indexed.reach import LITTLE_BYTES, reach_of, reach_of_lines
from dftrace_ai.analysis.reading.reader import Start

if TYPE_CHECKING:
    from dftrace_ai.analysis.reading.indexed.index_line import IndexFigures
    from dftrace_ai.analysis.reading.indexed.reach import Reach
    from dftrace_ai.analysis.reading.trace_file import Codec

__all__ = ["FoundIndex", "find_index"]

# The recorder writes no longer ones.
MOST_BYTES = 8 * 1024 * 1024

# In a file without blocks, behind which only the closing line, or a little more, is to come.
TAIL_BYTES = 1024 * 1024

BEGINNING = b'\n{"name":"index","cat":"dftrace",'


class FoundIndex(NamedTuple):
    """An index line, and where in the file that begins of which it does not tell.

    Attributes:
        figures: what it says.
        behind: where the file goes on.
        reach: from when to when events are, as lines have it: those that the line tells of, or,
            where it does not say that, those of blocks by their heads; None where neither does.
    """

    figures: IndexFigures
    behind: Start
    reach: Reach | None


def find_index(descriptor: int, codec: Codec, end: int) -> FoundIndex | None:
    """Find the last index line of a file; None where there is none that can be believed.

    What the heads of blocks say is believed as far as one leads to the next, and the line if it
    says of the bytes and lines before it what they say.
    """
    return _in_tail(descriptor, end) if codec == "plain" else _in_block(descriptor, codec, end)


def _in_block(descriptor: int, codec: Codec, end: int) -> FoundIndex | None:
    hops = _reader.hop_blocks(descriptor, end)
    *_, index = hops
    if index is None:
        return None
    place, packed_bytes, plain_before, lines_before = index
    if packed_bytes > MOST_BYTES:
        return None
    text = _text(codec, os.pread(descriptor, packed_bytes, place))
    if text is None or text.find(b"\n") != len(text) - 1:
        return None
    figures = index_of(text)
    if figures is None or (figures.plain_bytes, figures.lines) != (plain_before, lines_before):
        return None
    behind = Start(place + packed_bytes, plain_before + len(text), lines_before + 1)
    return FoundIndex(figures, behind, figures.reach or reach_of(hops, descriptor, codec))


def _text(codec: Codec, packed: bytes) -> bytes | None:
    """Return the text of one block that takes all of `packed`; None where that is none."""
    decoder = block_decoder(codec)
    text = bytearray()
    try:
        for piece in decoder.pieces(packed):
            text += piece
            if len(text) > MOST_BYTES:
                return None
    except BrokenBlockError:
        return None
    return bytes(text) if decoder.ended and not decoder.unused else None


def _in_tail(descriptor: int, end: int) -> FoundIndex | None:
    width = min(TAIL_BYTES, end)
    tail = os.pread(descriptor, width, end - width)
    begun = tail.rfind(BEGINNING) + 1
    ended = tail.find(b"\n", begun) + 1
    if begun == 0 or ended == 0:
        return None
    figures = index_of(tail[begun:ended])
    if figures is None or figures.plain_bytes != end - width + begun:
        return None
    place = end - width + ended
    begins = end - width + begun
    reach = figures.reach
    if reach is None and begins <= LITTLE_BYTES:
        reach = reach_of_lines([os.pread(descriptor, begins, 0)])
    return FoundIndex(figures, Start(place, place, figures.lines + 1), reach)
