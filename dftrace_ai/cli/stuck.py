"""`dftrace stuck`: who has been waiting for too long, and for whom."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from dftrace_ai.cli.reading import Json, Run, tell_watched, watched_here
from dftrace_ai.errors import DftraceError

if TYPE_CHECKING:
    from dftrace_ai.live import Verdict

BAD_INPUT = 2
STUCK = 1


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATHS]...",
            help="Directories in which processes write traces, and snapshots of other hosts, "
            "made there by `dftrace top --once --json`. Without any: all below the current "
            "directory.",
        ),
    ] = None,
    idle: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="A thread in a span is stuck when it has recorded nothing for longer than this.",
        ),
    ] = 60.0,
    json: Json = False,
    run: Run = None,
) -> None:
    """Tell which ranks wait, for how long, and for which one.

    Looks once, at running processes, without their noticing. Ranks in a collective wait
    for those that are elsewhere; the likely cause is marked. Of several runs the newest of those
    that run is judged.

    Example: dftrace stuck out --idle 30

    Exit status: 0 nothing is stuck, 1 something is, or a rank has died while others live,
    2 the call or its input is wrong.
    """
    from dftrace_ai.live import Observer, find_stuck
    from dftrace_ai.live.died import died_in
    from dftrace_ai.live.verdict_words import finding_lines

    try:
        paths = paths or watched_here()
        observer = Observer(paths, run=run or "last")
        verdict = find_stuck(observer.look(), idle)
    except DftraceError as error:
        typer.echo(f"dftrace: {error}", err=True)
        for line, _ in finding_lines(died_in(paths or (), run or "last")):
            typer.echo(line, err=True)
        raise typer.Exit(BAD_INPUT) from error
    _print(verdict, as_json=json)
    tell_watched(observer)
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

    from dftrace_ai.cli.terminal import console, print_all
    from dftrace_ai.live.verdict_words import verdict_lines

    lines = verdict_lines(verdict)
    print_all(console(), (Text(line, style, overflow="fold") for line, style in lines))
