"""Runs as tables: for SQL, by a DuckDB that can open no file; as files of Parquet or CSV.

The metrics of a long log are also Parquet beside it, made at its end by a process of its own; the
log stays the truth.
"""

from __future__ import annotations

import csv
import importlib.util
import os
import signal
import tempfile
from abc import ABC, abstractmethod
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.database import Database, QueryError, duckdb_module, quoted_text, said
from dftrace_ai.errors import DftraceError
from dftrace_ai.interpreters import answer_of
from dftrace_ai.loggers.runs.lines import number_text, value_text
from dftrace_ai.loggers.runs.log_files import LINE_BYTES, RunFolder, head_of
from dftrace_ai.loggers.runs.reading import Runs, read_run
from dftrace_ai.page.files import check_free, new_file
from dftrace_ai.spare_folders import SpareFolder
from dftrace_ai.wording import in_csv, quoted, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import IO, TextIO

    from typing_extensions import Self

    from dftrace_ai.loggers.runs.lines import MediaLine, MetricsLine
    from dftrace_ai.loggers.runs.reading import LocalRun, Writer

__all__ = ["TABLES", "QueryError", "Rows", "RunTables", "compact", "compact_here", "export"]

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

METRICS = tuple(TABLES["metrics"])
NAME_AT, VALUE_AT = METRICS.index("name"), METRICS.index("value")
# In the file that is read into `metrics`: lists of names and values stand for as many rows.
LISTED = {"name": "VARCHAR[]", "value": "DOUBLE[]"}
LISTED_ROWS = 10_000

MOST_THREADS = 4
# A line is written again with names of ours, and texts within texts escaped.
OBJECT_BYTES = 2 * LINE_BYTES + (1 << 16)

WORTHWHILE_BYTES = 1 << 20
"""A shorter log is read as quickly as Parquet is."""
LEAST_S = 0.5
"""In less time no interpreter starts."""
OUT_OF_TIME = 75
SHARE_OF_LIMIT = 0.9


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


class RowSink(ABC):
    """Takes runs and their lines as rows of the tables, in the order of the columns."""

    def take_all(self, folders: Iterable[RunFolder]) -> Runs:
        """Read some runs, and take all of them; returns them as they are now."""
        runs = Runs()
        for folder in folders:
            run = read_run(folder, self)
            self.take_run(run)
            runs.append(run)
        return runs

    def take_run(self, run: LocalRun) -> None:
        """Take a run that was read, and its hyper-parameters."""
        self.write("runs", tuple(run.facts().values()))
        for name, value in run.params.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            number = float(value) if is_number else None  # type: ignore[arg-type]
            self.write("params", (run.key, name, value_text(value), number))

    def take_metrics(self, run: LocalRun, writer: Writer, line: MetricsLine) -> None:
        """Take the numbers of a line."""
        rank, process = _place_of(writer)
        row = MetricsRow(run.key, "", line.axis, line.step, 0.0, line.time_s, rank, process)
        self.write_metrics(row, line.values)

    def take_media(self, run: LocalRun, writer: Writer, line: MediaLine) -> None:
        """Take what is no number."""
        place = line.kind, line.name, line.axis, line.step, line.time_s, _place_of(writer)[0]
        self.write("media", (run.key, *place, line.file or None, value_text(line.facts)))

    @abstractmethod
    def write(self, table: str, row: tuple[Any, ...]) -> None:
        """Write a row of a table."""

    @abstractmethod
    def write_metrics(self, row: MetricsRow, values: Mapping[str, float]) -> None:
        """Write a row for each value; all have the rest in common."""


def _place_of(writer: Writer) -> tuple[int | None, int | None]:
    """Return rank and process."""
    return (writer.line.rank, writer.line.process.pid) if writer.line else (None, None)


