"""The command `dftrace`: one module per subcommand, loaded with what it needs when it is called.

Exit status: 0 done, 1 faults were found, 2 the call or its input is wrong. `dftrace stuck`
has its own: 0 nothing is stuck, 1 the call or its input is wrong, 2 something is stuck; that of
`dftrace run` is its program's.
Ctrl+C ends a command with 130, or by its signal where nothing has to be put away; SIGTERM and
SIGHUP end it by their signals when that is done.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from types import FrameType

    import typer

    app: typer.Typer

__all__ = ["app", "main"]

BAD_INPUT = 2
INTERRUPTED = 130
# By which a system, a terminal or a user asks a program to end; Windows has one of them.
ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)

# A command that is unwound has this and the number of the signal as its status until it ends.
STATUS: Final = 128


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dftrace_ai.cli.commands import app_for

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
        _end_in_order()
    from dftrace_ai.cli.commands import app_for
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
        _end_by(int(what.exc_value.code or 0) - STATUS)
    sys.__unraisablehook__(what)


def _end_in_order() -> None:
    """Unwind the command when SIGTERM or SIGHUP comes, so that it clears up, and then end by it."""
    # To be called before anything else that has work to do at the end is loaded. What this
    # process was started to ignore it goes on ignoring.
    owner = os.getpid()
    came: list[int] = []

    def unwind(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:
            _end_by(number)  # a forked child, which has put nothing aside
        # Once is enough, and who is impatient sends it to all of the group again.
        for each in ENDING:
            if signal.getsignal(each) is unwind:
                signal.signal(each, signal.SIG_IGN)
        came.append(number)
        sys.exit(STATUS + number)

    def end() -> None:
        if came and os.getpid() == owner:
            _end_by(came[0])

    # Exit handlers run in the opposite order.
    atexit.register(end)
    for each in ENDING:
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, unwind)


def _end_by(number: int) -> None:
    """End by a signal, at once; what is not written yet may have nobody who reads it."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
