"""`dftrace merge`: the traces of many ranks as one file for a viewer."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import Annotated

import typer

from dftrace_ai.cli.readers import Readers, processors, with_readers
from dftrace_ai.cli.reading import CLOCKS_UNSURE, Reading
from dftrace_ai.cli.shared_options import (
    Certain,
    Everything,
    MaxError,
    Paths,
    RanksShown,
    Recover,
    Run,
    force_option,
    json_option,
    out_option,
)
from dftrace_ai.cli.terminal import complain, shown, write_json
from dftrace_ai.errors import DftraceError, needs_numpy
from dftrace_ai.wording import counted


class By(str, Enum):
    """By which clocks times are shown."""

    measured = "measured"
    given = "given"
    none = "none"


@with_readers(
    # Who came last, and how clocks differ.
    bytes_a_second=22e6,
    by_default=processors,
    jobs_help="Work in so many processes, for arrows and clocks, however large they are, and write "
    "by so many threads; by default by as many as cores.",
)
def command(
    paths: Paths = None,
    *,
    out: Annotated[
        Path,
        out_option("PATH", "Where it is written; compressed where the name ends in .gz."),
    ],
    ranks: RanksShown = None,
    steps: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="Only the steps A up to B, or A alone, by their numbers."),
    ] = None,
    comm: Annotated[
        bool,
        typer.Option(
            "--comm", help="Only steps and collectives; with --ranks, of all other ranks."
        ),
    ] = False,
    everything: Everything = False,
    flows: Annotated[
        str | None,
        typer.Option(
            metavar="N|none",
            help="At most so many arrows between ranks; by default 100000, of ranks that are read "
            "in seconds.",
        ),
    ] = None,
    clocks: Annotated[
        By,
        typer.Option(
            help="How clocks of hosts are brought together. measured: by collectives that ranks "
            "leave together. given: by what the files say. none: not at all."
        ),
    ] = By.measured,
    max_error: MaxError = None,
    certain: Certain = False,
    split: Annotated[
        bool, typer.Option("--split", help="Write a directory with a file for each host.")
    ] = False,
    archive: Annotated[
        bool,
        typer.Option(
            "--archive",
            help="Write a tar of the traces, with a manifest, for Perfetto 58 and newer.",
        ),
    ] = False,
    force: Annotated[bool, force_option("Replace what is there, of an earlier call.")] = False,
    json: Annotated[bool, json_option("Print JSON of what was written.")] = False,
    run: Run = None,
    recover: Recover = True,
    readers: Readers,
) -> None:
    """Write the traces of many ranks as one file, in which Perfetto shows them side by side.

    Ranks stand in their order, below each what it has started; processes that have one pid on
    several hosts get others; times are by one clock. Arrows lead from the last to come into a
    collective to those that waited, and from sends to receives. Of more than two million events
    it is what a viewer takes: some ranks whole, of the others steps and collectives. What was
    left out is told. The file gets its name when it is whole.

    Example: dftrace merge out -o all.pfw.gz

    Exit status: 0 done; 1 something could not be read, and is told; 2 the call is wrong, or
    nothing could be written; 3 a clock is known less well than --max-error.
    """
    from dftrace_ai.analysis.merging import merge
    from dftrace_ai.analysis.merging.choice import parsed_ranks
    from dftrace_ai.analysis.merging.gathering import Asked, ClockError
    from dftrace_ai.analysis.reading.time_window import parsed_length_us

    chosen = None
    if steps is not None:
        with needs_numpy("--steps"):
            from dftrace_ai.analysis.merging.numbered_steps import parsed_steps
        chosen = parsed_steps(steps)
    asked = Asked(
        ranks=None if ranks is None else parsed_ranks(ranks),
        steps=chosen,
        steps_and_calls=comm,
        everything=everything,
        arrows=None if flows is None else _arrows(flows),
        clocks=clocks.value,
        error_ns=None if max_error is None else round(parsed_length_us(max_error) * 1000),
        certain=certain,
    )
    reading = Reading(paths, recover=recover, run=run, readers=readers)
    with reading.progress("merging"), readers:
        traces = reading.traces
        try:
            made = merge(
                traces.files,
                out,
                asked,
                split=split,
                archive=archive,
                force=force,
                jobs=readers.jobs,
                # By itself it shows ranks soon, and many by their own clocks and without arrows.
                spread=readers.of(traces) if readers.are_asked else None,
            )
        except ClockError as error:
            complain(str(error))
            raise typer.Exit(CLOCKS_UNSURE) from error
    if json:
        write_json(made)
    else:
        for file in made.files:
            typer.echo(shown(out / file.path if split else out))
        size = sum(file.bytes for file in made.files)
        what = counted(len(traces), "trace") if archive else counted(made.lines, "line")
        typer.echo(f"{what}, {size / 1e6:,.1f} MB", err=True)
    notes = [*reading.skipped, *made.notes]
    reading.warn([*traces.owners.told("merged"), *notes, *made.told])
    reading.end(failed=readers.left_out or bool(notes))


def _arrows(text: str) -> int:
    if text == "none":
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise DftraceError(
            f"{text!r} is no number of arrows; what is meant looks like 1000 or none"
        )
    return int(text)
