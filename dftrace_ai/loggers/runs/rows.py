"""The tables that runs are told in: their columns, and the rows of a run and of its lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.loggers.runs.lines import number_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dftrace_ai.loggers.runs.lines import MediaLine, MetricsLine
    from dftrace_ai.loggers.runs.model import LocalRun
    from dftrace_ai.loggers.runs.statuses import Writer

__all__ = ["TABLES", "MetricsRow", "RowSink", "json_text", "param_rows"]

TABLES: dict[str, dict[str, str]] = {
    "runs": {
        "run": "VARCHAR",
        "project": "VARCHAR",
        "name": "VARCHAR",
        "status": "VARCHAR",
        "group_name": "VARCHAR",
        "tags": "VARCHAR[]",
        "hosts": "VARCHAR[]",
        "processes": "BIGINT",
        "started_s": "DOUBLE",
        "last_s": "DOUBLE",
        "duration_s": "DOUBLE",
        "step": "BIGINT",
        "rows": "BIGINT",
        "media": "BIGINT",
        "unreadable": "BIGINT",
        "path": "VARCHAR",
    },
    "metrics": {
        "run": "VARCHAR",
        "name": "VARCHAR",
        "axis": "VARCHAR",
        "step": "BIGINT",
        "value": "DOUBLE",
        "time_s": "DOUBLE",
        "rank": "INTEGER",
        "process": "INTEGER",
    },
    "params": {
        "run": "VARCHAR",
        "name": "VARCHAR",
        "value": "VARCHAR",
        "number": "DOUBLE",
    },
    "media": {
        "run": "VARCHAR",
        "kind": "VARCHAR",
        "name": "VARCHAR",
        "axis": "VARCHAR",
        "step": "BIGINT",
        "time_s": "DOUBLE",
        "rank": "INTEGER",
        "file": "VARCHAR",
        "facts": "VARCHAR",
    },
}
"""Columns by table, with their types."""


class ParamRow(NamedTuple):
    """A row of the table ``params``."""

    run: str
    name: str
    value: str
    number: float | None


class MetricsRow(NamedTuple):
    """The rows that a line has in the table ``metrics``: names and values stand for as many."""

    run: str
    name: str | Sequence[str]
    axis: str
    step: int
    value: float | Sequence[float | str]
    time_s: float
    rank: int | None
    process: int | None


class MediaRow(NamedTuple):
    """A row of the table ``media``."""

    run: str
    kind: str
    name: str
    axis: str
    step: int
    time_s: float
    rank: int | None
    file: str | None
    facts: str


class RowSink(ABC):
    """Takes runs and their lines as rows of the tables, in the order of the columns."""

    def take_run(self, run: LocalRun) -> None:
        """Take a run that was read, and its hyper-parameters."""
        self.write("runs", tuple(run.facts().values()))
        for row in param_rows(run):
            self.write("params", row)

    def take_metrics(self, run: LocalRun, writer: Writer, line: MetricsLine) -> None:
        """Take the numbers of a line."""
        rank, process = _place_of(writer)
        row = MetricsRow(run.key, "", line.axis, line.step, 0.0, line.time_s, rank, process)
        self.write_metrics(row, line.values)

    def take_media(self, run: LocalRun, writer: Writer, line: MediaLine) -> None:
        """Take what is no number."""
        place = line.kind, line.name, line.axis, line.step, line.time_s, _place_of(writer)[0]
        self.write("media", MediaRow(run.key, *place, line.file or None, json_text(line.facts)))

    @abstractmethod
    def write(self, table: str, row: tuple[Any, ...]) -> None:
        """Write a row of a table."""

    @abstractmethod
    def write_metrics(self, row: MetricsRow, values: Mapping[str, float]) -> None:
        """Write a row for each value; all have the rest in common."""


def param_rows(run: LocalRun) -> Iterator[ParamRow]:
    """Yield the rows of the table ``params``."""
    for name, value in run.params.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        text = value if isinstance(value, str) else json_text(value)
        yield ParamRow(run.key, name, text, float(value) if is_number else None)


def _place_of(writer: Writer) -> tuple[int | None, int | None]:
    """Return rank and process."""
    return (writer.line.rank, writer.line.process.pid) if writer.line else (None, None)


def json_text(value: Any) -> str:
    """Return a value of a line as JSON again; numbers that are not finite are texts there."""
    import orjson

    if isinstance(value, float):
        value = number_text(value)
        if isinstance(value, str):
            return value
    return orjson.dumps(value).decode()
