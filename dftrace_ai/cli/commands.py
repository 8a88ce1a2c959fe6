"""The commands by their names, as a program of typer's: all of them, or the one that is called.

Loaded late, for typer is: whoever interrupts `dftrace` until then gets no traceback.
"""

from __future__ import annotations

import os
from enum import Enum
from functools import partial
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from shutil import get_terminal_size, which
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from dftrace_ai import recorder
from dftrace_ai._version import __version__
from dftrace_ai.errors import ConfigError, DftraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.config.project_file import Option

BAD_INPUT = 2

# In which part of the help each is, and in what order; a command's module has its name.
COMMANDS = {
    "run": "Begin here",
    "why": "Begin here",
    "ui": "Begin here",
    "summary": "Look into a trace",
    "report": "Look into a trace",
    "view": "Look into a trace",
    "ranks": "Look into a trace",
    "whatif": "Look into a trace",
    "diff": "Look into a trace",
    "sql": "Look into a trace",
    "merge": "Look into a trace",
    "convert": "Look into a trace",
    "top": "Watch a running job",
    "stuck": "Watch a running job",
    "export": "Watch a running job",
    "runs": "Logged experiments, tensor inspection",
    "inspect": "Logged experiments, tensor inspection",
    "info": "Care for traces",
    "validate": "Care for traces",
    "recover": "Care for traces",
    "index": "Care for traces",
    "demo": "Try it, move to it",
    "generate": "Try it, move to it",
    "migrate": "Try it, move to it",
}

# Those that record, or look into what is being recorded.
RECORDING = frozenset({"run", "top", "stuck", "recover", "demo", "generate"})

# What options were called before, which is taken for this version and shown nowhere.
FORMER: dict[str, dict[str, tuple[str, ...]]] = {
    "diff": {"--limit": ("--top",)},
    "report": {"--limit": ("--threshold",), "--output": ("--out",)},
    "sql": {"--limit": ("--top",)},
    "stuck": {"--limit": ("--idle",)},
    "summary": {"--tree": ("--by", "tree"), "--tensors": ("--by", "tensor")},
    "validate": {"--limit": ("--top",)},
    "why": {"--limit": ("--threshold",)},
    "runs": {"--export": ("--to",), "--html": ("--to", "html", "--out")},
    "check": {"--steps": ("--iterations",)},
}

# That of a shell that asks for what may come next.
COMPLETING = "_DFTRACE_COMPLETE"
# Letters of a line that has room for the panels of a help, and of names before what they mean.
PANELS_FROM = 60
NARROW_NAMES = 6
ANY_WORDS = {"ignore_unknown_options": True, "allow_extra_args": True}
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


class QuickGroup(TyperGroup):
    """Commands under one name, whose help is as that of `QuickCommand`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, that for the help among them."""
        return _quickly(super().get_params(ctx))


class _Every(QuickGroup):
    """The commands, with errors of ours told in a line instead of a traceback."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that a call begins with; for what is none, say which takes it."""
        word = args[0]
        if word not in self.commands and not word.startswith("-"):
            call = _call_with(word, args)
            if call:
                raise DftraceError(f"there is no command {word}; did you mean: dftrace {call}")
        return super().resolve_command(ctx, args)

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


def _call_with(word: str, words: Sequence[str]) -> str:
    """Return the call that somebody meant who has left its command out; empty for a wrong word."""
    import shlex
    from difflib import get_close_matches

    from dftrace_ai.trace_format.file_names import is_trace

    if os.path.lexists(word):
        is_script = os.path.isfile(word) and not is_trace(word)  # noqa: PTH113 - any name
        return shlex.join(["run" if is_script else "why", *words])
    is_program = which(word) and not get_close_matches(word, COMMANDS)
    return shlex.join(["run", "--", *words]) if is_program else ""


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dftrace {__version__}")
        raise typer.Exit


def _dftrace(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Print the version and end.",
        ),
    ] = False,
) -> None:
    pass


def _lacking() -> None:
    """Not here: the recorder is for Linux."""
    raise DftraceError(recorder.lack())


