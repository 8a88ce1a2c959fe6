"""Summaries that look at each event, loaded late, for they need NumPy.

Chosen ones, and by thread, step or epoch; by place in the tree of spans; statistics of tensors.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from dftrace_ai.analysis.reading.event_columns import Label
from dftrace_ai.analysis.reading.identity import Owners
from dftrace_ai.analysis.summary.adding import (
    Added,
    Some,
    Thread,
    added_elsewhere,
    enough_memory,
    new_sums,
    processes_in,
)
from dftrace_ai.analysis.summary.event_reading import NONE, EventReading, ReadAgainError
from dftrace_ai.analysis.summary.rows import (
    MOST_SUMMARY_ROWS,
    TensorRow,
    TensorValues,
    TreeRow,
    row_of,
)
from dftrace_ai.analysis.summary.table import NOT_SAID, groups_of
from dftrace_ai.analysis.tracks import places_of
from dftrace_ai.analysis.where import where_of
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.names_and_phases import loop_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dftrace_ai._reader import Sums
    from dftrace_ai.analysis.executors import Spread
    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import SkippedFile
    from dftrace_ai.analysis.summary.event_reading import ProcessEvents
    from dftrace_ai.analysis.summary.rows import (
        EventGroup,
        Figures,
        FileGroup,
        Moment,
        Row,
    )
    from dftrace_ai.analysis.summary.table import Summary
    from dftrace_ai.analysis.where import Where
    from dftrace_ai.trace_format.json_types import Json

# A name for every step, or every name of a million steps, would fill the memory.
MOST_AT_ONCE: Final = 300_000

TENSOR_STATS: Final = "tensor_stats"

# What an event says beside its statistics.
ABOUT: Final = frozenset(
    {
        *("hhash", "p_idx", "level", "iteration", "rank", "feature", "epoch", "step"),
        *("n", "n_nan", "n_inf", "n_zero"),
    }
)
TEXT: Final = "_str"

FILE_GROUPS: Final[tuple[FileGroup, ...]] = ("rank", "host", "process")


def summarise_chosen(
    traces: Sequence[Trace],
    skipped: Sequence[SkippedFile],
    by: FileGroup | EventGroup | None,
    where: str | None = None,
    *,
    categories: bool = False,
    spread: Spread | None = None,
) -> Summary:
    """Add up the events that are asked for, in groups if they are; each file is read once."""
    # What is said of the files, and of lines without an event, is of all.
    groups = groups_of(traces, by if by in FILE_GROUPS else None)
    some = Some(processes_in(groups), by, where, categories)
    chosen = _Chosen(some, groups, traces)
    chosen.reading.files.skipped += skipped
    if spread is None:
        chosen.add_all(some)
    else:
        for added in added_elsewhere(added_of, some, spread):
            chosen.take(added)
    rows = chosen.rows()
    left_out = len(chosen.sums) - len(rows)
    return chosen.reading.summary(rows, left_out)


def added_of(some: Some) -> Added:
    """Return what some processes come to, for who has asked to put it together."""
    adding: _Chosen | _Tree | TensorSums
    if some.what == "tensors":
        adding = TensorSums(_where_of(some), MOST_AT_ONCE)
    else:
        adding = _Tree(some) if some.what == "tree" else _Chosen(some, {})
    adding.add_all(some)
    return adding.added()


def _where_of(some: Some) -> Where | None:
    return None if some.where is None else where_of(some.where)


class _Chosen:
    """The sums of what is asked for."""

    def __init__(
        self, some: Some, groups: Iterable[str | None], traces: Sequence[Trace] = ()
    ) -> None:
        by = some.by
        self.groups = tuple(groups)
        of_events = None if by in FILE_GROUPS else cast("EventGroup | None", by)
        self.reading = EventReading(_where_of(some), of_events)
        self.sums = new_sums()
        # Steps and epochs are their own numbers, and the next process has mostly the same.
        self._shared = by in ("step", "epoch")
        self._process_sums = new_sums()
        self._categories = some.categories
        self._by_thread = by == "thread"
        # Nobody is known to who adds up for another.
        self._owners = Owners(traces) if self._by_thread and traces else None
        self._traces = {trace.path: trace for trace in traces}
        # The numbers of names and groups in `sums`.
        self._names: dict[tuple[str, str | bool], int] = {}
        self._labels: dict[str | Thread | None, int] = {
            label: number for number, label in enumerate(self.groups)
        }

    def add_all(self, some: Some) -> None:
        """Add these processes."""
        for group, parts in some.processes:
            self.add(group, parts)

    def added(self) -> Added:
        """Return all of it, for another process."""
        files, others = self.reading.files, self.reading.others
        packed = self.sums.packed()
        names, groups = tuple(self._names), tuple(self._labels)
        return Added(files, others, self.reading.chosen_events, packed, names, groups)

    def take(self, added: Added) -> None:
        """Add what another process has added up."""
        self.reading.take(added)
        names = [self._names.setdefault(name, len(self._names)) for name in added.names]
        groups = [self._number(label) for label in added.groups]
        with enough_memory():
            self.sums.take_packed(added.packed, names, None if self._shared else groups)
        _check_room(self.sums)

    def add(self, group: str | None, parts: Sequence[Trace]) -> None:
        """Add a process."""
        process = self.reading.process(parts)
        with enough_memory():
            sums = self._summed(process)
            groups = None if self._shared else self._numbers(process, sums, group)
            process.end()
            self.sums.take(sums, ... if self.reading.by else process.wall_ns, groups)
            if self._shared:
                sums.forget()
            else:
                self._process_sums = new_sums()
        _check_room(self.sums)

    def _summed(self, process: ProcessEvents) -> Sums:
        while True:
            sums = self._process_sums
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
                self._process_sums = new_sums()
                continue
            return sums

    def _name(self, cat: str, name: str) -> int:
        row = (cat, loop_part(name) == "body") if self._categories else (cat, name)
        return self._names.setdefault(row, len(self._names))

    def _numbers(self, process: ProcessEvents, sums: Sums, group: str | None) -> list[int]:
        """Return the number of each group of a process among those of all."""
        found = sums.groups()
        if self._by_thread:
            return [self._number(process.thread(*thread)) for thread in found]
        return [self._number(group)] * len(found)

    def _number(self, label: str | Thread | None) -> int:
        if isinstance(label, Thread) and self._owners:
            called = self._owners.called(self._traces[label.first], label.pid)
            label = f"{called} {label.tid} {label.name}".strip(": ")
        return self._labels.setdefault(label, len(self._labels))

    def rows(self) -> list[Row]:
        """Return the rows, in the order of a table."""
        self._process_sums = new_sums()  # rows need its memory
        names = list(self._names)
        labels = cast("list[str | None]", list(self._labels))
        places = {label: place for place, label in enumerate(self.groups)}
        rows = []
        for row in self.sums.rows(MOST_SUMMARY_ROWS):
            (first, second), name = row[:2]
            if not self._shared:
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


# Who makes a name for every step makes millions of places; they share one, with those below.
MOST_PLACES: Final = 100_000
TOO_MANY: Final = Label("", "(too many names)")
MOST_DEPTH: Final = 200


class _Tree:
    """Adds up the spans of processes by their place."""

    def __init__(self, some: Some) -> None:
        self.reading = EventReading(_where_of(some), all_others=True)
        # Names that share a place with others, since they are too many or too deep.
        self.left_out = 0
        self._sums = new_sums()
        self._numbers: dict[tuple[int, Label], int] = {}
        # Of each place; those around others come before them.
        self._around: list[int] = []
        self._labels: list[Label] = []
        self._depths: list[int] = []

    def add_all(self, some: Some) -> None:
        """Add the spans of these processes."""
        for _, parts in some.processes:
            with enough_memory():
                self.add(self.reading.process(parts))

    def added(self) -> Added:
        """Return all of it, for another process."""
        numbers = self._numbers.items()
        places = tuple((around, label, number) for (around, label), number in numbers)
        files, others = self.reading.files, self.reading.others
        packed = self._sums.packed()
        return Added(files, others, self.reading.chosen_events, packed, places=places)

    def take(self, added: Added) -> None:
        """Add what another process has added up; its places are numbered as they came to it."""
        self.reading.take(added)
        numbers = {-1: -1}
        for around, label, number in added.places:
            here = self._number(numbers[around], label)
            numbers.setdefault(number, here)
        groups = [numbers[number] for number in range(len(numbers) - 1)]
        with enough_memory():
            self._sums.take_packed(added.packed, [0], groups)

    def add(self, process: ProcessEvents) -> None:
        """Add the spans of a process."""
        # The figures are added up when it is known where the spans are.
        kept: list[tuple[Integers, Integers, Integers | None]] = []
        codes: list[Integers] = []
        while True:
            try:
                for batch in process.batches(parents=True):
                    codes.append(batch.label.astype(np.int32))
                    kept.append((_small(batch.dur_ns), _small(batch.own_ns), batch.chosen))
            except ReadAgainError:
                codes, kept = [], []
                continue
            break
        sums = new_sums()
        if codes:
            place = self._places(process.parents(), np.concatenate(codes), process.labels)
            for dur, own, chosen in kept:
                at, place = place[: len(dur)].astype(np.int64), place[len(dur) :]
                none, name = np.full(len(dur), NONE), np.zeros(len(dur), np.int64)
                # When they were matters to groups alone.
                sums.add(at, none, name, none, dur.astype(np.int64), own.astype(np.int64), chosen)
        process.end()
        self._sums.take(sums, process.wall_ns, None)

    def _places(self, parents: Integers, code: Integers, labels: tuple[Label, ...]) -> Integers:
        """Return the place of each span."""
        numbers: list[int] = []

        def number(around: int, code: int) -> int:
            numbers.append(self._number(numbers[around] if around >= 0 else -1, labels[code]))
            return len(numbers) - 1

        roots = np.broadcast_to(np.int32(-1), parents.shape)
        of_process = places_of(parents, code, roots, number)
        return np.array(numbers, np.int32)[of_process]

    def _number(self, around: int, label: Label) -> int:
        found = self._numbers.get((around, label))
        if found is not None:
            return found
        depth = self._depths[around] + 1 if around >= 0 else 0
        if depth >= MOST_DEPTH or (around >= 0 and self._labels[around] == TOO_MANY):
            self.left_out += 1
            self._numbers[around, label] = around
            return around
        if len(self._labels) >= MOST_PLACES and label != TOO_MANY:
            self.left_out += 1
            return self._number(around, TOO_MANY)
        self._numbers[around, label] = len(self._labels)
        self._around.append(around)
        self._labels.append(label)
        self._depths.append(depth)
        return len(self._labels) - 1

    def rows(self) -> Iterator[TreeRow]:
        """Yield the places with spans or with such inside, by falling total within each other."""
        figures = {row[0][0]: row[2:] for row in self._sums.rows(len(self._sums))}
        weights = [0] * len(self._labels)
        asked = [False] * len(self._labels)
        for place, each in figures.items():
            weights[place], asked[place] = each[1], True
        below: defaultdict[int, list[int]] = defaultdict(list)
        for at in reversed(range(len(weights))):
            around = self._around[at]
            if asked[at]:
                below[around].append(at)
            if around >= 0 and asked[at]:
                asked[around] = True
                if around not in figures:
                    weights[around] += weights[at]
        for inside in below.values():
            inside.sort(key=lambda at: (weights[at], self._labels[at]))
        paths: dict[int, tuple[str, ...]] = {-1: ()}
        open_places = below[-1]
        while open_places:
            at = open_places.pop()
            label = self._labels[at]
            paths[at] = (*paths[self._around[at]], f"{label.cat}.{label.name}")
            yield _place_row(paths[at], label, figures.get(at))
            open_places += below[at]


def _small(times: Integers) -> Integers:
    """Return times in half of the memory where none is longer than four seconds."""
    return times.astype(np.uint32) if times.max(initial=0) < 2**32 else times


def _place_row(path: tuple[str, ...], label: Label, figures: Figures | None) -> TreeRow:
    if figures is None:
        return TreeRow(path, *label, 0, 0.0, 0.0, *[None] * 8)
    row = row_of(*label, figures)
    own_ns, wall_ns = figures[2] or 0, figures[8]
    return TreeRow(
        path,
        *label,
        row.count,
        total_us=row.total_us,
        self_us=row.self_us or 0.0,
        share=own_ns / wall_ns if wall_ns else None,
        wall_us=row.wall_us,
        mean_us=row.mean_us,
        min_us=row.min_us,
        p50_us=row.p50_us,
        p95_us=row.p95_us,
        p99_us=row.p99_us,
        max_us=row.max_us,
    )


def summarise_tree(
    traces: Sequence[Trace],
    skipped: Sequence[SkippedFile],
    where: str | None = None,
    spread: Spread | None = None,
) -> tuple[Summary, tuple[TreeRow, ...]]:
    """Return the spans of all threads and processes as one tree, and what is said of the files."""
    some = Some(processes_in({None: traces}), None, where, what="tree")
    tree = _Tree(some)
    tree.reading.files.skipped += skipped
    if spread is None:
        tree.add_all(some)
    else:
        for added in added_elsewhere(added_of, some, spread):
            tree.take(added)
    return tree.reading.summary(left_out=tree.left_out), tuple(tree.rows())


def summarise_tensors(
    traces: Sequence[Trace],
    skipped: Sequence[SkippedFile],
    where: str | None = None,
    spread: Spread | None = None,
) -> tuple[Summary, tuple[TensorRow, ...]]:
    """Return what the statistics of tensors come to, by name, and what is said of the files."""
    some = Some(processes_in({None: traces}), None, where, what="tensors")
    tensors = TensorSums(_where_of(some))
    tensors.reading.files.skipped += skipped
    if spread is None:
        tensors.add_all(some)
    else:
        for added in added_elsewhere(added_of, some, spread):
            tensors.take(added)
    return tensors.reading.summary(), tensors.rows()


class TensorSums:
    """Adds up the statistics of tensors in the events of processes, by tensor and statistic."""

    def __init__(self, where: Where | None = None, most: int = MOST_SUMMARY_ROWS) -> None:
        self.reading = EventReading()
        self._where = where
        self._most = most
        self._values: dict[tuple[str, str], TensorValues] = {}

    def add_all(self, some: Some) -> None:
        """Add these processes."""
        for _, parts in some.processes:
            process = self.reading.process(parts)
            for columns in process.blocks():
                for name, moment, args in _events(columns, self._where):
                    for statistic, value in _statistics(args):
                        if (values := self._of((name, statistic))) is not None:
                            values.add(moment, value)
            process.end()

    def _of(self, key: tuple[str, str]) -> TensorValues | None:
        if len(self._values) < self._most or key in self._values:
            return self._values.setdefault(key, TensorValues())
        return None

    def added(self) -> Added:
        """Return all of it, for another process."""
        files, others = self.reading.files, self.reading.others
        return Added(files, others, self.reading.chosen_events, values=self._values)

    def take(self, added: Added) -> None:
        """Add what another process has added up."""
        self.reading.take(added)
        for key, more in added.values.items():
            if (values := self._of(key)) is not None:
                values.take(more)

    def rows(self) -> tuple[TensorRow, ...]:
        """Return a row for each statistic of each tensor."""
        return tuple(_tensor_row(*key, self._values[key]) for key in sorted(self._values))


def _events(
    columns: EventColumns, where: Where | None
) -> Iterator[tuple[str, Moment, dict[str, Json]]]:
    wanted = [label.cat == TENSOR_STATS for label in columns.labels]
    rows = (columns.ph == ord("i")) & np.array(wanted, bool)[columns.label]
    if where is not None and rows.any():
        rows &= where.rows(columns)
    for row in np.flatnonzero(rows).tolist():
        args = columns.args(row)
        step = args.get("iteration")
        whole = step if type(step) is int else 0
        name = columns.labels[int(columns.label[row])].name
        yield name, (whole, int(columns.start_ns[row])), args


def _statistics(args: dict[str, Json]) -> Iterator[tuple[str, float | None]]:
    for name, value in args.items():
        if name in ABOUT:
            continue
        if value is None and f"{name}{TEXT}" in args:
            yield name, None
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


def _tensor_row(name: str, statistic: str, values: TensorValues) -> TensorRow:
    return TensorRow(
        name,
        statistic,
        values.count,
        values.nonfinite,
        first=values.first[1] if values.first else None,
        last=values.last[1] if values.last else None,
        min=values.least,
        max=values.greatest,
        first_nonfinite_step=values.broken[0] if values.broken else None,
    )
