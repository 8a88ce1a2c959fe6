"""Traces as tables that SQL is asked of, by a DuckDB that can open no file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import orjson

from dftrace_ai import _reader
from dftrace_ai.analysis.reading.identity import Owners
from dftrace_ai.analysis.reading.scanning import ArrowEvents, TraceBlocks, new_scanner
from dftrace_ai.analysis.steps import Job, Rank, measure
from dftrace_ai.analysis.steps.measuring import STEP_PARTS
from dftrace_ai.analysis.views import LINE_COLUMNS, TABLES, UNREAD, VIEWS, events_sql, view_sql
from dftrace_ai.database import Answer, Database, QueryError, duckdb_module, quoted_text, said
from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from typing_extensions import Self

    from dftrace_ai._reader import EventBlock
    from dftrace_ai.analysis.reading import TraceSet
    from dftrace_ai.analysis.reading.identity import Owner
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.summary.report import Report
    from dftrace_ai.analysis.why import Verdict

    Columns = dict[str, NDArray[Any]]

__all__ = ["Answer", "ArrowAnswer", "QueryError", "TraceTables"]

Given = TypeVar("Given")

MOST_THREADS: Final = 8

OF_STACKS: Final = ("samples", "stacks")
"""These are filled together: stacks are those of samples."""


class TraceTables:
    r"""The views of traces by name, see `VIEWS`: `events`, `spans`, `steps`, `findings` and others.

    The files are read as often as a query names views of events, and nothing of them is kept but
    what the query has to; beyond a GiB that lies in temporary files.

    Args:
        traces: which.
        verdict: gives what `findings` are of, where they are judged already or otherwise; by
            default they are judged as `dftrace why` does.
        summary: gives what `summary` has the rows of.

    Attributes:
        notes: after `query`, what of the files could not be read, one line each.

    Raises:
        DftraceError: DuckDB, 1.5.6 or later, or NumPy is not installed.

    Example::

        with TraceTables(open_traces(["out/"])) as tables:
            answer = tables.query("select name, sum(dur_ns) / 1e9 as total_s from spans group by 1")
            print(answer.columns, *answer.rows(), *tables.notes, sep="\n")
    """

    def __init__(
        self,
        traces: TraceSet,
        *,
        verdict: Callable[[], Verdict] | None = None,
        summary: Callable[[], Report] | None = None,
    ) -> None:
        self.traces, told = traces.on_one_clock()
        self._verdict = verdict
        self._summary = summary
        self._notes: dict[str, None] = dict.fromkeys(told)
        self._processes = _Processes(self.traces.files)
        self._filled: set[str] = set()
        self._is_told = self._is_untold = False
        self._lines: _Lines | None = None
        self._database = Database(MOST_THREADS)

    def __enter__(self) -> Self:
        """Return this; with the block the tables are gone."""
        return self

    def __exit__(self, *raised: object) -> None:
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
        return self._asked(sql, self._database.ask)

    def give(self, sql: str, take: Callable[[Any], Given]) -> Given:
        """Hand the answer to a query that somebody else chose to who takes all of it at once.

        Args:
            sql: as of `query`.
            take: gets the answer, a ``duckdb.DuckDBPyRelation``, which is worked out once; what it
                returns is returned.

        Raises:
            QueryError: as of `query`.
            TraceError: a file cannot be read any more.
        """
        return self._asked(sql, lambda asked: self._database.give(asked, take))

    def stream(self, sql: str) -> object:
        """Return the answer to a query as a stream of Arrow's, in a capsule.

        It lives for as long as somebody reads it, also when this is gone but not closed.
        """
        # What a stream needs of this it reaches by the lines.
        self._begun().kept = self._database
        return self._asked(
            sql,
            lambda asked: self._database.give(
                asked, lambda found: ArrowAnswer(found).__arrow_c_stream__()
            ),
            whole=False,
        )

    def batches(self, sql: str, rows: int) -> Iterator[Any]:
        """Yield the answer to a query in batches of pyarrow's, of at most so many rows.

        Raises:
            QueryError: as of `query`.
            TraceError: a file cannot be read any more.
        """
        reader = self._asked(
            sql,
            lambda asked: self._database.give(asked, lambda found: found.to_arrow_reader(rows)),
            whole=False,
        )
        try:
            yield from reader
        except Exception:
            self._raise_own_error()
            raise

    def _asked(self, sql: str, ask: Callable[[str], Given], *, whole: bool = True) -> Given:
        """Ask what a query needs to be there first; `whole`: what it has not read is read on."""
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
                answer = ask(sql)
            except Exception as error:
                self._raise_own_error()
                if self._gives_what_lacks(error.__cause__ or error):
                    continue
                if "Catalog Error: Table with name" in str(error):
                    raise QueryError(f"{error} There are: {', '.join(VIEWS)}") from error.__cause__
                raise
            # What of the files cannot be read is told, also of those that a query left unread.
            is_read = lines.is_read or not (lines.is_begun or self._is_untold)
            if self._is_told or is_read or not whole:
                return answer
            self._read_on()
            if not isinstance(answer, Answer) or answer.is_whole:
                return answer

    def _raise_own_error(self) -> None:
        """Raise what a stream ended by, of which others have made errors of theirs."""
        if self._lines and self._lines.error:
            raise self._lines.error from None

    def copy_events(self, number: int, path: Path) -> int:
        """Write the events of a trace, as the view `events` has them, as Parquet; returns how many.

        Args:
            number: of the trace.
            path: of the file, which is there.

        Raises:
            TraceError: the trace cannot be read any more.
            duckdb.Error: they cannot be written.
        """
        self._begun()
        self._show(self.traces.files[number : number + 1], number)
        try:
            return self._database.copy_out(_portable("events"), path)
        except duckdb_module().Error:
            self._raise_own_error()
            raise

    def copy_processes(self, path: Path) -> int:
        """Write the view `processes` as Parquet; returns how many there are."""
        self._begun()
        self._fill("processes")
        return self._database.copy_out(_portable("processes"), path)

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
            self._raise_own_error()
            raise QueryError(f"the traces cannot be read into tables: {said(error)}") from error
        self._is_told = True

    def _fill(self, table: str) -> None:
        if table in self._filled:
            return
        try:
            if table == "steps":
                self._fill_steps()
            elif table in OF_STACKS:
                self._fill_stacks()
            else:
                self._put(table, self._rows_of(table))
            for filled in OF_STACKS if table in OF_STACKS else (table,):
                self._database.execute(view_sql(filled))
                self._filled.add(filled)
        except duckdb_module().Error as error:
            raise QueryError(f"the traces cannot be read into tables: {said(error)}") from error

    def _rows_of(self, table: str) -> Iterable[Sequence[object]]:
        """Return what is in a table of those that are worked out, in the order of its columns."""
        if table == "processes":
            return (row.values() for row in self._processes.rows)
        # Who reads for them does not say in the same words what could not be read.
        self._is_untold = True
        if table == "findings":
            from dftrace_ai.analysis.why.verdict import judge_traces

            verdict = self._verdict() if self._verdict else judge_traces(self.traces)
            found = ((verdict.findings, False), (verdict.of_some_ranks, True))
            names = [name for name in VIEWS[table] if name != "of_some_ranks"]
            return ([*_values(one, names), some] for each, some in found for one in each)
        from dftrace_ai.analysis.summary.report import reported

        report = self._summary() if self._summary else reported(self.traces)
        return (_values(row, VIEWS[table]) for row in report.spans)

    def _put(self, table: str, rows: Iterable[Sequence[object]]) -> None:
        """Put rows into a table; their values come as JSON has them."""
        columns = VIEWS[table]
        text = orjson.dumps([dict(zip(columns, row, strict=True)) for row in rows]).decode()
        shape = orjson.dumps([{name: _shape(kind) for name, kind in columns.items()}]).decode()
        put = f"""INSERT INTO read.{table} SELECT row.* FROM (
            SELECT unnest(from_json(CAST(? AS JSON), {quoted_text(shape)})) AS row)"""  # noqa: S608
        self._database.execute(put, [text])

    def _fill_steps(self) -> None:
        job = Job(self.traces, all_starts=True)
        for member in job:
            process = member.process if isinstance(member, Rank) else member
            steps = measure(process, whole=False) if isinstance(member, Rank) else None
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

    def _fill_stacks(self) -> None:
        from dftrace_ai.analysis.lines.tables import StackTables

        tables = StackTables()
        for owner in self._processes.owners:
            for pid, columns in tables.samples_of(owner.files):
                number = self._processes.number_of(owner.files[0], pid)
                rank, count = owner.header.rank, len(columns["pid"])
                known = -1 if rank is None or rank >= 2**63 else rank
                whose: Columns = {
                    "process": np.full(count, number, np.int32),
                    "rank": np.full(count, known, np.int64),
                }
                self._insert("samples", whose | columns)
        for columns in tables.stacks():
            self._insert("stacks", columns)
        self._notes.update(dict.fromkeys(tables.notes))

    def _insert(self, table: str, columns: Columns) -> None:
        names = ", ".join(f'"{name}"' for name in columns)
        connection = self._database.connection
        connection.register("rows_to_put", columns)
        try:
            put = f"INSERT INTO read.{table} ({names}) SELECT {names} FROM rows_to_put"  # noqa: S608
            self._database.execute(put)
        finally:
            connection.unregister("rows_to_put")


def _values(one: object, names: Iterable[str]) -> list[object]:
    return [getattr(one, name) for name in names]


def _shape(kind: str) -> object:
    """Return a type as DuckDB has it for values in JSON."""
    return [kind.removesuffix("[]")] if kind.endswith("[]") else kind


def _portable(view: str) -> str:
    """Return a view as Parquet has it: JSON is text, which readers of Parquet take alike."""
    texts = [
        f'CAST("{column}" AS VARCHAR) AS "{column}"'
        for column, kind in VIEWS[view].items()
        if kind == "JSON"
    ]
    replaced = f" REPLACE ({', '.join(texts)})" if texts else ""
    return f"(SELECT *{replaced} FROM {view})"  # noqa: S608


@dataclass(frozen=True, repr=False)
class ArrowAnswer:
    """A relation of DuckDB's as a stream that also those may ask who hold the GIL meanwhile.

    DuckDB 1.5 waits for lines that other threads read, which need it; polars 1.31 holds it.
    """

    relation: Any

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the stream in a capsule."""
        return _reader.arrow_stream_without_gil(self.relation.__arrow_c_stream__())


class _Lines(ArrowEvents):
    """The stream of all lines, which tells how far it was read.

    A query has asked for lines (`is_begun`), and has got the last one (`is_read`).
    """

    def __init__(self, files: Sequence[Trace], first: int, notes: dict[str, None]) -> None:
        super().__init__(files, LINE_COLUMNS, self._take_notes, first)
        self._all_notes = notes
        self.is_begun = self.is_read = False
        self.error: TraceError | None = None
        self.kept: object = None

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

    def values(self) -> Sequence[object]:
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

    @property
    def owners(self) -> Sequence[Owner]:
        """Whose the files are."""
        return self._owners.all

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
