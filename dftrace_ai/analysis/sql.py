"""Traces as tables that SQL is asked of, by a DuckDB that can open no file, and their views."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dftrace_ai.analysis.reading.identity import Owners
from dftrace_ai.analysis.reading.scanning import ArrowEvents, TraceBlocks, new_scanner
from dftrace_ai.analysis.steps import Job, Rank, measure
from dftrace_ai.analysis.steps.measuring import STEP_PARTS, UNKNOWN
from dftrace_ai.database import Answer, Database, QueryError, duckdb_module, said
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray
    from typing_extensions import Self

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.reading.identity import Owner
    from dftrace_ai.analysis.reading.trace import Trace

    Columns = dict[str, NDArray[Any]]

__all__ = [
    "LINE_COLUMNS",
    "TABLES",
    "UNREAD",
    "VIEWS",
    "Answer",
    "QueryError",
    "TraceTables",
    "events_sql",
    "view_sql",
]

UNREAD: Final = "dftrace: not read: "
"""What a query that comes upon a table that was not filled ends with; never shown."""

LINE_COLUMNS: Final = (
    *("file", "ph", "cat", "name", "id", "pid", "tid", "start_ns", "dur_ns", "args", "parent"),
)
"""Of the stream ``read.lines``."""

_WHERE: Final = {"process": "INTEGER", "rank": "BIGINT", "pid": "BIGINT", "tid": "BIGINT"}
_IDS: Final = {"id": "UBIGINT", "parent_id": "UBIGINT"}
_CALLED: Final = {"cat": "VARCHAR", "name": "VARCHAR"}

VIEWS: Final[dict[str, dict[str, str]]] = {
    "spans": {
        **(_WHERE | _IDS | _CALLED),
        "start_ns": "BIGINT",
        "dur_ns": "BIGINT",
        "end_ns": "BIGINT",
        "args": "JSON",
    },
    "instants": _WHERE | _IDS | _CALLED | {"at_ns": "BIGINT", "args": "JSON"},
    "counters": {
        "process": "INTEGER",
        "rank": "BIGINT",
        "pid": "BIGINT",
        "name": "VARCHAR",
        "series": "VARCHAR",
        "at_ns": "BIGINT",
        "value": "DOUBLE",
    },
    "tensor_stats": {
        "process": "INTEGER",
        "rank": "BIGINT",
        "at_ns": "BIGINT",
        "iteration": "BIGINT",
        "layer": "VARCHAR",
        "tensor": "VARCHAR",
        "feature": "VARCHAR",
        "statistic": "VARCHAR",
        "value": "DOUBLE",
    },
    "processes": {
        "process": "INTEGER",
        "rank": "BIGINT",
        "world_size": "BIGINT",
        "local_rank": "BIGINT",
        "host": "VARCHAR",
        "pid": "BIGINT",
        "ppid": "BIGINT",
        "run": "VARCHAR",
        "attempt": "INTEGER",
        "time_base_us": "BIGINT",
        "files": "VARCHAR[]",
        "state": "VARCHAR",
        "ended": "VARCHAR",
        "dropped": "BIGINT",
    },
    "steps": {
        "process": "INTEGER",
        "rank": "BIGINT",
        "step": "BIGINT",
        "start_ns": "BIGINT",
        "end_ns": "BIGINT",
        "dur_ns": "BIGINT",
        "first": "BOOLEAN",
        "found_by": "VARCHAR",
        **{f"{part}_ns": "BIGINT" for part in STEP_PARTS},
        "rss_bytes": "BIGINT",
        "device_bytes": "BIGINT",
        "nonfinite": "BIGINT",
    },
    "events": {
        **({"ph": "VARCHAR"} | _WHERE | _IDS | _CALLED),
        "start_ns": "BIGINT",
        "dur_ns": "BIGINT",
        "args": "JSON",
    },
}
"""What can be asked: the types of the columns, by view and by name."""

TABLES: Final = ("processes", "steps")
"""What is worked out, and put into tables of the schema ``read``; all else the lines tell."""

# How columns differ from those of the rows they are of.
_MADE_OF: Final = {
    "instants": {"at_ns": "start_ns"},
    "spans": {"end_ns": "start_ns + dur_ns"},
    "counters": {"series": "key", "at_ns": "start_ns", "value": "value::DOUBLE"},
    "tensor_stats": {
        # The rank that the statistic is of: that of a reduced one is told in it alone.
        "rank": "coalesce(CASE WHEN json_type(args, 'rank') = 'UBIGINT' "
        "THEN TRY_CAST(args->>'rank' AS BIGINT) END, rank)",
        "at_ns": "start_ns",
        "iteration": "CASE WHEN json_type(args, 'iteration') IN ('UBIGINT', 'BIGINT') "
        "THEN TRY_CAST(args->>'iteration' AS BIGINT) END",
        "layer": "CASE WHEN contains(name, ':') "
        "THEN left(name, length(name) - length(split_part(name, ':', -1)) - 1) ELSE '' END",
        "tensor": "split_part(name, ':', -1)",
        "feature": "coalesce(args->>'feature', '')",
        "statistic": "key",
        "value": "statistic",
    },
    "steps": {
        "rank": "nullif(rank, -1)",
        "rss_bytes": f"nullif(rss_bytes, {UNKNOWN})",
        "device_bytes": f"nullif(device_bytes, {UNKNOWN})",
    },
}

_IS_NUMBER: Final = "type IN ('BIGINT', 'UBIGINT', 'DOUBLE')"

# Statistics that are not finite are null, and a text beside them says what they are. A key may be
# any text; as a path into JSON it is read where it is a name.
_STATISTIC: Final = rf"""CASE WHEN {_IS_NUMBER} THEN value::DOUBLE
    WHEN type = 'NULL' AND regexp_full_match(key, '\w+') THEN
        CASE args->>(key || '_str') WHEN 'nan' THEN 'nan'::DOUBLE
            WHEN 'inf' THEN 'inf'::DOUBLE WHEN '-inf' THEN '-inf'::DOUBLE END
    END"""
_NO_STATISTICS: Final = (
    *("hhash", "p_idx", "level", "iteration", "rank", "feature", "count", "error", "unfinished"),
)

_EACH: Final = "read.events AS event, json_each(event.args) AS member(key, value, type)"

_ROWS: Final = {
    "events": "read.events",
    "spans": "read.events WHERE ph = 'X'",
    "instants": "read.events WHERE ph = 'i'",
    "counters": f"{_EACH} WHERE ph = 'C' AND {_IS_NUMBER}",
    "tensor_stats": f"(SELECT *, {_STATISTIC} AS statistic FROM {_EACH} WHERE ph = 'i' "  # noqa: S608
    f"AND cat = 'tensor_stats' AND key NOT IN {_NO_STATISTICS}) WHERE statistic IS NOT NULL",
}


def events_sql(*, by_pid: bool) -> str:
    """Return the SQL of all events; `by_pid`: lines of some files are of several processes."""
    # Lists, and no table to join: DuckDB does not know how many lines there are, takes them for
    # few, and would put all of them into the table that is searched.
    process = "getvariable('process_of_file')[file + 1]"
    if by_pid:
        process = f"""coalesce({process}, (SELECT process FROM read.pids AS own
            WHERE own.file = line.file AND own.pid = line.pid))"""  # noqa: S608
    return f"""
        CREATE OR REPLACE VIEW read.events AS
        SELECT ph, {process} AS process, getvariable('rank_of_file')[file + 1] AS rank,
            pid, tid, nullif(id, 0) AS id,
            CASE WHEN parent NOT IN (0, {2**64 - 1}) THEN parent END AS parent_id, cat, name,
            nullif(start_ns, -1) AS start_ns, nullif(dur_ns, -1) AS dur_ns,
            CAST(nullif(args, '') AS JSON) AS args
        FROM read.lines AS line
    """  # noqa: S608


def view_sql(name: str, *, filled: bool = True) -> str:
    """Return the SQL of a view; a query that comes upon one that is not filled ends."""
    columns = VIEWS[name]
    if not filled:
        made = ", ".join(f'CAST(NULL AS {kind}) AS "{c}"' for c, kind in columns.items())
        rows = f"SELECT {made} WHERE error('{UNREAD}{name}') IS NULL"
    else:
        made_of = _MADE_OF.get(name, {})
        made = ", ".join(f'{made_of.get(c, c)} AS "{c}"' for c in columns)
        rows = f"SELECT {made} FROM {_ROWS.get(name, f'read.{name}')}"  # noqa: S608
    return f"CREATE OR REPLACE VIEW {name} AS {rows}"


MOST_THREADS: Final = 8


class TraceTables:
    r"""The views `spans`, `instants`, `counters`, `tensor_stats`, `processes`, `steps`, `events`.

    The files are read as often as a query names views of events, and nothing of them is kept but
    what the query has to; beyond a GiB that lies in temporary files.

    Args:
        traces: which.

    Attributes:
        notes: after `query`, what of the files could not be read, one line each.

    Raises:
        DftraceError: DuckDB, 1.5.6 or later, or NumPy is not installed.

    Example::

        with TraceTables(open_traces(["out/"])) as tables:
            answer = tables.query("select name, sum(dur_ns) / 1e9 as total_s from spans group by 1")
            print(answer.columns, *answer.rows(), *tables.notes, sep="\n")
    """

    def __init__(self, traces: TraceSet) -> None:
        self.traces = traces
        self._notes: dict[str, None] = {}
        self._processes = _Processes(traces.files)
        self._filled: set[str] = set()
        self._is_told = False
        self._lines: _Lines | None = None
        self._database = Database(MOST_THREADS)

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

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the files could not be read, one line each."""
        return tuple(self._notes)

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
        lines = self._begun()
        # A query can come upon a table without its name in it; but an optimizer may pass over that.
        named = set(re.findall(r"\w+", sql.casefold())) & set(TABLES) - self._filled
        while True:
            lines.is_begun = lines.is_read = False
            try:
                if named:
                    self._database.check(sql)
                while named:
                    self._fill(named.pop())
                answer = self._database.ask(sql)
            except QueryError as error:
                if lines.error:
                    raise lines.error from None
                if self._gives_what_lacks(error.__cause__):
                    continue
                if "Catalog Error: Table with name" in str(error):
                    raise QueryError(f"{error} There are: {', '.join(VIEWS)}") from error.__cause__
                raise
            # What of the files cannot be read is told, also of those that a query left unread.
            if self._is_told or lines.is_read or not lines.is_begun:
                return answer
            self._read_on()
            if answer.is_whole:
                return answer

    def copy_events(self, number: int, path: Path) -> int:
        """Write the events of a trace, without their rank, as Parquet; returns how many.

        Args:
            number: of the trace.
            path: of the file, which is there.

        Raises:
            TraceError: the trace cannot be read any more.
            duckdb.Error: they cannot be written.
        """
        self._begun()
        lines = self._show(self.traces.files[number : number + 1], number)
        try:
            return self._database.copy_out("(SELECT * EXCLUDE (rank) FROM events)", path)
        except duckdb_module().Error:
            if lines.error:
                raise lines.error from None
            raise

    def copy_processes(self, path: Path) -> int:
        """Write the view `processes` as Parquet; returns how many there are."""
        self._begun()
        self._fill("processes")
        return self._database.copy_out("processes", path)

    def rank_of(self, number: int) -> int | None:
        """Return the rank of a trace by its number; None where none is known."""
        row = self._processes.whole.get(self.traces.files[number].path)
        return None if row is None else row.rank

    def _begun(self) -> _Lines:
        """Return the stream of all lines; the views are there, and whose each line is."""
        if self._lines is not None:
            return self._lines
        self._processes.read_unknown(self._notes)
        execute = self._database.execute
        execute("CREATE SCHEMA read; CREATE TABLE read.pids (file INT, pid BIGINT, process INT)")
        self._insert("pids", self._processes.pids())
        rows = [self._processes.whole.get(trace.path) for trace in self.traces]
        numbers = [row and row.number for row in rows]
        execute("SET VARIABLE process_of_file = ?::INTEGER[]", [numbers])
        execute("SET VARIABLE rank_of_file = ?::BIGINT[]", [[row and row.rank for row in rows]])
        lines = self._show(self.traces.files)
        for view, columns in VIEWS.items():
            if view in TABLES:
                names = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
                execute(f"CREATE TABLE read.{view} ({names})")
            execute(view_sql(view, filled=view not in TABLES))
        return lines

    def _show(self, files: Sequence[Trace], first: int = 0) -> _Lines:
        """Make some files, of which the first has this number, those that the views are of."""
        self._lines = _Lines(files, first, self._notes)
        self._database.show_stream("read", "lines", self._lines)
        self._database.execute(events_sql(by_pid=bool(self._processes.part)))
        return self._lines

    def _gives_what_lacks(self, error: BaseException | None) -> bool:
        """Fill the table that a query came upon without naming it; returns whether it was that."""
        lacking = str(error).partition(UNREAD)[2]
        name = next((table for table in TABLES if lacking.startswith(table)), None)
        if name is None or name in self._filled:
            return False
        self._fill(name)
        return True

    def _read_on(self) -> None:
        """Read all lines, for what is told of those that cannot be read."""
        try:
            self._database.execute("SELECT count(*) FROM read.lines").fetchall()
        except duckdb_module().Error as error:
            if self._lines and self._lines.error:
                raise self._lines.error from None
            raise QueryError(f"the traces cannot be read into tables: {said(error)}") from error
        self._is_told = True

    def _fill(self, table: str) -> None:
        try:
            if table == "steps":
                self._fill_steps()
            else:
                places = ", ".join("?" * len(VIEWS[table]))
                for row in self._processes.rows:
                    put = f"INSERT INTO read.{table} VALUES ({places})"  # noqa: S608
                    self._database.execute(put, row.values())
            self._database.execute(view_sql(table))
        except duckdb_module().Error as error:
            raise QueryError(f"the traces cannot be read into tables: {said(error)}") from error
        self._filled.add(table)

    def _fill_steps(self) -> None:
        job = Job(self.traces, all_starts=True)
        for member in job:
            process = member.process if isinstance(member, Rank) else member
            steps = measure(process) if isinstance(member, Rank) else None
            if steps is None:
                continue
            number = self._processes.number_of(process.owner.files[0], process.pid)
            known = process.header.rank if process.header else None
            count = len(steps)
            columns: Columns = {
                "process": np.full(count, number, np.int32),
                "rank": np.full(count, -1 if known is None or known >= 2**63 else known, np.int64),
                "step": steps.number,
                "start_ns": steps.start_ns,
                "end_ns": steps.end_ns,
                "dur_ns": steps.time_ns,
                "first": steps.first,
                "found_by": np.full(count, steps.found_by, object),
                **{f"{part}_ns": steps.parts[part] for part in STEP_PARTS},
                "rss_bytes": steps.marks.rss_bytes,
                "device_bytes": steps.marks.device_bytes,
                "nonfinite": steps.marks.nonfinite,
            }
            self._insert("steps", columns)
        self._notes.update(dict.fromkeys(job.facts.notes))

    def _insert(self, table: str, columns: Columns) -> None:
        names = ", ".join(f'"{name}"' for name in columns)
        connection = self._database.connection
        connection.register("rows_to_put", columns)
        try:
            put = f"INSERT INTO read.{table} ({names}) SELECT {names} FROM rows_to_put"  # noqa: S608
            self._database.execute(put)
        finally:
            connection.unregister("rows_to_put")


