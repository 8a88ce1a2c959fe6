"""`dftrace runs`: the runs that the interface `local` has logged, listed, compared and exported."""

from __future__ import annotations

from enum import Enum
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dftrace_ai.cli.shared_options import force_option, json_option, out_option, where_option
from dftrace_ai.cli.terminal import (
    MOST_ROWS,
    NAME_LETTERS,
    complain,
    console,
    figures_table,
    print_all,
    rows_told,
    shown,
    write_json,
)
from dftrace_ai.errors import ConfigError, DftraceError
from dftrace_ai.loggers.runs.comparing import compared, duration, figure, metric_names, moment
from dftrace_ai.loggers.runs.conditions import (
    MISSING,
    Choice,
    Condition,
    chosen,
    sorted_by,
    value_of,
)
from dftrace_ai.loggers.runs.lines import exact, value_text
from dftrace_ai.loggers.runs.reading import FIGURES, STATUSES, read_runs
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.loggers.runs.reading import Runs
    from dftrace_ai.loggers.runs.report_types import RunsReport
    from dftrace_ai.loggers.runs.tables import Rows


SKIPPED = 1


class Form(str, Enum):
    """What is written of runs."""

    html = "html"
    parquet = "parquet"
    csv = "csv"


def command(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The log_dir of runs, the directory of a project, or of a run."
        ),
    ],
    project: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only of this project, such as 'vision*'."),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Only of this name, such as 'lr-*'.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Only of this group.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Only with this tag; given again, with all."),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(metavar="STATUS", help="Only running, finished, failed, killed or unknown."),
    ] = None,
    where: Annotated[
        list[str] | None,
        where_option(
            "Only the runs that meet it, such as 'loss.min <= 0.5 and optimizer = adam': params, "
            "last values of metrics or their .min, .max, .mean, facts such as status"
        ),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Put rows in the order of a param, a metric, or a fact such as status.",
        ),
    ] = "started_s",
    reverse: Annotated[bool, typer.Option("--reverse", help="The greatest first.")] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Metrics to show, to compare and to plot, such as 'val/*'."
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Put the runs side by side: params that differ, metrics."),
    ] = False,
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="QUERY", help="Ask the tables runs, metrics, params and media of the runs."
        ),
    ] = None,
    to: Annotated[
        Form | None,
        typer.Option(
            help="What is written: one page with plots, pictures and params, or the tables."
        ),
    ] = None,
    out: Annotated[
        Path | None, out_option("PATH", "Where it is written: a file for html, else a directory.")
    ] = None,
    force: Annotated[
        bool, force_option("Replace what is there, the page or the files of the tables.")
    ] = False,
    json: Annotated[bool, json_option("Print JSON instead of a table.")] = False,
    send: Annotated[
        bool,
        typer.Option(
            "--send",
            help="Hand over to trackers what they had not taken when their runs ended.",
        ),
    ] = False,
) -> None:
    """List, compare, query and show runs that were logged by the interface `local`.

    Example: dftrace runs runs --where "loss.min < 0.5" --sort loss

    Runs may be written meanwhile. Exit status 1 when something in the directory cannot be
    read, or handed over, which is told.
    """
    for one in status or ():
        if one not in STATUSES:
            raise ConfigError(f"--status {one} is not accepted; accepted: {', '.join(STATUSES)}")
    _check_ways(compare=compare, sql=sql, to=to, out=out, send=send)
    if force and to is None:
        raise ConfigError("--force replaces what --to writes; there is nothing to replace")
    if to is Form.html and out is not None:
        from dftrace_ai.page.files import check_free

        check_free([out], force=force)
    if send:
        _send(directory)
        return
    choice = Choice(
        project=project or (),
        name=name or (),
        group=group or (),
        status=status or (),
        tags=tag or (),
        where=[Condition.of(text) for text in where or ()],
    )
    found = _chosen(read_runs(directory), choice, sort, reverse=reverse)
    if sql is not None:
        found = _ask(found, sql, as_json=json)
    elif to is Form.html and out is not None:
        found = _write_page(found, str(directory), out, metric or ())
    elif to is not None and out is not None:
        found = _export(found, out, to.value, force=force)
    else:
        print_runs = print_comparison if compare else print_list
        asked = [name for condition in choice.where for name in condition.names]
        print_runs(found, metric or (), asked, json)
    for note in found.notes:
        complain(note)
    if found.notes:
        raise typer.Exit(SKIPPED)


def _send(directory: Path) -> None:
    from dftrace_ai.loggers.sending import send, unsent_files

    left = False
    files = unsent_files(directory)
    for path in files:
        try:
            sent = send(path)
        except DftraceError as error:
            complain(str(error))
            left = True
            continue
        still = f", {counted(sent.left, 'record')} left" if sent.left else ""
        told = f"{sent.tracker}: {counted(sent.sent, 'record')} of {sent.run} handed over{still}"
        typer.echo(shown(told))
        left = left or bool(sent.left)
    if not files:
        typer.echo(shown(f"nothing is left to hand over in {directory}"))
    if left:
        raise typer.Exit(SKIPPED)


def _check_ways(
    *, compare: bool, sql: str | None, to: Form | None, out: Path | None, send: bool
) -> None:
    """Hold the options against each other: a call does one thing."""
    ways = {"--compare": compare, "--sql": sql is not None, "--to": to is not None}
    ways["--send"] = send
    asked = [way for way, is_asked in ways.items() if is_asked]
    if len(asked) > 1:
        raise ConfigError(f"{' and '.join(asked)} do not go together; give one of them")
    if (to is None) != (out is None):
        raise ConfigError("--to says what is written, and --out where to; give both or neither")


def _chosen(runs: Runs, choice: Choice, sort: str, *, reverse: bool) -> Runs:
    return runs.only(sorted_by(chosen(runs, choice), sort, reverse=reverse))


def _ask(runs: Runs, sql: str, *, as_json: bool) -> Runs:
    from dftrace_ai.database import ask_alone
    from dftrace_ai.loggers.runs.tables import RunTables

    ask_alone()
    with RunTables(run.folder for run in runs) as tables:
        rows = tables.query(sql, None if as_json else MOST_ROWS + 1)
        print_rows(rows, as_json)
        return tables.runs


def _write_page(runs: Runs, title: str, path: Path, metrics: list[str] | tuple[str, ...]) -> Runs:
    from dftrace_ai.loggers.runs.page import RunsOnPage, page_of
    from dftrace_ai.page.files import write_page

    found = RunsOnPage((run.folder for run in runs), metrics)
    write_page(path, page_of(title, found))
    return found.runs


def _export(runs: Runs, folder: Path, form: str, *, force: bool) -> Runs:
    from dftrace_ai.loggers.runs.tables import export

    found, paths = export((run.folder for run in runs), folder, form, force=force)
    for path in paths:
        typer.echo(shown(path))
    return found


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
        write_json([exact(dict(zip(rows.columns, row, strict=True))) for row in rows.rows])
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
