"""`dftrace sql`: a query over the events of traces."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dftrace_ai.cli.reading import Reading
from dftrace_ai.cli.shared_options import (
    Paths,
    Recover,
    Run,
    csv_option,
    json_option,
    not_together,
    top_option,
)
from dftrace_ai.cli.terminal import (
    MOST_ROWS,
    NAME_LETTERS,
    console,
    json_line,
    print_all,
    rows_told,
    shown,
    write_out,
)
from dftrace_ai.errors import needs_numpy
from dftrace_ai.wording import counted, escaped, in_csv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.analysis.sql import Answer

LINES_AT_ONCE = 1000


def command(
    paths: Paths = None,
    *,
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            help="One select, over spans, instants, counters, tensor_stats, processes, steps, "
            "findings, summary and events; 'describe spans' tells the columns.",
        ),
    ],
    json: Annotated[
        bool, json_option("Print JSON, an array of objects, instead of a table.")
    ] = False,
    csv: Annotated[bool, csv_option("Print CSV instead of a table.")] = False,
    top: Annotated[int | None, top_option("Only the first N rows, of the answer.")] = None,
    run: Run = None,
    recover: Recover = True,
) -> None:
    """Ask SQL of the events of traces, with times in nanoseconds and arguments as JSON.

    The query is DuckDB's, which opens no file and reaches no network here. What of the
    traces could not be read is told on the error stream, and the exit status is then 1.

    Example: dftrace sql out "select name, max(dur_ns) / 1e6 as longest_ms from spans
    where args->>'epoch' = '1' group by name"
    """
    from dftrace_ai.database import ask_alone, duckdb_module

    not_together({"--json": json, "--csv": csv})
    with needs_numpy():
        from dftrace_ai.analysis.sql import TraceTables
    duckdb_module()
    ask_alone()
    reading = Reading(paths, recover=recover, run=run, takes_merged=True)
    with reading.progress():
        traces = reading.traces
    with TraceTables(traces) as tables:
        with reading.progress():
            answer = tables.query(query)
        if json:
            _write(_json_lines(answer, top))
        elif csv:
            _write(_csv_lines(answer, top))
        else:
            _print_table(answer, top)
        notes = [*reading.skipped, *tables.notes]
    reading.warn([*traces.owners.told("in the tables"), *notes])
    reading.end(failed=bool(notes))


def _rows(answer: Answer, top: int | None) -> Iterator[tuple[Any, ...]]:
    from itertools import islice

    return islice(answer.rows(), top)


def _write(lines: Iterable[str]) -> None:
    """Write lines, many at a time."""
    held: list[str] = []
    for line in lines:
        held.append(line)
        if len(held) == LINES_AT_ONCE:
            write_out("".join(held))
            held.clear()
    write_out("".join(held))


def _json_lines(answer: Answer, top: int | None) -> Iterator[str]:
    before = "[\n  "
    for row in _rows(answer, top):
        values = map(_exact, row, answer.kinds)
        yield before + json_line(dict(zip(answer.columns, values, strict=True)))
        before = ",\n  "
    yield "[]\n" if before.startswith("[") else "\n]\n"


def _csv_lines(answer: Answer, top: int | None) -> Iterator[str]:
    import csv

    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(in_csv(escaped(column)) for column in answer.columns)
    for row in _rows(answer, top):
        writer.writerow("" if value is None else in_csv(escaped(_plain(value))) for value in row)
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _print_table(answer: Answer, top: int | None) -> None:
    most = min(top or MOST_ROWS, MOST_ROWS)
    rows = list(_rows(answer, most + 1))
    more = len(rows) > most
    rows = rows[:most]
    numbers = [kind in NUMBERS or kind.startswith("DECIMAL") for kind in answer.kinds]
    cells = [
        ["" if value is None else shown(_plain(value), NAME_LETTERS) for value in row]
        for row in rows
    ]
    told = counted(len(rows), "row")
    if more:
        all_of_them = "; --json and --csv print all" if top is None or top > MOST_ROWS else ""
        told = f"the first {told} of more{all_of_them}"
    out = console()
    names = [shown(name, NAME_LETTERS) for name in answer.columns]
    print_all(out, [*rows_told(names, numbers, cells, out.width), told])


NUMBERS = frozenset(
    f"{sign}{kind}"
    for kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
    for sign in ("", "U")
) | {"FLOAT", "DOUBLE"}


def _plain(value: Any) -> str:
    """Return a value that DuckDB gave; not all of them are such that JSON has them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return str(value)


def _exact(value: Any, kind: str) -> Any:
    """Return a value for JSON: arguments as such, numbers that are not finite by their names."""
    from decimal import Decimal

    import orjson

    if kind == "JSON" and isinstance(value, str):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value  # numbers beyond what JSON's readers take
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and value - value != 0:
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, dict):
        return {str(key): _exact(one, "") for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(one, "") for one in value]
    return value
