"""Queries that somebody else chose: one select, and what is said of those that are refused."""

from __future__ import annotations

import resource
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dftrace_ai.database.opening import duckdb_module
from dftrace_ai.errors import DftraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["QueryError", "ask_alone", "execute", "interruptibly", "one_select", "said"]

Found = TypeVar("Found")

INTERRUPT_AGAIN_S: Final = 0.05
MOST_AGAIN_S: Final = 0.5

# A constant of a query is worked out in memory that DuckDB's own limit does not count.
MOST_BYTES: Final = 3 << 29

# Behind which a signal has its number in the status of a program that is unwound.
UNWOUND: Final = 128

_alone = False


class QueryError(DftraceError):
    """A query is not accepted, or is more than there is room for."""


def ask_alone() -> None:
    """Say that this process is a command that asks, and nothing else.

    From now on it is limited in memory while DuckDB works, and ends where one step of a query goes
    on though it was interrupted. A program of somebody else's is neither.
    """
    global _alone
    _alone = True


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
    with _limited(), ThreadPoolExecutor(1) as other:
        asked = other.submit(ask)
        try:
            return asked.result()
        except (KeyboardInterrupt, SystemExit) as told:
            until_s = time.monotonic() + MOST_AGAIN_S
            # A query that is only about to begin does not know that it was interrupted.
            while not asked.done():
                connection.interrupt()
                wait([asked], INTERRUPT_AGAIN_S)
                if _alone and time.monotonic() > until_s:
                    _end_by(told)
            raise


@contextmanager
def _limited() -> Iterator[None]:
    """Give a command that asks so much memory beside what it has, and no more."""
    if not _alone:
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _data_bytes() + MOST_BYTES
    wanted = min(one for one in (limit, before, most) if one != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def _data_bytes() -> int:
    """Return how much memory of its own this process has asked for."""
    try:
        words = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except OSError:
        return 0
    return int(words[5]) * resource.getpagesize()


def _end_by(told: KeyboardInterrupt | SystemExit) -> None:
    """End by a signal; what this process has put aside goes with the next one."""
    code = told.code if isinstance(told, SystemExit) else None
    number = code - UNWOUND if isinstance(code, int) and code > UNWOUND else signal.SIGINT
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


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
