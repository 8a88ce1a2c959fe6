"""Reading processes event by event, each file once: spans and what they lie in; needs NumPy.

Apart from `choosing`: this half reads, what is asked of it is added up there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai import _reader
from dftrace_ai.analysis.reading import TraceSet
from dftrace_ai.analysis.reading.clock_faults import NEVER, has_clock_in_lines, set_back
from dftrace_ai.analysis.reading.event_columns import BlockColumns
from dftrace_ai.analysis.reading.reach import NOWHERE, Reach, joined
from dftrace_ai.analysis.summary.adding import ReadFiles, Thread
from dftrace_ai.analysis.summary.rows import MOST_SUMMARY_ROWS, kind_of
from dftrace_ai.analysis.summary.table import summary_of
from dftrace_ai.analysis.tracks import (
    distinct,
    may_be_frames,
    own_ns,
    parents_of,
    track_order,
)
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.header_and_footer import CUSTOM_METADATA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.reading.clock_faults import SetBack
    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers, Label
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.summary.adding import Added
    from dftrace_ai.analysis.summary.rows import EventGroup, Row
    from dftrace_ai.analysis.summary.table import Summary
    from dftrace_ai.analysis.where import Where

NONE: Final = -(2**63)
"""What is not said of a group."""

THREAD_NAME: Final = "thread_name"
SPAN: Final = ord("X")
METADATA: Final = ord("M")
# Sums of two such times stay within 64 bits, and no event can be at one of them.
BEYOND_NS: Final = 2**62 - 1


class ReadAgainError(Exception):
    """More had to be known before the events were read: they are to be read once more."""


class SpanBatch(NamedTuple):
    """Finished spans of a process, each in a row; columns of 64 bits."""

    # Code of category and name.
    label: Integers
    # What its group has in common, see `ProcessEvents`.
    first: Integers
    second: Integers
    # Since 1970; -1 where none is said.
    start_ns: Integers
    dur_ns: Integers
    # What no spans take that lie directly inside on the track; of frames (`may_be_frames`) nothing.
    own_ns: Integers
    # Which are asked for; None for all.
    chosen: Integers | None


class EventReading:
    """Reads processes one after the other: the events that are asked for, or all of them.

    With `all_others` all events beside spans are asked for.
    """

    def __init__(
        self,
        where: Where | None = None,
        by: EventGroup | None = None,
        *,
        all_others: bool = False,
    ) -> None:
        self.where, self.by, self.all_others = where, by, all_others
        # What is to be said of the files that were read.
        self.files = ReadFiles()
        # Events beside spans that are asked for, by kind, category and name.
        self.others: Counter[tuple[str, str, str]] = Counter()
        self.chosen_events = 0

    def process(self, parts: Sequence[Trace]) -> ProcessEvents:
        """Return the events of a process, by its files in their order."""
        return ProcessEvents(self, parts)

    def take(self, added: Added) -> None:
        """Add what is to be said of files that others have read."""
        self.files.take(added.files)
        self.others.update(added.others)
        self.chosen_events += added.chosen_events

    def summary(self, spans: Iterable[Row] = (), left_out: int = 0) -> Summary:
        """Return the summary of what was read."""
        others = Counter(dict(self.others.most_common(MOST_SUMMARY_ROWS)))
        left_out += len(self.others) - len(others)
        chosen = None if self.where is None else self.chosen_events
        return summary_of(self.files, spans, others, left_out, chosen)


class ProcessEvents:
    """The events of a process, which are read by `batches`."""

    # Groups are two numbers: process and thread, epoch and step, or the epoch; `NONE` for what is
    # not said.

    def __init__(self, reading: EventReading, parts: Sequence[Trace]) -> None:
        # How long it went, when `end` was called; None where that is not known.
        self.wall_ns: int | None = None
        self._reading = reading
        self._parts = parts
        # Spans that do not come in the order of their ends are sorted.
        self._sorts = False
        # Steps that `step` spans without a number show; None while there was no such span.
        self._steps: Sequence[NumberedSteps] | None = None
        self._begin()

    def _begin(self) -> None:
        # What the codes of names mean.
        self.labels: tuple[Label, ...] = ()
        self._columns = BlockColumns()
        self._files = ReadFiles()
        self._threads: dict[tuple[int, int], str] = {}
        self._others: Counter[tuple[str, str, str]] = Counter()
        self._chosen_events = 0
        self._clock: SetBack = NEVER
        self._tree: _reader.SpanTree | None = None
        self._parents: Integers = np.zeros(0, np.int64)

    def batches(self, *, parents: bool = False) -> Iterator[SpanBatch]:
        """Yield the spans, in the memory of a block and of what is open where their order tells.

        After a ReadAgainError what was yielded does not hold, and this is to be called once more.
        """
        self._begin()
        if self._sorts:
            yield from self._sorted()
            return
        self._tree = tree = _reader.SpanTree(parents)
        for block, columns in self._blocks():
            own = tree.add(block)
            if own is None:
                self._sorts = True
                raise ReadAgainError
            rows, chosen = self._noted(block, columns)
            if len(rows):
                own_time = np.frombuffer(own, np.int64)
                frames = _may_be_frames(columns, rows)
                own_time = _without_frames(own_time, columns.dur_ns[rows], frames)
                yield self._batch(block, columns, rows, own_time, chosen)

    def blocks(self) -> Iterator[EventColumns]:
        """Yield all events, block by block, in place of the spans alone."""
        self._begin()
        for block, columns in self._blocks():
            self._noted(block, columns)
            yield columns

    def parents(self) -> Integers:
        """Return which of the spans is directly around each, -1 for none; once."""
        tree, self._tree = self._tree, None
        return np.frombuffer(tree.parents(), np.int32) if tree else self._parents

    def thread(self, pid: int, tid: int) -> Thread:
        """Return a thread by the numbers of its process and its own."""
        return Thread(self._parts[0].path, pid, tid, self._threads.get((pid, tid), ""))

    def end(self) -> None:
        """Add what is to be said of the process to that of the reading."""
        files, reading = self._files, self._reading
        first = files.read[0] if files.read else None
        if self._clock.places and first and has_clock_in_lines(first):
            files.note_clock(first.path, self._clock)
        self.wall_ns = files.length_ns(files.times)
        reading.files.take(files)
        reading.others.update(+self._others)
        reading.chosen_events += self._chosen_events

    def _blocks(self) -> Iterator[tuple[EventBlock, EventColumns]]:
        """Yield the blocks of all files that can be read."""
        files = self._files
        for trace in self._parts:
            reach = NOWHERE
            try:
                blocks = self._columns.blocks(trace)
                for block, columns in self._columns.of(blocks):
                    self.labels = columns.labels
                    reach = joined([reach, _reach_of(columns)]) or NOWHERE
                    files.unreadable += block.unreadable
                    yield block, columns
            except TraceError as error:
                files.skip(trace, error)
                continue
            if blocks.tear:
                files.tears[trace.path] = str(blocks.tear)
            files.long_lines += blocks.long_lines
            files.read.append(trace)
            files.note_reach(trace, reach)

    def _noted(self, block: EventBlock, columns: EventColumns) -> tuple[Integers, Integers | None]:
        """Return the rows of finished spans, and which of these are asked for; note the others."""
        where = self._reading.where
        chosen = None if where is None else where.rows(columns)
        is_span = columns.ph == SPAN
        finished = is_span & (columns.dur_ns >= 0)
        spans = int(is_span.sum())
        self._files.events += spans
        self._files.unreadable += spans - int(finished.sum())
        self._chosen_events += spans if chosen is None else int((chosen & is_span).sum())
        if spans < len(columns):
            self._note_others(block, columns, np.flatnonzero(~is_span), chosen)
        rows = np.flatnonzero(finished)
        return rows, None if chosen is None else chosen[rows]

    def _note_others(
        self, block: EventBlock, columns: EventColumns, rows: Integers, chosen: Integers | None
    ) -> None:
        letters = columns.ph[rows].astype(np.int64)
        kinds, which = distinct(columns.label[rows].astype(np.int64) << 8 | letters)
        asked = None if chosen is None else chosen[rows]
        counts = np.bincount(which)
        wanted = counts if asked is None else np.bincount(which, asked).astype(np.int64)
        for at, (kind, count, some) in enumerate(
            zip(kinds.tolist(), counts.tolist(), wanted.tolist(), strict=True)
        ):
            label, ph = columns.labels[kind >> 8], kind & 0xFF
            if ph == METADATA and label.name == THREAD_NAME:
                self._note_threads(columns, rows[which == at])
            if ph == METADATA and label.name != CUSTOM_METADATA:
                continue  # names of tracks, header, hashes, footer
            self._files.events += count
            self._chosen_events += some
            shown = count if self._reading.all_others else some
            if shown:
                self._others[kind_of(chr(ph)), label.cat, label.name] += shown
        # Phases that are no single letter.
        for row, text in block.phases.items():
            if chosen is None or chosen[row] or self._reading.all_others:
                label = columns.labels[int(columns.label[row])]
                self._others[kind_of("?"), label.cat, label.name] -= 1
                self._others[kind_of(text), label.cat, label.name] += 1

    def _note_threads(self, columns: EventColumns, rows: Integers) -> None:
        for row in rows.tolist():
            name = columns.args(row).get("name")
            if isinstance(name, str):
                self._threads.setdefault((int(columns.pid[row]), int(columns.tid[row])), name)

    def _batch(
        self,
        block: EventBlock,
        columns: EventColumns,
        rows: Integers,
        own_ns: Integers,
        chosen: Integers | None,
    ) -> SpanBatch:
        first, second = self._groups(block, columns, rows)
        return SpanBatch(
            columns.label[rows].astype(np.int64),
            first,
            second,
            columns.start_ns[rows],
            columns.dur_ns[rows],
            own_ns,
            chosen,
        )

    def _groups(
        self, block: EventBlock, columns: EventColumns, rows: Integers
    ) -> tuple[Integers, Integers]:
        by = self._reading.by
        nothing = np.full(len(rows), NONE)
        if by is None:
            return nothing, nothing
        if by == "thread":
            return columns.pid[rows], columns.tid[rows]
        said = np.frombuffer(block.numbers("epoch", "step"), np.int64).reshape(-1, 2)
        epoch, step = said[rows].T.copy()
        if by == "epoch":
            return epoch, nothing
        silent = step == NONE
        epoch = np.where(silent, NONE, epoch)
        if self._steps is None and silent.any():
            codes = distinct(columns.label[rows[silent]])[0].tolist()
            if any(_may_be_step(*columns.labels[code]) for code in codes):
                self._steps = steps_without_number(self._parts)
                raise ReadAgainError
        for steps in self._steps or ():
            at = np.flatnonzero(step == NONE)
            step[at] = steps.at(columns.start_ns[rows[at]], columns.pid[rows[at]])
        return epoch, step

    def _sorted(self) -> Iterator[SpanBatch]:
        """Yield all spans in one batch, those around others before them."""
        pieces: list[tuple[Integers, ...]] = []
        tracks: dict[tuple[int, int], int] = {}
        for block, columns in self._blocks():
            rows, chosen = self._noted(block, columns)
            batch = self._batch(block, columns, rows, rows, chosen)
            track = _tracks(columns.pid[rows], columns.tid[rows], tracks)
            asked = np.ones(len(rows), bool) if chosen is None else chosen
            ids, frames = columns.id[rows].astype(np.int64), _may_be_frames(columns, rows)
            pieces.append((*batch[:5], asked, track, ids, frames))
        if not pieces:
            return
        label, first, second, start, dur, chosen, track, ids, frames = map(
            np.concatenate, zip(*pieces, strict=True)
        )
        pieces.clear()
        self._clock = set_back(
            np.stack([start[track == at], dur[track == at]], 1) for at in range(len(tracks))
        )
        # What says no time has a track of its own.
        untimed = np.flatnonzero(start < 0)
        track[untimed] = len(tracks) + np.arange(len(untimed))
        order = track_order(track, start, start + dur, ids)
        del ids
        track, start, dur = track[order], start[order], dur[order]
        end = start + dur
        self._parents = parents_of(track, start, end)
        own = _without_frames(own_ns(self._parents, start, end), dur, frames[order])
        yield SpanBatch(label[order], first[order], second[order], start, dur, own, chosen[order])


def _may_be_frames(columns: EventColumns, rows: Integers) -> Integers:
    tid, outermost = columns.tid[rows], columns.outermost[rows]
    return may_be_frames(columns.labels, columns.label[rows], tid, outermost)


def _without_frames(own_ns: Integers, dur_ns: Integers, frames: Integers) -> Integers:
    return np.where(frames & (own_ns == dur_ns), 0, own_ns) if frames.any() else own_ns


def _reach_of(columns: EventColumns) -> Reach:
    """Return from when to when the events of a block are."""
    timed = (columns.ph != METADATA) & (columns.start_ns != -1)
    if not timed.any():
        return NOWHERE
    start = np.minimum(columns.start_ns[timed], BEYOND_NS)
    end = start + np.clip(columns.dur_ns[timed], 0, BEYOND_NS)
    return Reach(int(start.min()), int(end.max()))


def _tracks(pid: Integers, tid: Integers, known: dict[tuple[int, int], int]) -> Integers:
    """Return the number of each event's track; new tracks are added to `known`."""
    processes, process = distinct(pid)
    threads, thread = distinct(tid)
    pairs, which = distinct(process.astype(np.int64) * len(threads) + thread)
    numbers = [
        known.setdefault((int(processes[one]), int(threads[other])), len(known))
        for one, other in (divmod(pair, len(threads)) for pair in pairs.tolist())
    ]
    return np.array(numbers, np.int64)[which]


