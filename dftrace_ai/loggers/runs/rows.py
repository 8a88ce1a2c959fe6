"""The tables that runs are told in: their columns, and the rows of a run and of its lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.runs.lines import number_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.loggers.runs.lines import MediaLine, MetricsLine
    from dftrace_ai.loggers.runs.model import LocalRun
    from dftrace_ai.loggers.runs.statuses import Writer
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["TABLES", "json_text", "media_row", "metrics_row", "param_rows"]

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


def param_rows(run: LocalRun) -> Iterator[JsonObject]:
    """Yield the rows of the table ``params``."""
    for name, value in run.params.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        text = value if isinstance(value, str) else json_text(value)
        number = float(value) if is_number else None
        yield {"run": run.key, "name": name, "value": text, "number": number}


def metrics_row(run: LocalRun, writer: Writer, line: MetricsLine) -> JsonObject:
    """Return what the rows of a line have in the table ``metrics``, beside names and values."""
    return {
        "run": run.key,
        "axis": line.axis,
        "step": line.step,
        "time_s": line.time_s,
        "rank": writer.line.rank if writer.line else None,
        "process": writer.line.process.pid if writer.line else None,
    }


def media_row(run: LocalRun, writer: Writer, line: MediaLine) -> JsonObject:
    """Return the row of a line in the table ``media``."""
    return {
        "run": run.key,
        "kind": line.kind,
        "name": line.name,
        "axis": line.axis,
        "step": line.step,
        "time_s": line.time_s,
        "rank": writer.line.rank if writer.line else None,
        "file": line.file or None,
        "facts": json_text(line.facts),
    }


def json_text(value: Any) -> str:
    """Return a value of a line as JSON again; numbers that are not finite are texts there."""
    import orjson

    if isinstance(value, float):
        value = number_text(value)
        if isinstance(value, str):
            return value
    return orjson.dumps(value).decode()
