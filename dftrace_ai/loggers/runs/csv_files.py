"""The tables of runs as CSV, written while the logs are read."""

from __future__ import annotations

import csv
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from dftrace_ai.errors import DftraceError
from dftrace_ai.loggers.runs.reading import Runs, read_run
from dftrace_ai.loggers.runs.rows import TABLES, json_text, media_row, metrics_row, param_rows
from dftrace_ai.wording import in_csv, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import TextIO

    from dftrace_ai.loggers.runs.folders import RunFolder
    from dftrace_ai.loggers.runs.lines import MediaLine, MetricsLine
    from dftrace_ai.loggers.runs.model import LocalRun
    from dftrace_ai.loggers.runs.statuses import Writer
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["write_csv"]

METRICS = tuple(TABLES["metrics"])
NAME_AT, VALUE_AT = METRICS.index("name"), METRICS.index("value")


def write_csv(folders: Iterable[RunFolder], files: Mapping[str, Path]) -> Runs:
    """Write the tables of some runs; what is not there is an empty field, a list is JSON.

    Args:
        folders: of the runs.
        files: by name of the table, each of which is there and is written anew.

    Returns:
        The runs, as they were read.

    Raises:
        DftraceError: a file cannot be written.
    """
    try:
        return _written(folders, files)
    except OSError as error:
        place = next(iter(files.values())).parent
        raise DftraceError(f"{quoted(str(place))}: cannot be written: {error.strerror}") from error


def _written(folders: Iterable[RunFolder], files: Mapping[str, Path]) -> Runs:
    runs = Runs()
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
    return runs


class _CsvRows:
    """Writes the rows of runs to open files, by name of the table."""

    def __init__(self, files: Mapping[str, TextIO]) -> None:
        self._writers = {
            table: csv.writer(file, lineterminator="\n") for table, file in files.items()
        }
        for table, writer in self._writers.items():
            writer.writerow(TABLES[table])

    def take_run(self, run: LocalRun) -> None:
        self._write("runs", run.facts())
        for row in param_rows(run):
            self._write("params", row)

    def take_metrics(self, run: LocalRun, writer: Writer, line: MetricsLine) -> None:
        row = metrics_row(run, writer, line)
        fields = [in_csv(row.get(column)) for column in METRICS]
        write = self._writers["metrics"].writerow
        for name, value in line.values.items():
            fields[NAME_AT], fields[VALUE_AT] = in_csv(name), value
            write(fields)

    def take_media(self, run: LocalRun, writer: Writer, line: MediaLine) -> None:
        self._write("media", media_row(run, writer, line))

    def _write(self, table: str, row: JsonObject) -> None:
        self._writers[table].writerow(_field(row[column]) for column in TABLES[table])


def _field(value: Any) -> Any:
    return json_text(value) if isinstance(value, list) else in_csv(value)
