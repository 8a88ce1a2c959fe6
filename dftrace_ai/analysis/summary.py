"""Counts and durations by category and name over many trace files, through DuckDB."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.analysis.files import Codec, TraceFile, find_traces
from dftrace_ai.analysis.reader import FRAMING, TraceReader
from dftrace_ai.analysis.trace_end import TraceEnd, read_end
from dftrace_ai.analysis.wording import counted
from dftrace_ai.errors import DftraceError, TraceError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

__all__ = ["FileFacts", "OtherRow", "SpanRow", "Summary", "summarise"]

KINDS = {"B": "unfinished span", "i": "instant", "C": "counter", "s": "flow", "f": "flow"}

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

# The durations of a trace have three decimals, so DECIMAL adds them up exactly; a line
# that is no event comes back as a row of nulls. One scan gives every figure.
QUERY = """
SELECT ph, coalesce(cat, '') AS cat, name, count(*), count(dur), sum(dur),
       quantile_cont(dur::DOUBLE, [0.5, 0.95]), max(dur)
FROM ({lines}) GROUP BY ALL ORDER BY ALL
"""
LINES = """
SELECT ph, cat, name, dur FROM read_json(?, format = 'newline_delimited', compression = '{codec}',
    columns = {{ph: 'VARCHAR', cat: 'VARCHAR', name: 'VARCHAR', dur: 'DECIMAL(18, 3)'}},
    ignore_errors = true)
