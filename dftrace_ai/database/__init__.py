"""A DuckDB in memory, which opens nothing by itself, and queries that somebody else chose.

DuckDB is of the extra `analysis`, and imported when one is opened.
"""

from __future__ import annotations

import mmap
import signal
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from dftrace_ai import system
from dftrace_ai.errors import DftraceError, missing_package
from dftrace_ai.spare_folders import SpareFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Self

__all__ = ["Answer", "Database", "QueryError", "ask_alone", "duckdb_module", "quoted_text", "said"]

Result = TypeVar("Result")

# Beyond this DuckDB goes to its directory of temporary files.
MEMORY_LIMIT: Final = "1GiB"
DISK_LIMIT: Final = "16GiB"

# Before it, a stream of Arrow's was read once and never again, or not with filters.
OLDEST: Final = (1, 5, 6)

ROWS_AT_ONCE: Final = 1024

INTERRUPT_AGAIN_S: Final = 0.05
MOST_AGAIN_S: Final = 0.5

# A constant of a query is worked out in memory that DuckDB's own limit does not count.
MOST_BYTES: Final = 3 << 29

# Behind which a signal has its number in the status of a program that is unwound.
UNWOUND: Final = 128

_alone = False


class QueryError(DftraceError):
    """A query is not accepted, or is more than there is room for."""


def duckdb_module() -> Any:
    """Return DuckDB, which is imported when it is first needed.

    Raises:
        DftraceError: it is not installed, or too old.
    """
    try:
        import duckdb
    except ImportError as error:
        raise missing_package("DuckDB") from error
    numbers = duckdb.__version__.split(".")[:3]
    if all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise DftraceError(
            f"DuckDB {duckdb.__version__} is too old; {oldest} is needed: "
            f"pip install 'duckdb>={oldest}'"
        )
    return duckdb


def ask_alone() -> None:
    """Say that this process is a command that asks, and nothing else.

    From now on it is limited in memory while DuckDB works, and ends where one step of a query goes
    on though it was interrupted. A program of somebody else's is neither.
    """
    global _alone
    _alone = True


