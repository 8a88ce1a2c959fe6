"""Samples of stacks as tables, each with the span that it lies in; and added up by line.

Loaded late, by who asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dftrace_ai.analysis.executors.lots import Piece
from dftrace_ai.analysis.lines.stack_samples import StackReader
from dftrace_ai.analysis.reading.event_columns import event_columns
from dftrace_ai.analysis.reading.trace_set import TraceSet
from dftrace_ai.analysis.steps.spans import places
from dftrace_ai.analysis.tracks import parents_of, track_order
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.lines.stack_samples import StackSamples, StackTree
    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers
    from dftrace_ai.analysis.reading.trace import Trace

    Columns = dict[str, NDArray[Any]]

NO_SPAN = 0
AT_ONCE = 100_000
MOST_ROWS = 10_000_000
"""Of frames: what samples many deep stacks has as many for each."""


class StackTables:
    """The samples of processes; their stacks have numbers that hold for all of them.

    Attributes:
        notes: what could not be read of them so far, one line each.
    """

    def __init__(self) -> None:
        self._reader = StackReader()
        self._used: set[int] = set()

    @property
    def notes(self) -> list[str]:
        """What could not be read so far."""
        return self._reader.notes

    def samples_of(self, traces: Sequence[Trace]) -> Iterator[tuple[int, Columns]]:
        """Yield the number of each process of some traces, and its samples by column."""
        spans: list[EventColumns] | None = None
        for samples in self._reader.read(traces):
            if spans is None:
                spans = [*event_columns(TraceSet(tuple(traces)))]
            self._used.update(np.unique(samples.stack).tolist())
            yield (
                samples.pid,
                {
                    "pid": np.full(len(samples), samples.pid, np.int64),
                    "tid": samples.tid,
                    "at_ns": samples.at_ns,
                    "span": innermost_of(samples, spans),
                    "stack": samples.stack,
                    "cpu_ns": samples.cpu_ns,
                    "since_ns": samples.since_ns,
                    "cut": samples.cut != 0,
                    "period_ns": samples.period_ns,
                },
            )

    def stacks(self) -> Iterator[Columns]:
        """Yield the frames of all stacks that samples were of, many at a time."""
        tree, rows = self._reader.tree, list[tuple[int, int, str, str, int, bool]]()
        told = 0
        used = sorted(self._used)
        for at, node in enumerate(used):
            rows += _rows_of(tree, node)
            if told + len(rows) > MOST_ROWS:
                self._reader.notes.append(
                    f"stacks: {counted(len(used) - at, 'stack')} left out, "
                    f"beyond {MOST_ROWS:,} frames of others"
                )
                rows = [row for row in rows if row[0] != node]
                break
            if len(rows) >= AT_ONCE:
                told += len(rows)
                yield _columns(rows)
                rows = []
        if rows:
            yield _columns(rows)


def _rows_of(tree: StackTree, node: int) -> Iterator[tuple[int, int, str, str, int, bool]]:
    for depth, frame in enumerate(tree.stack(node)):
        function = tree.functions[frame.function]
        yield node, depth, function.name, function.file, frame.line, function.is_library


def _columns(rows: Sequence[tuple[int, int, str, str, int, bool]]) -> Columns:
    names = ("stack", "depth", "function", "file", "line", "library")
    kinds = (np.int64, np.int32, object, object, np.int32, bool)
    columns = zip(names, kinds, zip(*rows, strict=True), strict=True)
    return {name: np.array(values, kind) for name, kind, values in columns}


def innermost_of(samples: StackSamples, files: Iterable[EventColumns]) -> Integers:
    """Return the number of the innermost span that was open when each sample was taken; or 0."""
    found = np.full(len(samples), NO_SPAN, np.uint64)
    columns = [_finished(one, samples.pid) for one in files]
    tid, start, end, ids = (np.concatenate(each) for each in zip(*columns, strict=True))
    order = track_order(tid, start, end, ids)
    tid, start, end, ids = tid[order], start[order], end[order], ids[order]
    parent = parents_of(tid, start, end)
    for thread in np.unique(samples.tid).tolist():
        first, last = np.searchsorted(tid, [thread, thread + 1]).tolist()
        here = np.flatnonzero(samples.tid == thread)
        moment = samples.at_ns[here]
        at = places(start[first:last], moment, right=True) - 1 + first
        # Of spans that have ended by then the one around each is asked.
        going = np.flatnonzero(at >= first)
        at[at < first] = -1
        while len(going):
            ended = end[at[going]] <= moment[going]
            going = going[ended]
            at[going] = parent[at[going]]
            going = going[at[going] >= 0]
        found[here[at >= 0]] = ids[at[at >= 0]]
    return found


def _finished(columns: EventColumns, pid: int) -> tuple[Integers, Integers, Integers, Integers]:
    chosen = (columns.ph == ord("X")) & (columns.dur_ns >= 0) & (columns.pid == pid)
    start = columns.start_ns[chosen].astype(np.int64)
    end = start + columns.dur_ns[chosen]
    ids = columns.id[chosen].astype(np.uint64)
    return columns.tid[chosen].astype(np.int64), start, end, ids


class _Place(NamedTuple):
    function: str
    file: str
    line: int


class LineSum(NamedTuple):
    """How often a line of the program was on stacks; for itself, where it was the last of them."""

    function: str
    file: str
    line: int
    samples: int
    total_ns: int
    self_ns: int
    share: float
    cpu_ns: int


@dataclass
class _Sum:
    samples: int = 0
    total_ns: int = 0
    self_ns: int = 0
    cpu_ns: int = 0

    def add(self, more: _Sum) -> None:
        """Add another one."""
        self.samples += more.samples
        self.total_ns += more.total_ns
        self.self_ns += more.self_ns
        self.cpu_ns += more.cpu_ns


@dataclass
class _Lines:
    """What lines come to, in any order of the files; each stack is of the tree of its reader."""

    sums: dict[_Place, _Sum] = field(default_factory=dict)
    whole_ns: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, reader: StackReader, trace: Trace) -> None:
        """Add the samples of a file."""
        for samples in reader.read([trace]):
            self.whole_ns += int(samples.period_ns.sum())
            nodes, which = np.unique(samples.stack, return_inverse=True)
            counts = np.bincount(which)
            period = np.bincount(which, weights=samples.period_ns)
            # A sample that came late stands for no longer than others.
            busy = np.clip(samples.cpu_ns / np.maximum(samples.since_ns, 1), 0, 1)
            cpu = np.bincount(which, busy * samples.period_ns)
            columns = (nodes.tolist(), counts.tolist(), period.tolist(), cpu.tolist())
            for node, count, ns, cpu_ns in zip(*columns, strict=True):
                places = _places(reader.tree, node)
                for place in set(places):
                    of = self._of(place)
                    of.samples += count
                    of.total_ns += int(ns)
                if places:
                    of = self._of(places[-1])
                    of.self_ns += int(ns)
                    of.cpu_ns += int(cpu_ns)

    def take(self, more: _Lines) -> None:
        """Add those of other files."""
        self.whole_ns += more.whole_ns
        self.notes += more.notes
        for place, of in more.sums.items():
            self._of(place).add(of)

    def _of(self, place: _Place) -> _Sum:
        return self.sums.setdefault(place, _Sum())

    def rows(self) -> list[LineSum]:
        """Return the lines, that of most time for itself first."""
        rows = [
            LineSum(
                *place, of.samples, of.total_ns, of.self_ns, of.self_ns / self.whole_ns, of.cpu_ns
            )
            for place, of in self.sums.items()
        ]
        rows.sort(key=lambda row: (-row.self_ns, -row.total_ns, row.file, row.line, row.function))
        return rows


def line_sums(
    traces: Sequence[Trace], spread: Spread | None = None
) -> tuple[list[LineSum], tuple[str, ...]]:
    """Return the lines of a program, that of most time for itself first, and what was not read.

    Where it is `spread`, others read the files.

    Raises:
        TraceError: a file cannot be read any more.
    """
    # A file at a time: lines need not know of each other.
    lines = _Lines()
    if spread is None:
        reader = StackReader()
        for trace in traces:
            lines.add(reader, trace)
        lines.notes = reader.notes
    else:
        pieces = [Piece(trace, [trace]) for trace in traces]
        for found in spread.each(_lines_of, pieces):
            if found is not None:
                lines.take(found)
    return lines.rows(), tuple(lines.notes)


def _lines_of(trace: Trace) -> _Lines:
    lines, reader = _Lines(), StackReader()
    lines.add(reader, trace)
    lines.notes = reader.notes
    return lines


def _places(tree: StackTree, node: int) -> list[_Place]:
    """Return the lines of the program on a stack, the outermost first."""
    stack = ((tree.functions[frame.function], frame.line) for frame in tree.stack(node))
    return [_Place(of.name, of.file, line) for of, line in stack if not of.is_library]
