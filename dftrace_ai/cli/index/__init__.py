"""`dftrace index`: index files beside traces, for summaries that need not read them again."""

from __future__ import annotations

from typing import Annotated

import typer

from dftrace_ai.cli.dead_traces import Paths, Recover, complete_dead_traces

__all__ = ["command"]

LEFT_OUT = 1


def command(
    paths: Paths,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
    recover: Recover = True,
) -> None:
    """Make index files beside traces that have none, for a summary without reading them.

    Example: dftrace index out

    For traces of other programs, packed in any way, and for those that were cut or
    recovered: what the recorder writes has its index in it. The traces stay as they
    are. An index is used by summary while its traces do not change, and made again
    by this command when they have. Exit status: 0 done, 1 when a trace was left out,
    as where nothing may be written beside it, 2 when the call is wrong or nothing can
    be read.
    """
    from dataclasses import asdict

    from dftrace_ai.analysis.summary.indexing import IndexReport, index_traces
    from dftrace_ai.cli.terminal import complain, shown, shown_progress, write_json
    from dftrace_ai.wording import counted

    if recover:
        complete_dead_traces(paths)
    with shown_progress("reading", paths):
        found = index_traces(paths)
    if json:
        write_json(asdict(IndexReport(tuple(found))))
    for process in found:
        if process.state == "left out":
            complain(f"not indexed: {process.path}: {process.reason}")
        elif not json:
            size = f" ({counted(process.lines, 'line')})" if process.lines else ""
            typer.echo(f"{process.state}: {shown(process.path)}{size}")
    if any(process.state == "left out" for process in found):
        raise typer.Exit(LEFT_OUT)
