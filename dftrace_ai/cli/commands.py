"""The commands by their names, as a program of typer's: all of them, or the one that is called.

Loaded late, for typer is: whoever interrupts `dftrace` until then gets no traceback.
"""

from __future__ import annotations

import os
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from dftrace_ai.errors import ConfigError, DftraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BAD_INPUT = 2

# In which module each is, in the order of the help.
COMMANDS = {
    "convert": "convert",
    "demo": "demo",
    "diff": "diff",
    "index": "index",
    "info": "info",
    "migrate": "migrate",
    "recover": "recover",
    "report": "report",
    "runs": "runs",
    "sql": "sql",
    "summary": "summary",
    "top": "top",
    "validate": "validate",
    "view": "view",
    "why": "why",
    "inspect": "inspect",
    "run": "run",
    "stuck": "stuck",
}


class _Group(TyperGroup):
    """The commands, with errors of ours told in a line instead of a traceback."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _quickly(super().get_params(ctx))

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
    """Return the program for the words of a call, with the one command that they begin with."""
    # Where they begin with anything else, such as ``--help``, it has every command.
    first = words[0] if words else ""
    # The version is printed before any command is looked for.
    return _app_of([first] if first in COMMANDS else [] if first == "--version" else COMMANDS)


def _quickly(params: list[Any]) -> list[Any]:
    """Return parameters of typer's, made to convert plain words by themselves."""
    for param in params:
        wanted = getattr(param, "type_descriptor", None)
        # Older versions load nothing for it.
        if wanted is not None and not isinstance(param.process_value, _Quickly):
            param.process_value = _Quickly(param, wanted.annotation)
    return params


class QuickCommand(TyperCommand):
    """A command that converts plain words by itself."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, that for the help among them."""
        return _quickly(super().get_params(ctx))


class _Quickly:
    """What a parameter makes of the words given for it."""

    # Typer has pydantic look at each word from 0.29 on, and to load that takes longer than to sum
    # up an indexed trace. It still looks at those that are not plain, and words what is wrong.

    def __init__(self, param: Any, wanted: Any) -> None:
        self._param = param
        self._wanted = wanted
        self._thoroughly = param.process_value

    def __call__(self, ctx: Any, value: Any) -> Any:
        param = self._param
        plain, is_plain = self._converted(value)
        if not is_plain or (param.required and plain in (None, (), [])):
            return self._thoroughly(ctx, value)
        return param.callback(ctx, param, plain) if param.callback else plain

    def _converted(self, value: Any) -> tuple[Any, bool]:
        several = self._param.multiple or self._param.nargs == -1
        if value is None:
            return (() if several else None), True
        if not several:
            plain = self._plain(self._wanted, value)
            return plain, plain is not None
        if get_origin(self._wanted) is not list or not isinstance(value, (list, tuple)):
            return None, False
        (kind,) = get_args(self._wanted)
        each = [self._plain(kind, item) for item in value]
        return each, None not in each

    def _plain(self, kind: Any, word: Any) -> Any:
        """Return what a word stands for; None where it is not plain."""
        if not isinstance(kind, type):
            return None
        if not isinstance(word, str):
            # A default, which has its type.
            return word if type(word) is kind else None
        if issubclass(kind, Enum):
            return next((one for one in kind if one.value == word), None)
        if kind is str:
            return word
        if kind is Path:
            # Typer refuses what is there and cannot be read.
            return Path(word) if os.access(word, os.R_OK) else None
        if kind in (int, float) and word.isascii() and word.replace(".", "", 1).isdigit():
            if kind is int and not word.isdigit():
                return None
            number = kind(word)
            least, most = self._param.min, self._param.max
            within = (least is None or number >= least) and (most is None or number <= most)
            return number if within else None
        return None
