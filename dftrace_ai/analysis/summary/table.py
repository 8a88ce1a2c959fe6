"""Counts and durations over many trace files by category and name, and what the files say."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from dftrace_ai.analysis.reading.clock_faults import clock_notes
from dftrace_ai.analysis.reading.identity import Owners, recordings_of
from dftrace_ai.analysis.reading.reach import joined
from dftrace_ai.analysis.reading.search import deleted_told
from dftrace_ai.analysis.reading.stack_lines import CHUNK, STACKS
from dftrace_ai.analysis.reading.trace_end import NOT_CLOSED
from dftrace_ai.analysis.reading.trace_file import tear_told
from dftrace_ai.analysis.reading.trace_set import open_traces
from dftrace_ai.analysis.summary.adding import ReadFiles, add_traces
from dftrace_ai.analysis.summary.rows import (
    MOST_NAME_LETTERS,
    MOST_SUMMARY_ROWS,
    FileGroup,
    NotAnnotated,
    OtherRow,
    Row,
    kind_of,
    row_of,
    share_of,
)
from dftrace_ai.errors import TraceError
from dftrace_ai.trace_format.header_and_footer import LOSSES, SAMPLE
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dftrace_ai._reader import Totals
    from dftrace_ai.analysis.reading.index_file import ProcessFigures
    from dftrace_ai.analysis.reading.reach import Reach
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import SkippedFile
    from dftrace_ai.analysis.reading.trace_set import TracePaths
    from dftrace_ai.trace_format.header_and_footer import HeaderFacts
    from dftrace_ai.trace_format.json_types import JsonObject


NOT_SAID = "-"
"""The group of the files that do not say whose they are."""


def groups_of(traces: Sequence[Trace], by: FileGroup | None) -> dict[str | None, Sequence[Trace]]:
    """Return the traces of each group, ranks by their number; without `by` all are of None.

    All parts of one process come into one group. A process is called by host and number; where
    another one has both, by its rank, too, or by the name of its file.
    """
    if by is None:
        return {None: traces}
    groups: defaultdict[str, list[Trace]] = defaultdict(list)
    owners = Owners(traces)
    for owner in owners.all:
        label = owners.labels[owner.number] if by == "process" else _label(owner.header, by)
        groups[label] += owner.files
    return {label: groups[label] for label in sorted(groups, key=_in_order)}


def _in_order(label: str) -> tuple[bool, int, str]:
    is_number = label.isascii() and label.isdecimal()
    return not is_number, int(label) if is_number else 0, label


def _label(header: HeaderFacts, by: FileGroup) -> str:
    if by == "host":
        return header.host or NOT_SAID
    return NOT_SAID if header.rank is None else str(header.rank)


def unreadable_told(count: int) -> str:
    """Return how many lines are in no figure: what is no event, and spans that tell no duration."""
    return f"{counted(count, 'line')} without an event, or a span's duration, not counted"


@dataclass(frozen=True)
class FileFacts:
    """What a file says of itself.

    Attributes:
        path: the file.
        tear: where and why reading stopped, None when the file is whole.
        closed: the file has its closing line.
        events: events by that line, None without one.
        ended: what ended the recording, an `Ending` of the format where the recorder wrote
            it; None without a closing line.
        losses: the counts of that line that are above zero, by name.
        copy_of: a file before it that bears the same name and is of the same process.
        rank: the rank that it says.
        layout: rank in each dimension of a parallel training, such as ``dp=0,pp=1``.
    """

    path: str
    tear: str | None
    closed: bool
    events: int | None
    ended: str | None
    losses: dict[str, int]
    copy_of: str | None = None
    rank: int | None = None
    layout: str | None = None

    def warnings(self) -> list[str]:
        """Return a line for each loss, and for an end that is not as it should be."""
        warnings = [
            loss.text.format(counted(self.losses[loss.member], loss.noun))
            for loss in LOSSES
            if loss.text and loss.member in self.losses
        ]
        if self.copy_of:
            warnings.append(
                f"of the same process as {self.copy_of}; what both hold is counted twice"
            )
        if self.tear:
            warnings.append(tear_told(self.tear, "counted"))
        elif not self.closed:
            warnings.append(NOT_CLOSED)
        return warnings


def copies_of(traces: Sequence[Trace], owners: Owners) -> dict[Path, str]:
    """Return, for files of the same name and process as one before them, that one."""
    names = Counter(trace.path.name for trace in traces)
    copies: dict[Path, str] = {}
    first: dict[tuple[object, ...], str] = {}
    for trace in traces:
        if names[trace.path.name] == 1:
            continue
        owner = owners.of(trace)
        if owner.header.run is not None:
            process = (trace.path.name, owner.number)
            before = first.setdefault(process, str(trace))
            if before != str(trace):
                copies[trace.path] = before
    return copies


def file_facts(trace: Trace, tear: str | None, copies: Mapping[Path, str]) -> FileFacts:
    """Return what a file says of itself; `tear`: where and why reading stopped."""
    footer = trace.end.footer
    header = trace.said
    return FileFacts(
        path=str(trace),
        tear=tear,
        closed=trace.end.closed,
        events=footer.events if footer else None,
        ended=footer.ended if footer else None,
        losses=footer.losses if footer else {},
        copy_of=copies.get(trace.path),
        rank=header.rank,
        layout=(footer and footer.layout) or header.layout,
    )


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
        not_annotated: what the main threads did in no span; None where that is not known, as of
            some events, and of files of others.
    """

    spans: tuple[Row, ...]
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
    not_annotated: NotAnnotated | None = field(default=None, compare=False)

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
            warnings.append(unreadable_told(self.unreadable_lines))
        if self.names_left_out:
            warnings.append(f"{counted(self.names_left_out, 'name')} without a row: too many names")
        promised = [file.events for file in self.files if file.events is not None]
        if len(promised) == len(self.files) and sum(promised) != self.events:
            warnings.append(
                f"{self.events} events counted where the closing lines say {sum(promised)}; "
                "'dftrace validate' tells which"
            )
        return warnings


