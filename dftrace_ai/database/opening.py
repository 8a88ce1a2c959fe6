"""Opens a DuckDB in memory: what it may use, and which files it may open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dftrace_ai.errors import missing_package

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["DISK_LIMIT", "MEMORY_LIMIT", "duckdb_module", "lock", "open_database", "quoted_text"]

# Beyond this DuckDB goes to its directory of temporary files.
MEMORY_LIMIT = "1GiB"
DISK_LIMIT = "16GiB"


def duckdb_module() -> Any:
    """Return DuckDB, which is imported when it is first needed.

    Raises:
        DftraceError: it is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise missing_package("DuckDB") from error
    return duckdb


def open_database(spare: Path, most_threads: int) -> Any:
    """Return a DuckDB in memory, which loads and keeps nothing; `lock` takes files from it, too.

    Args:
        spare: a directory of ours, for its temporary files.
        most_threads: so many at most, and no more than there are processors.

    Raises:
        DftraceError: DuckDB is not installed.
    """
    options = {
        "memory_limit": MEMORY_LIMIT,
        "max_temp_directory_size": DISK_LIMIT,
        "threads": str(min(len(os.sched_getaffinity(0)), most_threads)),
        "temp_directory": str(spare / "duckdb"),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "allow_persistent_secrets": "false",
        "python_enable_replacements": "false",
    }
    connection = duckdb_module().connect(config=options)
    # It would be drawn into what is printed.
    connection.execute("SET enable_progress_bar = false")
    return connection


def lock(connection: Any, paths: Iterable[Path] = ()) -> None:
    """From now on no setting can be changed, and no file opened.

    Args:
        connection: of `open_database`.
        paths: of files that can be opened all the same.
    """
    if names := ", ".join(quoted_text(str(path)) for path in paths):
        connection.execute(f"SET allowed_paths = [{names}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def quoted_text(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