class _Lines(ArrowEvents):
    """The stream of all lines, which tells how far it was read.

    A query has asked for lines (`is_begun`), and has got the last one (`is_read`).
    """

    def __init__(self, files: Sequence[Trace], first: int, notes: dict[str, None]) -> None:
        super().__init__(files, LINE_COLUMNS, self._take_notes, first)
        self._all_notes = notes
        self.is_begun = self.is_read = False
        self.error: TraceError | None = None

    def _take_notes(self, notes: list[str]) -> None:
        self._all_notes.update(dict.fromkeys(notes))
        self.is_read = True

    def _blocks(self) -> Iterator[tuple[EventBlock, int]]:
        self.is_begun = True
        try:
            yield from super()._blocks()
        except TraceError as error:
            # DuckDB makes an error of its own of it.
            self.error = error
            raise


@dataclass
class _Process:
    """A process: its number among those of the traces, that on its host, whose files they are."""

    number: int
    pid: int
    owner: Owner
    files: list[Trace] = field(default_factory=list)

    @property
    def rank(self) -> int | None:
        """Its rank; None where none is known."""
        rank = self.owner.header.rank
        return None if rank is None or rank >= 2**63 else rank

    def values(self) -> tuple[Any, ...]:
        """Return its row of the view `processes`."""
        said = self.owner.header
        ends = [trace.end for trace in self.files]
        states = {end.state for end in ends}
        state = next((each for each in ("damaged", "cut off") if each in states), "complete")
        footers = [end.footer for end in ends if end.footer]
        return (
            self.number,
            self.rank,
            said.world_size,
            said.local_rank,
            said.host,
            self.pid,
            said.ppid,
            said.run,
            self.owner.start,
            said.time_base_us,
            # DuckDB takes UTF-8 alone, and a path may be any bytes.
            [os.fsencode(trace.path).decode("utf-8", "backslashreplace") for trace in self.files],
            state,
            footers[-1].ended if footers else None,
            sum(footer.dropped or 0 for footer in footers) if footers else None,
        )