def summarise(paths: TracePaths) -> Summary:
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
    return summarise_groups({None: found.files}, found.skipped)


def summarise_groups(
    groups: Mapping[str | None, Sequence[Trace]],
    skipped: Sequence[SkippedFile],
    *,
    categories: bool = False,
    elsewhere: Mapping[Path, ProcessFigures] | None = None,
) -> Summary:
    """Add up groups of traces by what each is called, all of a process in one of them.

    With `categories` rows are of these, the bodies of loops apart; `elsewhere` as of `add_traces`.
    """
    read = ReadFiles(skipped=list(skipped))
    spans: list[Row] = []
    others: Counter[tuple[str, str, str]] = Counter()
    left_out = 0
    for group, traces in groups.items():
        added = add_traces(traces, elsewhere)
        rows, of_group, without_row = _rows(added.totals, group, categories=categories)
        spans += rows
        others.update(of_group)
        left_out += without_row
        if len(spans) > MOST_SUMMARY_ROWS:
            spans.sort(key=lambda row: -row.total_us)
            left_out += len(spans) - MOST_SUMMARY_ROWS
            del spans[MOST_SUMMARY_ROWS:]
        read.take(added)
    places = {group: place for place, group in enumerate(groups)}
    spans.sort(key=lambda row: (places[row.group], row.cat, -row.total_us, row.name))
    return summary_of(read, spans, others, left_out)


def summary_of(
    read: ReadFiles,
    spans: Iterable[Row],
    others: Mapping[tuple[str, str, str], int],
    left_out: int,
    chosen_events: int | None = None,
) -> Summary:
    """Return the summary of what was read; a TraceError where that was nothing."""
    if not read.read:
        raise TraceError(str(min(read.skipped, key=str)))
    traces = sorted(read.read, key=lambda trace: trace.path)
    owners = Owners(traces)
    copies = copies_of(traces, owners)
    return Summary(
        spans=tuple(spans),
        others=(
            *(OtherRow(*key, count) for key, count in sorted(others.items())),
            *_samples_of(read.read if chosen_events is None else ()),
        ),
        files=tuple(file_facts(trace, read.tears.get(trace.path), copies) for trace in traces),
        events=read.events,
        unreadable_lines=read.unreadable + read.long_lines,
        skipped=tuple(sorted(read.skipped, key=str)),
        names_left_out=left_out,
        chosen_events=chosen_events,
        notes=(
            *sorted(read.notes),
            *(note for trace in traces for note in trace.file.notes),
            *clock_notes([read.times[trace.path] for trace in traces], owners),
            *owners.told("added up"),
            *deleted_told(recordings_of(traces).values()),
        ),
        reach=joined(read.times[trace.path].reach for trace in traces),
        not_annotated=_not_annotated(read.main_threads, owners),
    )


def _samples_of(traces: Iterable[Trace]) -> Iterator[OtherRow]:
    """Yield how many samples of stacks there are, by the closing lines; nothing without any."""
    footers = (trace.end.footer for trace in traces)
    if count := sum((footer and footer.samples) or 0 for footer in footers):
        yield OtherRow(kind_of(SAMPLE.ph), STACKS, CHUNK, count)


def _not_annotated(
    main_threads: Mapping[Path, tuple[int, int]], owners: Owners
) -> NotAnnotated | None:
    """Return what is in no span of the programs and ranks that the recorder has written of."""
    taken_ns = wall_ns = processes = 0
    for owner in owners.all:
        if owner.header.run is None or owners.employer(owner) is not None:
            continue
        found = [main_threads[file.path] for file in owner.files if file.path in main_threads]
        processes += bool(found)
        taken_ns += sum(taken for taken, _ in found)
        wall_ns += sum(wall for _, wall in found)
    if not processes:
        return None
    us, wall_us = max(0, wall_ns - taken_ns) / 1000, wall_ns / 1000
    return NotAnnotated(us, share_of(us, wall_us), wall_us, processes)


def _rows(
    totals: Totals, group: str | None, *, categories: bool
) -> tuple[list[Row], Counter[tuple[str, str, str]], int]:
    """Return rows for as many names as a table may have, and how many names are left out."""
    text = shown = 0
    most = MOST_SUMMARY_ROWS
    figures, names = totals.categories(most) if categories else totals.spans(most)
    for cat, name, *_ in figures:
        text += len(cat) + (0 if isinstance(name, bool) else len(name))
        if text > MOST_NAME_LETTERS:
            break
        shown += 1
    spans = [row_of(each[0], each[1], each[2:], group) for each in figures[:shown]]
    others: Counter[tuple[str, str, str]] = Counter()
    counts, other_names = totals.others(most - shown)
    for ph, cat, name, count in sorted(counts, key=lambda row: (-row[3], *row)):
        text += len(cat) + len(name)
        if text > MOST_NAME_LETTERS:
            break
        others[kind_of(ph), cat, name] += count
        shown += 1
    return spans, others, names + other_names - shown
