"""Events of traces put into the tables that the views are made of, block by block."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from dftrace_ai.analysis.reading.scanning.blocks import (
    LETTERS,
    TraceBlocks,
    new_scanner,
)
from dftrace_ai.analysis.sql.views import TABLES
from dftrace_ai.analysis.steps import Job, Rank, measure
from dftrace_ai.analysis.steps.measuring import STEP_PARTS
from dftrace_ai.database.asking import execute
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.sql.processes import Processes
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["EVENT_TABLES", "EventLoader", "load_processes", "load_steps"]

ROWS_AT_ONCE: Final = 100_000

# The phases of the rows of each table; None for all.
EVENT_TABLES: Final[dict[str, str | None]] = {
    "spans": "X",
    "instants": "i",
    "counters": "C",
    "tensor_stats": "i",
    "events": None,
}

# Of a tensor's instant: what is none of its statistics.
ABOUT_STATISTICS: Final = frozenset(
    {"hhash", "p_idx", "level", "iteration", "rank", "feature", "count", "error", "unfinished"}
)
TEXT_SUFFIX: Final = "_str"
NO_ITERATION: Final = -(2**63)

REFUSED: Final = """
SELECT count(*) FROM rows_to_put WHERE args IS NOT NULL AND TRY_CAST(args AS JSON) IS NULL
"""

Columns = dict[str, "NDArray[Any]"]


class EventLoader:
    """Fills tables with the events of traces, whose names have the same numbers each time.

    Args:
        connection: DuckDB's.
        processes: gets those that only the rows tell.
    """

    def __init__(self, connection: Any, processes: Processes) -> None:
        self._connection = connection
        self._processes = processes
        self._scanner = new_scanner()
        self._labels = _Labels(connection)

    def load(self, tables: Iterable[str], traces: Iterable[Trace], *, arguments: bool) -> list[str]:
        """Fill tables.

        Args:
            tables: names of `EVENT_TABLES`; none to learn of the processes alone.
            traces: of which events.
            arguments: also the column ``args``.

        Returns:
            What of the files could not be read, one line each.

        Raises:
            TraceError: a file cannot be read any more, or its names need too much memory.
        """
        filling = [
            _Filling(self._connection, name, self._labels, arguments=arguments) for name in tables
        ]
        notes: list[str] = []
        for trace in traces:
            blocks = TraceBlocks(self._scanner, trace)
            for block in blocks:
                if not block.rows:
                    continue
                self._labels.add(self._scanner.labels(len(self._labels.names)))
                columns: Columns = {
                    name: np.asarray(getattr(block, name))
                    for name in ("label", "pid", "tid", "id", "parent", "start_ns", "dur_ns")
                }
                columns["ph"] = LETTERS[np.asarray(block.ph)]
                columns["process"], columns["rank"] = self._processes.of(trace, columns["pid"])
                for one in filling:
                    one.take(columns, block)
            notes += blocks.notes
        for one in filling:
            one.flush()
            notes += one.notes
        return notes


class _Filling:
    """Puts the rows of blocks into a table, many at a time."""

    def __init__(self, connection: Any, table: str, labels: _Labels, *, arguments: bool) -> None:
        self.notes: list[str] = []
        self._connection = connection
        self._table = table
        self._phase = EVENT_TABLES[table]
        expand = _EXPANDED.get(table)
        self._expand: Callable[[_Labels, Columns, list[JsonObject]], Columns] | None = expand
        self._needs_text = arguments or expand is not None
        self._labels = labels
        self._held: list[Columns] = []
        self._rows = 0

    def take(self, columns: Columns, block: EventBlock) -> None:
        """Take the rows of a block that belong into the table; `columns` are the block's."""
        rows = np.arange(block.rows)
        if self._phase is not None:
            rows = np.flatnonzero(columns["ph"] == ord(self._phase))
        if self._table == "tensor_stats":
            rows = rows[self._labels.statistics[columns["label"][rows]]]
        # A copy: each block holds all of its lines.
        chosen = {name: np.array(values[rows]) for name, values in columns.items()}
        if not len(chosen["label"]):
            return
        found = _arguments(block, rows) if self._needs_text else []
        if self._expand is not None:
            chosen = self._expand(self._labels, chosen, [_decoded(text) for text in found])
        elif found:
            chosen["args"] = np.array(
                [str(text, "utf-8") if len(text) else None for text in found], object
            )
        self._held.append(chosen)
        self._rows += len(next(iter(chosen.values())))
        if self._rows >= ROWS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Put what is held into the table."""
        if not self._rows:
            return
        whole = {
            name: np.concatenate([held[name] for held in self._held]) for name in self._held[0]
        }
        self._held, self._rows = [], 0
        refused = _insert(self._connection, self._table, whole)
        if refused:
            self.notes.append(f"arguments of {counted(refused, 'event')} that DuckDB does not take")


class _Labels:
    """Categories and names by number, and the table of them."""

    def __init__(self, connection: Any) -> None:
        self.names: list[str] = []
        self.statistics = np.zeros(0, bool)
        self._connection = connection

    def add(self, new: list[tuple[str, str]]) -> None:
        if not new:
            return
        first = len(self.names)
        cats, names = [cat for cat, _ in new], [name for _, name in new]
        self.names += names
        are = np.array([cat == "tensor_stats" for cat in cats], bool)
        self.statistics = np.concatenate([self.statistics, are])
        columns = {
            "label": np.arange(first, first + len(new), dtype=np.uint32),
            "cat": np.array(cats, object),
            "name": np.array(names, object),
        }
        _insert(self._connection, "labels", columns)


def _insert(connection: Any, table: str, columns: Columns) -> int:
    """Put rows into a table; returns of how many the arguments are not taken."""
    import duckdb

    names = ", ".join(f'"{name}"' for name in columns)
    put = f"INSERT INTO read.{table} ({names}) SELECT {names} FROM rows_to_put"  # noqa: S608
    connection.register("rows_to_put", columns)
    try:
        try:
            execute(connection, put)
        except duckdb.ConversionException:
            if "args" not in columns:
                raise
            execute(connection, put.replace(', "args" FROM', ", TRY_CAST(args AS JSON) FROM"))
            (count,) = execute(connection, REFUSED).fetchone()
            return int(count)
        return 0
    finally:
        connection.unregister("rows_to_put")


def _arguments(block: EventBlock, rows: NDArray[Any]) -> list[Any]:
    """Return the arguments of rows as JSON, empty where there are none."""
    at = np.asarray(block.args_at)[rows].astype(np.int64)
    ends = at + np.asarray(block.args_bytes)[rows] + 1
    text = block.text
    # With the braces, which stand around what the block has of them.
    return [
        text[begin - 1 : end] if begin else b""
        for begin, end in zip(at.tolist(), ends.tolist(), strict=True)
    ]


def _decoded(text: Any) -> JsonObject:
    if not len(text):
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}  # numbers beyond what JSON's readers take
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    """Return a number; None for anything else, a truth value too."""
    return float(value) if type(value) in {int, float} else None


def _series(labels: _Labels, rows: Columns, args: list[JsonObject]) -> Columns:
    """A row for each number of a counter."""
    found = [
        (row, name, number)
        for row, values in enumerate(args)
        for name, value in values.items()
        if (number := _number(value)) is not None
    ]
    at = np.array([row for row, _, _ in found], np.int64)
    names = [labels.names[label] for label in rows["label"][at].tolist()]
    return {
        **{name: rows[name][at] for name in ("process", "rank", "pid")},
        "name": np.array(names, object),
        "series": np.array([name for _, name, _ in found], object),
        "at_ns": rows["start_ns"][at],
        "value": np.array([number for _, _, number in found], np.float64),
    }


def _statistics(labels: _Labels, rows: Columns, args: list[JsonObject]) -> Columns:
    """A row for each statistic of a tensor, also of one that is not finite."""
    found = [
        (row, name, number)
        for row, values in enumerate(args)
        for name, value in values.items()
        if name not in ABOUT_STATISTICS
        and (number := _statistic(value, values.get(name + TEXT_SUFFIX))) is not None
    ]
    at = np.array([row for row, _, _ in found], np.int64)
    names = [labels.names[label].rpartition(":") for label in rows["label"].tolist()]
    numbers = [_whole(values.get("iteration")) for values in args]
    ranks = [values.get("rank") for values in args]
    return {
        "process": rows["process"][at],
        "rank": np.array(
            [
                rank if type(rank) is int and 0 <= rank < 2**31 else own
                for rank, own in zip(ranks, rows["rank"].tolist(), strict=True)
            ],
            np.int32,
        )[at],
        "at_ns": rows["start_ns"][at],
        "iteration": np.array(numbers, np.int64)[at],
        "layer": np.array([layer for layer, _, _ in names], object)[at],
        "tensor": np.array([tensor for _, _, tensor in names], object)[at],
        "feature": np.array([str(values.get("feature", "")) for values in args], object)[at],
        "statistic": np.array([name for _, name, _ in found], object),
        "value": np.array([number for _, _, number in found], np.float64),
    }


def _statistic(value: Any, text: Any) -> float | None:
    if value is None and isinstance(text, str):
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}.get(text)
    return _number(value)


def _whole(value: Any) -> int:
    return value if type(value) is int and abs(value) < 2**63 else NO_ITERATION


_EXPANDED: Final = {"counters": _series, "tensor_stats": _statistics}


def load_processes(connection: Any, processes: Processes) -> None:
    """Fill the table of processes."""
    places = ", ".join("?" * len(TABLES["processes"]))
    for row in processes.rows:
        put = f"INSERT INTO read.processes VALUES ({places})"  # noqa: S608
        execute(connection, put, list(row.values()))


def load_steps(connection: Any, traces: TraceSet, processes: Processes) -> list[str]:
    """Fill the table of steps; returns what could not be read, one line each.

    Raises:
        TraceError: a file cannot be read any more.
    """
    job = Job(traces, all_starts=True)
    for member in job:
        process = member.process if isinstance(member, Rank) else member
        steps = measure(process) if isinstance(member, Rank) else None
        if steps is None:
            continue
        number = processes.number_of(process.spans.columns[0].trace, process.pid)
        count = len(steps)
        known = process.header.rank if process.header else None
        columns: Columns = {
            "process": np.full(count, number, np.int32),
            "rank": np.full(count, -1 if known is None or known >= 2**31 else known, np.int32),
            "step": steps.number,
            "start_ns": steps.start_ns,
            "end_ns": steps.end_ns,
            "dur_ns": steps.time_ns,
            "first": steps.first,
            "found_by": np.full(count, steps.found_by, object),
            **{f"{part}_ns": steps.parts[part] for part in STEP_PARTS},
            "rss_bytes": steps.marks.rss_bytes,
            "device_bytes": steps.marks.device_bytes,
            "nonfinite": steps.marks.nonfinite,
        }
        _insert(connection, "steps", columns)
    return list(job.facts.notes)
