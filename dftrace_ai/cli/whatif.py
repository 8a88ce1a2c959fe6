"""`dftrace whatif`: how fast a job would be with even work, or without one of its ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import Annotated

import typer

from dftrace_ai.cli.readers import Readers, with_readers
from dftrace_ai.cli.reading import Reading, within
from dftrace_ai.cli.shared_options import (
    Attempt,
    Certain,
    FailOn,
    Json,
    MaxError,
    Paths,
    Recover,
    Run,
    StepsRead,
    fails,
    threshold_option,
)
from dftrace_ai.cli.terminal import (
    complain,
    console,
    laid_out,
    print_all,
    shown_progress,
    write_json,
)
from dftrace_ai.errors import ConfigError, needs_numpy


@with_readers(bytes_a_second=50e6)
def command(
    paths: Paths = None,
    json: Json = False,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT=NAME",
            help="Tell how fast the run would be if these did as much as the others: rank=17, "
            "host=node3, stage=2, or a dimension of the layout, such as tp=1; with commas those "
            "that are all of it. May be given again.",
        ),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write traces of the steps as they would be with even work into a directory, "
            "beside those that were measured, for dftrace view.",
        ),
    ] = None,
    steps: StepsRead = None,
    threshold: Annotated[
        list[str] | None, threshold_option("cost=0.05,0.15", "cost", "steps")
    ] = None,
    fail_on: FailOn = None,
    run: Run = None,
    attempt: Attempt = None,
    max_error: MaxError = None,
    certain: Certain = False,
    recover: Recover = True,
    *,
    readers: Readers,
) -> None:
    """Tell how fast a run would be with even work, what makes it slower, and without whom.

    What is before what is known by the collectives and messages of all ranks; their steps
    are put together again with other times. Where that does not give the steps as they were
    measured, nothing is said.

    Example: dftrace whatif out --without rank=17 --without stage=3

    Exit status: 0 whatever is found, 1 where --fail-on says so, or events of the dead could
    not be written to their traces; 2 when the call is wrong, nothing can be read, or the
    traces are of two runs; 3 where a clock is known less well than --max-error.
    """
    with needs_numpy():
        from dftrace_ai.analysis.merging.numbered_steps import parsed_steps
        from dftrace_ai.analysis.ranks.clock_offsets import clocks_of
        from dftrace_ai.analysis.ranks.job import read_ranks
        from dftrace_ai.analysis.ranks.model import limits_of
        from dftrace_ai.analysis.ranks.some_steps import of_steps
        from dftrace_ai.analysis.whatif.judging import whatif_of
        from dftrace_ai.analysis.whatif.timeline import write_timeline
        from dftrace_ai.analysis.whatif.words import in_words, verdict_lines

    limits = limits_of(threshold or ())
    asked = [_asked(text) for text in without or ()]
    chosen = None if steps is None else parsed_steps(steps)
    reading = Reading(paths, recover=recover, run=run, readers=readers)
    with reading.progress(), readers:
        job = read_ranks(reading.traces, attempt=attempt, spread=readers.of(reading.traces))
    with shown_progress("putting the steps together"):
        some = job if chosen is None else of_steps(job, chosen)
        held = {"slowdown": 1 + limits["cost"].warning, "steps": limits["steps"].warning}
        clocks = clocks_of(some)
        within(clocks, max_error, certain=certain)
        answer = whatif_of(some, clocks, without=asked, limits=held)
        is_written = timeline is not None and answer.ideal is not None
        if timeline is not None and is_written:
            write_timeline(answer, timeline)
    if timeline is not None and not is_written:
        complain("--timeline: nothing is written, for there is no verdict")
    known = (*answer.result.notes, *job.notes)
    found = in_words(replace(answer.result, notes=known), limits["cost"])
    notes = (*reading.waiting_notes(), *known, *reading.skipped)
    found = replace(found, running=tuple(reading.running), notes=notes)
    if json:
        write_json(found)
    else:
        out = console()
        head = found.severity or found.cause.kind
        print_all(out, laid_out(verdict_lines(found), out, head, ()))
    reading.end(
        failed=readers.left_out or fails(fail_on, [found.severity] if found.severity else [])
    )


def _asked(text: str) -> dict[str, str]:
    """Return dimensions and values, all of which hold for who is meant."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and value for name, _, value in pairs):
        raise ConfigError(f"--without {text}: it is written as --without rank=17")
    asked = {name.strip(): value.strip() for name, _, value in pairs}
    if len(asked) < len(pairs):
        raise ConfigError(
            f"--without {text}: commas are between dimensions, of which each stands once; of "
            "several ranks each has a --without of its own"
        )
    return asked
