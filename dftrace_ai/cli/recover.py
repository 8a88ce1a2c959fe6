"""`dftrace recover`: the traces of processes that died, completed from what they left."""

from __future__ import annotations

import os
import stat
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import Annotated

import typer

from dftrace_ai.cli.reading import folders_here
from dftrace_ai.cli.shared_options import json_option, on_this_machine
from dftrace_ai.cli.terminal import shown, shown_progress, write_json
from dftrace_ai.errors import TraceError
from dftrace_ai.wording import counted, quoted

NOT_ALL_RECOVERED = 1


def command(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...",
            callback=on_this_machine,
            help="Directories to search for traces, to any depth. Without any: all runs below the "
            "current directory.",
        ),
    ] = None,
    spool_dir: Annotated[
        Path | None,
        typer.Option(
            "--spool-dir", metavar="DIR", help="Where to look for spools besides the usual places."
        ),
    ] = None,
    orphans: Annotated[
        bool,
        typer.Option(
            "--orphans",
            help="Also complete traces that are gone or were cut, in another file: beside their "
            "markers, or, where their directory is gone, in the first DIR.",
        ),
    ] = False,
    json: Annotated[bool, json_option("Print JSON instead of lines.")] = False,
) -> None:
    """Complete the traces of processes that were killed, crashed or left without a word.

    Every event that had ended is written, once; spans that were open become unfinished
    ones. Processes that still run are left alone, and the command may be given again and
    at any time. Exit status 1 when something could not be recovered, or only in part.

    Example: dftrace recover out
    """
    from dftrace_ai.spools.completing import complete_directories, report_of
    from dftrace_ai.spools.recovery import adopt_orphans

    deep = bool(directories)
    directories = directories or folders_here()
    for directory in directories:
        _check_listable(directory)
    with shown_progress("recovering"):
        found = complete_directories(directories, spool_dir, anew=orphans, deep=deep)
        if orphans:
            found.add(adopt_orphans(directories[0]))
    if json:
        write_json(report_of(found))
    else:
        whole = set(found.ended_in_order)
        for path in found.finished:
            typer.echo(f"{'was complete' if path in whole else 'recovered'} {shown(path)}")
        for path in found.alive:
            where = "runs" if os.path.lexists(path) else "of another host"
            typer.echo(f"{where}, left alone: {shown(path)}")
        for line in found.damaged:
            typer.echo(f"damaged, left out: {shown(line)}", err=True)
        for line in found.failed:
            typer.echo(f"not recovered: {shown(line)}", err=True)
        if not any(found):
            typer.echo("nothing to recover")
        elif len(found.finished) > len(whole):
            typer.echo(f"{counted(len(found.finished) - len(whole), 'trace')} recovered")
    if found.failed or found.damaged:
        raise typer.Exit(NOT_ALL_RECOVERED)


def _check_listable(directory: Path) -> None:
    name = quoted(str(directory))
    try:
        mode = directory.stat().st_mode
    except FileNotFoundError as error:
        raise TraceError(f"{name}: no such directory") from error
    except OSError as error:
        raise TraceError(f"{name}: cannot be read: {error.strerror}") from error
    if not stat.S_ISDIR(mode):
        raise TraceError(f"{name}: not a directory")
    if not os.access(directory, os.R_OK | os.X_OK):
        raise TraceError(f"{name}: cannot be listed: permission denied")
