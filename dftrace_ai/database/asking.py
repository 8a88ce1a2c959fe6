"""Queries that somebody else chose: one select, and what is said of those that are refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dftrace_ai.database.opening import duckdb_module
from dftrace_ai.errors import DftraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["QueryError", "execute", "interruptibly", "one_select", "said"]

Found = TypeVar("Found")

INTERRUPT_AGAIN_S: Final = 0.05


class QueryError(DftraceError):
    """A query is not accepted, or is more than there is room for."""


def one_select(connection: Any, sql: str) -> Any:
    """Return the only statement of a query, which changes nothing.

    Args:
        connection: DuckDB's.
        sql: one ``select``, or what else DuckDB takes for one.

    Raises:
        QueryError: it is something else.
        duckdb.Error: it is no SQL.
    """
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb_module().StatementType.SELECT:
        raise QueryError("the query is not accepted; accepted: one select")
    return statements[0]


def interruptibly(connection: Any, ask: Callable[[], Found]) -> Found:
    """Ask DuckDB something that Ctrl+C ends, or another signal that the program ends by.

    DuckDB looks for signals between its own tasks only, and one of them can take hours.

    Args:
        connection: DuckDB's.
        ask: what is asked of it; on the main thread another one does that.

    Returns:
        What it returns; what it raises is raised.

    Raises:
        KeyboardInterrupt: Ctrl+C was pressed, and the query is over.
        SystemExit: so it was by the handler of another signal.
    """
    if threading.current_thread() is not threading.main_thread():
        return ask()
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(ask)
        try:
            return asked.result()
        except (KeyboardInterrupt, SystemExit):
            # A query that is only about to begin does not know that it was interrupted.
            while not asked.done():
                connection.interrupt()
                wait([asked], INTERRUPT_AGAIN_S)
            raise


def execute(connection: Any, sql: str, parameters: Sequence[Any] = ()) -> Any:
    """Have DuckDB do something that may take a while; a signal ends it, as of `interruptibly`.

    On the main thread DuckDB would take the signal itself, and raise a RuntimeError in its place.

    Args:
        connection: DuckDB's.
        sql: what to do.
        parameters: of it.
    """
    return interruptibly(connection, lambda: connection.execute(sql, list(parameters)))


def said(error: Exception) -> str:
    """Return the first line of what DuckDB says; below it draws where in the query."""
    return str(error).partition("\n")[0]
