"""What ranks say is kept beside their traces, and believed as long as these are what they were."""

from __future__ import annotations

import hashlib
import json
import os
import random
import zlib
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from analysis.ranks.made_jobs import MadeJob
from analysis.ranks.test_partials import RANKS, rank_lines, written
from analysis.trace_lines import TIME_BASE_US, TraceLines
from safety.commands import invoke

from dftrace_ai import _reader
from dftrace_ai._reader import (
    counted_order,
    pack_columns,
    pack_rows,
    unpack_columns,
    unpack_rows,
)
from dftrace_ai.analysis.ranks import kept
from dftrace_ai.analysis.ranks.job import RanksOfJob, keep_ranks, read_ranks
from dftrace_ai.analysis.ranks.ordering import sorted_by
from dftrace_ai.analysis.ranks.packing import PackedChunks, packed
from dftrace_ai.analysis.ranks.partials import StepsChunk
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.steps import job as steps_job
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dftrace_ai.analysis.ranks.packing import Kind
    from dftrace_ai.analysis.reading import Trace
    from dftrace_ai.analysis.reading.identity import Owner

EDGES = (0, 1, -1, 255, 256, 2**31, -(2**31), 2**63 - 1, -(2**63))


def told(job: RanksOfJob) -> list[object]:
    """All that ranks say, without their chunks, and each chunk."""
    found: list[object] = [job.notes, job.missing]
    for rank in job.ranks:
        found.append((rank.place, rank.names, rank.groups, rank.found_by, rank.step_count))
        found.append((rank.peak_bytes, rank.stage, rank.passes))
        found += [(number, columns_of(chunk)) for number, chunk in rank.chunks.items()]
    return found


def columns_of(chunk: StepsChunk) -> list[list[int]]:
    return [column for rows in chunk for column in columns(rows)]


def columns(rows: Sequence[NDArray[np.int64]]) -> list[list[int]]:
    return [column.tolist() for column in rows]


def test_columns_come_back_as_they_were() -> None:
    made = random.Random(0)
    for _ in range(200):
        columns = [
            np.array(
                [made.choice((made.choice(EDGES), made.randrange(1000))) for _ in range(size)],
                np.int64,
            )
            for size in (
                made.randrange(made.choice((40, 400))) for _ in range(made.randrange(1, 9))
            )
        ]
        lengths = tuple(map(len, columns))
        content = pack_columns(columns)
        found = np.frombuffer(unpack_columns(content, lengths), np.int64)
        assert found.tolist() == np.concatenate(columns).tolist()
        with pytest.raises(ValueError, match="no columns of such lengths"):
            unpack_columns(content, (*lengths, 3))
        harmed = bytearray(content[: made.randrange(len(content) + 1)])
        for _ in range(made.randrange(1, 4)):
            if harmed:
                harmed[made.randrange(len(harmed))] = made.randrange(256)
        with suppress(ValueError):
            assert len(unpack_columns(bytes(harmed), lengths)) == 8 * sum(lengths)


def test_rows_are_packed_between_edges() -> None:
    made = np.random.default_rng(3)
    columns = [made.integers(0, 2**shift, 50) for shift in (3, 20, 60)]
    edges = np.array([0, 7, 7, 31, 50])
    wanted = [pack_columns([one[low:high] for one in columns]) for low, high in pairwise(edges)]
    assert pack_rows(columns, edges) == wanted
    assert pack_rows(columns, edges[:1]) == []
    for wrong in ([], [0, 51], [-1, 5], [5, 4], [0, 2**62]):
        with pytest.raises(ValueError, match="edges are of no rows"):
            pack_rows(columns, np.array(wrong, np.int64))


