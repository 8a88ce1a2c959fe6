"""The commands by their names, as a program of typer's: all of them, or the one that is called."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from dftrace_ai.cli.calling.plain_words import QuickCommand, quickly
from dftrace_ai.errors import ConfigError, DftraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["app_for"]

BAD_INPUT = 2

# In which module each is, in the order of the help.
COMMANDS = {
    "convert": "extracting.convert",
    "demo": "demo",
    "diff": "diff",
    "index": "index",
    "info": "info",
    "migrate": "migrating.migrate",
    "recover": "recover",
    "report": "report",
    "runs": "runs",
    "sql": "extracting.sql",
    "summary": "summary",
    "top": "top",
    "validate": "validate",
    "view": "view",
    "why": "why",
    "inspect": "inspect",
    "run": "launching.run",
    "stuck": "stuck",
}


class _Group(TyperGroup):
    """The commands, with errors of ours told in a line instead of a traceback."""

    def get_params(self, ctx: Any) -> list[Any]:
        return quickly(super().get_params(ctx))

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


def _print_version(asked: bool) -> None:
    if asked:
        from dftrace_ai._version import __version__

        typer.echo(f"dftrace {__version__}")
        raise typer.Exit


def _dftrace(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    pass


def _app_of(names: Iterable[str]) -> typer.Typer:
    made = typer.Typer(
        name="dftrace",
        cls=_Group,
        help="Record, check, add up and show the traces of AI training.",
        epilog="Exit status: 0 done, 1 faults were found, 2 the call or its input is wrong; "
        "`stuck` and `run` have their own, see their help.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    made.callback()(_dftrace)
    for name in names:
        module = import_module(f"dftrace_ai.cli.{COMMANDS[name]}")
        if hasattr(module, "app"):
            made.add_typer(module.app, name=name)
        else:
            kind = getattr(module, "Command", QuickCommand)
            made.command(name=name, cls=kind)(module.command)
    return made


def app_for(words: Sequence[str]) -> typer.Typer:
    """Return the program for the words of a call, with the one command that they begin with.

    Args:
        words: the command line, without the name of the program; where it begins with anything
            else, such as ``--help``, the program has every command.

    Example::

        app_for(["summary", "out"])()
    """
    first = words[0] if words else ""
    # The version is printed before any command is looked for.
    return _app_of([first] if first in COMMANDS else [] if first == "--version" else COMMANDS)
