"""`dftrace summary`: counts and durations by category and name."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from dftrace_ai.cli.dead_traces import RECOVER_HELP, complete_dead_traces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from dftrace_ai.analysis.summary.report import Report, Row

__all__ = ["command", "summary_tables"]

FILES_SKIPPED = 1

# Of each table; nobody reads more, and laying out a million takes minutes.
MOST_ROWS = 1000

FIGURES = ("count", "total", "self", "share", "mean", "p50", "p95", "p99", "max")
# What a narrow terminal has no room for goes in this order.
SPARED = ("p95", "mean", "p50", "p99", "max", "share", "self")

# So much of a name is on one line before figures give way for it.
NAME_ROOM = 24
BETWEEN_COLUMNS = 3


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATHS...", help="Trace files, and directories to search for them."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    recover: Annotated[bool, typer.Option(help=RECOVER_HELP)] = True,
) -> None:
    """Count events and add up their durations, by category and name.

    Total is the sum of durations, with all that lies inside of the spans. Self
    is the part of it in which no other span of the same thread lies. Share is
    self, of the sum of self over all rows, bodies of loops among them.
    Percentiles of more than 128 spans are at most 0.78 % off.

    What was lost stands below the table, on the error stream. Files of a
    directory that cannot be read are skipped with a warning. Exit status 1
    when there are any.
    """
    from dftrace_ai.analysis.summary.figures import summarise
    from dftrace_ai.analysis.summary.report import report_of
    from dftrace_ai.cli.terminal import complain, console, write_json

    if recover:
        complete_dead_traces(paths)
    report = report_of(summarise(paths))
    if json:
        write_json(report.to_dict())
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
        report: what `report_of` returned.
        width: letters of a line; figures that do not fit are left out, which is said.
    """
    from dftrace_ai.cli.terminal import NAME_LETTERS, figures_table, shown
    from dftrace_ai.wording import counted

    # What a loop's body takes is the time of everything in it, and no work of the loop's category.
    bodies = [row for row in report.spans if row.loop == "body"]
    spans = [row for row in report.spans if row.loop != "body"]
    tables: list[RenderableType] = []
    spared: set[str] = set()
    for title, column, rows in (
        ("Spans", "category", spans),
        ("Bodies of loops, with all that is done in them", "loop of", bodies),
    ):
        cells = [_cells(row) for row in rows[:MOST_ROWS]]
        places = _places([column, "name", *FIGURES], cells, width)
        kept = [FIGURES[place] for place in places]
        spared |= set(FIGURES) - set(kept)
        table = figures_table(title, [column, "name"], kept)
        for row in cells:
            table.add_row(*row[:2], *(row[2 + place] for place in places))
        if rows or rows is spans:
            tables.append(table)
    if report.others:
        others = figures_table("Other events", ["kind", "category", "name"], ["count"])
        for other in report.others[:MOST_ROWS]:
            texts = (shown(text, NAME_LETTERS) for text in (other.kind, other.cat, other.name))
            others.add_row(*texts, f"{other.count:,}")
        tables.append(others)
    hidden = sum(max(0, len(rows) - MOST_ROWS) for rows in (spans, bodies, report.others))
    if hidden:
        tables.append(f"{counted(hidden, 'row')} more; --json prints all")
    if spared:
        names = ", ".join(name for name in FIGURES if name in spared)
        tables.append(f"no room for {names}; a wider terminal or --json has them")
    tables.append(f"{counted(report.events, 'event')} in {counted(len(report.files), 'file')}")
    unfinished = sum(file.losses.get("unfinished", 0) for file in report.files)
    if unfinished:
        tables.append(f"{counted(unfinished, 'span')} without an end, in no row of the spans")
    return tables


def _cells(row: Row) -> list[str]:
    from dftrace_ai.cli.terminal import NAME_LETTERS, shown, time_text

    def time(micros: float | None) -> str:
        return "-" if micros is None else time_text(micros)

    return [
        shown(row.cat, NAME_LETTERS),
        shown(row.name, NAME_LETTERS),
        f"{row.count:,}",
        time(row.total_us),
        time(row.self_us),
        "-" if row.share is None else f"{row.share:.1%}",
        *map(time, (row.mean_us, row.p50_us, row.p95_us, row.p99_us, row.max_us)),
    ]


def _places(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return which figures have room beside the names."""
    from rich.cells import cell_len

    texts = len(heads) - len(FIGURES)
    widths = [max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)]
    room = width - 2 - sum(min(wide, NAME_ROOM) + BETWEEN_COLUMNS for wide in widths[:texts])
    kept = dict(zip(FIGURES, widths[texts:], strict=True))
    for name in SPARED:
        if sum(wide + BETWEEN_COLUMNS for wide in kept.values()) <= room:
            break
        del kept[name]
    return [FIGURES.index(name) for name in kept]
