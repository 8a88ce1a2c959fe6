"""The command `dftrace`: one module per subcommand, each of which loads what it needs when run.

Exit status: 0 done, 1 faults were found, 2 the call or its input is wrong. `dftrace stuck`
has its own: 0 nothing is stuck, 1 the call or its input is wrong, 2 something is stuck.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dftrace_ai.cli import (
    demo,
    diff,
    info,
    inspect,
    recover,
    report,
    runs,
    stuck,
    summary,
    top,
    validate,
    view,
    why,
)
from dftrace_ai.cli.extracting import convert, sql
from dftrace_ai.errors import ConfigError, DftraceError

__all__ = ["app", "main"]

BAD_INPUT = 2


class _Group(TyperGroup):
    """The commands, with errors of ours told in a line instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        from dftrace_ai.cli.terminal import shown

        try:
            return super().invoke(ctx)
        except ConfigError as error:
            # A line for each setting that is not accepted; what they quote is escaped.
            for line in str(error).split("\n"):
                typer.echo(f"dftrace: {shown(line)}", err=True)
            raise typer.Exit(BAD_INPUT) from error
        except DftraceError as error:
            typer.echo(f"dftrace: {shown(error)}", err=True)
            raise typer.Exit(BAD_INPUT) from error
        except MemoryError as error:
            typer.echo("dftrace: there is not enough memory for this", err=True)
            raise typer.Exit(BAD_INPUT) from error


app = typer.Typer(
    name="dftrace",
    cls=_Group,
    help="Record, check, add up and show the traces of AI training.",
    epilog="Exit status: 0 done, 1 faults were found, 2 the call or its input is wrong; "
    "`stuck` has its own, see its help.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from dftrace_ai._version import __version__

        typer.echo(f"dftrace {__version__}")
        raise typer.Exit


@app.callback()
def _dftrace(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    pass


for _module in (
    *(convert, demo, diff, info, recover, report, runs),
    *(sql, summary, top, validate, view, why),
):
    app.command(name=_module.__name__.rpartition(".")[2])(_module.command)
app.add_typer(inspect.app, name="inspect")
app.command(name="stuck", cls=stuck.Command)(stuck.command)


def main() -> None:
    """Run the command line; the entry point of `dftrace`."""
    from dftrace_ai.cli.terminal import prepare_streams, shown

    prepare_streams()
    for word in sys.argv[1:]:
        # The name of a file, put there by the shell for a `*`; the parser would echo it.
        if word.startswith("-") and shown(word) != word:
            sys.stderr.write(f"dftrace: there is no option {shown(word)}\n")
            sys.exit(BAD_INPUT)
    try:
        app()
    except BrokenPipeError:
        # Whoever read the output has seen enough. What is buffered has no reader any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        # What is written has no name; all that is read has one.
        named = error.filename is not None
        what = shown(os.fsdecode(error.filename)) if named else "the output cannot be written"
        sys.stderr.write(f"dftrace: {what}: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BAD_INPUT)
