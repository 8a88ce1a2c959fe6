"""`dftrace summary`: counts and durations by category and name."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dftrace_ai.analysis.summary import Summary

__all__ = ["command", "summary_tables"]


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATHS...", help="Trace files, and directories to search for them."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Count events and add up their durations, by category and name."""
    from dftrace_ai.analysis.summary import summarise
    from dftrace_ai.cli.dead_traces import complete_dead_traces
    from dftrace_ai.cli.terminal import console

    complete_dead_traces(paths)
    found = summarise(paths)
    if json:
        import orjson

        typer.echo(orjson.dumps(found.to_dict(), option=orjson.OPT_INDENT_2).decode())
    else:
        out = console()
        for table in summary_tables(found):
            out.print(table)
    err = console(stderr=True)
    for warning in found.warnings():
        err.print(f"dftrace: {warning}", style="bold red" if "LOST" in warning else "yellow")


def summary_tables(found: Summary) -> list[RenderableType]:
    """Return what to print for a summary: spans, other events, and a closing line."""
    from dftrace_ai.analysis.wording import counted
    from dftrace_ai.cli.terminal import figures_table, micros

    spans = figures_table(
        "Spans, times in microseconds",
        ["category", "name"],
        ["count", "total", "mean", "p50", "p95", "max"],
    )
    for row in found.spans:
        times = (row.total_us, row.mean_us, row.p50_us, row.p95_us, row.max_us)
        spans.add_row(row.cat, row.name, f"{row.count:,}", *map(micros, times))
    tables: list[RenderableType] = [spans]
    if found.others:
        others = figures_table("Other events", ["kind", "category", "name"], ["count"])
        for other in found.others:
            others.add_row(other.kind, other.cat, other.name, f"{other.count:,}")
        tables.append(others)
    tables.append(f"{counted(found.events, 'event')} in {counted(len(found.files), 'file')}")
    return tables
