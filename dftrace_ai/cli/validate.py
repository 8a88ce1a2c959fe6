"""`dftrace validate`: trace files held against the format."""

from __future__ import annotations

from typing import Annotated

import typer

from dftrace_ai.cli.reading import Reading
from dftrace_ai.cli.shared_options import Json, Paths, Recover, Run, top_option
from dftrace_ai.cli.terminal import shown, write_json
from dftrace_ai.wording import counted


def command(
    paths: Paths = None,
    top: Annotated[int, top_option("Only the first N rows, of faults; all are counted.")] = 10,
    unfinished_ok: Annotated[
        bool,
        typer.Option(
            "--unfinished-ok", help="Accept a missing closing line, as while the process runs."
        ),
    ] = False,
    json: Json = False,
    run: Run = None,
    recover: Recover = True,
) -> None:
    """Check every line, the framing, the nesting of spans and the counts of trace files.

    Prints the first faults as file:line: message. A file of a directory that cannot be read
    as a trace is a fault. Index lines and index files are held against the lines.

    Example: dftrace validate out --top 100

    Exit status: 0 no faults, 1 there are any, 2 when the call is wrong or nothing can be read.
    """
    from dftrace_ai.analysis.validating import validate_traces

    run = run or ("all" if paths else "last")
    reading = Reading(paths, recover=recover, run=run)
    with reading.progress():
        found = validate_traces(reading.traces, limit=top, unfinished_ok=unfinished_ok)
    if json:
        write_json(found)
        reading.end(failed=bool(found.fault_count))
        return
    first = found.first_faults(top)
    for fault in first:
        typer.echo(shown(fault))
    reading.warn(f"{file.path}: {note}" for file in found.files for note in file.notes)
    reading.warn(found.notes)
    lines = sum(file.lines for file in found.files)
    events = sum(file.events for file in found.files)
    read = (
        f"{counted(len(found.files), 'file')}, {counted(lines, 'line')}, {counted(events, 'event')}"
    )
    if found.fault_count:
        more = found.fault_count - len(first)
        unshown = f", {more:,} more than shown" if more else ""
        typer.echo(f"{counted(found.fault_count, 'fault')}{unshown} in {read}", err=True)
    else:
        typer.echo(f"no faults in {read}")
    reading.end(failed=bool(found.fault_count))
