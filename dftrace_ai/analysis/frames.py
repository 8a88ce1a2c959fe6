"""Frames: the views of traces as pandas, polars and pyarrow have tables, each imported when asked.

DuckDB, which makes the views, hands them on as Arrow's columns. Loaded late, by `Run.frame`.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from dftrace_ai.analysis.sql import ArrowAnswer
from dftrace_ai.analysis.views import VIEWS
from dftrace_ai.errors import DftraceError
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from dftrace_ai.analysis.sql import TraceTables

Backend = Literal["numpy_nullable", "pyarrow"]
"""Of which types the columns of pandas are, in pandas' own words."""

ROWS_AT_ONCE: Final = 65_536

# Whole numbers have a type of pandas' own that knows of nulls, so that no value decides of it.
WHOLE: Final = {
    f"{sign}{kind}": f"{sign and 'U'}Int{bits}"
    for sign in ("", "U")
    for kind, bits in {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}.items()
}
TEXTS: Final = frozenset({"VARCHAR", "JSON"})


class Frame:
    """A view of a run's traces, or the answer to a query, as a table of whatever reads tables.

    Nothing is read before one of its methods is called; then the traces are read, each time anew.
    The columns are those of `dftrace sql`, and so is the order of rows. It is a stream of Arrow's
    columns itself (``__arrow_c_stream__``), which polars, pyarrow, DuckDB, pandas from 3 on and
    others take as it is.

    Args:
        what: name of a view, or one ``select``, as `dftrace sql` takes it.
        tables: opens the views.

    Raises:
        ValueError: there is no such view.

    Example::

        from dftrace_ai.analysis import Run

        steps = Run("out").frame("steps").to_pandas()
        print(steps.groupby("rank").dur_ns.median() / 1e6)
    """

    def __init__(self, what: str, tables: Callable[[], TraceTables]) -> None:
        if re.fullmatch(r"\s*\w*\s*", what) and what not in VIEWS:
            raise ValueError(f"no view is called {quoted(what)}; there are: {', '.join(VIEWS)}")
        self._what = what
        self._query = f"FROM {what}" if what in VIEWS else what
        self._open = tables
        self._last: TraceTables | None = None

    def __repr__(self) -> str:
        return f"<frame: {self._what}>"

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the files could not be read, a line each, when all of the frame was read."""
        return self._last.notes if self._last else ()

    def to_arrow(self) -> pa.Table:
        """Return all of it as a table of pyarrow's.

        Raises:
            DftraceError: pyarrow, DuckDB or NumPy is not installed.
            QueryError: the query is refused, or its answer needs too much memory.
            TraceError: a file cannot be read any more.
        """
        pyarrow = _library("pyarrow", "to_arrow")
        return self._given(pyarrow.table)

    def to_polars(self) -> pl.DataFrame:
        """Return all of it as a frame of polars'; pyarrow is not needed.

        Raises:
            DftraceError: polars, DuckDB or NumPy is not installed.
            QueryError: as of `to_arrow`.
            TraceError: as of `to_arrow`.
        """
        polars = _library("polars", "to_polars")
        return self._given(lambda found: polars.DataFrame(ArrowAnswer(found)))

    def to_pandas(self, dtype_backend: Backend = "numpy_nullable") -> pd.DataFrame:
        """Return all of it as a frame of pandas'.

        Args:
            dtype_backend: ``numpy_nullable`` for columns of NumPy's values: whole numbers as
                `Int64` and the like, text as `string`, truth as `boolean`, each of which knows of
                nulls, and other numbers as `float64`, where a null is NaN; pyarrow is not needed.
                ``pyarrow`` for `ArrowDtype` throughout.

        Raises:
            DftraceError: pandas, DuckDB or NumPy, or for its columns pyarrow, is not installed.
            QueryError: as of `to_arrow`.
            TraceError: as of `to_arrow`.
            ValueError: there is no such backend.
        """
        pandas = _library("pandas", "to_pandas")
        if dtype_backend == "pyarrow":
            return self.to_arrow().to_pandas(types_mapper=pandas.ArrowDtype)
        if dtype_backend != "numpy_nullable":
            raise ValueError(
                f"no backend is called {quoted(dtype_backend)}; there are: numpy_nullable, pyarrow"
            )

        def taken(found: Any) -> pd.DataFrame:
            kinds = dict(zip(found.columns, map(str, found.types), strict=True))
            values = found.fetchnumpy()
            return pandas.DataFrame(
                {name: _column(pandas, kind, values[name]) for name, kind in kinds.items()}
            )

        return self._given(taken)

    def batches(self, rows: int = ROWS_AT_ONCE) -> Iterator[pa.RecordBatch]:
        """Yield it in batches of pyarrow's, for what is larger than memory.

        Args:
            rows: at most so many in a batch.

        Raises:
            DftraceError: pyarrow, DuckDB or NumPy is not installed.
            QueryError: as of `to_arrow`.
            TraceError: as of `to_arrow`.

        Example::

            total_ns = 0
            for batch in Run("out").frame("select dur_ns from spans").batches():
                total_ns += sum(batch["dur_ns"].to_numpy())
        """
        _library("pyarrow", "batches")
        if rows < 1:
            raise ValueError(f"{rows} rows in a batch; at least one is accepted")
        return self._batches(rows)

    def _batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        with self._opened() as tables:
            yield from tables.batches(self._query, rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a stream in a capsule, which reads the traces when it is asked for columns."""
        return self._opened().stream(self._query)

    def _given(self, take: Callable[[Any], Any]) -> Any:
        with self._opened() as tables:
            return tables.give(self._query, take)

    def _opened(self) -> TraceTables:
        self._last = self._open()
        return self._last


def _library(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise DftraceError(f"{what} needs {name}; install it with: pip install {name}") from error


def _column(pandas: Any, kind: str, values: Any) -> Any:
    """Return a column of DuckDB's, of which some may be masked, as pandas has them."""
    held: Any = np.ma.getdata(values)
    mask = np.ma.getmaskarray(values)
    if kind in WHOLE:
        return pandas.arrays.IntegerArray(held.astype(WHOLE[kind].lower()), mask)
    if kind == "BOOLEAN":
        return pandas.arrays.BooleanArray(held, mask)
    if kind in TEXTS:
        return pandas.array(np.where(mask, None, held), dtype="string")
    if held.dtype.kind == "f":
        return np.where(mask, np.nan, held)
    if held.dtype != object:
        return pandas.Series(held).mask(mask)
    found = np.empty(len(held), object)
    for row in np.flatnonzero(~mask).tolist():
        found[row] = held[row].tolist() if isinstance(held[row], np.ndarray) else held[row]
    return found
