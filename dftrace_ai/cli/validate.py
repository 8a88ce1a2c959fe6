"""`dftrace validate`: trace files held against the format."""

from __future__ import annotations

from typing import Annotated

import typer

from dftrace_ai.cli.dead_traces import NOTHING, Paths, Recover, complete_dead_traces

__all__ = ["command"]

FAULTS_FOUND = 1


def command(
    paths: Paths,
    limit: Annotated[int, typer.Option(min=1, help="Faults to print; all are counted.")] = 10,
    unfinished_ok: Annotated[
        bool,
        typer.Option(
            "--unfinished-ok", help="Accept a missing closing line, as while the process runs."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    recover: Recover = True,
) -> None:
    """Check every line, the framing, the nesting of spans and the counts of trace files.

    Prints the first faults as file:line: message. A file of a directory that cannot be read
    as a trace is a fault. Index lines and index files are held against the lines.

    Example: dftrace validate out --limit 100

    Exit status: 0 no faults, 1 there are any, 2 when the call is wrong or nothing can be read.
    """
    from dftrace_ai.analysis.validating.report import report_of
    from dftrace_ai.analysis.validating.validate import validate_traces
    from dftrace_ai.cli.terminal import complain, shown, shown_progress, write_json
    from dftrace_ai.wording import counted

    completed = complete_dead_traces(paths) if recover else NOTHING
    with shown_progress("reading", paths):
        found = validate_traces(paths, limit=limit, unfinished_ok=unfinished_ok)
    if json:
        write_json(report_of(found).to_dict())
        if found.fault_count:
            raise typer.Exit(FAULTS_FOUND)
        completed.end()
        return
    first = found.first_faults(limit)
    for fault in first:
        typer.echo(shown(fault))
    for file in found.files:
        for note in file.notes:
            complain(f"{file.path}: {note}")
    for note in found.notes:
        complain(note)
    lines = sum(file.lines for file in found.files)
    events = sum(file.events for file in found.files)
    read = (
        f"{counted(len(found.files), 'file')}, {counted(lines, 'line')}, {counted(events, 'event')}"
    )
    if found.fault_count:
        more = found.fault_count - len(first)
        unshown = f", {more:,} more than shown" if more else ""
        typer.echo(f"{counted(found.fault_count, 'fault')}{unshown} in {read}", err=True)
        raise typer.Exit(FAULTS_FOUND)
    typer.echo(f"no faults in {read}")
    completed.end()
