"""`dftrace why`: what makes the steps of a run slow, and what to try."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Annotated

import typer

from dftrace_ai.cli.reading import Json, Paths, Reading, Recover, Thresholds
from dftrace_ai.cli.terminal import console, print_all, shown, write_json
from dftrace_ai.errors import needs_numpy


class Severity(str, Enum):
    """From which severity on a finding is a failure."""

    warning = "warning"
    critical = "critical"


def command(
    paths: Paths,
    json: Json = False,
    threshold: Thresholds = None,
    fail_on: Annotated[
        Severity | None,
        typer.Option(help="End with status 1 where a finding is at least that severe."),
    ] = None,
    recover: Recover = True,
) -> None:
    """Tell in plain words why the steps of a run are slow, or that nothing stands out.

    The traces are those of one run, of all its processes. What cannot be known from them
    is said, too.

    Example: dftrace why out --threshold input=0.05 --fail-on warning

    Exit status: 0 with findings or without, 1 where --fail-on says so, or events of the dead
    could not be written to their traces; 2 when the call is wrong or nothing can be read.
    """
    with needs_numpy():
        from dftrace_ai.analysis.why import limits_of, verdict_lines, why

    limits = limits_of(threshold or ())
    reading = Reading(paths, recover=recover)
    with reading.progress():
        verdict = why(paths, limits)
    notes = (*reading.waiting_notes(), *verdict.notes)
    verdict = replace(verdict, running=tuple(reading.running), notes=notes)
    if json:
        write_json(verdict)
    else:
        from rich.text import Text

        lines = [Text(shown(line), overflow="fold") for line in verdict_lines(verdict)]
        print_all(console(), lines)
    severe = {finding.severity for finding in verdict.findings}
    failing = {"warning", "critical"} if fail_on is Severity.warning else {"critical"}
    reading.end(failed=fail_on is not None and bool(severe & failing))