def _app_of(names: Iterable[str], *, completes: bool) -> typer.Typer:
    made = typer.Typer(
        name="dftrace",
        cls=_Every,
        help="Record, check, add up and show the traces of AI training.",
        epilog="Exit status: 0 done, 1 something was found, 2 the call or its input is wrong; "
        "that of `run` is its program's.",
        context_settings=HELP_OPTIONS,
        no_args_is_help=True,
        add_completion=completes,
        pretty_exceptions_enable=False,
    )
    made.callback()(_dftrace)
    for name in names:
        if name in RECORDING and recorder.lack():
            add = made.command(
                name=name, rich_help_panel=COMMANDS[name], context_settings=ANY_WORDS
            )
            add(_lacking)
            continue
        module = import_module(f"dftrace_ai.cli.{name}")
        if hasattr(module, "app"):
            made.add_typer(module.app, name=name, rich_help_panel=COMMANDS[name])
        else:
            kind = getattr(module, "Command", QuickCommand)
            add = made.command(name=name, cls=kind, rich_help_panel=COMMANDS[name])
            add(module.command)
    return made


def app_for(words: Sequence[str]) -> typer.Typer:
    """Return the program for the words of a call, with the one command that they begin with."""
    # Where they begin with anything else, such as ``--help``, it has every command.
    completes = COMPLETING in os.environ
    if completes:
        words = _typed_so_far()
    first = words[0] if words else ""
    if first in COMMANDS:
        return _app_of([first], completes=completes)
    # The version is printed before any command is looked for. What has to do with completion takes
    # time to load, and stands beside it in the help.
    if first in ("--version", "-V"):
        return _app_of([], completes=False)
    return _app_of(COMMANDS, completes=True)


def _typed_so_far() -> list[str]:
    """Return the words in front of the one that a shell asks about."""
    # Of bash; and of zsh and fish, where a blank stands behind a word that is whole.
    if "COMP_WORDS" in os.environ:
        words = os.environ["COMP_WORDS"].split()
        return words[1 : int(os.environ.get("COMP_CWORD", "1"))]
    return os.environ.get("_TYPER_COMPLETE_ARGS", "").rpartition(" ")[0].split()[1:]


def options_of_project(command: str) -> dict[str, Option]:
    """Return what the project's file says of a command's options."""
    from dftrace_ai.config.project_file import options_of

    return {name.replace("-", "_"): one for name, one in options_of(command).items()}


def as_named_now(name: str, words: Sequence[str]) -> list[str]:
    """Return the words of a call of a command, with options by the names that they have now."""
    former = FORMER.get(name, {})
    named: list[str] = []
    for at, word in enumerate(words):
        if word == "--":
            return [*named, *words[at:]]
        option, equals, value = word.partition("=")
        *now, last = former.get(option, (option,))
        named += [*now, last + equals + value]
    return named


def _quickly(params: list[Any]) -> list[Any]:
    """Return parameters of typer's, made to convert plain words by themselves."""
    for param in params:
        _show_plainly(param)
        wanted = getattr(param, "type_descriptor", None)
        # Older versions load nothing for it.
        if wanted is not None and not isinstance(param.process_value, _Quickly):
            param.process_value = _Quickly(param, wanted.annotation)
    return params


def _show_plainly(param: Any) -> None:
    """Let the help name no types of Python: an argument has its name, a choice what there is."""
    if param.param_type_name == "argument":
        param.get_usage_pieces = lambda _: [param.metavar]
    if param.param_type_name == "argument" or param.is_flag:
        param.display_type_rich = lambda **_: None
    elif param.metavar is None:
        wanted = getattr(param, "type_descriptor", None)
        if wanted is not None and wanted.is_choice:
            param.metavar = "|".join(each.value for each in wanted.choices)


class QuickCommand(TyperCommand):
    """A command that converts plain words by itself."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, that for the help among them."""
        return _quickly(super().get_params(ctx))

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Return the context of a call, in which what the project's file says is the default."""
        said = {} if extra.get("resilient_parsing") else options_of_project(self.name or "")
        if said:
            extra["default_map"] = {name: one.words for name, one in said.items()}
        ctx = super().make_context(info_name, args, parent, **extra)
        told = [
            f"{one.origin}: {one.words if isinstance(one.words, str) else ', '.join(one.words)}"
            for name, one in said.items()
            if (source := ctx.get_parameter_source(name)) and source.name == "DEFAULT_MAP"
        ]
        if told:
            from dftrace_ai.cli.terminal import complain

            complain("; ".join(told))
        return ctx

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        return super().parse_args(ctx, as_named_now(self.name or "", args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with paragraphs that are as wide as the terminal."""
        paragraphs = cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        columns = get_terminal_size().columns
        if columns < PANELS_FROM:
            # Panels would cut the names of options off.
            self.rich_markup_mode = None
            formatter.width = columns
            formatter.write_dl = partial(formatter.write_dl, col_max=NARROW_NAMES)
        super().format_help(ctx, formatter)


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