class Rows(NamedTuple):
    """The answer to a query: names of columns, and the values of each row."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class RunTables:
    """The tables `runs`, `metrics`, `params` and `media` of some runs, as they are now.

    Args:
        folders: of the runs, which are read into a private directory of temporary files.

    Attributes:
        runs: the runs, as they were read for these tables.

    Raises:
        DftraceError: DuckDB is not installed, or there is no room for temporary files.

    Example::

        with RunTables(folders) as tables:
            print(tables.query("select name, max(value) from metrics group by name").rows)
    """

    def __init__(self, folders: Iterable[RunFolder]) -> None:
        self.runs = Runs()
        self._database = Database(MOST_THREADS)
        try:
            self._fill(folders)
        except OSError as error:
            self.close()
            raise DftraceError(
                f"temporary files cannot be written: {error.strerror}; set TMPDIR"
            ) from error
        except duckdb_module().Error as error:
            self.close()
            raise QueryError(f"the runs cannot be read into tables: {error}") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Return this; with the block the tables are gone."""
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the tables."""
        self._database.close()

    def query(self, sql: str, most: int | None = None) -> Rows:
        """Ask one query that somebody else chose; it can open no file and change no setting.

        Args:
            sql: one ``select``, or what else DuckDB takes for one: ``with``, ``from``,
                ``describe``, ``summarize``.
            most: so many rows at most; by default all.

        Raises:
            QueryError: it is something else, or is refused; the message is DuckDB's.
        """
        answer = self._database.ask(sql)
        return Rows(answer.columns, list(islice(answer.rows(), most)))

    def copy_out(self, table: str, path: Path) -> None:
        """Write a table as Parquet to a file, which is there and is written anew."""
        try:
            self._database.copy_out(table, path)
        except duckdb_module().Error as error:
            raise DftraceError(f"{path}: cannot be written: {said(error)}") from error

    def _fill(self, folders: Iterable[RunFolder]) -> None:
        paths = {table: self._database.folder / f"{table}.jsonl" for table in TABLES}
        with ExitStack() as opened:
            files = {name: opened.enter_context(path.open("wb")) for name, path in paths.items()}
            self.runs = _JsonRows(files).take_all(folders)
        for table, columns in TABLES.items():
            read = columns | LISTED if table == "metrics" else columns
            names = ", ".join(
                f"unnest({name}) AS {name}" if table == "metrics" and name in LISTED else name
                for name in columns
            )
            types = ", ".join(f"{name}: '{kind}'" for name, kind in read.items())
            path = quoted_text(str(paths[table]))
            self._database.execute(
                f"CREATE TABLE {table} AS SELECT {names} FROM read_json({path}, "  # noqa: S608
                f"format = 'newline_delimited', columns = {{{types}}}, "
                f"maximum_object_size = {OBJECT_BYTES})",
            )


class _JsonRows(RowSink):
    """Writes rows as lines of JSON, which DuckDB reads, to open files by name of the table."""

    def __init__(self, files: Mapping[str, IO[bytes]]) -> None:
        self._files = files

    def write(self, table: str, row: tuple[Any, ...]) -> None:
        values = (number_text(value) if isinstance(value, float) else value for value in row)
        self._write(table, dict(zip(TABLES[table], values, strict=True)))

    def write_metrics(self, row: MetricsRow, values: Mapping[str, float]) -> None:
        names, texts = list(values), list(map(number_text, values.values()))
        for at in range(0, len(names), LISTED_ROWS):
            to = at + LISTED_ROWS
            self._write("metrics", row._replace(name=names[at:to], value=texts[at:to])._asdict())

    def _write(self, table: str, row: object) -> None:
        import orjson

        self._files[table].write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def export(
    folders: Iterable[RunFolder], folder: Path, form: str, *, force: bool = False
) -> tuple[Runs, list[Path]]:
    """Write each table of some runs as `form`; returns the runs as they are now, and the files.

    Files of these names are replaced by force alone.
    """
    paths = {table: folder / f"{table}.{form}" for table in TABLES}
    check_free(paths.values(), force=force)
    if form == "parquet":
        duckdb_module()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DftraceError(f"{quoted(str(folder))}: cannot be made: {error.strerror}") from error
    with ExitStack() as unfinished:
        unnamed = {name: unfinished.enter_context(new_file(path)) for name, path in paths.items()}
        if form == "parquet":
            runs = _write_parquet(folders, unnamed)
        else:
            runs = _write_csv(folders, unnamed)
    return runs, list(paths.values())


def _write_parquet(folders: Iterable[RunFolder], files: Mapping[str, Path]) -> Runs:
    with RunTables(folders) as tables:
        for table, path in files.items():
            tables.copy_out(table, path)
        return tables.runs


def _write_csv(folders: Iterable[RunFolder], files: Mapping[str, Path]) -> Runs:
    """Write what is not there as an empty field, and a list as JSON."""
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
            return rows.take_all(folders)
    except OSError as error:
        place = next(iter(files.values())).parent
        raise DftraceError(f"{quoted(str(place))}: cannot be written: {error.strerror}") from error


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
            value_text(value) if isinstance(value, list) else in_csv(value) for value in row
        )

    def write_metrics(self, row: MetricsRow, values: Mapping[str, float]) -> None:
        fields = list(map(in_csv, row))
        write = self._writers["metrics"].writerow
        for name, value in values.items():
            fields[NAME_AT], fields[VALUE_AT] = in_csv(name), value
            write(fields)


def compact(log: Path, limit_s: float) -> Path | None:
    """Write the metrics of a log that has ended as Parquet beside it; None where there is none."""
    if limit_s < LEAST_S or importlib.util.find_spec("duckdb") is None:
        return None
    path = log.with_suffix(".parquet")
    try:
        if log.stat().st_size < WORTHWHILE_BYTES:
            return None
        # DuckDB has threads of its own, and must not be inside of a program that ends.
        with SpareFolder() as spare:
            words = [str(log), str(limit_s * SHARE_OF_LIMIT), str(spare)]
            answer = answer_of(__name__, compact_here.__name__, words, limit_s)
    except OSError as error:
        status, reason = 1, str(error)
    else:
        status = OUT_OF_TIME if answer.status is None else answer.status
        reason = answer.reason
    # Of a program that ignores the ends of its children there is no status to be had.
    if status == 0 and path.is_file():
        return path
    for unnamed in log.parent.glob(f".{path.name}-*"):
        unnamed.unlink(missing_ok=True)
    if status != OUT_OF_TIME:
        warn(
            "%s: its metrics could not be written as Parquet; the log itself is whole: %s",
            quoted(str(log)),
            reason,
        )
    return None


def compact_here(words: Sequence[str]) -> int:
    """Write the metrics of a log as Parquet; ends this process when the time is up."""
    log, limit_s, tempfile.tempdir = words

    def end(number: int, frame: object) -> None:
        raise SystemExit(OUT_OF_TIME)

    # What is temporary is removed then, and also where nobody waits for it any more.
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(float(limit_s), 0.001))
    os.setsid()  # Ctrl-C is for the training
    os.nice(10)
    path = Path(log)
    head = head_of(path)
    names = path.parent.parts[-2:] if head is None else (head.project, head.name)
    folder = RunFolder("/".join(names), path.parent, (path.name,))
    mode = path.stat().st_mode & 0o777
    with RunTables([folder]) as tables, new_file(path.with_suffix(".parquet"), mode) as unnamed:
        tables.copy_out("metrics", unnamed)
    return 0
