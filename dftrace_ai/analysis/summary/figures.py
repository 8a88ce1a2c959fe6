"""Counts and durations by category and name over many trace files, through DuckDB."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.analysis.reading.files import SkippedFile, search_traces
from dftrace_ai.analysis.summary.duckdb_scan import Scan
from dftrace_ai.trace_format.vocabulary import loop_part
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from dftrace_ai.analysis.reading.files import TraceFile
    from dftrace_ai.analysis.reading.trace_end import TraceEnd
    from dftrace_ai.trace_format.vocabulary import LoopPart

__all__ = ["FileFacts", "OtherRow", "SpanRow", "Summary", "summarise"]

KINDS = {
    "B": "unfinished span",
    "i": "instant",
    "C": "counter",
    "s": "flow",
    "f": "flow",
    "M": "metadata",
}

# Counts of the footer that mean something was lost or done otherwise than asked.
LOSSES = ("dropped", "waits", "unmatched_stops", "args_sanitised", "unfinished")
LOSS_TEXTS = {
    "dropped": (
        "event",
        "LOST {}, the spool was full; raise spool_bytes or set overflow to 'wait'",
    ),
    "waits": ("time", "threads waited {} for a full spool; durations hold those waits"),
    "unmatched_stops": ("stop()", "{} without a start()"),
    "args_sanitised": ("value", "{} of arguments replaced by safe ones"),
}

# A table of more names says nothing, and whoever makes a name for every step may make millions.
MOST_ROWS = 100_000
MOST_TEXT = 64 * 1024 * 1024


@dataclass(frozen=True)
class SpanRow:
    """The finished spans of one category and name; durations in microseconds.

    Attributes:
        cat: the category.
        name: the name.
        count: how many there are.
        total_us: sum of their durations.
        mean_us: mean of them.
        p50_us: median.
        p95_us: 95th percentile.
        max_us: the longest.
        loop: ``wait`` for the waits for a loop's items, ``body`` for what is done with
            them, which is no work of the category; None for other spans.
    """

    cat: str
    name: str
    count: int
    total_us: float
    mean_us: float
    p50_us: float
    p95_us: float
    max_us: float
    loop: LoopPart | None = None


@dataclass(frozen=True)
class OtherRow:
    """How many events of another kind there are of one category and name."""

    kind: str
    cat: str
    name: str
    count: int


@dataclass(frozen=True)
class FileFacts:
    """What a file says of itself.

    Attributes:
        path: the file.
        tear: where and why reading stopped, None when the file is whole.
        closed: the file has its closing line.
        events: events by that line, None without one.
        ended: what ended the recording: finalize, exit or adopted.
        losses: the counts of that line that are above zero, by name.
    """

    path: str
    tear: str | None
    closed: bool
    events: int | None
    ended: str | None
    losses: dict[str, int]

    def warnings(self) -> list[str]:
        """Return a line for each loss, and for an end that is not as it should be."""
        told = [
            text.format(counted(self.losses[name], noun))
            for name, (noun, text) in LOSS_TEXTS.items()
            if name in self.losses
        ]
        if self.tear:
            told.append(f"torn: {self.tear}; what comes before it is counted")
        elif not self.closed:
            told.append(
                "no closing line: the process still runs, or died and its spool was not adopted"
            )
        return told


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
    """

    spans: tuple[SpanRow, ...]
    others: tuple[OtherRow, ...]
    files: tuple[FileFacts, ...]
    events: int
    unreadable_lines: int
    skipped: tuple[SkippedFile, ...] = ()
    names_left_out: int = 0

    def __repr__(self) -> str:
        places = counted(len(self.files), "file")
        return f"<summary of {counted(self.events, 'event')} in {places}: see spans, others>"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, fit for JSON."""
        return {**asdict(self), "warnings": self.warnings()}

    def warnings(self) -> list[str]:
        """Return a line for each loss and fault that a reader of the figures must know."""
        told = [f"skipped: {file}" for file in self.skipped]
        told += [f"{file.path}: {text}" for file in self.files for text in file.warnings()]
        if self.unreadable_lines:
            told.append(f"{counted(self.unreadable_lines, 'line')} without an event, not counted")
        if self.names_left_out:
            told.append(f"{counted(self.names_left_out, 'name')} without a row: too many names")
        promised = [file.events for file in self.files if file.events is not None]
        if len(promised) == len(self.files) and sum(promised) != self.events:
            told.append(
                f"{self.events} events counted where the closing lines say {sum(promised)}; "
                "'dftrace validate' tells which"
            )
        return told


def summarise(paths: Iterable[str | os.PathLike[str]]) -> Summary:
    """Count events and add up durations over trace files.

    Args:
        paths: files and directories, as for `search_traces`; files of directories that
            cannot be read are skipped and named in the result.

    Returns:
        The figures; percentiles are exact, interpolated as numpy does by default.

    Raises:
        TraceError: a path is missing or is no trace, no file of a directory can be read,
            or there is not the memory for the figures.
        DftraceError: DuckDB is not installed.

    Example::

        for row in summarise(["out/"]).spans:
            print(row.cat, row.name, row.count, row.total_us)
    """
    found = search_traces(paths)
    figures = _Figures()
    with tempfile.TemporaryDirectory(prefix="dftrace-") as directory:
        scan = Scan(found.files, Path(directory))
        for row in scan.rows():
            figures.add(row)
    return _summary(figures, scan, sorted([*found.skipped, *scan.skipped], key=str))


@dataclass
class _Figures:
    """What the rows of a scan add up to."""

    spans: list[SpanRow] = field(default_factory=list)
    others: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    events: int = 0
    unreadable: int = 0
    names_left_out: int = 0
    text: int = 0

    def add(self, row: tuple[Any, ...]) -> None:
        ph, cat, name, count, timed, total, quantiles, longest = row
        if ph is None or name is None:
            self.unreadable += count
            return
        if ph == "M" and name != "CM":
            return  # names of tracks, header, hashes, footer
        self.events += count
        if ph == "X":
            self.unreadable += count - timed
            if not timed:
                return
        self.text += len(cat) + len(name)
        if len(self.spans) + len(self.others) >= MOST_ROWS or self.text > MOST_TEXT:
            self.names_left_out += 1
        elif ph == "X":
            p50, p95 = quantiles
            whole = float(total)
            self.spans.append(
                SpanRow(
                    cat,
                    name,
                    timed,
                    whole,
                    whole / timed,
                    p50,
                    p95,
                    float(longest),
                    loop_part(name),
                )
            )
        else:
            self.others[KINDS.get(ph, f"ph {ph!r}"), cat, name] += count


def _summary(figures: _Figures, scan: Scan, skipped: Sequence[SkippedFile]) -> Summary:
    unreadable = max(0, figures.unreadable - scan.rows_of_nulls())
    return Summary(
        spans=tuple(sorted(figures.spans, key=lambda row: (row.cat, -row.total_us, row.name))),
        others=tuple(OtherRow(*key, count) for key, count in sorted(figures.others.items())),
        files=tuple(_facts(file, end, scan.tears.get(file.path)) for file, end in scan.read),
        events=figures.events,
        unreadable_lines=unreadable + scan.long_lines,
        skipped=tuple(skipped),
        names_left_out=figures.names_left_out,
    )


def _facts(file: TraceFile, end: TraceEnd, tear: str | None) -> FileFacts:
    footer = end.footer or {}
    counts = {name: _count(footer.get(name)) or 0 for name in LOSSES}
    ended = footer.get("ended")
    return FileFacts(
        path=str(file.path),
        tear=tear,
        closed=end.footer is not None or end.bracket,
        events=_count(footer.get("events")),
        ended=ended if isinstance(ended, str) else None,
        losses={name: count for name, count in counts.items() if count},
    )


def _count(value: object) -> int | None:
    """Return a count of the closing line; None for what is none."""
    return value if type(value) is int and 0 <= value < 2**63 else None
