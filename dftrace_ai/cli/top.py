"""`dftrace top`: what every rank is doing, while it does it."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from dftrace_ai.cli.reading import tell_watched, watched_here
from dftrace_ai.cli.shared_options import Run, json_option, not_together, on_this_machine
from dftrace_ai.cli.terminal import console, print_all, write_out
from dftrace_ai.errors import missing_package

if TYPE_CHECKING:
    from rich.console import Console

    from dftrace_ai.live import Observer


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...",
            callback=on_this_machine,
            help="Directories in which processes write traces; also saved snapshots. Without any: "
            "the folders of runs below the current directory.",
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.05, metavar="SECONDS", help="Time between two looks.")
    ] = 1.0,
    window: Annotated[
        float,
        typer.Option(
            min=0.1, max=3600.0, metavar="SECONDS", help="What shares of time look back on."
        ),
    ] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="End after one table.")] = False,
    json: Annotated[
        bool,
        json_option("Print JSON of one snapshot and end; `dftrace stuck` reads it."),
    ] = False,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve metrics to Prometheus until Ctrl+C; without HOST on 127.0.0.1.",
        ),
    ] = None,
    run: Run = None,
) -> None:
    """Show what every traced process is doing: its open spans, since when, and how its time goes.

    Looks at running processes without their noticing, and at dead ones as they were at
    the last. Ranks that differ from the others are marked. `q` or Ctrl+C leaves.
    Where the output is no terminal, one table is printed. Of several runs the newest of those
    that run is shown.

    Example: dftrace top out --interval 2
    """
    from dftrace_ai.live import Observer

    for word, is_given in (("--once", once), ("--json", json)):
        not_together({word: is_given, "--prometheus": prometheus is not None})
    observer = Observer(paths or watched_here(), window, run or "last", deep=bool(paths))
    if json:
        from dftrace_ai.live import snapshot_json

        write_out(snapshot_json(observer.look()).decode())
        tell_watched(observer)
        return
    if prometheus is not None:
        _serve(observer, prometheus)
        return
    out = console()
    if once or not out.is_terminal:
        _print_once(out, observer)
    else:
        from dftrace_ai.cli.live_view.screen import LiveScreen

        LiveScreen(out, observer, interval).run()


def _serve(observer: Observer, place: str) -> None:
    try:
        from dftrace_ai.cli.live_view.metrics import serve
    except ImportError as error:
        raise missing_package("prometheus_client", "--prometheus", "prometheus") from error
    _, address = serve(observer, place)
    write_out(f"metrics at {address}\n")
    Event().wait()


def _print_once(out: Console, observer: Observer) -> None:
    from dftrace_ai.cli.live_view.page import page

    coloured = out.color_system is not None
    print_all(out, page(observer.look(), out.width, None, coloured=coloured))
    tell_watched(observer)