def test_rows_of_several_come_side_by_side_and_none_goes_beyond_its_room() -> None:
    content = pack_columns([np.array([3, 5, 4]), np.array([8, 8, 8])])
    piece = [len(b"front"), len(content), zlib.crc32(content), 3]
    pieces = np.array([[*piece, 0], [*piece, 3]])
    column, bounds = np.zeros(6, np.int64), np.zeros((2, 2, 4), np.int64)
    given = (b"front" + content,) * 2
    assert unpack_rows(given, pieces, (column, None), bounds) == 2
    assert column.tolist() == [3, 5, 4, 3, 5, 4]
    assert bounds[1].tolist() == [[3, 3, 5, -1], [8, 8, 8, 0]]
    for at, (value, whole) in {0: (6, 0), 1: (-1, 0), 2: (7, 0), 3: (2, 0)}.items():
        other = pieces.copy()
        other[1, at] = value
        assert unpack_rows(given, other, (column, None), bounds) == 1 + whole
    assert unpack_rows((b"", *given[1:]), pieces, (column, None), bounds) == 0
    for rows, place in ((3, 4), (2**62, 0), (-1, 0), (3, -1)):
        other = pieces.copy()
        other[1, 3:] = rows, place
        with pytest.raises(ValueError, match="room|too many"):
            unpack_rows(given, other, (column, None), bounds)
    # Pieces that lie where a column is written to are what they were when it was called.
    given = (b"front" + content,) * 20
    room = np.zeros(100, np.int64)
    room.reshape(20, 5)[:] = [[*piece, 5 * (at + 1) % 100] for at in range(20)]
    assert unpack_rows(given, room, (room, None), np.zeros((20, 2, 4), np.int64)) == 20
    given = given[:2]
    for wrong in (pieces[:1], pieces[:, :4].copy()):
        with pytest.raises(ValueError, match="a piece is needed"):
            unpack_rows(given, wrong, (column, None), bounds)
    with pytest.raises(ValueError, match="a piece is needed"):
        unpack_rows(given, pieces, (column, None), bounds[:1])


def test_places_among_moments_are_those_of_numpy() -> None:
    made = np.random.default_rng(0)
    for size in (0, 1, 2, 50, 3000):
        moments = np.sort(made.integers(-size, size + 1, size))
        for asked in (
            np.sort(made.integers(-size - 2, size + 3, 3000)),
            made.integers(-9, 9, 3000),
        ):
            for right, side in ((False, "left"), (True, "right")):
                found = np.frombuffer(_reader.places(moments, asked, right), np.int64)
                assert (found == np.searchsorted(moments, asked, side=side)).all()  # type: ignore[call-overload]


def test_small_numbers_are_ordered_by_counting_as_by_any_sort() -> None:
    made = np.random.default_rng(0)
    for count, highs in ((0, (3,)), (1, (1, 9)), (900, (2, 1, 40)), (900, (2**40, 2**30, 3))):
        columns = [made.integers(-high, high, count) for high in highs]
        columns.append(np.broadcast_to(np.int64(7), count))
        order, first = sorted_by(columns)
        assert order.tolist() == np.lexsort(columns[::-1]).tolist()
        in_order = list(zip(*(column[order].tolist() for column in columns), strict=True))
        assert first.tolist() == [
            at for at in range(count) if not at or in_order[at] != in_order[at - 1]
        ]
    for keys in ([0, 3], [0, -1]):
        with pytest.raises(ValueError, match="below the width"):
            counted_order(np.array(keys), 3)
    for width in (2**61, 2**63 - 1):
        with pytest.raises(MemoryError):
            counted_order(np.array([0, 1]), width)
    with pytest.raises(ValueError, match="side by side"):
        counted_order(np.arange(8)[::2], 9)


def test_what_is_odd_about_sets_is_what_their_rows_say() -> None:
    made = np.random.default_rng(1)
    clock = np.array([0, 0, 1])
    for _ in range(100):
        count, sets = 40, np.unique(np.append(0, made.integers(0, 30, 6)))
        rows = made.permutation(count)[:30]
        rank, name, start, until, size = (made.integers(0, high, count) for high in (3, 2, 9, 4, 2))
        size = np.broadcast_to(size[:1], count) if made.integers(2) else size
        end = start + made.integers(0, 9, count)
        given = rank, name, start, end, until, size
        found = _reader.set_flags(given, rows, sets, clock, np.array([0, 1], np.uint8), 1)
        for flags, some in zip(found, np.split(rows, sets[1:]), strict=True):
            pairs = [*pairwise(some.tolist())]
            told = {
                1: any(name[a] != name[b] for a, b in pairs),
                2: any(name[a] == name[b] for a, b in pairs),
                4: any(size[a] != size[b] and name[b] == 0 for a, b in pairs),
                8: any(rank[a] == rank[b] for a, b in pairs),
                16: any(
                    min(end[part]) < max(start[part])
                    for part in np.split(some, np.flatnonzero(np.diff(clock[rank[some]])) + 1)
                ),
                32: any(until[some] > 1),
            }
            assert flags == sum(flag for flag, holds in told.items() if holds)
    rows, first, any_size = np.arange(3), np.zeros(1, np.int64), np.zeros(1, np.uint8)
    zeros = np.zeros(3, np.int64)
    columns = (zeros,) * 6
    for wrong in (
        (columns[:5], rows, first),
        ((*columns[:5], zeros[:2]), rows, first),
        ((zeros + 3, *columns[1:]), rows, first),
        ((zeros, zeros + 1, *columns[2:]), rows, first),
        ((zeros.astype(np.int32), *columns[1:]), rows, first),
        (columns, rows + 1, first),
        (columns, rows, first + 4),
        (columns, rows, np.array([2, 1])),
    ):
        with pytest.raises(ValueError, match="columns|not there"):
            _reader.set_flags(*wrong, clock, any_size, 1)