class _Processes:
    """The processes of a set of traces, numbered by rank where headers say one.

    Of a file that does not say whose it is each number of a process in its lines is one: in `part`,
    by number of the file and of the process; `whole` has the others by path.
    """

    def __init__(self, files: Sequence[Trace]) -> None:
        self.rows: list[_Process] = []
        self._files = files
        self._owners = Owners(files)
        self.whole: dict[Path, _Process] = {}
        self.part: dict[tuple[int, int], _Process] = {}
        for owner in self._owners.all:
            if any(trace.header is not None for trace in owner.files):
                row = _Process(len(self.rows), owner.header.pid or 0, owner, list(owner.files))
                self.rows.append(row)
                self.whole.update((trace.path, row) for trace in owner.files)

    def read_unknown(self, notes: dict[str, None]) -> None:
        """Learn of the processes that only lines tell."""
        for file, trace in enumerate(self._files):
            if trace.path in self.whole:
                continue
            blocks = TraceBlocks(new_scanner(), trace)
            pids: NDArray[Any] = np.empty(0, np.int64)
            for block in blocks:
                pids = np.union1d(pids, np.asarray(block.pid))
            notes.update(dict.fromkeys(blocks.notes))
            for pid in pids.tolist():
                row = _Process(len(self.rows), pid, self._owners.of(trace), [trace])
                self.rows.append(row)
                self.part[file, pid] = row

    def pids(self) -> Columns:
        """Return the processes of the lines of files that do not say whose they are."""
        return {
            "file": np.array([file for file, _ in self.part], np.int32),
            "pid": np.array([pid for _, pid in self.part], np.int64),
            "process": np.array([row.number for row in self.part.values()], np.int32),
        }

    def number_of(self, trace: Trace, pid: int) -> int:
        """Return the number of the process of a file; -1 where it has none of this pid."""
        row = self.whole.get(trace.path)
        of_trace = [part for part in self.rows if trace in part.files] if row is None else [row]
        same = [part for part in of_trace if part.pid == pid] or of_trace
        return same[0].number if same else -1
