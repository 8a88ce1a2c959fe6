"""Many traces opened by one call: their files, their lines, their events as columns."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dftrace_ai.analysis.reading.search import search_traces
from dftrace_ai.analysis.reading.trace import Trace
from dftrace_ai.errors import TraceError, needs_numpy
from dftrace_ai.wording import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import numpy as np

    from dftrace_ai.analysis.reading.identity import KnownRun, Owners
    from dftrace_ai.analysis.reading.scanning import ArrowEvents
    from dftrace_ai.analysis.reading.search import TraceSearch
    from dftrace_ai.analysis.reading.trace_file import SkippedFile

    TracePaths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | TraceSet"

ROWS_AT_ONCE = 65_536
RELATION_THREADS = 8


COLUMNS: Final = ("file", "ph", "cat", "name", "id", "pid", "tid", "start_ns", "dur_ns", "args")
"""The columns of events, in their order; `TraceSet.batches` tells what they hold."""


def open_traces(paths: TracePaths, run: str = "all") -> TraceSet:
    """Open the traces that files and directories hold.

    Files are looked at, and not yet read. Only those of torch.profiler and archives are,
    to be copied to ``TMPDIR`` while the traces are in use. Nothing else is written, and no recorder
    is needed: what a process has only in its spool is not seen (``dftrace recover``
    completes the traces of the dead).

    Args:
        paths: one or several: files of any name, patterns such as ``out/*.pfw.gz`` for those that
            match, and directories, which are searched to any depth for names that end in ``.pfw``,
            ``.pfw.gz`` or ``.pfw.zst``; those that hold none of these for
            ``.pt.trace.json`` and ``.pt.trace.json.gz``. Archives, tar and ZIP, are as
            directories. Links in a directory are followed to files of the same directory
            only. Traces that are open already stay what they are.
        run: ``all``; ``last`` for those of the run that was begun last, with what names no run; or
            a run by its folder, or by the beginning of its name.

    Returns:
        The traces, and the files of directories that are no traces.

    Raises:
        TraceError: a path that was given does not exist or is no trace, nothing matches a
            pattern, a directory holds no traces, nothing that was found can be read, or there is
            no such run.

    Example::

        for trace in open_traces(["out/"]):
            print(trace, trace.end.state)
    """
    if isinstance(paths, TraceSet):
        return paths
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    return of_one_run(_opened(search_traces(several)), run)


def open_folders(folders: Iterable[Path]) -> TraceSet:
    """Open what the recorder has put into folders, not below."""
    return _opened(search_traces(folders, deep=False))


def _opened(found: TraceSearch) -> TraceSet:
    opened = TraceSet(tuple(map(Trace, found.files)), found.skipped)
    opened.left_out = tuple(file.path for file in found.merged)
    return opened


LAST: Final = "last"
ALL: Final = "all"
LEAST_DIGITS: Final = 4
MOST_NAMED: Final = 12


def last_runs(traces: TraceSet, most: int = 2) -> list[TraceSet]:
    """Return the traces of the last runs, each alone, the oldest of them first."""
    runs = traces.owners.known_runs
    found = []
    for run, called in list(zip(runs, _called(runs), strict=True))[-most:]:
        alone = TraceSet(tuple(sorted(run.files, key=lambda trace: trace.path)))
        alone.run = called
        found.append(alone)
    return found


def of_one_run(traces: TraceSet, which: str) -> TraceSet:
    """Return the traces of a run, with those that name none, by what `open_traces` takes for it."""
    if which == ALL:
        return traces
    runs = traces.owners.known_runs
    if len(runs) < 2 and which == LAST:
        return traces
    called = _called(runs)
    ids = [(run.id,) for run in runs]
    at = len(runs) - 1 if which == LAST else place_of(which, ids, called)
    left_out = {file for run in runs if run is not runs[at] for file in run.files}
    chosen = TraceSet(tuple(file for file in traces if file not in left_out), traces.skipped)
    chosen.run, chosen.other_runs = called[at], len(runs) - 1
    return chosen


def _called(runs: Sequence[KnownRun]) -> list[str]:
    folders = [{str(file.path.parent) for file in run.files} for run in runs]
    return called_by_folder(folders, [run.id for run in runs])


def called_by_folder(folders: Sequence[Collection[str]], ids: Sequence[str]) -> list[str]:
    """Return what each run is called: by its folder, or, where several lie in that, by its name."""
    count = Counter(folder for each in folders for folder in each)
    return [
        next((folder for folder in sorted(each) if count[folder] == 1), name[:8])
        for name, each in zip(ids, folders, strict=True)
    ]


def place_of(which: str, ids: Sequence[Collection[str]], called: Sequence[str]) -> int:
    """Return which of several runs is meant by a folder, or by the beginning of a name."""
    by_id = len(which) >= LEAST_DIGITS
    path = os.path.abspath(which)  # noqa: PTH100 - a name in two letters may stand for nothing
    found = [
        at
        for at, (names, folder) in enumerate(zip(ids, called, strict=True))
        if os.path.normpath(which) == Path(folder).name
        or path == os.path.abspath(folder)  # noqa: PTH100
        or (by_id and any(one.startswith(which) for one in names))
    ]
    if len(found) == 1:
        return found[0]
    named = ", ".join(map(quoted, called[-MOST_NAMED:]))
    more = f", and {len(called) - MOST_NAMED} older ones" if len(called) > MOST_NAMED else ""
    several = "there are several runs" if found else "there is no run"
    raise TraceError(f"{several} {quoted(which)}; there are: {named or 'none with a name'}{more}")


class TraceSet:
    """Traces that are read together.

    Attributes:
        files: the traces, each once, sorted by path; at least one.
        skipped: files of directories that cannot be read as traces, sorted by path.
        run: what the run is called that was chosen among several; empty where none was.
        other_runs: how many others there were.
        left_out: files that `dftrace merge` has made of others; what they hold would count twice.
            Where there are no others, they are what is opened.
        notes: after `batches`, `arrow` and a query of `relation`: what of the files could not be
            read, one line each.

    Example::

        traces = open_traces(["out/"])
        total_ns = 0
        for batch in traces.batches(["cat", "dur_ns"]):
            total_ns += batch["dur_ns"][batch["cat"] == "compute"].sum()
    """

    def __init__(self, files: tuple[Trace, ...], skipped: tuple[SkippedFile, ...] = ()) -> None:
        self.files = files
        self.skipped = skipped
        self.run = ""
        self.other_runs = 0
        self.left_out: tuple[Path, ...] = ()
        self.notes: tuple[str, ...] = ()

    @cached_property
    def owners(self) -> Owners:
        """The processes and runs whose files they are."""
        from dftrace_ai.analysis.reading.identity import Owners

        return Owners(self.files)

    def on_one_clock(self) -> tuple[TraceSet, list[str]]:
        """Return it with the files of a host counting by one wall clock, and what tells of it."""
        from dftrace_ai.analysis.reading.clock_faults import on_one_clock

        files, told = on_one_clock(self.files)
        if not told:
            return self, told
        moved = copy(self)
        moved.files = tuple(files)
        moved.__dict__.pop("owners", None)  # they have the headers as they were
        return moved, told

    def __repr__(self) -> str:
        return f"<{counted(len(self.files), 'trace')}: see files>"

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Trace]:
        return iter(self.files)

    def batches(
        self, columns: Iterable[str] = COLUMNS, rows: int = ROWS_AT_ONCE
    ) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        """Yield the events as NumPy arrays by column, so many rows at a time, file by file.

        Every line with a phase and a name is a row, names of tracks, header and closing
        line included, as they stand in the files. The columns:

        =========  ======  ==============================================================
        name       type    what
        =========  ======  ==============================================================
        file       uint32  number of the trace in `files`
        ph         object  phase, text: ``X``, ``B``, ``i``, ``C``, ``s``, ``f``, ``M``
        cat        object  category, text; empty where there is none
        name       object  name, text
        id         uint64  number of the event in its process; 0 where there is none
        pid        int64   process
        tid        int64   thread or lane
        start_ns   int64   start, nanoseconds since 1970; -1 for a line without a time
        dur_ns     int64   end minus start, nanoseconds; -1 for all but finished spans
        args       object  arguments, JSON text; empty where there are none
        =========  ======  ==============================================================

        Args:
            columns: their names; what is not asked for is not read.
            rows: at most so many in a batch, which are held in memory with the block of the
                file that they end in.

        Raises:
            ValueError: there is no such column.
            TraceError: a file cannot be read any more, or its names need too much memory.
            DftraceError: NumPy is not installed.

        Example::

            for batch in open_traces(["out/"]).batches(["name", "dur_ns"]):
                print(len(batch["name"]), batch["dur_ns"].max())
        """
        wanted = checked_columns(columns)
        if rows < 1:
            raise ValueError(f"{rows} rows in a batch; at least one is accepted")
        _need_numpy()
        return self._batches(wanted, rows)

    def _batches(
        self, columns: tuple[str, ...], rows: int
    ) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        from dftrace_ai.analysis.reading.scanning import event_batches

        self.notes = ()
        notes: list[str] = []
        yield from event_batches(self.files, columns, rows, notes)
        self.notes = tuple(notes)

    def arrow(self, columns: Iterable[str] = COLUMNS) -> ArrowEvents:
        """Give the events as columns of Arrow's, which programs that know it take without a copy.

        Neither pyarrow nor another package is needed to give them. What is returned is a stream
        (``__arrow_c_stream__``) as often as one is asked for, or is gone through batch by batch
        (``__arrow_c_array__``), a block of a file at a time.

        Args:
            columns: as for `batches`. `file` is uint32, `id` uint64, `pid`, `tid`, `start_ns` and
                `dur_ns` int64, `args` a view of the text of the file, the others are dictionaries
                of texts. No column has nulls.

        Returns:
            The stream; when all of it was read, `notes` says what could not be.

        Raises:
            ValueError: there is no such column.
            DftraceError: NumPy is not installed.

        Example::

            import polars

            events = polars.DataFrame(open_traces(["out/"]).arrow(["ph", "name", "dur_ns"]))
        """
        wanted = checked_columns(columns)
        _need_numpy()
        from dftrace_ai.analysis.reading.scanning import ArrowEvents

        self.notes = ()
        return ArrowEvents(self.files, wanted, self._take_notes)

    def _take_notes(self, notes: Iterable[str]) -> None:
        self.notes = tuple(notes)

    @contextmanager
    def relation(self, columns: Iterable[str] = COLUMNS) -> Iterator[Any]:
        """Give the events as a relation of DuckDB, for SQL and for its own methods.

        Each query reads the files. The DuckDB behind it can open none of itself, and ends with the
        ``with`` block.

        Args:
            columns: as for `batches`. Type ``file`` is UINTEGER, `id` UBIGINT, `pid`, `tid`,
                `start_ns` and `dur_ns` BIGINT, all others VARCHAR.

        Yields:
            A ``duckdb.DuckDBPyRelation``.

        Raises:
            ValueError: there is no such column.
            DftraceError: DuckDB, 1.5.6 or later, or NumPy is not installed.

        Example::

            with open_traces(["out/"]).relation() as events:
                print(events.aggregate("cat, count(*), max(dur_ns)", "cat"))
        """
        from dftrace_ai.database import Database

        events = self.arrow(columns)
        with Database(RELATION_THREADS) as database:
            database.show_stream("main", "events", events)
            database.lock()
            yield database.connection.table("events")


def _need_numpy() -> None:
    with needs_numpy("reading batches"):
        import numpy as np  # noqa: F401


def checked_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the names of columns; a ValueError where one is unknown, or none is named."""
    wanted = tuple(columns)
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown or not wanted:
        what = f"no column is called {unknown[0]!r}" if unknown else "no column is named"
        raise ValueError(f"{what}; there are: {', '.join(COLUMNS)}")
    return wanted
