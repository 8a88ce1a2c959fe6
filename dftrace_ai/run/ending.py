"""How a run ends: step by step, so that whoever interrupts it, or comes after, can do it again.

As the last it tells the verdict on itself and its biggest figures, by the setting `summary`.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

import dftrace_ai._native as _native
from dftrace_ai.run.hooks import Hook, close_hooks, end_hooks, register
from dftrace_ai.run.known_late import late_layout
from dftrace_ai.run.run import RUN_VARIABLE, current_run
from dftrace_ai.wording import briefly, escaped, quoted, tell, warn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

    from dftrace_ai.run.native_types import RunSettings
    from dftrace_ai.run.run import Run
    from dftrace_ai.spools.outcome_types import WriteOutcome


def end(run: Run, ended: str, error: BaseException | None) -> None:
    """End a run."""
    run._ending = True
    settings = run._settings
    # A signal's handler that ends the run in the middle of this does all of it; it may go on and
    # begin another run, which is left alone.
    for step in (end_hooks, _leave_environment):
        if run._over:
            return
        step(run)
    is_complete = False
    if settings is not None and run._number:
        outcome = _complete_trace(run, settings, ended, error)
        is_complete = not outcome["abandoned"]  # else the directory would not answer either
        if is_complete:
            _complete_traces_of_children(settings, outcome["spool_path"])
            _complete_workers_at_exit(settings)
    run._over = True
    if is_complete and error is None:
        close_hooks(run)


def end_at_exit() -> None:
    """End the run that is on, if any, with the program."""
    run = current_run()
    if run is not None:
        end(run, "exit", uncaught_exception("exit"))


def _leave_environment(run: Run) -> None:
    # Only the process that set it for its children takes it away.
    variables = run._settings["inheritable"] if run._settings is not None else {}
    if variables and os.environ.get(RUN_VARIABLE) == variables[RUN_VARIABLE]:
        for name in variables:
            os.environ.pop(name, None)


def _complete_trace(
    run: Run, settings: RunSettings, ended: str, error: BaseException | None
) -> WriteOutcome:
    layout = late_layout(run)
    outcome = (
        _native.finish(run._number, ended, "", None, "", layout, _status_on_its_way(ended))
        if error is None
        else _native.finish(run._number, "exception", *told_of(error), layout)
    )
    run._outcome = outcome
    run._last_word.say(lambda: _tell_of(outcome, settings))
    return outcome


def _complete_traces_of_children(
    settings: RunSettings, own: str, ended_now: tuple[Any, ...] = ()
) -> None:
    from dftrace_ai.spools.recovery import complete_children

    directory = os.path.dirname(settings["prefix"]) or "."
    spool_dir = settings["spool_dir"] or None
    by_loader = {*told_to_end, *_told_by_interpreter(ended_now)}
    for line in complete_children(directory, settings["run"], spool_dir, own, by_loader):
        tell(logging.ERROR, "%s", line)


told_to_end: set[int] = set()
"""Workers that their loaders had to terminate: they never come to complete their traces."""

_TERMINATED = -15
# Behind all that multiprocessing does at the end of an interpreter: telling workers to end, and
# waiting for them.
_LAST = -1000


def _workers() -> tuple[Any, ...]:
    """Return the daemonic processes that this one has started by multiprocessing, while known."""
    module = sys.modules.get("multiprocessing.process")
    known = tuple(getattr(module, "_dangling", ()))
    own = os.getpid()
    return tuple(one for one in known if one.daemon and one._parent_pid == own and one._popen)


def _told_by_interpreter(ended_now: tuple[Any, ...]) -> Iterator[int]:
    """Yield the workers that have been told to end, as the end of an interpreter does."""
    for worker in _workers():
        status = worker._popen.returncode
        # Those of a loader leave with 0 when their parent terminates them. Nobody else's SIGTERM
        # has them do that, and who ends by itself has completed its trace.
        if status == 0 or (worker in ended_now and status == _TERMINATED):
            yield worker.pid


def _complete_workers_at_exit(settings: RunSettings) -> None:
    """Complete what workers leave that live on: they are told to end when the interpreter does."""
    living = tuple(one for one in _workers() if one._popen.returncode is None)
    util = sys.modules.get("multiprocessing.util")
    if living and util is not None:
        complete = functools.partial(_complete_traces_of_children, settings, "", living)
        util.Finalize(None, complete, exitpriority=_LAST)


def _tell_of(outcome: WriteOutcome, settings: RunSettings) -> None:
    if outcome["error"]:
        tell(logging.ERROR, "%s", _not_complete(outcome, settings))
    if outcome["dropped"]:
        limit = int(settings["core"]["spool_bytes"])
        full = outcome["spool_bytes"] + _native.SPOOL_UNIT_BYTES > limit
        tell(
            logging.WARNING,
            "%d events were dropped: %s",
            outcome["dropped"],
            f"the spool of {limit} bytes was full; {_against_losses(settings)}"
            if full
            else f"the spool could not grow beyond {outcome['spool_bytes']} bytes "
            f"({outcome['spool_refusal'] or 'a file system without room'}); {_for_room(outcome)}",
        )


def _for_room(outcome: WriteOutcome) -> str:
    if "RLIMIT_FSIZE" in (outcome["spool_refusal"] or ""):
        return "raise that limit, which holds in every place"
    return "choose another place with spool_dir"


def _against_losses(settings: RunSettings) -> str:
    if settings["core"]["wait_on_overflow"]:
        return "each thread takes 64 KiB of it, which cannot be waited for: raise spool_bytes"
    return "raise spool_bytes, or set overflow='wait'"


def _not_complete(outcome: WriteOutcome, settings: RunSettings) -> str:
    prefix = settings["prefix"]
    kept = outcome["lost_lines"] - outcome["spoilt_lines"]
    told = (
        f"the trace {quoted(outcome['trace_path'] or prefix)} is not complete: {outcome['error']}"
    )
    if outcome["spoilt_lines"]:
        told += f"; {outcome['spoilt_lines']} events in a file that was removed or cut are lost"
    if not outcome["spool_path"]:
        return f"{told}; {kept} events are lost, since the spool was removed" if kept else told
    if outcome["abandoned"]:
        where_to = "."
    elif not os.access(os.path.dirname(prefix), os.F_OK):
        where_to = ", but its directory is gone: dftrace recover DIR --orphans writes them"
    elif outcome["marked"] or not settings["spool_dir"]:
        where_to = " and are added by the next dftrace command that reads the directory"
    else:
        # Nothing beside the trace tells where it is.
        place = os.path.dirname(outcome["spool_path"])
        where_to = f"; DFTRACE_SPOOL_DIR={quoted(place)} dftrace recover DIR adds them"
    return f"{told}; {kept} events are kept in {quoted(outcome['spool_path'])}{where_to}"


def _status_on_its_way(ended: str) -> int:
    """Return the status by which a child of multiprocessing leaves; -1 for 0, and where unknown.

    Its finalizers are run on the way out; those of other programs before the status is known to
    anybody but the C library, which has the core write it down.
    """
    error = sys.exc_info()[1]
    if ended != "exit" or not isinstance(error, SystemExit) or error.code is None:
        return -1
    return ((error.code & 0xFF) if isinstance(error.code, int) else 1) or -1


# The innermost frames, and the end of what they make, are what one looks for.
MOST_FRAMES = 64
MOST_LETTERS = 32 * 1024


def uncaught_exception(ended: str) -> BaseException | None:
    """Return the exception that is on its way out of a ``with tracing()`` or of the program."""
    error = sys.exc_info()[1]
    if error is None and ended == "exit" and not hasattr(sys, "ps1"):
        # Set by the interpreter when it has printed the traceback, before it calls exit handlers;
        # at a prompt by any line that failed.
        error = getattr(sys, "last_value", None)
    return None if isinstance(error, (SystemExit, GeneratorExit)) else error


def told_of(error: BaseException) -> tuple[str, str, str]:
    """Return an exception's type, message and stack, as text that any JSON takes."""
    kind = type(error)
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - somebody else's code, and the trace has yet to be written
        message = "<str() of it failed>"
    stack = "".join(
        traceback.format_exception(kind, error, error.__traceback__, limit=-MOST_FRAMES)
    )
    if len(stack) > MOST_LETTERS:
        stack = "…" + stack[-MOST_LETTERS:]
    texts = kind.__qualname__, message[:MOST_LETTERS], stack
    name, said, shown = (text.encode("utf-8", "replace").decode() for text in texts)
    return name, said, shown


