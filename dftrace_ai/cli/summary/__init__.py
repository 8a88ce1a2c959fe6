"""`dftrace summary`: counts and durations by category and name."""

from __future__ import annotations

from enum import Enum
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from dftrace_ai.cli.dead_traces import PATHS_HELP, RECOVER_HELP, complete_dead_traces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from dftrace_ai.analysis.summary.report import Report, Row

__all__ = ["command", "csv_text", "summary_tables"]

FILES_SKIPPED = 1

# Of each table; nobody reads more, and laying out a million takes minutes.
MOST_ROWS = 1000

PERCENTILES = {"p50", "p95", "p99"}
FIGURES = ("count", "total", "self", "share", "mean", "p50", "p95", "p99", "max")
# What a narrow terminal has no room for goes in this order.
SPARED = ("p95", "mean", "p50", "p99", "max", "share", "self")


class By(str, Enum):
    """What has a row of its own."""

    name = "name"
    category = "category"
    rank = "rank"
    host = "host"
    process = "process"


class Sort(str, Enum):
    """By what rows are put in falling order."""

    total = "total"
    self_time = "self"
    number = "count"  # `str` has a method of that name
    mean = "mean"
    p99 = "p99"
    max = "max"


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATHS...", help=PATHS_HELP),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="Print rows of spans as CSV, with all figures, in microseconds."
        ),
    ] = False,
    by: Annotated[
        By,
        typer.Option(
            help="What has a row: a name in its category, a whole category, or each name of a "
            "rank, host or process, which are added up apart. Rows of categories have no "
            "percentiles: those of names do not add up."
        ),
    ] = By.name,
    sort: Annotated[
        Sort | None,
        typer.Option(help="Put rows in falling order of a figure; without it by category."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Only the first N rows; by total without --sort."),
    ] = None,
    recover: Annotated[bool, typer.Option(help=RECOVER_HELP)] = True,
) -> None:
    """Count events and add up their durations, by category and name.

    Total is the sum of durations, with all that lies inside of the spans. Self
    is the part of it in which no other span of the same thread lies. Share is
    self, of the sum of self over all rows, bodies of loops among them; by
    rank, host or process over all rows of that one.
    Percentiles of more than 128 spans are at most 0.78 % off.

    What was lost stands below the table, on the error stream. Files of a
    directory that cannot be read are skipped with a warning. Exit status 1
    when there are any.
    """
    from dftrace_ai.analysis.summary.report import reported
    from dftrace_ai.cli.terminal import complain, console, shown_progress, write_json, write_out

    if json and csv:
        raise typer.BadParameter("--json and --csv cannot be given together")
    if by is By.category and sort is Sort.p99:
        raise typer.BadParameter("rows of categories have no p99; sort by another figure")
    if recover:
        complete_dead_traces(paths)
    with shown_progress("reading", paths):
        report = reported(paths, by.value, sort.value if sort else None, top)
    if json:
        write_json(report.to_dict())
    elif csv:
        write_out(csv_text(report))
    else:
        out = console()
        for table in summary_tables(report, out.width):
            out.print(table)
    for warning in report.warnings:
        complain(warning, loud=": LOST " in warning)
    if report.skipped:
        raise typer.Exit(FILES_SKIPPED)


def summary_tables(report: Report, width: int) -> list[RenderableType]:
    """Return what to print for a summary: spans, other events, and closing lines.

    Args:
        report: what `reported` returned.
        width: letters of a line; figures that do not fit are left out, which is said.
    """
    from dftrace_ai.cli.terminal import NAME_LETTERS, figures_table, fitting, shown
    from dftrace_ai.wording import counted

    # What a loop's body takes is the time of everything in it, and no work of the loop's category.
    bodies = [row for row in report.spans if row.loop == "body"]
    spans = [row for row in report.spans if row.loop != "body"]
    tables: list[RenderableType] = []
    spared: set[str] = set()
    texts = [] if report.by in ("name", "category") else [report.by]
    figures = [name for name in FIGURES if report.by != "category" or name not in PERCENTILES]
    for title, column, rows in (
        ("Spans", "category", spans),
        ("Bodies of loops, with all that is done in them", "loop of", bodies),
    ):
        heads = [*texts, column, *([] if report.by == "category" else ["name"])]
        cells = [_cells(row, heads, figures) for row in rows[:MOST_ROWS]]
        kept = fitting(heads, figures, cells, SPARED, width)
        spared |= set(figures) - set(kept)
        table = figures_table(title, heads, kept)
        for row in cells:
            table.add_row(*(row[head] for head in (*heads, *kept)))
        if rows or rows is spans:
            tables.append(table)
    if report.others:
        others = figures_table("Other events", ["kind", "category", "name"], ["count"])
        for other in report.others[:MOST_ROWS]:
            named = (shown(text, NAME_LETTERS) for text in (other.kind, other.cat, other.name))
            others.add_row(*named, f"{other.count:,}")
        tables.append(others)
    hidden = sum(max(0, len(rows) - MOST_ROWS) for rows in (spans, bodies, report.others))
    if hidden:
        tables.append(f"{counted(hidden, 'row')} more; --json prints all")
    if report.rows_left_out:
        tables.append(f"{counted(report.rows_left_out, 'row')} more, which --top leaves out")
    if spared:
        names = ", ".join(name for name in FIGURES if name in spared)
        tables.append(f"no room for {names}; a wider terminal or --json has them")
    tables.append(f"{counted(report.events, 'event')} in {counted(len(report.files), 'file')}")
    unfinished = sum(file.losses.get("unfinished", 0) for file in report.files)
    if unfinished:
        tables.append(f"{counted(unfinished, 'span')} without an end, in no row of the spans")
    return tables


def csv_text(report: Report) -> str:
    """Return the rows of spans as CSV: a column for each member of a row, empty for null."""
    import csv
    from dataclasses import fields
    from io import StringIO

    from dftrace_ai.analysis.summary.report import Row
    from dftrace_ai.wording import escaped

    columns = [field.name for field in fields(Row)]
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in report.spans:
        values = (getattr(row, column) for column in columns)
        writer.writerow([escaped(each) if isinstance(each, str) else each for each in values])
    return text.getvalue()


def _cells(row: Row, heads: Sequence[str], figures: Sequence[str]) -> dict[str, str]:
    from dftrace_ai.cli.terminal import NAME_LETTERS, shown, time_text

    names = [name for name in (row.group, row.cat, row.name) if name is not None]
    cells = {head: shown(name, NAME_LETTERS) for head, name in zip(heads, names, strict=True)}
    for figure in figures:
        if figure == "count":
            cells[figure] = f"{row.count:,}"
            continue
        value = row.share if figure == "share" else getattr(row, f"{figure}_us")
        if value is None:
            cells[figure] = "-"
        else:
            cells[figure] = f"{value:.1%}" if figure == "share" else time_text(value)
    return cells