class NumberedSteps(NamedTuple):
    """Steps of a process in order, of which none overlaps another; ns since 1970."""

    # None for all that are in the files.
    pid: int | None
    start_ns: Integers
    end_ns: Integers
    # Counted from 0, over all steps of the process, or as torch.profiler has it.
    number: Integers

    def at(self, start_ns: Integers, pid: Integers) -> Integers:
        """Return the number of the step in which each span begins; `NONE` for none."""
        index = np.searchsorted(self.start_ns, start_ns, side="right") - 1
        known = np.maximum(index, 0)
        inside = (index >= 0) & (start_ns < self.end_ns[known])
        if self.pid is not None:
            inside &= pid == self.pid
        return np.where(inside, self.number[known], NONE)


def _may_be_step(cat: str, name: str) -> bool:
    from dftrace_ai.analysis.steps.roles import role_of

    return "step" in (role_of(cat, name), role_of(cat, name, "kineto"))


def steps_without_number(parts: Sequence[Trace]) -> tuple[NumberedSteps, ...]:
    """Return the steps that `step` spans without a number show, numbered as by `dftrace why`."""
    # Most spans say their step: what finds steps takes a third as long to load as all of this.
    from dftrace_ai.analysis.steps import Job
    from dftrace_ai.analysis.steps.detection import find_steps
    from dftrace_ai.analysis.steps.processes import step_thread
    from dftrace_ai.analysis.steps.spans import integer

    numbered = []
    for rank in Job(TraceSet(tuple(parts))).ranks:
        process = rank.process
        tid = step_thread(process.spans)
        steps = None if tid is None else find_steps(process.spans, tid, process.pauses[1])
        if steps is None or steps.found_by != "step spans":
            continue
        marks = process.spans.of("step")
        says = [integer(marks.args(at).get("step")) is not None for at in range(len(marks))]
        silent = np.ones(len(steps.start_ns), bool)
        step = np.searchsorted(steps.end_ns, marks.start_ns[np.array(says, bool)], side="right")
        silent[step[step < len(silent)]] = False
        at = np.flatnonzero(silent)
        if len(at):
            alone = process.source == "kineto" or (process.header and process.header.run)
            pid = None if alone else process.pid
            number = steps.numbers[at].astype(np.int64)  # as `NONE` is
            numbered.append(NumberedSteps(pid, steps.start_ns[at], steps.end_ns[at], number))
    return tuple(numbered)
