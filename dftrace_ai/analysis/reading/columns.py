"""The events of traces as columns: their names, types and how DuckDB makes them of the lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dftrace_ai.database.opening import quoted_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.analysis.reading.duckdb_scan import Scan, Source
    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["COLUMNS", "LINE_COLUMNS", "checked_columns", "columns_sql"]

NS_PER_US: Final = 1000

# Members of a line, with the types in which they keep their digits.
LINE_COLUMNS: Final = {
    "ph": "VARCHAR",
    "cat": "VARCHAR",
    "name": "VARCHAR",
    "id": "UBIGINT",
    "pid": "BIGINT",
    "tid": "BIGINT",
    "ts": "DECIMAL(20, 3)",
    "dur": "DECIMAL(20, 3)",
    "args": "JSON",
}

# Beyond this no base makes sense, and sums stay within 128 bits.
MOST_BASE_US: Final = 2**62

_MADE_OF: Final = {
    "file": "part.number",
    "ph": "ph",
    "cat": "coalesce(cat, '')",
    "name": "name",
    "id": "coalesce(id, 0)",
    "pid": "coalesce(pid, 0)",
    "tid": "coalesce(tid, 0)",
    "start_ns": "coalesce(TRY_CAST((ts * 1000)::HUGEINT + part.base_ns AS BIGINT), -1)",
    "dur_ns": "coalesce(TRY_CAST((dur * 1000)::HUGEINT AS BIGINT), -1)",
    "args": "coalesce(args::VARCHAR, '')",
}

EVENTS: Final = """
SELECT {made} FROM ({lines}) AS line JOIN (VALUES {parts}) AS part(path, number, base_ns)
    ON line.filename = part.path WHERE ph IS NOT NULL AND name IS NOT NULL
"""

COLUMNS: Final = tuple(_MADE_OF)
"""The columns of events, in their order; `TraceSet.batches` tells what they hold."""


def checked_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the names of columns.

    Raises:
        ValueError: there is no such column, or none is named.
    """
    wanted = tuple(columns)
    unknown = [name for name in wanted if name not in _MADE_OF]
    if unknown or not wanted:
        what = f"no column is called {unknown[0]!r}" if unknown else "no column is named"
        raise ValueError(f"{what}; there are: {', '.join(COLUMNS)}")
    return wanted


def columns_sql(
    scan: Scan, sources: Sequence[Source], traces: Sequence[Trace], columns: Sequence[str]
) -> str:
    """Return the SQL of the events of files; `paths_of(sources)` gives its parameters.

    Args:
        scan: of `LINE_COLUMNS`, or some of them.
        sources: the files.
        traces: all that the scan was given, by the numbers of the sources.
        columns: which columns.
    """
    made = ", ".join(f"{_MADE_OF[name]} AS {name}" for name in columns)
    parts = ", ".join(
        f"({quoted_text(str(source.given))}, {source.given.name}::UINTEGER, "
        f"{_base_ns(traces[int(source.given.name)])}::HUGEINT)"
        for source in sources
    )
    lines = scan.lines(sources, named=True)
    return EVENTS.format(made=made, lines=lines, parts=parts)


def _base_ns(trace: Trace) -> int:
    base_us = (trace.header and trace.header.time_base_us) or 0
    return min(base_us, MOST_BASE_US) * NS_PER_US
