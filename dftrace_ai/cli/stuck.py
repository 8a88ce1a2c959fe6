"""`dftrace stuck`: who has been waiting for too long, and for whom."""

from __future__ import annotations

import os
import sys
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dftrace_ai.cli.commands import QuickCommand
from dftrace_ai.cli.reading import Json  # noqa: TC001 - typer evaluates the annotations
from dftrace_ai.errors import DftraceError

if TYPE_CHECKING:
    from dftrace_ai.live import Verdict

BAD_INPUT = 1
STUCK = 2

CLICK_USAGE_ERROR = 2


class Command(QuickCommand):
    """A command that ends with 1 when it is called wrongly: 2 means that something is stuck."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the words of the command line."""
        try:
            return super().make_context(*args, **extra)
        except Exception as error:
            # A usage error of click, which newer versions of typer carry inside of themselves.
            if getattr(error, "exit_code", 0) == CLICK_USAGE_ERROR:
                error.exit_code = BAD_INPUT  # type: ignore[attr-defined]
            raise


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATHS...",
            help="Directories in which processes write traces, and snapshots of other hosts, "
            "made there by `dftrace top --once --json`.",
        ),
    ],
    limit: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="A thread in a span is stuck when it has recorded nothing for longer than this.",
        ),
    ] = 60.0,
    json: Json = False,
) -> None:
    """Tell which ranks wait, for how long, and for which one.

    Looks once, at running processes, without their noticing. Ranks in a collective wait
    for those that are elsewhere; the likely cause is marked.

    Example: dftrace stuck out --limit 30

    Exit status: 0 nothing is stuck, 1 the call or its input is wrong, 2 something is
    stuck, or a rank has died while others live.
    """
    from dftrace_ai.cli.live_view.verdict import finding_lines
    from dftrace_ai.live import find_stuck, snapshot
    from dftrace_ai.live.stuck import died_in

    try:
        verdict = find_stuck(snapshot(paths), limit)
    except DftraceError as error:
        typer.echo(f"dftrace: {error}", err=True)
        for line, _ in finding_lines(died_in(paths)):
            typer.echo(line, err=True)
        raise typer.Exit(BAD_INPUT) from error
    try:
        _print(verdict, as_json=json)
    except OSError as error:
        typer.echo(f"dftrace: the output cannot be written: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BAD_INPUT) from error
    if verdict.stuck:
        raise typer.Exit(STUCK)


def _print(verdict: Verdict, *, as_json: bool) -> None:
    if as_json:
        import orjson

        from dftrace_ai.cli.terminal import acting_escaped, write_out

        option = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        write_out(acting_escaped(orjson.dumps(verdict, option=option).decode()))
        return
    from rich.text import Text

    from dftrace_ai.cli.live_view.verdict import verdict_lines
    from dftrace_ai.cli.terminal import console, print_all

    lines = verdict_lines(verdict)
    print_all(console(), (Text(line, style, overflow="fold") for line, style in lines))
