"""`dftrace convert`: traces as files for other tools."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import Annotated, Final

import typer

from dftrace_ai.cli.reading import Reading
from dftrace_ai.cli.shared_options import Paths, Recover, Run, force_option, json_option, out_option
from dftrace_ai.cli.terminal import shown, write_json
from dftrace_ai.errors import needs_numpy
from dftrace_ai.wording import counted

# What is counted of a form, where that is not lines.
COUNTED: Final = {"otlp": "span", "speedscope": "sample", "pprof": "sample"}


class Form(str, Enum):
    """What is written."""

    parquet = "parquet"
    perfetto = "perfetto"
    dftracer = "dftracer"
    otlp = "otlp"
    speedscope = "speedscope"
    pprof = "pprof"


def command(
    paths: Paths = None,
    *,
    to: Annotated[
        Form,
        typer.Option(
            help="What is written. parquet: a directory with the events by rank, and the "
            "processes. perfetto: one file of all traces, compressed where its name ends in .gz. "
            "dftracer: a directory with a file for each trace, in whole microseconds since 1970. "
            "otlp: a file of the spans for OpenTelemetry, a line of JSON for some of them; as "
            "perfetto compressed. speedscope, pprof: a file of the samples of Python's stacks."
        ),
    ],
    out: Annotated[
        Path,
        out_option(
            "PATH", "Where it is written: a directory for parquet and dftracer, else a file."
        ),
    ],
    force: Annotated[
        bool,
        force_option("Replace what is there, of an earlier conversion."),
    ] = False,
    json: Annotated[
        bool, json_option("Print JSON of what was written instead of its names.")
    ] = False,
    run: Run = None,
    recover: Recover = True,
) -> None:
    """Write traces as files for other tools.

    What is written gets its name when it is whole. Of directories and patterns the newest run is
    taken; files that are named one by one are all taken, whichever runs they are of. What of the
    traces could not be read is told on the error stream, and the exit status is then 1.

    Example: dftrace convert out --to parquet -o out-parquet
    """
    with needs_numpy():
        from dftrace_ai.analysis.converting import convert

        # os.path, since pathlib raises for a name that is too long.
        named = bool(paths) and all(map(os.path.isfile, paths or ()))
        run = run or ("all" if named else None)
        takes_merged = to.value not in ("perfetto", "otlp")
        reading = Reading(paths, recover=recover, run=run, takes_merged=takes_merged)
        with reading.progress("converting"):
            traces = reading.traces
            made = convert(traces, to.value, out, force=force)
    if json:
        write_json(made)
    else:
        for file in made.files:
            typer.echo(shown(out / file.path if made.to in ("parquet", "dftracer") else out))
    notes = [*reading.skipped, *made.notes]
    if not json:
        told = counted(made.lines, COUNTED.get(made.to, "line"))
        typer.echo(f"{told} in {counted(len(made.files), 'file')}", err=True)
    reading.warn([*traces.owners.told("converted"), *notes, *made.told])
    reading.end(failed=bool(notes))
