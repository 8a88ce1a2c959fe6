"""Traces as tables that SQL is asked of, by a DuckDB that can open no file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dftrace_ai.analysis.sql.database import open_views
from dftrace_ai.analysis.sql.loading import (
    EVENT_TABLES,
    EventLoader,
    load_processes,
    load_steps,
)
from dftrace_ai.analysis.sql.processes import Processes
from dftrace_ai.analysis.sql.views import (
    ARGUMENTS_UNREAD,
    UNREAD,
    VIEWS,
    view_sql,
)
from dftrace_ai.database.asking import QueryError, execute, interruptibly, one_select, said
from dftrace_ai.database.opening import duckdb_module, lock
from dftrace_ai.spare_folders import SpareFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self

    from dftrace_ai.analysis.reading import TraceSet

__all__ = ["Answer", "QueryError", "TraceTables"]

ROWS_AT_ONCE: Final = 1024


class Answer:
    """The answer to a query, whose rows come as they are asked for.

    Attributes:
        columns: their names, each once.
        kinds: their types, as DuckDB names them.
    """

    def __init__(self, connection: Any, result: Any, first: list[tuple[Any, ...]]) -> None:
        self.kinds = tuple(str(column[1]) for column in result.description)
        self.columns = _each_once([column[0] for column in result.description])
        self._connection = connection
        self._result = result
        self._first = first

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows, once.

        Raises:
            QueryError: DuckDB cannot go on.
        """
        part = self._first
        while part:
            yield from part
            part = _fetched(self._connection, self._result)


