"""Summaries of the events that are asked for, and by thread, step, epoch or place; needs NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np

from dftrace_ai.analysis.reading.identity import Owners, recordings_of
from dftrace_ai.analysis.summary.adding import enough_memory, new_sums
from dftrace_ai.analysis.summary.event_reading import NONE, EventReading, ReadAgainError
from dftrace_ai.analysis.summary.figures import MOST_ROWS
from dftrace_ai.analysis.summary.grouping import NOT_SAID, groups_of
from dftrace_ai.analysis.summary.rows import row_of
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.names_and_phases import loop_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai._reader import Sums
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import SkippedFile
    from dftrace_ai.analysis.summary.event_reading import ProcessEvents
    from dftrace_ai.analysis.summary.figures import Summary
    from dftrace_ai.analysis.summary.grouping import EventGroup, FileGroup
    from dftrace_ai.analysis.summary.rows import Row
    from dftrace_ai.analysis.where import Where

__all__ = ["summarise_chosen"]

# A name for every step, or every name of a million steps, would fill the memory.
MOST_AT_ONCE: Final = 300_000

FILE_GROUPS: Final[tuple[FileGroup, ...]] = ("rank", "host", "process")


def summarise_chosen(
    traces: Sequence[Trace],
    skipped: Sequence[SkippedFile],
    by: FileGroup | EventGroup | None,
    where: Where | None = None,
    *,
    categories: bool = False,
) -> Summary:
    """Add up the events that are asked for, in groups if they are; each file is read once.

    What is said of the files, and of lines without an event, is of all. Errors are those of
    `summarise`, and a TraceError where there are too many rows.
    """
    chosen = _Chosen(traces, by, where, categories=categories)
    chosen.reading.files.skipped += skipped
    for group, of_group in chosen.groups.items():
        for parts in recordings_of(of_group).values():
            chosen.add(group, parts)
    rows = chosen.rows()
    left_out = len(chosen.sums) - len(rows)
    return chosen.reading.summary(rows, left_out)


class _Chosen:
    """The sums of what is asked for."""

    def __init__(
        self,
        traces: Sequence[Trace],
        by: FileGroup | EventGroup | None,
        where: Where | None,
        *,
        categories: bool,
    ) -> None:
        of_files = by in FILE_GROUPS
        self.groups = groups_of(traces, cast("FileGroup", by) if of_files else None)
        self.reading = EventReading(where, None if of_files else cast("EventGroup | None", by))
        self.sums = new_sums()
        self._categories = categories
        self._owners = Owners(traces) if by == "thread" else None
        # The numbers of names and groups in `sums`.
        self._names: dict[tuple[str, str | bool], int] = {}
        self._labels = {label: number for number, label in enumerate(self.groups)}

    def add(self, group: str | None, parts: Sequence[Trace]) -> None:
        """Add a process."""
        process = self.reading.process(parts)
        with enough_memory():
            sums = self._summed(process)
            by = self.reading.by
            groups = None if by in ("step", "epoch") else self._numbers(process, sums, group)
            process.end()
            self.sums.take(sums, ... if by else process.wall_ns, groups)
        _check_room(self.sums)

    def _summed(self, process: ProcessEvents) -> Sums:
        while True:
            sums = new_sums()
            names = np.zeros(0, np.int64)
            try:
                for batch in process.batches():
                    if len(names) < len(process.labels):
                        names = np.array([self._name(*label) for label in process.labels])
                    sums.add(
                        batch.first,
                        batch.second,
                        names[batch.label],
                        batch.start_ns,
                        batch.dur_ns,
                        batch.own_ns,
                        batch.chosen,
                    )
                    _check_room(sums)
            except ReadAgainError:
                continue
            return sums

    def _name(self, cat: str, name: str) -> int:
        row = (cat, loop_part(name) == "body") if self._categories else (cat, name)
        return self._names.setdefault(row, len(self._names))

    def _numbers(self, process: ProcessEvents, sums: Sums, group: str | None) -> list[int]:
        """Return the number of each group of a process among those of all."""
        labels = [group] * len(sums.groups())
        if self._owners:
            called = process.called(self._owners)
            labels = [called(*thread) for thread in sums.groups()]
        return [self._labels.setdefault(label, len(self._labels)) for label in labels]

    def rows(self) -> list[Row]:
        """Return the rows, in the order of a table."""
        names = list(self._names)
        labels = list(self._labels)
        by_number = self.reading.by not in ("step", "epoch")
        places = {label: place for place, label in enumerate(self.groups)}
        rows = []
        for row in self.sums.rows(MOST_ROWS):
            (first, second), name = row[:2]
            if by_number:
                label = labels[first]
            else:
                said = [str(number) for number in (first, second) if number != NONE]
                label = "/".join(said) or NOT_SAID
            rows.append(row_of(*names[name], row[2:], label))
        orders = {label: _in_order(label, places) for label in {row.group for row in rows}}
        rows.sort(key=lambda row: (orders[row.group], row.cat, -row.total_us, row.name))
        return rows


def _in_order(group: str | None, places: dict[str | None, int]) -> tuple[object, ...]:
    """Return what groups are put in order by: their numbers, where these are steps."""
    if group in places:
        return (places[group],)
    numbers = str(group).split("/")
    if all(number.lstrip("-").isdecimal() for number in numbers):
        return (0, [int(number) for number in numbers], "")
    return (1, [], group)


def _check_room(sums: Sums) -> None:
    # A row cannot be left out before it is whole: another process may have more of it.
    if len(sums) > MOST_AT_ONCE:
        raise TraceError(
            f"more than {MOST_AT_ONCE:,} rows; ask for fewer of them, such as with "
            "--where 'args.step < 1000'"
        )
