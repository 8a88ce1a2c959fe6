"""`dftrace run`: a program that traces itself without a change of its code."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Command", "command"]

NOT_EXECUTABLE = 126
NOT_FOUND = 127

# The program gets what this one was given: what reads and prints here changes some of it.
_environ = dict(os.environ)

# Of a run that is on where the launcher is called: what it starts has a run of its own.
OF_ANOTHER_RUN = ("DFTRACE_RUN", "DFTRACE_RUN_SETTINGS")


class Command(TyperCommand):
    """A command whose own options end at the program; the words behind that are the program's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        with_value = {
            word
            for parameter in self.params
            if not getattr(parameter, "is_flag", False)
            for word in parameter.opts
            if word.startswith("-")
        }
        end = 0
        while end < len(args):
            word = args[end]
            if not word.startswith("-") or word in ("-", "--") or word[:2] in ("-m", "-c"):
                break
            end += 2 if word in with_value else 1
        rest = args[end:]
        return super().parse_args(ctx, [*args[:end], *(["--", *rest] if rest else [])])


def command(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT|-m MODULE|-- PROGRAM [ARGS]...",
            help="A script or module for this Python, or, behind --, any program that starts "
            "Python in the end, such as torchrun.",
            show_default=False,
        ),
    ],
    log_file: Annotated[
        str | None,
        typer.Option("--log-file", "-o", metavar="PREFIX", help="Where the traces go."),
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(help="What to record, or, with a minus before it, not: -data,-transfer."),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="A:B", help="The steps to record, counted from 0.")
    ] = None,
    depth: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="How deep modules within modules.")
    ] = None,
    modules: Annotated[
        str | None,
        typer.Option(metavar="PATTERNS", help="Modules by name or class, at any depth."),
    ] = None,
    device: Annotated[
        bool | None,
        typer.Option("--device/--no-device", help="Record what the GPU does meanwhile, too."),
    ] = None,
    nvtx: Annotated[
        bool | None,
        typer.Option("--nvtx/--no-nvtx", help="Open ranges for Nsight with the spans."),
    ] = None,
    itt: Annotated[
        bool | None,
        typer.Option("--itt/--no-itt", help="Open ranges for VTune with the spans."),
    ] = None,
    io: Annotated[
        bool | None,
        typer.Option("--io/--no-io", help="Record files, those in the setting data_dir."),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(metavar="DIRS|all", help="Where the data are, with colons between them."),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(metavar="dp=0,pp=1", help="Place in a parallel training, if none finds it."),
    ] = None,
    compression: Annotated[
        str | None, typer.Option(metavar="gzip|zstd|none", help="Of the traces.")
    ] = None,
    args: Annotated[
        bool | None,
        typer.Option("--args/--no-args", help="Write arguments (step, epoch) with events."),
    ] = None,
    summary: Annotated[
        bool | None,
        typer.Option("--summary/--no-summary", help="Tell at the end what steps lost time to."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting. May be given again."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file of settings.")
    ] = None,
) -> None:
    """Run a PyTorch or Keras training that traces itself, without a change of its code.

    The program takes this process's place: its arguments, signals and exit status are its own.
    Nothing is loaded into it before it imports torch, TensorFlow or Keras; then it is as if it had
    called dftrace_ai.auto(). So it is in all Pythons of this environment that it starts.

    Example: dftrace run --steps 100:120 train.py --lr 0.1

    Exit status: that of the program; 2 when the call is wrong, 126 when the program cannot be
    started, 127 when there is none of the name.
    """
    from dftrace_ai.cli.launching.programs import command_line, why_silent
    from dftrace_ai.cli.terminal import complain, shown

    switches = {
        "auto_device": device,
        "auto_nvtx": nvtx,
        "auto_itt": itt,
        "auto_io": io,
        "args": args,
        "summary": summary,
    }
    given = {
        "log_file": log_file,
        "auto_parts": parts,
        "auto_steps": steps,
        "auto_depth": depth,
        "auto_modules": modules,
        "data_dir": data_dir,
        "layout": layout,
        "compression": compression,
        **{name: str(one) for name, one in switches.items() if one is not None},
        **_others(settings or ()),
    }
    line = command_line(program)
    environ = {name: text for name, text in _environ.items() if name not in OF_ANOTHER_RUN}
    told = {name: text for name, text in given.items() if text is not None}
    variables = _variables(environ, told, config)
    if variables is not None:
        environ.update(variables)
        reason = why_silent(line, environ)
        if reason is not None:
            complain(f"run: {shown(reason)}")
    _become(line, environ)


def _others(settings: Sequence[str]) -> dict[str, str]:
    from dftrace_ai.errors import ConfigError

    found = {}
    for one in settings:
        name, equals, text = one.partition("=")
        if not equals:
            raise ConfigError(f"--set {one}: NAME=VALUE is needed, such as --set ids=false")
        found[name.strip().replace("-", "_")] = text
    return found


def _variables(
    environ: Mapping[str, str], given: Mapping[str, str], file: Path | None
) -> dict[str, str] | None:
    """Return the variables that give the program its settings; None where it shall not record.

    Raises:
        ConfigError: a setting is unknown or its value is not accepted.
        LogDirectoryError: the directory of the trace cannot be made or written.
    """
    for name in OF_ANOTHER_RUN:
        os.environ.pop(name, None)
    from dftrace_ai.config.loading import load_config, may_be_none
    from dftrace_ai.config.sources import variable_of
    from dftrace_ai.run.settings import LAUNCH_VARIABLE, absolute, check_directory

    missing = {name for name in may_be_none() if given.get(name, "").strip().lower() == "none"}
    values: dict[str, object] = {name: None if name in missing else given[name] for name in given}
    config = load_config(file, environ, **values)
    if not config.enabled:
        return None
    _check_parts(config.auto_parts)
    check_directory(config)
    # Whatever the directory in which a process of it imports its framework.
    places = {"log_file": config.log_file, "spool_dir": config.spool_dir}
    variables = {variable_of(name): text for name, text in given.items()}
    # A name of the launch, and which process is the program itself: this one, by then.
    variables[LAUNCH_VARIABLE] = f"{secrets.token_hex(16)}.{os.getpid()}"
    variables.update(
        (variable_of(name), str(absolute(place))) for name, place in places.items() if place
    )
    named = file or environ.get("DFTRACE_CONFIG")
    if named:
        variables["DFTRACE_CONFIG"] = str(absolute(Path(named)))
    return variables


def _check_parts(text: str) -> None:
    """Raise a ConfigError where a part is named that nobody brings."""
    from dftrace_ai.config.model import Config
    from dftrace_ai.errors import ConfigError

    if text == Config.model_fields["auto_parts"].default:
        return
    from dftrace_ai.integrations.options import named_parts
    from dftrace_ai.integrations.parts import unknown_parts

    strange = unknown_parts(frozenset().union(*named_parts(text)))
    if strange:
        raise ConfigError(f"auto_parts: {strange}")


def _become(line: Sequence[str], environ: Mapping[str, str]) -> None:
    from dftrace_ai.cli.terminal import complain, shown

    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # this Python ignores them
    for file, stream in enumerate((sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        if stream is None:  # it was closed by who called
            os.close(file)
    try:
        os.execvpe(line[0], list(line), environ)  # noqa: S606 - that is what is asked for
    except OSError as error:
        complain(f"run: {shown(line[0])}: {error.strerror}")
        raise typer.Exit(
            NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        ) from error
