"""Runs, their comparison, and the rows of a query, as tables or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.cli.terminal import (
    MOST_ROWS,
    NAME_LETTERS,
    console,
    figures_table,
    print_all,
    rows_told,
    shown,
    write_json,
)
from dftrace_ai.loggers.runs.comparing import compared, duration, figure, metric_names, moment
from dftrace_ai.loggers.runs.conditions import MISSING, value_of
from dftrace_ai.loggers.runs.lines import exact, value_text
from dftrace_ai.loggers.runs.reading import FIGURES
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.loggers.runs.reading import Runs
    from dftrace_ai.loggers.runs.report_types import RunsReport
    from dftrace_ai.loggers.runs.tables import Rows


def print_list(runs: Runs, metrics: Sequence[str], asked: Sequence[str], as_json: bool) -> None:
    """Print a row for each run, with columns for metrics by patterns, and for what was asked."""
    if as_json:
        report: RunsReport = {"kind": "dftrace runs", "runs": [run.as_dict() for run in runs]}
        write_json(exact(report))
        return
    names = [*dict.fromkeys([*asked, *(metric_names(runs, metrics) if metrics else ())])]
    heads = ["duration", "step", *(_name(name) for name in names)]
    table = figures_table("Runs", ["run", "status", "tags", "started"], heads)
    for run in runs[:MOST_ROWS]:
        values = [value_of(run, name) for name in names]
        table.add_row(
            _name(run.key),
            run.status,
            _name(", ".join(run.tags)),
            moment(run.started_s),
            duration(run.duration_s),
            "" if run.step < 0 else f"{run.step:,}",
            *map(_cell, values),
        )
    print_all(console(), [table, counted(len(runs), "run") + _more(len(runs))])


def print_comparison(
    runs: Runs, metrics: Sequence[str], asked: Sequence[str], as_json: bool
) -> None:
    """Print what is different of runs side by side; see `print_list`."""
    side = compared(runs, metrics)
    if as_json:
        write_json(exact(side.as_dict()))
        return
    keys = [_name(run.key) for run in runs]
    params = figures_table("Params that differ", ["param"], keys)
    for name, values in list(side.params.items())[:MOST_ROWS]:
        params.add_row(_name(name), *map(_cell, values))
    figures = figures_table("Metrics", ["metric", ""], keys)
    for name, found in list(side.metrics.items())[:MOST_ROWS]:
        for which in FIGURES:
            cells = ["" if one is None else figure(getattr(one, which)) for one in found]
            figures.add_row(_name(name) if which == FIGURES[0] else "", which, *cells)
    said = f"{counted(side.alike, 'param')} alike in {counted(len(runs), 'run')}"
    if len(runs) < 2:
        said = f"{counted(len(runs), 'run')}; two are needed to compare"
    statuses = figures_table("Runs", ["", *keys], [])
    statuses.add_row("status", *(run.status for run in runs))
    parts = [statuses] if runs else []
    parts += [*([params] if side.params else []), *([figures] if side.metrics else [])]
    print_all(console(), [*parts, said + _more(max(len(side.params), len(side.metrics)))])


def print_rows(rows: Rows, as_json: bool) -> None:
    """Print the answer to a query."""
    if as_json:
        write_json([exact(row) for row in rows.as_dicts()])
        return
    out = console()
    cells = [
        [_name("" if value is None else _plain(value)) for value in row]
        for row in rows.rows[:MOST_ROWS]
    ]
    names = [_name(column) for column in rows.columns]
    table = rows_told(names, [False] * len(names), cells, out.width)
    more = f"more than {MOST_ROWS:,} rows; --json prints all"
    some = counted(len(rows.rows), "row")
    print_all(out, [*table, more if len(rows.rows) > MOST_ROWS else some])


def _more(count: int) -> str:
    return (
        f"; {count - MOST_ROWS:,} are not shown, being behind the others by --sort; "
        "--json prints all"
    ) * (count > MOST_ROWS)


def _name(text: str) -> str:
    return shown(text, NAME_LETTERS)


def _cell(value: Any) -> str:
    if value is MISSING:
        return ""
    return _name(figure(value) if isinstance(value, float) else value_text(value))


def _plain(value: Any) -> str:
    """Return a value that DuckDB gave; not all of them are such that JSON has them."""
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return str(value)
