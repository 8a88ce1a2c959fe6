"""Options of several commands, each declared once and named by those that have it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PATHS_HELP = "Trace files, patterns for them in quotes, and directories and archives to search."
RECOVER_HELP = (
    "Complete the traces of processes that died first. Without it nothing is written to the "
    "directory, and what is only in a spool is not counted."
)


class Severity(str, Enum):
    """From which severity on a finding is a failure."""

    warning = "warning"
    critical = "critical"


def on_this_machine(paths: list[Path] | Path | None) -> list[Path] | Path | None:
    """Return paths that a command was given as those of files here; an address is refused."""
    from dftrace_ai.analysis.reading.remote import local_path

    if isinstance(paths, list):
        return [local_path(path) for path in paths]
    return paths if paths is None else local_path(paths)


def threshold_option(example: str, names: str, others: str) -> Any:
    """Return the option `--threshold` of a command, with an example and the names that it takes."""
    return typer.Option(
        "--threshold",
        metavar="NAME=W[,C]",
        help="From which share on something is a finding, and from which a critical one, such as "
        f"{example}. Names: {names}; and, which are no shares, {others}. May be given again.",
    )


def json_option(says: str) -> Any:
    """Return the option `--json` of a command, with what its help says it prints."""
    return typer.Option("--json", help=says)


def csv_option(says: str) -> Any:
    """Return the option `--csv` of a command, likewise."""
    return typer.Option("--csv", help=says)


def out_option(metavar: str, says: str) -> Any:
    """Return the option `--out` of a command, with what its help says it writes."""
    return typer.Option("--out", "-o", metavar=metavar, help=says)


def top_option(says: str) -> Any:
    """Return the option `--top` of a command, with what its help says are its rows."""
    return typer.Option("--top", min=1, metavar="N", help=says)


def where_option(says: str) -> Any:
    """Return the option `--where` of a command, with what its help says a condition is about."""
    return typer.Option(
        "--where",
        metavar="CONDITION",
        help=f"{says}; = != < > <= >= like in; and, or, not. Given again, all have to hold.",
    )


def force_option(says: str) -> Any:
    """Return the option `--force` of a command, with what its help says it replaces."""
    return typer.Option("--force", help=says)


def not_together(given: Mapping[str, bool]) -> None:
    """Refuse a call in which two of these options are given."""
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise typer.BadParameter(f"{names[0]} and {names[1]} cannot be given together")


MaxError = Annotated[
    str | None,
    typer.Option(
        "--max-error",
        metavar="TIME",
        help="Refuse, with status 3, where the clock of a host is known less well, such as 1ms: by "
        "what it usually is off.",
    ),
]
Certain = Annotated[
    bool, typer.Option("--certain", help="Let --max-error go by what it is off at most.")
]
Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[PATHS]...",
        help=f"{PATHS_HELP} Without any: the newest run below the current directory.",
    ),
]
Run = Annotated[
    str | None,
    typer.Option(
        metavar="ID|last|all",
        help="Of several runs the one to read, by its folder or the beginning of its name; by "
        "default the last that was begun.",
    ),
]
Recover = Annotated[bool, typer.Option(help=RECOVER_HELP)]
Json = Annotated[bool, json_option("Print JSON instead of text.")]
Markdown = Annotated[
    bool,
    typer.Option("--markdown", help="Print Markdown that fits a comment on a pull request."),
]
Thresholds = Annotated[
    list[str] | None,
    threshold_option(
        "input=0.1,0.25",
        "input, comm, transfer, checkpoint, optimizer, other, host, not-annotated, evaluation, "
        "start-up, warm-up, loop-start, between, slower, periodic, two-kinds, slow-step, memory, "
        "compute",
        "slow-step-ms, warm-up-ms, start-up-ms, start-up-run-s, loops-ms, not-annotated-ms, "
        "slower-ms, memory-mb, rhythm, steps",
    ),
]
StepsRead = Annotated[
    str | None,
    typer.Option(
        "--steps",
        metavar="A:B",
        help="Only the steps A up to B, or A alone, by their numbers in the trace.",
    ),
]
RanksShown = Annotated[
    str | None, typer.Option(metavar="N,N-N,...", help="Only these ranks, such as 0,4-7.")
]
Everything = Annotated[
    bool, typer.Option("--all", help="All there is: every event, however many a viewer takes.")
]
Attempt = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Of ranks that were started again the start to read, the first being 1; by default "
        "the last.",
    ),
]
FailOn = Annotated[
    Severity | None,
    typer.Option(help="End with status 1 where a finding is at least that severe."),
]


def fails(fail_on: Severity | None, severities: Iterable[str]) -> bool:
    """Return whether findings of these severities are what `--fail-on` ends a command for."""
    failing = {"warning", "critical"} if fail_on is Severity.warning else {"critical"}
    return fail_on is not None and bool(failing & {*severities})
