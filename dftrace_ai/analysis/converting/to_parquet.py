"""Traces as Parquet: the events, in a directory for each rank, and the processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.converting.placing import ConvertedFile, cannot_be_written, new_file
from dftrace_ai.analysis.sql import TraceTables
from dftrace_ai.database import duckdb_module, said

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.analysis.reading import TraceSet

# How directories of partitions name a value that is not there.
NO_RANK: Final = "__HIVE_DEFAULT_PARTITION__"


def write_as_parquet(
    traces: TraceSet, folder: Path, out: Path
) -> tuple[list[ConvertedFile], list[str]]:
    """Write the events of each trace as a file in the directory of its rank, and the processes.

    Returns the files, and what could not be read; `out` is what the folder will be called.
    """
    files: list[ConvertedFile] = []

    def placed(name: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new_file(path)
        return path

    def note(name: str, rank: int | None, lines: int) -> None:
        files.append(ConvertedFile(name, rank, lines, (folder / name).stat().st_size))

    with TraceTables(traces) as tables:
        try:
            for number in range(len(traces)):
                rank = tables.rank_of(number)
                name = f"events/rank={NO_RANK if rank is None else rank}/{number:05}.parquet"
                note(name, rank, tables.copy_events(number, placed(name)))
            name = "processes.parquet"
            tables.copy_processes(placed(name))
            note(name, None, 0)
        except duckdb_module().Error as error:
            raise cannot_be_written(out, said(error)) from error
        return files, list(tables.notes)