def test_blocks_of_many_ranks_are_read_ahead_and_the_same() -> None:
    ranks = list(MadeJob(np.random.default_rng(3), 40).partials())
    whole, packed_ones = RanksOfJob.of(ranks), RanksOfJob.of(map(packed, ranks))
    for block, read in zip(whole.blocks(), packed_ones.blocks(), strict=True):
        assert block.numbers.tolist() == read.numbers.tolist()
        for rank in (0, 17, 39):
            assert columns_of(block.chunk(rank)) == columns_of(read.chunk(rank))
    chunks = packed_ones.ranks[33].chunks
    assert isinstance(chunks, PackedChunks)
    for at in (0, 1, 9):  # its place, the rows of its spans, their checksum
        told = chunks.told.copy()
        told[-1, at] += 1
        harmed = replace(packed_ones.ranks[33], chunks=replace(chunks, told=told))
        job = RanksOfJob.of((*packed_ones.ranks[:33], harmed, *packed_ones.ranks[34:]))
        with pytest.raises(TraceError, match="is damaged"):
            [*job.blocks()]
    for names, number in ((1, 0), (9, 1)):
        other = replace(chunks, names=names, numbers=(number,), told=chunks.told[:1])
        with pytest.raises(TraceError, match="says what cannot be"):
            other[number]


def a_job(folder: Path) -> Path:
    """Ranks of which one has a worker, which is no rank, in files with an end."""
    lines = [rank_lines(rank) for rank in range(RANKS)]
    worker = TraceLines(900, host="node1", rank=0, world_size=RANKS)
    worker.meta("note", {})
    for number in range(20):
        worker.span("item", "data", 1_000_000_000 + number * 1_000_000, 500_000)
    worker.footer()
    return written(folder, *lines, worker)


def test_what_is_kept_is_what_the_traces_say(tmp_path: Path) -> None:
    folder = a_job(tmp_path)
    from_lines = told(read_ranks(open_traces([folder])))
    assert not [*folder.glob("*.dfrank")]  # such little is read as fast
    done = invoke("index", folder)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "made: 5 files of what ranks say, for dftrace ranks"
    assert len([*folder.glob("*.dfrank")]) == RANKS + 1
    assert told(read_ranks(open_traces([folder]))) == from_lines
    job = read_ranks(open_traces([folder]))
    assert all(rank.chunks.__class__.__name__ == "PackedChunks" for rank in job.ranks)
    assert keep_ranks(open_traces([folder])) == (0, ())
    some_kinds: list[tuple[Kind, ...]] = [("steps",), ("steps", "spans"), ("steps", "calls")]
    for kinds in some_kinds:
        for block, brief in zip(job.blocks(), job.blocks(*kinds), strict=True):
            assert (block.total_own_ns == brief.total_own_ns).all()
            for kind in StepsChunk._fields:
                some = getattr(brief.chunk(1), kind)
                assert len(some[0]) == 0 or columns(some) == columns(getattr(block.chunk(1), kind))
                assert bool(len(some[0])) == (kind in kinds)
    alone = RanksOfJob.of(packed(rank) for rank in job.ranks)
    assert told(alone) == from_lines
    (brief,) = {len(packed(rank, calls=False).chunks[0].calls.step) for rank in job.ranks}
    assert brief == 0


