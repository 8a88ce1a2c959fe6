"""What ranks say, kept beside their traces and believed as an index is.

Apart from `job`, which reads ranks: this half is the file, and whether it may be believed.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from functools import reduce
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

import numpy as np
import orjson

from dftrace_ai.analysis.ranks.packing import (
    TOLD_OF_CHUNK,
    Beside,
    PackedChunks,
    pack,
)
from dftrace_ai.analysis.ranks.partials import Group, RankPartial, shared_group
from dftrace_ai.analysis.reading.index_file import (
    IndexFileError,
    TracedFile,
    are_known,
    as_json,
    check_place,
    index_path,
    opened_beside,
    write_beside,
)
from dftrace_ai.analysis.reading.reach import Reach
from dftrace_ai.analysis.reading.remote import RemotePath
from dftrace_ai.analysis.steps.detection import FoundBy
from dftrace_ai.trace_format.file_names import RANK_FILE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.ranks.packing import Spill
    from dftrace_ai.analysis.ranks.partials import Place
    from dftrace_ai.analysis.reading import Trace

MARK: Final = b"dftrace rank 5 "
# Earlier ones have other rows or bytes, or lack the time of pauses to collect garbage, the stage,
# the time between steps, and from when to when files are.
EARLIER: Final = tuple(b"dftrace rank %d " % number for number in (1, 2, 3, 4))
DIGEST_BYTES: Final = 64
COUNTS: Final = ("step_count", "peak_bytes", "stage", "apart_ns", "passes")
# Behind the mark: the checksum of the head, and how long it is.
LENGTH_BYTES: Final = 10
MOST_HEAD_BYTES: Final = 64 * 1024 * 1024
READ_BYTES: Final = 1024 * 1024
# A row takes tens of bytes of a compressed trace, and less here: for more no memory is asked for.
MOST_ROWS_A_BYTE: Final = 4
MOST_BYTES_A_BYTE: Final = 64


class Kept(NamedTuple):
    """What is kept beside the trace of a process."""

    partial: RankPartial | None  # what the rank says; None for no rank
    reaches: tuple[Reach, ...]  # from when to when each of its files is


def write_kept(
    parts: Sequence[Trace],
    files: Sequence[TracedFile],
    partial: RankPartial | None,
    reaches: Sequence[Reach],
) -> None:
    """Keep beside traces, which were `files` before they were read, what their process says."""
    path = rank_path(parts)
    check_place(path, (MARK, *EARLIER))
    content, chunks = ([], None) if partial is None else pack(partial)
    mode = 0o777
    for trace in parts:
        mode &= trace.file.content.stat().st_mode
    said = {
        "files": [tuple(one) for one in files],
        "reaches": [tuple(one) for one in reaches],
        "rank": partial is not None,
    }
    if partial is not None and chunks is not None:
        said["chunks"] = np.column_stack((chunks.numbers, chunks.told)).tolist()
        said["check"] = _check_of(content)
        names = ("names", "found_by", *COUNTS)
        said |= {name: getattr(partial, name) for name in names}
        said["groups"] = [tuple(group) for group in partial.groups]
    head = as_json(said)
    begin = MARK + sha256(head).hexdigest().encode() + b" %010d\n" % len(head)
    write_beside(path, [begin, head, *content], mode)


def read_kept(parts: Sequence[Trace], place: Place, spill: Spill) -> Kept | None:
    """Return what is kept beside traces; None without it, or for what was made of other files.

    What lies in a store is taken as a whole, into `spill`.

    What is not to be believed is an IndexFileError.
    """
    path = rank_path(parts)
    traced = sum(trace.file.content.stat().st_size for trace in parts)
    file = opened_beside(path, parts, most_bytes=MOST_HEAD_BYTES + MOST_BYTES_A_BYTE * traced)
    if file is None:
        return None
    with file:
        begin = file.read(len(MARK) + DIGEST_BYTES + LENGTH_BYTES + 2)
        digest, _, length = begin[len(MARK) :].partition(b" ")
        if not begin.startswith(MARK) or not length.strip().isdigit():
            raise IndexFileError("is damaged")
        head = file.read(min(int(length), MOST_HEAD_BYTES))
        stored = file.read() if isinstance(path, RemotePath) else None
        size = os.fstat(file.fileno()).st_size - len(begin) - len(head)
        if sha256(head).hexdigest().encode() != digest:
            raise IndexFileError("is damaged")
        try:
            said = orjson.loads(head)
            files = [TracedFile(*one) for one in said["files"]]
            reaches = _reaches_of(said["reaches"], len(files))
            partial = _taken_apart(said, path, len(begin) + len(head), size, place)
            content = [stored] if stored is not None else iter(lambda: file.read(READ_BYTES), b"")
            is_whole = partial is None or said["check"] == _check_of(content)
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise IndexFileError("is damaged") from error
        # The trace lies beside it: what is damaged is made again, and not told in the middle.
        if not is_whole:
            raise IndexFileError("is damaged")
    if not are_known(files, parts):
        raise IndexFileError("was made before the trace changed")
    chunks = None if partial is None else partial.chunks
    if isinstance(chunks, PackedChunks) and chunks.rows > MOST_ROWS_A_BYTE * traced:
        raise IndexFileError("has more than there is in the trace")
    if isinstance(chunks, PackedChunks) and partial is not None and stored is not None:
        told = chunks.told.copy()
        told[:, 0] -= len(begin) + len(head)
        partial = replace(partial, chunks=spill.taken(stored, replace(chunks, told=told)))
    return Kept(partial, reaches)


def _check_of(content: Iterable[bytes]) -> int:
    return reduce(lambda check, piece: zlib.crc32(piece, check), content, 0)


def _reaches_of(said: Any, files: int) -> tuple[Reach, ...]:
    reaches = tuple(Reach(*one) for one in said)
    if len(reaches) != files or any(type(time) is not int for one in reaches for time in one):
        raise TypeError("no moments")
    return reaches


def rank_path(parts: Sequence[Trace]) -> Path:
    """Return where it is kept what a rank says: beside its traces, called as they are."""
    return index_path(parts, RANK_FILE_SUFFIX)


def _taken_apart(said: Any, path: Path, begin: int, size: int, place: Place) -> RankPartial | None:
    """Return what stands in the head of a file; whether chunks can be is for others to see."""
    if said["rank"] is False:
        return None
    names = tuple(said["names"])
    groups = tuple(Group(name, about, tuple(ranks)) for name, about, ranks in said["groups"])
    texts = (*names, *(text for group in groups for text in group[:2]))
    totals = tuple(said[name] for name in COUNTS)
    # Each of a thousand ranks names all of them: a million are not looked at one by one.
    counts = (*totals, *chain.from_iterable(group.ranks for group in groups))
    if {*map(type, texts)} - {str} or {*map(type, counts)} - {int}:
        raise TypeError("no names, or no counts")
    if max(counts) >> 62 or -min(counts) >> 62 > 0:
        raise ValueError("greater than any count")
    if said["found_by"] not in get_args(FoundBy):
        raise ValueError("no steps")
    told = np.array(said["chunks"])
    if not len(told):
        told = np.zeros((0, 1 + TOLD_OF_CHUNK), np.int64)
    if told.dtype != np.int64 or told.ndim != 2 or told.shape[1] != 1 + TOLD_OF_CHUNK:
        raise ValueError("no chunks")
    numbers, told = told[:, 0], told[:, 1:].copy()
    if (told < 0).any() or (told >= 2**62).any() or (np.diff(numbers) <= 0).any():
        raise ValueError("no chunks")
    told[:, 0] += begin
    chunks = PackedChunks(Beside(str(path)), tuple(numbers.tolist()), told, len(names), len(groups))
    if chunks.end > begin + size:
        raise ValueError("no chunks of this file")
    shared = tuple(map(shared_group, groups))
    return RankPartial(place, names, shared, said["found_by"], chunks, *totals)
