"""Traces as one file that Perfetto opens."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.converting.placing import ConvertedFile
from dftrace_ai.analysis.merged_trace import MergedTrace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace import Trace

LEVEL: Final = 6


def write_for_perfetto(
    traces: Iterable[Trace], path: Path, name: str
) -> tuple[list[ConvertedFile], list[str]]:
    """Write the traces as one, compressed where its name will end in ``.gz``.

    Returns the file, and what was left out or changed.
    """
    merged = MergedTrace(traces)
    lines = 0
    with path.open("wb") as file:
        for chunk in merged:
            lines += chunk.count(b"\n")
            file.write(gzip_member(chunk) if name.endswith(".gz") else chunk)
        size = file.tell()
    ranks = {trace.header.rank if trace.header else None for trace in merged.files}
    rank = ranks.pop() if len(ranks) == 1 else None
    return [ConvertedFile(name, rank, lines - 1, size)], merged.notes


def gzip_member(text: bytes | bytearray) -> bytes:
    """Return text as a member of a gzip file; members joined are one file."""
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
    return packer.compress(text) + packer.flush()