# The setting `summary`.

SUMMARY_LIMIT_S = 20.0
"""Seconds that a program waits for its summary at most."""

SUMMARY_FUNCTION = ("dftrace_ai.analysis.closing", "print_lines")
STANDARD_ERROR = 2

_asked: Run | None = None


def _begin_summary(run: Run) -> None:
    global _asked
    # Of the processes of a run, the one that was told to; the others are in what it reads.
    if run._config is None or not run._config.summary or run._settings is None:
        return
    if run._settings["rank"]["rank"] in (None, 0):
        # Loaded now: what is imported at the end may make the interpreter forget an interrupt.
        import signal  # noqa: F401

        import dftrace_ai.interpreters  # noqa: F401

        _asked = run


def _forget_summary(_: Run) -> None:
    global _asked
    _asked = None


def _tell_summary(run: Run) -> None:
    global _asked
    if _asked is not run:
        return
    _asked = None
    if not run.path or _is_in_signal_handler():
        return
    from dftrace_ai.interpreters import answer_of

    where_else = f"dftrace why {quoted(os.path.dirname(run.path) or '.')}"
    try:
        answer = answer_of(*SUMMARY_FUNCTION, [run.path, str(run._begun_ns)], SUMMARY_LIMIT_S)
    except OSError as error:
        warn("there is no summary: %s; %s tells it", briefly(error), where_else)
        return
    if answer.status is None:
        warn("the summary took longer than %g s; %s tells it", SUMMARY_LIMIT_S, where_else)
    elif answer.status:
        warn("there is no summary: %s; %s tells it", escaped(answer.reason), where_else)
    else:
        _write_summary(answer.output)


def _write_summary(text: str) -> None:
    """Write to standard error, where a program's own output is not disturbed."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:  # noqa: BLE001 - it may be closed, or replaced by anything
        try:
            os.write(STANDARD_ERROR, text.encode("utf-8", "backslashreplace"))
        except OSError:
            return  # there is nobody to be told


def _is_in_signal_handler() -> bool:
    """Return whether a handler of a signal is at work, which others wait for."""
    if threading.current_thread() is not threading.main_thread():
        return False
    import signal

    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def _code_of(handler: Any) -> CodeType | None:
    """Return the code that a handler begins with; None where it is none in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    for one in (handler, type(handler).__call__ if callable(handler) else None):
        code: CodeType | None = getattr(getattr(one, "__func__", one), "__code__", None)
        if code is not None:
            return code
    return None


register(
    Hook(
        "the summary", on_begin=_begin_summary, after_fork=_forget_summary, when_over=_tell_summary
    )
)
