"""A DuckDB with the tables and views of traces, still empty."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dftrace_ai.analysis.reading.duckdb_scan import (
    DISK_LIMIT,
    MEMORY_LIMIT,
    MOST_THREADS,
    duckdb_module,
)
from dftrace_ai.analysis.sql.views import VIEWS, table_sql, view_sql

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["lock", "open_database"]


def open_database(spare: Path) -> Any:
    """Return a DuckDB with the views, and the tables that they are made of.

    Args:
        spare: a directory of ours, for its temporary files.

    Raises:
        DftraceError: DuckDB is not installed.
    """
    options = {
        "memory_limit": MEMORY_LIMIT,
        "max_temp_directory_size": DISK_LIMIT,
        "threads": str(min(len(os.sched_getaffinity(0)), MOST_THREADS)),
        "temp_directory": str(spare / "duckdb"),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "allow_persistent_secrets": "false",
        "python_enable_replacements": "false",
    }
    connection = duckdb_module().connect(config=options)
    for statement in (
        # It would be drawn into what is printed.
        "SET enable_progress_bar = false",
        "CREATE SCHEMA read",
        "CREATE TABLE read.labels (label UINTEGER, cat VARCHAR, name VARCHAR)",
        *map(table_sql, VIEWS),
        *(view_sql(name, read=True, arguments=True) for name in VIEWS),
    ):
        connection.execute(statement)
    return connection


def lock(connection: Any) -> None:
    """From now on no file can be opened and no setting changed."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
