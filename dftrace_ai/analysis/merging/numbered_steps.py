"""Which steps of a training are shown, and a track in which each has its number.

Loaded late, for it needs NumPy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import orjson

from dftrace_ai.analysis.merging.file_lines import micros
from dftrace_ai.analysis.merging.shown_times import shown_base_us
from dftrace_ai.analysis.reading import TraceSet
from dftrace_ai.analysis.reading.time_window import TimeWindow
from dftrace_ai.analysis.steps import Job
from dftrace_ai.analysis.steps.detection import find_steps
from dftrace_ai.analysis.steps.processes import step_thread
from dftrace_ai.errors import DftraceError, TraceError
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.steps.detection import FoundSteps
    from dftrace_ai.analysis.steps.processes import Process

STEPS: Final = re.compile(r"(?P<alone>\d{1,9})|(?P<first>\d{0,9}):(?P<end>\d{0,9})", re.ASCII)
# More than there are.
NO_END: Final = 10**9

# Beyond what Linux gives to threads, and what 32 bits hold.
FIRST_TRACK: Final = 2_000_000_000

# Half a million events, of which a viewer takes several seconds to show them. Compressed they are
# about a fifteenth of it.
MOST_TEXT_BYTES: Final = 96 * 1024 * 1024
PACKED: Final = 15


class ShownSteps(NamedTuple):
    """What is shown of a training."""

    # From the beginning of the first step to the end of the last one, over all ranks.
    window: TimeWindow
    tracks: dict[Path, list[bytes]]  # by trace, lines of a track with all steps of its rank


def parsed_steps(text: str) -> range:
    """Return the steps that ``28``, or ``20:30`` without the last, or ``20:`` or ``:30`` names."""
    match = STEPS.fullmatch(text.replace(" ", ""))
    steps = range(0)
    if match and match["alone"]:
        steps = range(int(match["alone"]), int(match["alone"]) + 1)
    elif match:
        steps = range(int(match["first"] or 0), int(match["end"] or NO_END))
    if not steps:
        raise DftraceError(
            f"{text!r} names no steps; what is meant looks like 28, or 20:30 for those up to 30"
        )
    return steps


def shown_steps(traces: Sequence[Trace], wanted: range) -> ShownSteps:
    """Find steps as `dftrace why` does: counted from 0, or with the numbers of torch.profiler."""
    begins: list[int] = []
    ends: list[int] = []
    tracks: dict[Path, list[bytes]] = {}
    most = 0
    last = -1
    for process, tid, found in _found_steps(traces):
        numbers = found.numbers
        most, last = max(most, len(numbers)), max(last, int(numbers[-1]))
        low, high = np.searchsorted(numbers, (wanted.start, wanted.stop)).tolist()
        if low < high:
            begins.append(int(found.start_ns[low]))
            ends.append(int(found.end_ns[high - 1]))
        path, lines = _track(process, tid, found, FIRST_TRACK + len(tracks))
        tracks[path] = lines
    if not begins:
        told = "counted from 0" if last == most - 1 else f"up to number {last}"
        there = f"there are {counted(most, 'step')}, {told}" if most else "none were found"
        raise TraceError(f"no step {wanted.start}: {there}")
    base_ns = shown_base_us(traces) * 1000
    window = TimeWindow((min(begins) - base_ns) / 1000, (max(ends) - base_ns) / 1000)
    return ShownSteps(window, tracks)


def numbered_steps(traces: Sequence[Trace]) -> dict[Path, list[bytes]]:
    """Return a track with all steps of each rank, where finding them takes little time."""
    # Ranks whose steps are spans of their own have none: these are shown as they are. Traces larger
    # than are read in a second or two have none.
    tracks: dict[Path, list[bytes]] = {}
    if _text_bytes(traces) > MOST_TEXT_BYTES:
        return tracks
    for process, tid, found in _found_steps(traces):
        if found.found_by != "step spans":
            path, lines = _track(process, tid, found, FIRST_TRACK + len(tracks))
            tracks[path] = lines
    return tracks


def _text_bytes(traces: Sequence[Trace]) -> int:
    total = 0
    for trace in traces:
        try:
            size = trace.file.content.stat().st_size
        except OSError:
            continue  # whoever reads it tells
        total += size if trace.file.codec == "plain" else PACKED * size
    return total


def _found_steps(traces: Sequence[Trace]) -> Iterator[tuple[Process, int, FoundSteps]]:
    for rank in Job(TraceSet(tuple(traces)), events=True).ranks:
        tid = step_thread(rank.process.spans)
        found = None if tid is None else find_steps(rank.process.spans, tid, rank.process.pauses[1])
        if tid is not None and found is not None:
            yield rank.process, tid, found


def _track(process: Process, tid: int, found: FoundSteps, track: int) -> tuple[Path, list[bytes]]:
    spans = process.spans
    own = spans.at(spans.tid == tid)
    columns = process.events[int(own.place[0])]
    pid = int(columns.pid[int(own.row[0])])
    base_us = (process.header and process.header.time_base_us) or 0
    name = {"name": "thread_name", "pid": pid, "tid": track, "ph": "M", "args": {"name": "steps"}}
    spots = zip(found.numbers.tolist(), _spans(found, base_us * 1000), strict=True)
    lines = [
        b'{"name":"step %d","cat":"dftrace","pid":%d,"tid":%d,"ts":%s,"dur":%s,"ph":"X"}'
        % (number, pid, track, begin, length)
        for number, (begin, length) in spots
    ]
    return columns.trace.path, [orjson.dumps(name), *lines]


def _spans(found: FoundSteps, base_ns: int) -> Iterator[tuple[bytes, bytes]]:
    starts = found.start_ns.tolist()
    # What overlaps by a nanosecond would be dropped.
    for start, end, following in zip(
        starts, found.end_ns.tolist(), [*starts[1:], 1 << 62], strict=True
    ):
        yield micros(max(0, start - base_ns)), micros(max(0, min(end, following) - start))
