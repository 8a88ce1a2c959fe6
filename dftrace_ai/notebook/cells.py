"""`%%trace`: a cell of a notebook that is recorded, and the verdict on it below the cell."""

from __future__ import annotations

import asyncio
import getopt
import os
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.errors import DftraceError, LogDirectoryError, TraceError, needs_numpy
from dftrace_ai.integrations.auto import auto
from dftrace_ai.run.lifecycle import tracing
from dftrace_ai.run.run import current_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dftrace_ai.run.run import Run

MAGIC = "trace"
SETTINGS = {
    "-o": "log_file",
    "--out": "log_file",
    "--log-file": "log_file",
    "--parts": "auto_parts",
    "--steps": "auto_steps",
    "--depth": "auto_depth",
    "--modules": "auto_modules",
    "--data-dir": "data_dir",
}
SWITCHES = {
    "--device": "auto_device",
    "--nvtx": "auto_nvtx",
    "--itt": "auto_itt",
    "--io": "auto_io",
}
FLAGS = (*SWITCHES, "--no-auto", "--quiet")
HELP = """Record a cell, and show below it what its steps lose time to.

%%trace [-o DIR] [--log-file PREFIX] [--parts NAMES] [--steps A:B] [--depth NUMBER]
        [--modules PATTERNS] [--device] [--nvtx] [--itt] [--io] [--data-dir DIRS]
        [--no-auto] [--quiet]

-o, --out       the directory where the traces go
--log-file      the same, and how their names begin
--parts         what `auto` records, or, with a minus before it, not: -data,-transfer
--steps         the steps that `auto` records, counted from 0
--depth         how deep it records modules within modules
--modules       modules that it records at any depth, by name or class
--device        record what the stream of the GPU does meanwhile, too
--nvtx, --itt   open ranges for Nsight, for VTune, with the spans
--io            record files, too: those of checkpoints and, below --data-dir, of data
--data-dir      folders of the data, with colons between them, or all
--no-auto       record annotations alone
--quiet         show nothing
"""


def load_ipython_extension(shell: Any) -> None:
    """Give a shell of IPython the cell magic ``%%trace``; what ``%load_ext dftrace_ai`` calls.

    Args:
        shell: an `InteractiveShell`.

    Raises:
        DftraceError: it is none.

    Example::

        %load_ext dftrace_ai
    """
    if not hasattr(shell, "register_magic_function"):
        raise DftraceError(
            "%%trace is for IPython and Jupyter, where %load_ext dftrace_ai gives it; elsewhere "
            "`with dftrace_ai.tracing():` records a block"
        )
    shell.register_magic_function(_magic_of(shell), "cell", MAGIC)


def unload_ipython_extension(shell: Any) -> None:
    """Take ``%%trace`` out of a shell of IPython; what ``%unload_ext dftrace_ai`` calls.

    Args:
        shell: an `InteractiveShell`.

    Example::

        %unload_ext dftrace_ai
    """
    shell.magics_manager.magics["cell"].pop(MAGIC, None)


class _ShownError(Exception):
    """Ends a cell whose own exception has been shown: what follows it in a notebook is not run."""

    def _render_traceback_(self) -> list[str]:
        return []


class _Raised:
    """What a cell has raised, and how the shell would have shown it."""

    error: BaseException | None = None
    lines: tuple[str, ...] = ()

    def raise_once(self) -> None:
        """Raise it, for the shell to show as it would show that of the cell alone.

        Raises:
            _ShownError: in its place, where the shell has shown it in another way.
        """
        if self.error is None:
            raise _ShownError
        # Past what its class may do with attributes, as a frozen dataclass refuses them.
        object.__setattr__(self.error, "_render_traceback_", lambda: list(self.lines))
        raise self.error


def _magic_of(shell: Any) -> Callable[[str, str], None]:
    def trace(line: str, cell: str) -> None:
        from IPython.core.error import UsageError

        try:
            settings, flags = _asked(line)
            _refuse_await(shell, cell)
            with _kept_from_being_shown(shell) as raised:
                run = _recorded(shell, cell, settings, automatic="--no-auto" not in flags)
        except DftraceError as error:
            raise UsageError(f"%%{MAGIC}: {error}") from None
        if run and "--quiet" not in flags:
            _show(run)
        if not shell.last_execution_result.success:
            raised.raise_once()

    trace.__doc__ = HELP
    return trace