class TraceTables:
    r"""The views `spans`, `instants`, `counters`, `tensor_stats`, `processes`, `steps`, `events`.

    What a query needs is read when it is asked; beyond a GiB it lies in temporary files.

    Args:
        traces: which.

    Attributes:
        notes: after `query`, what of the files could not be read, one line each.

    Raises:
        DftraceError: DuckDB or NumPy is not installed.

    Example::

        with TraceTables(open_traces(["out/"])) as tables:
            answer = tables.query("select name, sum(dur_ns) / 1e9 as total_s from spans group by 1")
            print(answer.columns, *answer.rows(), *tables.notes, sep="\n")
    """

    def __init__(self, traces: TraceSet) -> None:
        duckdb_module()
        self.traces = traces
        self.notes: tuple[str, ...] = ()
        self._processes = Processes(traces.files)
        self._notes: list[str] = []
        self._read: set[str] = set()
        self._arguments = False
        self._spare = SpareFolder()
        self._connection = open_views(self._spare.path)
        lock(self._connection)
        self._loader = EventLoader(self._connection, self._processes)

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
        self._connection.close()
        self._spare.remove()

    def query(self, sql: str) -> Answer:
        """Ask one query that somebody else chose; it can open no file and change no setting.

        Args:
            sql: one ``select``, or what else DuckDB takes for one: ``with``, ``from``,
                ``describe``, ``summarize``.

        Returns:
            The answer, which ends with the next query.

        Raises:
            QueryError: it is something else, or is refused; the message is DuckDB's.
            TraceError: a file cannot be read any more.
        """
        duckdb = duckdb_module()
        try:
            one_select(self._connection, sql)
            self._show(self._read | set(VIEWS), arguments=True)
            # Names are looked up, and nothing is worked out, as EXPLAIN would have it.
            described = "DESCRIBE " + sql
            interruptibly(self._connection, lambda: self._connection.execute(described).fetchall())
        except duckdb.Error as error:
            raise QueryError(f"the query is not accepted: {_said(error)}") from error
        # What a query does not name and needs all the same, it comes upon.
        words = set(re.findall(r"\w+", sql.casefold()))
        self._need(words & set(VIEWS), arguments=_names_arguments(sql))
        while True:
            self._show(self._read, arguments=self._arguments)
            try:
                result, first = interruptibly(self._connection, lambda: self._begun(sql))
            except duckdb.Error as error:
                if not self._read_what_lacks(str(error)):
                    raise QueryError(f"the query is not accepted: {_said(error)}") from error
            else:
                self.notes = tuple(dict.fromkeys(self._notes))
                return Answer(self._connection, result, first)

    def _begun(self, sql: str) -> tuple[Any, list[tuple[Any, ...]]]:
        result = self._execute(sql)
        return result, result.fetchmany(ROWS_AT_ONCE)

    def _execute(self, sql: str) -> Any:
        result = self._connection.execute(sql)
        kinds = [str(column[1]) for column in result.description]
        if not any("TIME ZONE" in kind for kind in kinds):
            return result
        # Python would need a library for them.
        names = _each_once([column[0] for column in result.description])
        chosen = ", ".join(
            f"c{at}{'::VARCHAR' * ('TIME ZONE' in kind)} AS {_quoted_name(name)}"
            for at, (kind, name) in enumerate(zip(kinds, names, strict=True))
        )
        columns = ", ".join(f"c{at}" for at in range(len(kinds)))
        inner = sql.strip().rstrip(";")
        wrapped = f"SELECT {chosen} FROM ({inner}\n) AS answer({columns})"  # noqa: S608
        try:
            return self._connection.execute(wrapped)
        except duckdb_module().ParserException as error:
            raise QueryError(
                "the query is not accepted: it gives times with a time zone, and ends in a "
                "comment; leave the comment out"
            ) from error

    def _show(self, read: set[str], *, arguments: bool) -> None:
        """Make the views: of tables that were read, and those that end a query instead."""
        for name in VIEWS:
            self._connection.execute(view_sql(name, read=name in read, arguments=arguments))

    def _read_what_lacks(self, error: str) -> bool:
        """Read what a query came upon; returns whether that was why it ended."""
        if ARGUMENTS_UNREAD in error:
            self._need(self._read, arguments=True)
            return True
        name = error.partition(UNREAD)[2]
        found = next((view for view in VIEWS if name.startswith(view)), None)
        if found is not None:
            self._need({found}, arguments=self._arguments)
        return found is not None

    def _need(self, views: set[str], *, arguments: bool) -> None:
        """Fill the tables of views that are not filled yet."""
        duckdb = duckdb_module()
        if arguments and not self._arguments:
            # Those that were read without.
            again = {name for name in self._read if "args" in VIEWS[name].columns}
            for name in again:
                execute(self._connection, f"DELETE FROM read.{name}")  # noqa: S608
            self._read -= again
            views = views | again
        self._arguments = self._arguments or arguments
        lacking = [name for name in VIEWS if name in views - self._read]
        try:
            self._fill(lacking)
        except duckdb.Error as error:
            raise QueryError(f"the traces cannot be read into tables: {_said(error)}") from error
        self._read.update(lacking)

    def _fill(self, views: list[str]) -> None:
        of_events = [name for name in views if name in EVENT_TABLES]
        # Only the rows tell of the processes of a file without a header.
        unknown = any(trace.header is None for trace in self.traces)
        if of_events or (unknown and views):
            self._notes += self._loader.load(of_events, self.traces, arguments=self._arguments)
        if "steps" in views:
            self._notes += load_steps(self._connection, self.traces, self._processes)
        if "processes" in views:
            load_processes(self._connection, self._processes)


def _fetched(connection: Any, result: Any) -> list[tuple[Any, ...]]:
    try:
        rows: list[tuple[Any, ...]] = interruptibly(
            connection, lambda: result.fetchmany(ROWS_AT_ONCE)
        )
    except duckdb_module().Error as error:
        if ARGUMENTS_UNREAD in str(error):
            raise QueryError("the query needs the arguments of events: name args in it") from error
        raise QueryError(f"the query cannot be answered: {_said(error)}") from error
    return rows


def _names_arguments(sql: str) -> bool:
    """Return whether a query looks as if it needed arguments."""
    text = sql.casefold().replace("count(*)", "")
    return "args" in text or "*" in text


def _each_once(names: list[str]) -> tuple[str, ...]:
    """Return names of columns; those that are there already with a number behind them."""
    found: dict[str, None] = {}
    for name in names:
        at = 1
        once = name
        while once in found:
            once = f"{name}_{at}"
            at += 1
        found[once] = None
    return tuple(found)


def _quoted_name(name: str) -> str:
    """Return the name of a column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _said(error: Exception) -> str:
    """Return the first line of what DuckDB says, and which names there are, where one is wrong."""
    first, columns = said(error), str(error).partition("\n")[2].partition("\n")[0]
    if columns.startswith("Candidate bindings:"):
        return f"{first} {columns}"
    if first.startswith("Catalog Error: Table with name"):
        return f"{first} There are: {', '.join(VIEWS)}"
    return first
