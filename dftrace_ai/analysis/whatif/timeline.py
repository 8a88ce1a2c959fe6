"""The ideal timeline as traces: what every rank would do with even work, beside what it did."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import orjson

from dftrace_ai.analysis.whatif.graph import ALONE
from dftrace_ai.errors import DftraceError, TraceError
from dftrace_ai.page.files import new_file
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.whatif.judging import Answer
    from dftrace_ai.analysis.whatif.runs import Run

MEASURED: Final = "measured"
STEPS_TRACK: Final = 0x40000001
FIRST_CALL_TRACK: Final = 0x50000000
COMPRESSION: Final = 4
_Facts: TypeAlias = "dict[str, str | int]"


class _Spans(NamedTuple):
    """Spans of one rank, in order of their begin."""

    name: tuple[str, ...]  # category and name
    step: tuple[int, ...]
    track: tuple[int, ...]  # 0 for the thread
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]


class _Times(NamedTuple):
    """When operations begin and end, on one clock."""

    start_ns: Integers
    end_ns: Integers


def write_timeline(answer: Answer, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the ideal timeline of a job and the measured one, a trace of each rank and each.

    Each step begins in both where it was measured to.

    Args:
        answer: of `whatif_of`.
        folder: where to; it is made if it is missing.

    Returns:
        The traces.

    Raises:
        TraceError: nothing was said of the job, so that there is no ideal timeline.
        DftraceError: they cannot be written.
    """
    if answer.run is None or answer.ideal is None:
        raise TraceError("there is no timeline of even work, since nothing is said of the job")
    run, folder = answer.run, Path(folder)
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DftraceError(f"{quoted(str(folder))}: {error.strerror}") from error
    base = run.gathered.base_ns[run.gathered.stretch_of]
    one = run.operations
    measured = _Times(one.start_ns + base[one.step], one.end_ns + base[one.step])
    timelines = {MEASURED: measured, "ideal": _ideal(run, answer.ideal, measured)}
    order = np.argsort(one.rank, kind="stable")
    first = np.searchsorted(one.rank[order], np.arange(len(one.ranks) + 1))
    written = []
    for number, (which, times) in enumerate(timelines.items()):
        for rank in range(len(one.ranks)):
            mine = order[first[rank] : first[rank + 1]]
            path = folder / f"{which}-rank{one.ranks[rank]:05d}.pfw.gz"
            _write(path, run, rank, which, 1 + rank + number * len(one.ranks), mine, times)
            written.append(path)
    return written


def _ideal(run: Run, ideal: Integers, measured: _Times) -> _Times:
    graph = run.weighed.graph
    ends = graph.ends(ideal[:, None])
    starts = graph.starts(ends)[:, 0]
    one = run.operations
    steps = len(one.stretch_of)
    work = np.flatnonzero(~one.is_comm)
    begins = []
    for times in (measured.start_ns, starts):
        begin = np.full(steps, np.iinfo(np.int64).max)
        np.minimum.at(begin, one.step[work], times[work])
        begins.append(begin)
    # Ranks run on into the next step; so none may begin earlier than the one before allows.
    later = np.maximum.accumulate(begins[0] - begins[1])
    return _Times(starts + later[one.step], ends[:, 0] + later[one.step])


