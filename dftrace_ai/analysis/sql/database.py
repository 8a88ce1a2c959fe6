"""A DuckDB with the tables and views of traces, still empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.analysis.reading.duckdb_scan import MOST_THREADS
from dftrace_ai.analysis.sql.views import VIEWS, table_sql, view_sql
from dftrace_ai.database.opening import open_database

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["open_views"]


def open_views(spare: Path) -> Any:
    """Return a DuckDB with the views, and the tables that they are made of.

    Args:
        spare: a directory of ours, for its temporary files.

    Raises:
        DftraceError: DuckDB is not installed.
    """
    connection = open_database(spare, MOST_THREADS)
    for statement in (
        "CREATE SCHEMA read",
        "CREATE TABLE read.labels (label UINTEGER, cat VARCHAR, name VARCHAR)",
        *map(table_sql, VIEWS),
        *(view_sql(name, read=True, arguments=True) for name in VIEWS),
    ):
        connection.execute(statement)
    return connection
