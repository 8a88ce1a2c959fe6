"""Traces as Parquet: the events, in a directory for each rank, and the processes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dftrace_ai.analysis.converting.placing import cannot_be_written, new_file
from dftrace_ai.analysis.converting.report import ConvertedFile
from dftrace_ai.analysis.sql.database import open_views
from dftrace_ai.analysis.sql.loading import EventLoader, load_processes
from dftrace_ai.analysis.sql.processes import Processes
from dftrace_ai.database.asking import execute, said
from dftrace_ai.database.opening import duckdb_module, quoted_text
from dftrace_ai.spare_folders import SpareFolder

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.analysis.reading import TraceSet

__all__ = ["write_as_parquet"]

# How directories of partitions name a value that is not there.
NO_RANK: Final = "__HIVE_DEFAULT_PARTITION__"


def write_as_parquet(
    traces: TraceSet, folder: Path, out: Path
) -> tuple[list[ConvertedFile], list[str]]:
    """Write the events of each trace as a file in the directory of its rank, and the processes.

    Args:
        traces: which; one of them at a time is in memory, or in temporary files beyond a GiB.
        folder: an empty directory.
        out: what it will be called.

    Returns:
        The files; and what could not be read, one line each.

    Raises:
        DftraceError: they cannot be written, or DuckDB is not installed.
        TraceError: a trace cannot be read any more.
    """
    files: list[ConvertedFile] = []
    notes: list[str] = []
    with SpareFolder() as spare:
        connection = open_views(spare)
        processes = Processes(traces.files)
        loader = EventLoader(connection, processes)
        try:
            for number, trace in enumerate(traces):
                notes += loader.load(["events"], [trace], arguments=True)
                rank = processes.rank_of(trace)
                place = f"events/rank={NO_RANK if rank is None else rank}/{number:05}.parquet"
                made = _copy(connection, "SELECT * EXCLUDE (rank) FROM events", folder, place, rank)
                execute(connection, "DELETE FROM read.events")
                files.append(made)
            load_processes(connection, processes)
            whole = _copy(connection, "FROM processes", folder, "processes.parquet", None)
            files.append(replace(whole, lines=0))
        except duckdb_module().Error as error:
            raise cannot_be_written(out, said(error)) from error
        finally:
            connection.close()
    return files, notes


def _copy(connection: Any, query: str, folder: Path, name: str, rank: int | None) -> ConvertedFile:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    new_file(path)
    # The file is there already, with the rights that it is to have.
    options = "FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false"
    execute(connection, f"COPY ({query}) TO {quoted_text(str(path))} ({options})")
    (lines,) = execute(connection, f"SELECT count(*) FROM ({query})").fetchone()  # noqa: S608
    return ConvertedFile(name, rank, lines, path.stat().st_size)
