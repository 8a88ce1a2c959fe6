"""`dftrace why`: what makes the steps of a run slow, and what to try."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dftrace_ai.cli.reading import Json, Paths, Reading, Recover, Run, Thresholds
from dftrace_ai.cli.terminal import console, print_all, shown, write_json
from dftrace_ai.errors import needs_numpy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console
    from rich.text import Text

    from dftrace_ai.analysis.why import Verdict

# Of a line that has a name: where its text begins, and from which width on the rest of it does so.
TEXT_AT: Final = 12
HANGS_FROM: Final = 36
NARROW_INDENT: Final = "    "

STYLES: Final = {"critical": "bold red", "warning": "bold yellow", "info": "bold"}
NOTHING: Final = "bold green"


class Severity(str, Enum):
    """From which severity on a finding is a failure."""

    warning = "warning"
    critical = "critical"


def command(
    paths: Paths = None,
    json: Json = False,
    threshold: Thresholds = None,
    fail_on: Annotated[
        Severity | None,
        typer.Option(help="End with status 1 where a finding is at least that severe."),
    ] = None,
    run: Run = None,
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
    reading = Reading(paths, recover=recover, run=run)
    with reading.progress():
        verdict = why(reading.traces, limits)
    notes = (*reading.waiting_notes(), *verdict.notes)
    verdict = replace(verdict, running=tuple(reading.running), notes=notes)
    if json:
        write_json(verdict)
    else:
        out = console()
        print_all(out, laid_out(verdict, verdict_lines(verdict), out))
    severe = {finding.severity for finding in verdict.findings}
    failing = {"warning", "critical"} if fail_on is Severity.warning else {"critical"}
    reading.end(failed=fail_on is not None and bool(severe & failing))


def laid_out(verdict: Verdict, lines: Iterable[str], out: Console) -> Iterator[Text]:
    """Yield the lines of a verdict, as wide as there is room, with the severity in colour."""
    from rich.text import Text

    findings = (*verdict.findings, *verdict.of_some_ranks)
    for number, line in enumerate(lines):
        told = shown(line)
        if not line.startswith("  "):
            yield Text(told, _style_of_head(verdict) if number == 0 else "", overflow="fold")
            continue
        name, text = told[:TEXT_AT], told[TEXT_AT:]
        beside = (
            one
            for one in findings
            if name.strip() == "also" and line[TEXT_AT:].startswith(one.what)
        )
        style = STYLES[next((one.severity for one in beside), "info")]
        wide = out.width >= HANGS_FROM
        if not wide:
            yield Text(name.rstrip(), style)
        indent = " " * TEXT_AT if wide else NARROW_INDENT
        pieces = Text(text).wrap(out, out.width - len(indent), overflow="fold")
        for place, piece in enumerate(pieces):
            piece.rstrip()
            first = wide and place == 0
            yield Text.assemble((name, style) if first else indent, piece)


def _style_of_head(verdict: Verdict) -> str:
    if verdict.findings:
        return STYLES[verdict.findings[0].severity]
    return NOTHING if verdict.verdict == "none" else STYLES["info"]
