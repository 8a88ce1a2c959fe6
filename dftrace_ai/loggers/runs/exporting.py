"""Tables written to files, which are whole when they get their names."""

from __future__ import annotations

import csv
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from dftrace_ai.database import duckdb_module
from dftrace_ai.errors import DftraceError
from dftrace_ai.loggers.runs.reading import Runs, read_run
from dftrace_ai.loggers.runs.rows import TABLES, MetricsRow, RowSink, json_text
from dftrace_ai.page.files import new_file
from dftrace_ai.wording import in_csv, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import TextIO

    from dftrace_ai.loggers.runs.folders import RunFolder

__all__ = ["export"]

METRICS = tuple(TABLES["metrics"])
NAME_AT, VALUE_AT = METRICS.index("name"), METRICS.index("value")


def export(folders: Iterable[RunFolder], folder: Path, form: str) -> tuple[Runs, list[Path]]:
    """Write each table of some runs as `form`; returns the runs as they are now, and the files."""
    if form == "parquet":
        duckdb_module()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DftraceError(f"{quoted(str(folder))}: cannot be made: {error.strerror}") from error
    paths = {table: folder / f"{table}.{form}" for table in TABLES}
    with ExitStack() as unfinished:
        unnamed = {name: unfinished.enter_context(new_file(path)) for name, path in paths.items()}
        if form == "parquet":
            runs = _write_parquet(folders, unnamed)
        else:
            runs = _write_csv(folders, unnamed)
    return runs, list(paths.values())


def _write_parquet(folders: Iterable[RunFolder], files: Mapping[str, Path]) -> Runs:
    from dftrace_ai.loggers.runs.tables import RunTables

    with RunTables(folders) as tables:
        for table, path in files.items():
            tables.copy_out(table, path)
        return tables.runs


def _write_csv(folders: Iterable[RunFolder], files: Mapping[str, Path]) -> Runs:
    """Write what is not there as an empty field, and a list as JSON."""
    runs = Runs()
    try:
        with ExitStack() as opened:
            rows = _CsvRows(
                {
                    table: opened.enter_context(
                        path.open("w", encoding="utf-8", errors="backslashreplace", newline="")
                    )
                    for table, path in files.items()
                }
            )
            for folder in folders:
                run = read_run(folder, rows)
                rows.take_run(run)
                runs.append(run)
    except OSError as error:
        place = next(iter(files.values())).parent
        raise DftraceError(f"{quoted(str(place))}: cannot be written: {error.strerror}") from error
    return runs


class _CsvRows(RowSink):
    """Writes the rows of runs to open files, by name of the table."""

    def __init__(self, files: Mapping[str, TextIO]) -> None:
        self._writers = {
            table: csv.writer(file, lineterminator="\n") for table, file in files.items()
        }
        for table, writer in self._writers.items():
            writer.writerow(TABLES[table])

    def write(self, table: str, row: tuple[Any, ...]) -> None:
        self._writers[table].writerow(
            json_text(value) if isinstance(value, list) else in_csv(value) for value in row
        )

    def write_metrics(self, row: MetricsRow, values: Mapping[str, float]) -> None:
        fields = list(map(in_csv, row))
        write = self._writers["metrics"].writerow
        for name, value in values.items():
            fields[NAME_AT], fields[VALUE_AT] = in_csv(name), value
            write(fields)