class Database:
    """A DuckDB in memory, and a private folder for its temporary files; both end with the block.

    What it does is interrupted by a signal. With the first query that somebody else chose, files
    and settings are taken from it.

    Args:
        most_threads: so many at most, and no more than there are processors.

    Raises:
        DftraceError: DuckDB is not installed.
    """

    def __init__(self, most_threads: int) -> None:
        duckdb = duckdb_module()
        self._folder = SpareFolder()
        self.folder = self._folder.path
        options = {
            "memory_limit": MEMORY_LIMIT,
            "max_temp_directory_size": DISK_LIMIT,
            "threads": str(min(system.processors(), most_threads)),
            "temp_directory": str(self.folder / "duckdb"),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_persistent_secrets": "false",
            "python_enable_replacements": "false",
        }
        self._is_locked = False
        self.connection = duckdb.connect(config=options)
        # It would be drawn into what is printed.
        self.connection.execute("SET enable_progress_bar = false")

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all that it holds."""
        self.connection.close()
        self._folder.remove()

    def lock(self) -> None:
        """From now on no setting can be changed, and no file opened."""
        if not self._is_locked:
            self.connection.execute("SET enable_external_access = false")
            self.connection.execute("SET lock_configuration = true")
            self._is_locked = True

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Do something of ours; returns DuckDB's result."""
        # On the main thread DuckDB would take a signal itself, and raise a RuntimeError.
        return self.interruptibly(lambda: self.connection.execute(sql, list(parameters)))

    def copy_out(self, query: str, path: Path) -> int:
        """Write a table, or the answer to a query of ours, as Parquet; returns how many rows.

        The file is there already, with the rights that it is to have.
        """
        options = "FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false"
        copied = self.execute(f"COPY {query} TO {quoted_text(str(path))} ({options})")
        return int(copied.fetchone()[0])

    def show_stream(self, schema: str, name: str, stream: object) -> None:
        """Give a stream of Arrow's a name in a schema; it is read anew by all that name it."""
        # A name that is registered would be in the schema of whoever asks, who may list that.
        self.connection.execute(f"SET schema = {quoted_text(schema)}")
        self.connection.from_arrow(stream).create_view(name)
        self.connection.execute("SET schema = 'main'")

    def ask(self, sql: str) -> Answer:
        """Ask one query that somebody else chose: a ``select``, or what DuckDB takes for one.

        Raises:
            QueryError: it is something else, or is refused; the message is DuckDB's, whose error
                is its cause.
        """
        return self._refusing(sql, lambda: self._begun(sql))

    def give(self, sql: str, take: Callable[[Any], Result]) -> Result:
        """Hand the answer to one query that somebody else chose to who takes it from DuckDB.

        Args:
            sql: as of `ask`.
            take: gets a ``duckdb.DuckDBPyRelation``; its result is returned.

        Raises:
            QueryError: as of `ask`.
        """
        return self._refusing(sql, lambda: take(self.connection.sql(sql)))

    def check(self, sql: str) -> None:
        """Look up the names in a query that somebody else chose; nothing is worked out.

        Raises:
            QueryError: as of `ask`.
        """

        def described() -> None:
            # What describes itself cannot be described before 2.0. EXPLAIN would work out what is
            # constant.
            with suppress(duckdb_module().ParserException):
                self.connection.execute("DESCRIBE " + sql).fetchall()

        self._refusing(sql, described)

    def _refusing(self, sql: str, ask: Callable[[], Result]) -> Result:
        self.lock()
        try:
            self._check_kind(sql)
            return self.interruptibly(ask)
        except duckdb_module().Error as error:
            raise QueryError(f"the query is not accepted: {said(error)}") from error

    def _check_kind(self, sql: str) -> None:
        """Refuse what is not one query that changes nothing."""
        statements = self.connection.extract_statements(sql)
        select = duckdb_module().StatementType.SELECT
        if len(statements) != 1 or statements[0].type != select:
            raise QueryError("the query is not accepted; accepted: one select")

    def _begun(self, sql: str) -> Answer:
        result = self.connection.execute(sql)
        kinds = [str(column[1]) for column in result.description]
        if any("TIME ZONE" in kind for kind in kinds):
            result = self._without_time_zones(sql, kinds, result.description)
        return Answer(self, result, result.fetchmany(ROWS_AT_ONCE))

    def _without_time_zones(self, sql: str, kinds: list[str], description: Any) -> Any:
        # Python would need a library for them.
        names = _each_once([column[0] for column in description])
        chosen = ", ".join(
            f"c{at}{'::VARCHAR' * ('TIME ZONE' in kind)} AS {_quoted_name(name)}"
            for at, (kind, name) in enumerate(zip(kinds, names, strict=True))
        )
        columns = ", ".join(f"c{at}" for at in range(len(kinds)))
        inner = sql.strip().rstrip(";")
        wrapped = f"SELECT {chosen} FROM ({inner}\n) AS answer({columns})"  # noqa: S608
        try:
            return self.connection.execute(wrapped)
        except duckdb_module().ParserException as error:
            raise QueryError(
                "the query is not accepted: it gives times with a time zone, and ends in a "
                "comment; leave the comment out"
            ) from error

    def interruptibly(self, ask: Callable[[], Result]) -> Result:
        """Ask DuckDB something that Ctrl+C ends, or another signal that the program ends by.

        Raises:
            KeyboardInterrupt: Ctrl+C was pressed, and the query is over.
            SystemExit: so it was by the handler of another signal.
        """
        if threading.current_thread() is not threading.main_thread():
            return ask()
        # DuckDB looks for signals between its own tasks only, and one of them can take hours.
        asked = _Asked(ask)
        with _limited():
            try:
                asked.start()
                asked.over.wait()
            except (KeyboardInterrupt, SystemExit) as ended:
                # A signal may come before the thread has begun, or while this returns.
                if asked.is_called_off():
                    raise
                self._interrupt(asked, ended)
                raise
        return asked.result()

    def _interrupt(self, asked: _Asked[Any], ended: KeyboardInterrupt | SystemExit) -> None:
        until_s = time.monotonic() + MOST_AGAIN_S
        # A query that is only about to begin does not know that it was interrupted.
        while not asked.over.is_set():
            # Whoever presses Ctrl+C once more waits for the same.
            with suppress(KeyboardInterrupt, SystemExit):
                self.connection.interrupt()
                asked.over.wait(INTERRUPT_AGAIN_S)
            if _alone and time.monotonic() > until_s:
                _end_by(ended)