def test_a_kept_file_that_is_not_to_be_believed_is_made_again(tmp_path: Path) -> None:
    folder = a_job(tmp_path)
    from_lines = told(read_ranks(open_traces([folder])))
    keep_ranks(open_traces([folder]))
    first = sorted(folder.glob("*.dfrank"))[0]
    whole = first.read_bytes()
    head = whole.index(b"\n") + 1
    for content in (
        b"",
        whole[:40],
        whole[:head],
        whole.replace(b"rank 4", b"rank 9", 1),
        whole.replace(b"rank 4", b"rank 3", 1),
        whole.replace(b'"chunks":[[0,', b'"chunks":[[7,', 1),
        b"x" * 5000,
    ):
        first.write_bytes(content)
        assert told(read_ranks(open_traces([folder]))) == from_lines
    behind = whole[head : head + int(whole[:head].split()[-1])]
    said = json.loads(behind)
    for name, value in (
        ("chunks", [chunk[:-1] for chunk in said["chunks"]]),
        ("chunks", [[*chunk[:3], [1, 2], *chunk[4:]] for chunk in said["chunks"]]),
        ("chunks", [[*chunk[:3], 2**40, *chunk[4:]] for chunk in said["chunks"]]),
        ("chunks", [[*chunk[:-1], 0.5] for chunk in said["chunks"]]),
        ("chunks", [*said["chunks"], *said["chunks"]]),
        ("chunks", [[-1, *chunk[1:]] for chunk in said["chunks"]]),
        # More than a trace of such a length has events.
        ("chunks", [[*chunk[:2], 2**22, *chunk[3:]] for chunk in said["chunks"]]),
        ("peak_bytes", 2**63),
        ("step_count", 2**62),
        *(("reaches", one) for one in ([], [[1, "2"]], [[1]], [None])),
        *(("chunks", 5), ("groups", [[1, 2]]), ("names", [1]), ("files", [[]]), ("step_count", "")),
    ):
        other = json.dumps({**said, name: value}).encode()
        digest = hashlib.sha256(other).hexdigest().encode()
        rest = whole[head + len(behind) :]
        first.write_bytes(b"dftrace rank 5 %b %010d\n" % (digest, len(other)) + other + rest)
        assert told(read_ranks(open_traces([folder]))) == from_lines, name
    first.write_bytes(whole)
    first.chmod(0o666)
    os.utime(folder / "t1.pfw.gz", ns=(1, 1))
    assert told(read_ranks(open_traces([folder]))) == from_lines
    assert keep_ranks(open_traces([folder])) == (2, ())
    # Its head is whole, and what it leads to is not.
    first.chmod(0o600)
    first.write_bytes(whole[:-20] + bytes(20))
    assert told(read_ranks(open_traces([folder]))) == from_lines
    first.write_bytes(whole)
    job = read_ranks(open_traces([folder]))
    first.write_bytes(whole[:-20] + bytes(20))
    with pytest.raises(TraceError, match="is damaged, or was changed"):
        told(job)


def test_what_is_to_be_told_of_clocks_is_told_of_kept_ranks_too(tmp_path: Path) -> None:
    hours = 5 * 3600 * 10**6
    bases = [TIME_BASE_US + (rank == 3) * hours for rank in range(RANKS)]
    lines = (rank_lines(rank, steps=30, time_base_us=bases[rank]) for rank in range(RANKS))
    folder = written(tmp_path, *lines)
    notes = read_ranks(open_traces([folder])).notes
    assert [note for note in notes if "recorded nothing within 5 h of the other 3" in note]
    for count in (RANKS, RANKS - 1):
        keep_ranks(open_traces([folder]))
        for path in sorted(folder.glob("*.dfrank"))[count:]:
            path.unlink()
        assert read_ranks(open_traces([folder])).notes == notes


def test_what_cannot_be_kept_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_job(tmp_path)
    from_lines = told(read_ranks(open_traces([folder])))
    os.mkfifo(folder / "t1.dfrank")
    (folder / "t2.dfrank").mkdir()
    done = invoke("index", folder)
    assert done.status == 1
    assert [line.rpartition(": ")[0][-9:] for line in done.err.splitlines()] == [
        "t1.dfrank",
        "t2.dfrank",
    ]
    assert done.err.count("not kept for dftrace ranks: ") == 2
    assert len(json.loads(invoke("index", folder, "--json").out)["ranks_left_out"]) == 2
    assert told(read_ranks(open_traces([folder]))) == from_lines
    # One that is not to be believed as soon as it is there.
    monkeypatch.setattr(kept, "MOST_ROWS_A_BYTE", 0)
    assert keep_ranks(open_traces([folder])).made == RANKS - 2
    assert told(read_ranks(open_traces([folder]))) == from_lines
    far = written(
        tmp_path / "far", *(rank_lines(rank, steps=5, time_base_us=2**62) for rank in (0, 1))
    )
    done = invoke("index", far)
    assert (done.status, done.err.count("has numbers beyond 64 bits")) == (1, 2)


def test_no_rank_is_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_job(tmp_path)
    read: list[Path] = []

    def counted(owner: Owner, files: Sequence[tuple[int, Trace]], *, events: bool) -> object:
        read.extend(trace.path for _, trace in files)
        return read_processes(owner, files, events=events)

    read_processes = steps_job.read_processes
    monkeypatch.setattr(steps_job, "read_processes", counted)
    # Of one host, of which only a few events are held where it matters who works for whom.
    monkeypatch.setattr(steps_job, "MOST_HELD", 1)
    read_ranks(open_traces([folder]))
    assert sorted(read) == sorted(folder.glob("*.pfw.gz"))
