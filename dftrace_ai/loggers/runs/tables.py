"""Runs as tables that SQL is asked of, by a DuckDB that can open no file."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.database import Database, QueryError, duckdb_module, quoted_text, said
from dftrace_ai.errors import DftraceError
from dftrace_ai.loggers.runs.lines import number_text
from dftrace_ai.loggers.runs.log_files import LINE_BYTES
from dftrace_ai.loggers.runs.reading import Runs, read_run
from dftrace_ai.loggers.runs.rows import TABLES, RowSink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from dftrace_ai.loggers.runs.folders import RunFolder
    from dftrace_ai.loggers.runs.rows import MetricsRow

__all__ = ["TABLES", "QueryError", "Rows", "RunTables"]

# In the file that is read into `metrics`: lists of names and values stand for as many rows.
LISTED = {"name": "VARCHAR[]", "value": "DOUBLE[]"}
LISTED_ROWS = 10_000

MOST_THREADS = 4
# A line is written again with names of ours, and texts within texts escaped.
OBJECT_BYTES = 2 * LINE_BYTES + (1 << 16)


class Rows(NamedTuple):
    """The answer to a query.

    Attributes:
        columns: their names.
        rows: values of each row.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as mappings from names of columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        """Write a table to a file as Parquet.

        Args:
            table: its name.
            path: of the file, which is there and is written anew.

        Raises:
            DftraceError: it cannot be written.
        """
        try:
            self._database.copy_out(table, path)
        except duckdb_module().Error as error:
            raise DftraceError(f"{path}: cannot be written: {said(error)}") from error

    def _fill(self, folders: Iterable[RunFolder]) -> None:
        with _TableFiles(self._database.folder) as files:
            for folder in folders:
                run = read_run(folder, files)
                files.take_run(run)
                self.runs.append(run)
        for table, columns in TABLES.items():
            read = columns | LISTED if table == "metrics" else columns
            names = ", ".join(
                f"unnest({name}) AS {name}" if table == "metrics" and name in LISTED else name
                for name in columns
            )
            types = ", ".join(f"{name}: '{kind}'" for name, kind in read.items())
            path = quoted_text(str(self._database.folder / f"{table}.jsonl"))
            self._database.execute(
                f"CREATE TABLE {table} AS SELECT {names} FROM read_json({path}, "  # noqa: S608
                f"format = 'newline_delimited', columns = {{{types}}}, "
                f"maximum_object_size = {OBJECT_BYTES})",
            )


class _TableFiles(RowSink):
    """Writes rows to files that DuckDB reads, a file for each table."""

    def __init__(self, folder: Path) -> None:
        self._files = {name: (folder / f"{name}.jsonl").open("wb") for name in TABLES}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files.values():
            file.close()

    def write(self, table: str, row: tuple[Any, ...]) -> None:
        values = (number_text(value) if isinstance(value, float) else value for value in row)
        self._write(table, dict(zip(TABLES[table], values, strict=True)))

    def write_metrics(self, row: MetricsRow, values: Mapping[str, float]) -> None:
        names, texts = list(values), list(map(number_text, values.values()))
        for at in range(0, len(names), LISTED_ROWS):
            to = at + LISTED_ROWS
            self._write("metrics", row._replace(name=names[at:to], value=texts[at:to])._asdict())

    def _write(self, table: str, row: dict[str, Any]) -> None:
        import orjson

        self._files[table].write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