class _Asked(threading.Thread, Generic[Result]):
    """A thread that asks, if nobody calls it off before it has begun."""

    def __init__(self, ask: Callable[[], Result]) -> None:
        super().__init__()
        self.over = threading.Event()
        self._ask = ask
        self._first = threading.Lock()
        self._answer: list[Result] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            if self._first.acquire(blocking=False):
                self._answer.append(self._ask())
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            self._error = error
        finally:
            self.over.set()

    def is_called_off(self) -> bool:
        """Return whether it has not begun, and now never will."""
        return self._first.acquire(blocking=False)

    def result(self) -> Result:
        """Return the answer of one that is over, or raise what it ended by."""
        if self._error is not None:
            raise self._error
        return self._answer[0]


class Answer:
    """The answer to a query, whose rows come as they are asked for; it ends with the next query.

    Attributes:
        columns: their names, each once.
        kinds: their types, as DuckDB names them.
        is_whole: there are no more rows than those that are here already.
    """

    def __init__(self, database: Database, result: Any, first: list[tuple[Any, ...]]) -> None:
        self.kinds = tuple(str(column[1]) for column in result.description)
        self.columns = _each_once([column[0] for column in result.description])
        self.is_whole = len(first) < ROWS_AT_ONCE
        self._database = database
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
            part = self._more()

    def _more(self) -> list[tuple[Any, ...]]:
        def fetched() -> list[tuple[Any, ...]]:
            rows: list[tuple[Any, ...]] = self._result.fetchmany(ROWS_AT_ONCE)
            return rows

        if self.is_whole:
            return []
        try:
            return self._database.interruptibly(fetched)
        except duckdb_module().Error as error:
            raise QueryError(f"the query cannot be answered: {said(error)}") from error


@contextmanager
def _limited() -> Iterator[None]:
    """Give a command that asks so much memory beside what it has, and no more."""
    if not _alone:
        yield
        return
    try:
        import resource
    except ModuleNotFoundError:  # Windows, which has no limits of this kind
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _data_bytes() + MOST_BYTES
    wanted = min(bytes_ for bytes_ in (limit, before, most) if bytes_ != resource.RLIM_INFINITY)
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
    return int(words[5]) * mmap.PAGESIZE


def _end_by(ended: KeyboardInterrupt | SystemExit) -> None:
    """End by a signal; what this process has put aside goes with the next one."""
    code = ended.code if isinstance(ended, SystemExit) else None
    number = code - UNWOUND if isinstance(code, int) and code > UNWOUND else signal.SIGINT
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _each_once(names: list[str]) -> tuple[str, ...]:
    """Return names of columns; those that are there already with a number behind them."""
    distinct: dict[str, None] = {}
    for name in names:
        at = 1
        once = name
        while once in distinct:
            once = f"{name}_{at}"
            at += 1
        distinct[once] = None
    return tuple(distinct)


def quoted_text(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _quoted_name(name: str) -> str:
    """Return the name of a column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def said(error: BaseException) -> str:
    """Return the first line of what DuckDB says, and the names there are, where one is wrong."""
    first, columns = [*str(error).split("\n"), ""][:2]
    return f"{first} {columns}" if columns.startswith("Candidate bindings:") else first
