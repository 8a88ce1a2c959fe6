"""Counts and durations by category and name over many trace files."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.analysis.reading.held_parts import deleted_told
from dftrace_ai.analysis.reading.identity import Owners, recordings_of
from dftrace_ai.analysis.reading.indexed.clocks import clock_notes
from dftrace_ai.analysis.reading.indexed.reach import joined
from dftrace_ai.analysis.reading.trace_set import open_traces
from dftrace_ai.analysis.summary.adding import add_traces
from dftrace_ai.analysis.summary.file_facts import FileFacts, copies_of, file_facts
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.header_and_footer import KINDS
from dftrace_ai.trace_format.names_and_phases import loop_part
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.reading.indexed.clocks import FileTimes
    from dftrace_ai.analysis.reading.indexed.reach import Reach
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import SkippedFile
    from dftrace_ai.analysis.summary.adding import AddedTraces
    from dftrace_ai.analysis.summary.totals import CategoryFigures, SpanFigures, Totals
    from dftrace_ai.trace_format.json_types import JsonObject
    from dftrace_ai.trace_format.names_and_phases import LoopPart

__all__ = [
    "GroupedSummary",
    "OtherRow",
    "SpanRow",
    "Summary",
    "category_row",
    "other_rows",
    "span_row",
    "summarise",
    "summarise_groups",
]

# Finished spans have rows of their own.
OTHER_KINDS = {kind.ph: kind.noun for kind in KINDS if kind.ph != "X"}

# A table of more names says nothing, and whoever makes a name for every step may make millions.
MOST_ROWS = 100_000
MOST_TEXT = 64 * 1024 * 1024


@dataclass(frozen=True)
class SpanRow:
    """The finished spans of one category and name; durations in microseconds.

    Attributes:
        cat: the category.
        name: the name; empty for a row of a whole category.
        count: how many there are.
        total_us: sum of their durations.
        self_us: the part of it that no spans take which lie inside of them on the same
            track; None where too many spans stand in disorder to be sorted.
        mean_us: mean of the durations.
        min_us: the shortest.
        p50_us: median.
        p95_us: 95th percentile.
        p99_us: 99th percentile.
        max_us: the longest.
        loop: ``wait`` for the waits for a loop's items, ``body`` for what is done with
            them, which is no work of the category; None for other spans.
        wall_us: how long the processes went that have such spans, added up: each from its first
            event to its last; None where that is not known.
    """

    cat: str
    name: str
    count: int
    total_us: float
    self_us: float | None
    mean_us: float
    min_us: float
    p50_us: float
    p95_us: float
    p99_us: float
    max_us: float
    loop: LoopPart | None = None
    # What blocks say of it is not held against their lines.
    wall_us: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class OtherRow:
    """How many events of another kind there are of one category and name."""

    kind: str
    cat: str
    name: str
    count: int


@dataclass(frozen=True, repr=False)
class Summary:
    """What `summarise` found.

    Attributes:
        spans: finished spans, by category, within it by falling total.
        others: unfinished spans, instants, counters, flows and custom metadata.
        files: the facts of each file.
        events: lines counted, without names, headers and footers.
        unreadable_lines: lines that hold no event and are not counted above.
        skipped: files of the directories that were given which cannot be read.
        names_left_out: names beyond the 100,000 with the greatest totals; their events
            are counted, and have no row.
        chosen_events: events that were asked for; None for all.
        notes: index files that were not used, and why; what was put right in files; and what is to
            be said of clocks.
        reach: from when to when all events are; None where that is not known.
    """

    spans: tuple[SpanRow, ...]
    others: tuple[OtherRow, ...]
    files: tuple[FileFacts, ...]
    events: int
    unreadable_lines: int
    skipped: tuple[SkippedFile, ...] = ()
    names_left_out: int = 0
    chosen_events: int | None = None
    notes: tuple[str, ...] = ()
    # What blocks say of it is not held against their lines.
    reach: Reach | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        places = counted(len(self.files), "file")
        return f"<summary of {counted(self.events, 'event')} in {places}: see spans, others>"

    def to_dict(self) -> JsonObject:
        """Return everything as plain values, fit for JSON."""
        return {**asdict(self), "warnings": self.warnings()}

    def warnings(self) -> list[str]:
        """Return a line for each loss and fault that a reader of the figures must know."""
        warnings = [f"skipped: {file}" for file in self.skipped]
        warnings += self.notes
        warnings += [f"{file.path}: {text}" for file in self.files for text in file.warnings()]
        if self.unreadable_lines:
            warnings.append(
                f"{counted(self.unreadable_lines, 'line')} without an event, not counted"
            )
        if self.names_left_out:
            warnings.append(f"{counted(self.names_left_out, 'name')} without a row: too many names")
        promised = [file.events for file in self.files if file.events is not None]
        if len(promised) == len(self.files) and sum(promised) != self.events:
            warnings.append(
                f"{self.events} events counted where the closing lines say {sum(promised)}; "
                "'dftrace validate' tells which"
            )
        return warnings


class GroupedSummary(NamedTuple):
    """What `summarise_groups` found.

    Attributes:
        summary: of all.
        groups: the group of each row of spans.
        reaches: from when to when the events of each file are; None where that is not known.
    """

    summary: Summary
    groups: tuple[str, ...]
    reaches: Mapping[Path, Reach | None] = MappingProxyType({})


def summarise(paths: Iterable[str | os.PathLike[str]]) -> Summary:
    """Count events and add up durations over trace files.

    Args:
        paths: files and directories, as for `open_traces`; files of directories that
            cannot be read are skipped and named in the result.

    Returns:
        The figures. Counts, sums, shortest and longest are exact. Percentiles are
        interpolated as numpy does by default: exactly for names with up to 128 spans, and
        at most 0.78 % off for others.

    Raises:
        TraceError: a path is missing or is no trace, no file of a directory can be read,
            or there is not the memory for the figures.

    Example::

        for row in summarise(["out/"]).spans:
            print(row.cat, row.name, row.count, row.total_us)
    """
    found = open_traces(paths)
    return summarise_groups({"": found.files}, found.skipped).summary


def summarise_groups(
    groups: Mapping[str, Sequence[Trace]],
    skipped: Sequence[SkippedFile],
    *,
    categories: bool = False,
) -> GroupedSummary:
    """Add up groups of traces, each apart, one after the other.

    Args:
        groups: the traces of each group by what the group is called; all of a process in one.
        skipped: files that were found and are no traces.
        categories: rows are of whole categories, those of the bodies of loops apart.

    Returns:
        The figures of all groups: rows of one after those of another.

    Raises:
        TraceError: as of `summarise`.
    """
    sums = _Sums(skipped=list(skipped), categories=categories)
    for group, traces in groups.items():
        sums.add(group, add_traces(traces))
    if not sums.read:
        raise TraceError(str(min(sums.skipped, key=str)))
    return sums.grouped(list(groups))


@dataclass
class _Sums:
    """What the groups that were read so far add up to."""

    skipped: list[SkippedFile]
    categories: bool = False
    spans: list[tuple[str, SpanRow]] = field(default_factory=list)
    others: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    read: list[Trace] = field(default_factory=list)
    tears: dict[Path, str] = field(default_factory=dict)
    events: int = 0
    unreadable: int = 0
    left_out: int = 0
    notes: list[str] = field(default_factory=list)
    times: dict[Path, FileTimes] = field(default_factory=dict)

    def add(self, group: str, added: AddedTraces) -> None:
        spans, others, left_out = _rows(added.totals, categories=self.categories)
        self.spans += [(group, row) for row in spans]
        if len(self.spans) > MOST_ROWS:
            self.spans.sort(key=lambda each: -each[1].total_us)
            left_out += len(self.spans) - MOST_ROWS
            del self.spans[MOST_ROWS:]
        self.others.update(others)
        self.read += added.read
        self.tears |= added.tears
        self.skipped += added.skipped
        self.notes += added.notes
        self.events += added.totals.events
        self.unreadable += added.totals.unreadable + added.long_lines
        self.left_out += left_out
        self.times |= {trace.path: added.times[trace.path] for trace in added.read}

    def grouped(self, groups: Sequence[str]) -> GroupedSummary:
        places = {group: place for place, group in enumerate(groups)}
        spans = sorted(
            self.spans,
            key=lambda each: (places[each[0]], each[1].cat, -each[1].total_us, each[1].name),
        )
        read = sorted(self.read, key=lambda trace: trace.path)
        owners = Owners(read)
        copies = copies_of(read, owners)
        reaches = {path: times.reach for path, times in self.times.items()}
        summary = Summary(
            spans=tuple(row for _, row in spans),
            others=tuple(OtherRow(*key, count) for key, count in sorted(self.others.items())),
            files=tuple(file_facts(trace, self.tears.get(trace.path), copies) for trace in read),
            events=self.events,
            unreadable_lines=self.unreadable,
            skipped=tuple(sorted(self.skipped, key=str)),
            names_left_out=self.left_out,
            notes=(
                *sorted(self.notes),
                *(note for trace in read for note in trace.file.notes),
                *clock_notes([self.times[trace.path] for trace in read], owners),
                *owners.told("added up"),
                *deleted_told(recordings_of(read).values()),
            ),
            reach=joined(reaches.values()),
        )
        return GroupedSummary(summary, tuple(group for group, _ in spans), reaches)


def _rows(
    totals: Totals, *, categories: bool
) -> tuple[list[SpanRow], Counter[tuple[str, str, str]], int]:
    """Return rows for as many names as a table may have, and how many names are left out."""
    text = shown = 0
    spans: list[SpanRow] = []
    rows: Iterable[SpanRow]
    if categories:
        of_categories, names = totals.categories(MOST_ROWS)
        rows = map(category_row, of_categories)
    else:
        figures, names = totals.spans(MOST_ROWS)
        rows = map(span_row, figures)
    for row in rows:
        text += len(row.cat) + len(row.name)
        if text > MOST_TEXT:
            break
        spans.append(row)
        shown += 1
    others: Counter[tuple[str, str, str]] = Counter()
    counts, other_names = totals.others(MOST_ROWS - shown)
    for ph, cat, name, count in sorted(counts, key=lambda row: (-row[3], *row)):
        text += len(cat) + len(name)
        if text > MOST_TEXT:
            break
        others[OTHER_KINDS.get(ph, f"ph {ph!r}"), cat, name] += count
        shown += 1
    return spans, others, names + other_names - shown


def span_row(figures: SpanFigures) -> SpanRow:
    """Return the row of what spans of one name come to."""
    cat, name = figures[:2]
    return _row(cat, name, loop_part(name), *figures[2:])


def category_row(figures: CategoryFigures) -> SpanRow:
    """Return the row of what the spans of a category come to."""
    cat, bodies = figures[:2]
    return _row(cat, "", "body" if bodies else None, *figures[2:])


def _row(
    cat: str,
    name: str,
    loop: LoopPart | None,
    count: int,
    total: int,
    own: int | None,
    least: int,
    greatest: int,
    p50: float,
    p95: float,
    p99: float,
    wall: int | None,
) -> SpanRow:
    return SpanRow(
        cat,
        name,
        count,
        total_us=total / 1000,
        self_us=None if own is None else own / 1000,
        mean_us=total / 1000 / count,
        min_us=least / 1000,
        p50_us=p50 / 1000,
        p95_us=p95 / 1000,
        p99_us=p99 / 1000,
        max_us=greatest / 1000,
        loop=loop,
        wall_us=None if wall is None else wall / 1000,
    )


def other_rows(counts: Mapping[tuple[str, str, str], int]) -> tuple[OtherRow, ...]:
    """Return rows of other events, by kind.

    Args:
        counts: how many there are by phase, category and name.
    """
    kinds: Counter[tuple[str, str, str]] = Counter()
    for (ph, cat, name), count in counts.items():
        kinds[OTHER_KINDS.get(ph, f"ph {ph!r}"), cat, name] += count
    return tuple(OtherRow(*key, count) for key, count in sorted(kinds.items()))
