"""The command `dftrace`: one module per subcommand, loaded with what it needs when it is called.

Exit status: 0 done, 1 faults were found, 2 the call or its input is wrong. `dftrace stuck`
has its own: 0 nothing is stuck, 1 the call or its input is wrong, 2 something is stuck; that of
`dftrace run` is its program's.
Ctrl+C ends a command with 130, or by its signal where nothing has to be put away; SIGTERM and
SIGHUP end it by their signals when that is done.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import typer

    app: typer.Typer

__all__ = ["app", "main"]

BAD_INPUT = 2
INTERRUPTED = 130


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dftrace_ai.cli.calling.commands import app_for

    globals()[name] = every = app_for(())
    return every


def main() -> None:
    """Run the command line; the entry point of `dftrace`."""
    # Whoever interrupts a command that is still being loaded wants no traceback of that; one that
    # was started with the signal ignored, in the background, goes on ignoring it.
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.unraisablehook = _unraisable
    words = sys.argv[1:]
    if words[:1] != ["run"]:  # its program has the signals to itself
        from dftrace_ai.cli.calling.signals import end_in_order

        end_in_order()
    from dftrace_ai.cli.calling.commands import app_for
    from dftrace_ai.cli.terminal import prepare_streams, shown

    # First: what launches a program hands the environment on as it is now.
    command = app_for(words)
    prepare_streams()
    for word in words if words[:1] != ["run"] else ():
        # The name of a file, put there by the shell for a `*`; the parser would echo it.
        if word.startswith("-") and shown(word) != word:
            sys.stderr.write(f"dftrace: there is no option {shown(word)}\n")
            sys.exit(BAD_INPUT)
    try:
        signal.signal(signal.SIGINT, usual)
        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        # What prints makes a failure of it.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _end_unread()
    except BrokenPipeError:
        _end_unread()
    except OSError as error:
        # What is written has no name; all that is read has one.
        named = error.filename is not None
        what = shown(os.fsdecode(error.filename)) if named else "the output cannot be written"
        sys.stderr.write(f"dftrace: {what}: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BAD_INPUT)
    finally:
        # What is left is to end.
        if usual is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end_unread() -> NoReturn:
    """End where whoever read the output has seen enough."""
    # What is buffered has no reader any more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def _unraisable(what: sys.UnraisableHookArgs) -> None:
    """End where Python would only tell of the interruption, as in what clears up behind imports."""
    if what.exc_type is KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    if isinstance(what.exc_value, SystemExit):
        from dftrace_ai.cli.calling.signals import STATUS, end_by

        end_by(int(what.exc_value.code or 0) - STATUS)
    sys.__unraisablehook__(what)