def _write(
    path: Path, run: Run, rank: int, which: str, pid: int, mine: Integers, times: _Times
) -> None:
    place = run.gathered.places[rank]
    base_us = int(run.gathered.base_ns.min()) // 1000 - 1
    name = place.run if re.fullmatch("[0-9a-f]+", place.run) else "0"
    host = hashlib.sha256(place.host.encode()).hexdigest()[:16]
    header: _Facts = {
        "hhash": host,
        "format": 1,
        "host": place.host or "unknown",
        "pid": pid,
        "ppid": 1,
        "run": name,
        "time_base_us": base_us,
        "timestamps": "relative",
        "clock": "monotonic",
        "version": "whatif",
        "rank": place.rank,
        "world_size": place.world_size or len(run.gathered.places),
    }
    if place.layout:
        header["layout"] = ",".join(f"{name}={value}" for name, value in place.layout)
    spans, tracks = _spans_of(run, mine, times)
    lines = ["["]

    def meta(name: str, args: _Facts, track: int = pid, cat: str = "dftrace") -> None:
        line = {"name": name, "cat": cat, "pid": pid, "tid": track, "ph": "M", "args": args}
        lines.append(orjson.dumps(line).decode())

    meta("process_name", {"name": f"rank {place.rank} {which}"})
    meta("dftrace", header)
    meta("HH", {"hhash": host, "name": place.host or "unknown", "value": host}, cat="dftracer")
    meta("thread_name", {"name": "work"})
    for track, called in tracks.items():
        meta("thread_name", {"name": called}, track)
    lines.extend(_lines(spans, pid, host, base_us * 1000))
    body = ("\n".join(lines) + "\n").encode()
    packed = gzip.compress(body, COMPRESSION, mtime=0)
    counts = dict.fromkeys(
        (
            *("instants", "counters", "flows", "metadata", "unfinished", "dropped", "waits"),
            *("unmatched_stops", "args_sanitised", "drain_cpu_us"),
        ),
        0,
    )
    count = len(spans.name)
    footer: _Facts = {
        "hhash": host,
        "events": count,
        "spans": count,
        **counts,
        "bytes": len(body),
        "file_bytes": len(packed),
        "ended": "finalize",
    }
    lines.clear()
    meta("end", footer)
    end = gzip.compress((lines[0] + "\n").encode(), COMPRESSION, mtime=0)
    with new_file(path) as unnamed:
        unnamed.write_bytes(packed + end)


def _lines(spans: _Spans, pid: int, host: str, base_ns: int) -> Iterator[str]:
    for number, (name, step, track, start, end) in enumerate(zip(*spans, strict=True), 1):
        category, _, called = name.partition("/")
        at, took = start - base_ns, end - start
        yield (
            f'{{"id":{number},"name":{_json(called)},"cat":{_json(category)},"pid":{pid},'
            f'"tid":{track or pid},"ts":{at // 1000}.{at % 1000:03d},'
            f'"dur":{took // 1000}.{took % 1000:03d},"ph":"X","args":{{"hhash":"{host}",'
            f'"p_idx":0,"level":1,"step":{step}}}}}'
        )


def _json(text: str) -> str:
    return orjson.dumps(text).decode()


def _spans_of(run: Run, mine: Integers, times: _Times) -> tuple[_Spans, dict[int, str]]:
    """Return the spans of a rank, and how tracks beside its thread are called."""
    one = run.operations
    is_comm = one.is_comm[mine]
    work, calls = mine[~is_comm], mine[is_comm]
    pieces = work[one.span[work] != ALONE]
    rows = [
        (at, until, "pipeline/step", int(one.numbers[one.step[row]]), STEPS_TRACK)
        for row, at, until in _together(work, one.step[work], times)
    ]
    # Pieces of one span are one again: waiting is inside of it.
    rows += [
        (at, until, one.kinds[one.kind[row]], int(one.numbers[one.step[row]]), 0)
        for row, at, until in _together(pieces, one.span[pieces], times)
    ]
    tracks = {STEPS_TRACK: "steps"}
    free: list[int] = []
    for row in calls[np.argsort(times.start_ns[calls], kind="stable")].tolist():
        at = int(times.start_ns[row])
        until = max(int(times.end_ns[row]), at)
        lane = next((lane for lane, end in enumerate(free) if end <= at), len(free))
        free[lane : lane + 1] = [until]
        track = FIRST_CALL_TRACK + lane
        tracks[track] = f"collectives {lane + 1}" if lane else "collectives"
        name = one.kinds[one.kind[row]].partition(" ")[0]
        rows.append((at, until, name, int(one.numbers[one.step[row]]), track))
    rows.sort(key=lambda row: (row[0], -row[1]))
    starts, ends, names, steps, on = zip(*rows, strict=True)
    return _Spans(names, steps, on, starts, ends), tracks


def _together(rows: Integers, label: Integers, times: _Times) -> Iterator[tuple[int, int, int]]:
    """Yield of operations with one label the first, when that begins and when the last ends."""
    order = np.lexsort((times.start_ns[rows], label))
    first = np.flatnonzero(np.diff(label[order], prepend=-2))
    ends = np.maximum.reduceat(times.end_ns[rows[order]], first) if len(first) else first
    heads = rows[order[first]]
    begins = times.start_ns[heads].tolist()
    yield from zip(heads.tolist(), begins, ends.tolist(), strict=True)
