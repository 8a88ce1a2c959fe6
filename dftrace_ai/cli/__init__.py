"""The command `dftrace`: one module per subcommand, each of which loads what it needs when run.

Exit status: 0 done, 1 faults were found, 2 the call or its input is wrong.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from dftrace_ai.cli import demo, info, summary, validate, view
from dftrace_ai.errors import DftraceError

__all__ = ["app", "main"]

BAD_INPUT = 2


class _Group(TyperGroup):
    """The commands, with errors of ours told in a line instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DftraceError as error:
            typer.echo(f"dftrace: {error}", err=True)
            raise typer.Exit(BAD_INPUT) from error


app = typer.Typer(
    name="dftrace",
    cls=_Group,
    help="Record, check, add up and show the traces of AI training.",
    epilog="Exit status: 0 done, 1 faults were found, 2 the call or its input is wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _module in (demo, info, summary, validate, view):
    app.command(name=_module.__name__.rpartition(".")[2])(_module.command)


def main() -> None:
    """Run the command line; the entry point of `dftrace`."""
    try:
        app()
    except BrokenPipeError:
        # Whoever read the output has seen enough. What is buffered has no reader any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        sys.stderr.write(f"dftrace: the output cannot be written: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BAD_INPUT)