def _refuse_await(shell: Any, cell: str) -> None:
    """Refuse a cell that only the loop which runs this could run."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if shell.should_run_async(cell, transformed_cell=shell.transform_cell(cell)):
        raise DftraceError(
            "a cell with await outside of functions cannot be traced here; put it into a "
            "`with dftrace_ai.tracing():`"
        )


@contextmanager
def _kept_from_being_shown(shell: Any) -> Iterator[_Raised]:
    """Have what ends a cell shown by whoever called the magic, and not by the shell meanwhile."""
    raised, show = _Raised(), shell.showtraceback

    def keep(_: type[BaseException], error: BaseException, lines: list[str]) -> None:
        raised.error, raised.lines = error, tuple(lines)

    def kept(*given: Any, running_compiled_code: bool = False, **named: Any) -> None:
        if running_compiled_code:  # what the cell itself asks to be shown is not
            shell._showtraceback = keep
        try:
            show(*given, running_compiled_code=running_compiled_code, **named)
        finally:
            vars(shell).pop("_showtraceback", None)

    shell.showtraceback = kept
    try:
        yield raised
    finally:
        vars(shell).pop("showtraceback", None)


def _asked(line: str) -> tuple[dict[str, str], list[str]]:
    names = [name.removeprefix("--") for name in (*SETTINGS, *FLAGS) if name.startswith("--")]
    long = [name if f"--{name}" in FLAGS else f"{name}=" for name in names]
    try:
        given, rest = getopt.getopt(shlex.split(line), "o:", long)
    except (getopt.GetoptError, ValueError) as error:
        raise DftraceError(f"{error}; %%{MAGIC}? tells its options") from error
    if rest:
        raise DftraceError(f"{rest[0]!r} is no option; %%{MAGIC}? tells its options")
    places = {"--out" if name == "-o" else name for name, _ in given} & {"--out", "--log-file"}
    if len(places) > 1:
        raise DftraceError("--out and --log-file cannot be given together")
    settings = {SETTINGS[name]: text for name, text in given if name in SETTINGS}
    if "--out" in places:
        settings["log_file"] = os.path.join(settings["log_file"], "")
    flags = [name for name, _ in given if name in FLAGS]
    settings |= {SWITCHES[name]: "true" for name in flags if name in SWITCHES}
    return settings, flags


def _recorded(shell: Any, cell: str, settings: dict[str, str], *, automatic: bool) -> Run | None:
    """Run a cell inside of a run, its own or the one that is on; None where none can be written."""
    is_joined = current_run() is not None
    if is_joined and settings:
        raise DftraceError(
            f"a run is on, and goes on with its own settings: leave out {', '.join(settings)}, or "
            "end it before with dftrace_ai.finalize()"
        )
    block = tracing(None, **settings)
    try:
        run = block.__enter__()
    except LogDirectoryError as unwritable:
        print(f"dftrace: nothing will be recorded: {unwritable}", file=sys.stderr)  # noqa: T201
        shell.run_cell(cell)
        return None
    error: BaseException | None = None
    try:
        begun = automatic and auto.options is None
        if begun:
            auto()
        try:
            result = shell.run_cell(cell)
            error = result.error_before_exec or result.error_in_exec
        finally:
            if begun:
                auto.remove()
    except BaseException as raised:
        error = raised
        raise
    finally:
        block.__exit__(None if error is None else type(error), error, None)
    # It was on before, or the cell holds it.
    if run.enabled and current_run() is run:
        run.flush()
    return run


def _show(run: Run) -> None:
    from IPython.display import display

    paths = _traces_of(run)
    if not paths:
        reason = "nothing was recorded" if run.enabled else "recording is off (DFTRACE_ENABLE)"
        print(f"dftrace: {reason}")  # noqa: T201 - what the cell has to show
        return
    with needs_numpy("the verdict"):
        from dftrace_ai.analysis.report.run import Run as ReadRun

        is_on = run.path is not None and current_run() is run
        still_written = [Path(str(run.path))] if is_on else []
        display(ReadRun(paths, still_written=still_written, run="all"))


def _traces_of(run: Run) -> list[Path]:
    """Return the traces of a run, of all its processes."""
    if run._settings is None:
        return []
    try:
        traces = open_traces([os.path.dirname(run._settings["prefix"])])
    except TraceError:
        return []
    number = run._settings["run"]
    return [one.path for one in traces if one.header is not None and one.header.run == number]