"""
DUCKDB_CODEC = {"plain": "uncompressed", "gzip": "gzip", "zstd": "zstd"}


@dataclass(frozen=True)
class SpanRow:
    """The finished spans of one category and name; durations in microseconds."""

    cat: str
    name: str
    count: int
    total_us: float
    mean_us: float
    p50_us: float
    p95_us: float
    max_us: float


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


@dataclass(frozen=True)
class Summary:
    """What `summarise` found.

    Attributes:
        spans: finished spans, by category, within it by falling total.
        others: unfinished spans, instants, counters and flows.
        files: the facts of each file.
        events: lines counted, without names, headers and footers.
        unreadable_lines: lines that hold no event and are not counted above.
    """

    spans: tuple[SpanRow, ...]
    others: tuple[OtherRow, ...]
    files: tuple[FileFacts, ...]
    events: int
    unreadable_lines: int

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, fit for JSON."""
        return {**asdict(self), "warnings": self.warnings()}

    def warnings(self) -> list[str]:
        """Return a line for each loss and fault that a reader of the figures must know."""
        told = [f"{file.path}: {text}" for file in self.files for text in file.warnings()]
        if self.unreadable_lines:
            told.append(f"{counted(self.unreadable_lines, 'line')} without an event, not counted")
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
        paths: files and directories, as for `find_traces`.

    Returns:
        The figures; percentiles are exact, interpolated as numpy does by default.

    Raises:
        TraceError: a path is missing or is no trace.
        DftraceError: DuckDB is not installed.

    Example::

        for row in summarise(["out/"]).spans:
            print(row.cat, row.name, row.count, row.total_us)
    """
    files = find_traces(paths)
    ends = [read_end(file) for file in files]
    with tempfile.TemporaryDirectory(prefix="dftrace-") as directory:
        reading = _Reading(files, ends, Path(directory))
        rows = reading.rows()
        nulls = reading.rows_of_nulls(ends)
    return _summary(rows, files, ends, reading.tears, nulls)


class _Reading:
    """The scan of a set of files, with stand-ins for those that DuckDB cannot read."""

    def __init__(self, files: Sequence[TraceFile], ends: Sequence[TraceEnd], spare: Path) -> None:
        self.files = list(files)
        self.spare = spare
        self.tears: dict[Path, str] = {}
        self.cut_lines = 0
        # Before 2.0 the bracket cost the line behind it too; ours is a name, without figures.
        self.bracket_costs_a_line = _duckdb().__version__.startswith("1.")
        for at, (file, end) in enumerate(zip(files, ends, strict=True)):
            costly = self.bracket_costs_a_line and file.framed and not file.named
            if not end.whole and file.path.stat().st_size == 0:
                self.tears[file.path] = "the file is empty"
            elif costly or (not end.whole and file.codec != "plain"):
                self._salvage(at)
            elif not end.whole:
                self.tears[file.path] = "the last line is cut"
                self.cut_lines += 1

    def rows(self) -> list[tuple[Any, ...]]:
        duckdb = _duckdb()
        try:
            return self._scan()
        except duckdb.Error:
            # Broken data before the end of some file: read each as far as it goes.
            self.cut_lines = 0
            for at in range(len(self.files)):
                self._salvage(at)
        try:
            return self._scan()
        except duckdb.Error as error:
            raise TraceError(f"the traces cannot be read: {error}") from error

    def _salvage(self, at: int) -> None:
        """Replace a file by a plain copy of the lines that can be read of it."""
        file = self.files[at]
        if file.path.is_relative_to(self.spare):
            return
        reader = TraceReader(file)
        copy = self.spare / f"{at}.pfw"
        with copy.open("wb") as out:
            out.writelines(line + b"\n" for _, line in reader.lines() if line not in FRAMING)
        if reader.tear:
            self.tears[file.path] = str(reader.tear)
        self.files[at] = TraceFile(copy, "plain", framed=False, named=file.named)

    def rows_of_nulls(self, ends: Sequence[TraceEnd]) -> int:
        """Return how many rows of nulls stand for framing and cut ends and not for a fault."""
        lost = 2 if self.bracket_costs_a_line else 1
        opening = lost * sum(file.framed for file in self.files)
        closing = sum(
            end.bracket and not file.path.is_relative_to(self.spare)
            for file, end in zip(self.files, ends, strict=True)
        )
        return opening + closing + self.cut_lines

    def _scan(self) -> list[tuple[Any, ...]]:
        by_codec: dict[Codec, list[str]] = {}
        for file in self.files:
            by_codec.setdefault(file.codec, []).append(_as_glob(file.path))
        lines = " UNION ALL ".join(LINES.format(codec=DUCKDB_CODEC[codec]) for codec in by_codec)
        # Nothing is fetched from the network, whatever the files hold.
        options = {"autoinstall_known_extensions": "false", "temp_directory": str(self.spare)}
        with _duckdb().connect(config=options) as connection:
            result = connection.execute(QUERY.format(lines=lines), list(by_codec.values()))
            rows: list[tuple[Any, ...]] = result.fetchall()
            return rows


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise DftraceError("a summary needs DuckDB; install it with: pip install duckdb") from error
    return duckdb


def _as_glob(path: Path) -> str:
    """Return the path so that DuckDB, which expands patterns, finds just this file."""
    text = str(path.absolute())
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in text)


def _summary(
    rows: Sequence[tuple[Any, ...]],
    files: Sequence[TraceFile],
    ends: Sequence[TraceEnd],
    tears: dict[Path, str],
    nulls: int,
) -> Summary:
    spans: list[SpanRow] = []
    others: Counter[tuple[str, str, str]] = Counter()
    events = unreadable = 0
    for ph, cat, name, count, timed, total, quantiles, longest in rows:
        if ph is None or name is None:
            unreadable += count
        elif ph == "M":
            events += count if name == "CM" else 0
        elif ph == "X":
            events += count
            unreadable += count - timed
            if timed:
                p50, p95 = quantiles
                whole = float(total)
                spans.append(
                    SpanRow(cat, name, timed, whole, whole / timed, p50, p95, float(longest))
                )
        else:
            events += count
            others[KINDS.get(ph, f"ph {ph!r}"), cat, name] += count
    return Summary(
        spans=tuple(sorted(spans, key=lambda row: (row.cat, -row.total_us, row.name))),
        others=tuple(OtherRow(*key, count) for key, count in sorted(others.items())),
        files=tuple(
            _facts(file, end, tears.get(file.path)) for file, end in zip(files, ends, strict=True)
        ),
        events=events,
        unreadable_lines=max(0, unreadable - nulls),
    )


def _facts(file: TraceFile, end: TraceEnd, tear: str | None) -> FileFacts:
    footer = end.footer or {}
    counts = {name: footer.get(name, 0) for name in LOSSES}
    return FileFacts(
        path=str(file.path),
        tear=tear,
        closed=end.footer is not None or end.bracket,
        events=footer.get("events"),
        ended=footer.get("ended"),
        losses={name: count for name, count in counts.items() if count},
    )
