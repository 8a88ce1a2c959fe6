"""`dftrace summary`: counts and durations by category and name."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from dftrace_ai.cli.dead_traces import RECOVER_HELP, complete_dead_traces

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dftrace_ai.analysis.summary.figures import Summary

__all__ = ["command", "summary_tables"]

FILES_SKIPPED = 1

# Of each table; nobody reads more, and laying out a million takes minutes.
MOST_ROWS = 1000


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATHS...", help="Trace files, and directories to search for them."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    recover: Annotated[bool, typer.Option(help=RECOVER_HELP)] = True,
) -> None:
    """Count events and add up their durations, by category and name.

    Files of a directory that cannot be read are skipped with a warning. Exit status 1
    when there are any.
    """
    from dftrace_ai.analysis.summary.figures import summarise
    from dftrace_ai.cli.terminal import complain, console, write_json

    if recover:
        complete_dead_traces(paths)
    found = summarise(paths)
    if json:
        write_json(found.to_dict())
    else:
        out = console()
        for table in summary_tables(found):
            out.print(table)
    for warning in found.warnings():
        complain(warning, loud=": LOST " in warning)
    if found.skipped:
        raise typer.Exit(FILES_SKIPPED)


def summary_tables(found: Summary) -> list[RenderableType]:
    """Return what to print for a summary: spans, other events, and a closing line."""
    from dftrace_ai.cli.terminal import NAME_LETTERS, figures_table, micros, shown
    from dftrace_ai.wording import counted

    def name_of(text: str) -> str:
        return shown(text, NAME_LETTERS)

    figures = ["count", "total", "mean", "p50", "p95", "max"]
    # What a loop's body takes is the time of everything in it, and no work of the loop's category.
    bodies = [row for row in found.spans if row.loop == "body"]
    spans = [row for row in found.spans if row.loop != "body"]
    tables: list[RenderableType] = []
    for title, column, rows in (
        ("Spans, times in microseconds", "category", spans),
        ("Bodies of loops, with all that is done in them", "loop of", bodies),
    ):
        table = figures_table(title, [column, "name"], figures)
        for row in rows[:MOST_ROWS]:
            times = (row.total_us, row.mean_us, row.p50_us, row.p95_us, row.max_us)
            names = name_of(row.cat), name_of(row.name)
            table.add_row(*names, f"{row.count:,}", *map(micros, times))
        if rows or rows is spans:
            tables.append(table)
    if found.others:
        others = figures_table("Other events", ["kind", "category", "name"], ["count"])
        for other in found.others[:MOST_ROWS]:
            texts = map(name_of, (other.kind, other.cat, other.name))
            others.add_row(*texts, f"{other.count:,}")
        tables.append(others)
    hidden = sum(max(0, len(rows) - MOST_ROWS) for rows in (spans, bodies, found.others))
    if hidden:
        tables.append(f"{counted(hidden, 'row')} more; --json prints all")
    tables.append(f"{counted(found.events, 'event')} in {counted(len(found.files), 'file')}")
    return tables
