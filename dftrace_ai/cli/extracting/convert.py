"""`dftrace convert`: traces as files for other tools."""

from __future__ import annotations

from enum import Enum
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import Annotated

import typer

from dftrace_ai.cli.dead_traces import NOTHING, Paths, Recover, complete_dead_traces
from dftrace_ai.errors import needs_numpy

__all__ = ["command"]

INCOMPLETE = 1


class Form(str, Enum):
    """What is written."""

    parquet = "parquet"
    perfetto = "perfetto"
    dftracer = "dftracer"


def command(
    paths: Paths,
    to: Annotated[
        Form,
        typer.Option(
            help="parquet: a directory with the events by rank, and the processes. perfetto: one "
            "file of all traces, compressed where its name ends in .gz. dftracer: a directory "
            "with a file for each trace, in whole microseconds since 1970."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file or directory to write.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace what an earlier conversion has written there."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON of what was written instead of its names.")
    ] = False,
    recover: Recover = True,
) -> None:
    """Write traces as files for other tools.

    What is written gets its name when it is whole. What of the traces could not be read is
    told on the error stream, and the exit status is then 1.

    Example: dftrace convert out --to parquet --out out-parquet
    """
    from dftrace_ai.cli.terminal import complain, shown, shown_progress, write_json
    from dftrace_ai.wording import counted

    with needs_numpy():
        from dftrace_ai.analysis.converting import convert
        from dftrace_ai.analysis.reading import open_traces
        from dftrace_ai.analysis.reading.identity import Owners

        completed = complete_dead_traces(paths) if recover else NOTHING
        with shown_progress("converting", paths):
            traces = open_traces(paths)
            made = convert(traces, to.value, out, force=force)
    if json:
        write_json(made)
    else:
        for file in made.files:
            typer.echo(shown(out if made.to == "perfetto" else out / file.path))
    notes = [*(f"skipped: {skipped}" for skipped in traces.skipped), *made.notes]
    if not json:
        typer.echo(f"{counted(made.lines, 'line')} in {counted(len(made.files), 'file')}", err=True)
    for note in [*Owners(traces).told("converted"), *notes]:
        complain(note)
    if notes:
        raise typer.Exit(INCOMPLETE)
    completed.end()
