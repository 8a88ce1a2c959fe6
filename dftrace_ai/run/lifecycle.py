"""The doors of a run: `initialize`, `finalize`, `tracing` and `dump`."""

from __future__ import annotations

import contextlib
import logging
import sys
import weakref
from typing import TYPE_CHECKING, Any

import dftrace_ai._native as _native
from dftrace_ai.run.beginning import Asked, hold, refuse_what_is_no_config
from dftrace_ai.run.ending import end, uncaught_exception
from dftrace_ai.run.run import Run, current_run
from dftrace_ai.wording import tell

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from dftrace_ai.config.settings import Config


def initialize(config: Config | None = None, **overrides: Any) -> Run:
    """Turn recording on for this process and its children.

    Nothing is written before the first event. While a run is on, the call joins it:
    settings that it has otherwise have no effect, and a warning names them. The run
    then ends when everybody who joined it has called `finalize`, or with the
    program; calls from the same package, or from the same script or notebook, count
    as one.

    Args:
        config: all settings; None gathers them from the environment and the file
            that ``DFTRACE_CONFIG`` names.
        **overrides: settings by name, which win (see `Config`).

    Returns:
        The run.

    Raises:
        ConfigError: a setting is unknown or its value is not accepted.
        LogDirectoryError: the directory of the trace cannot be made or written.

    Example::

        dftrace_ai.initialize(log_file="out/trace", compression="zstd")
    """
    holder = _caller()
    before = current_run()
    had = before if before is not None and holder in before._holders else None
    try:
        return hold(holder, Asked(config, overrides))
    except BaseException:
        # Also what a signal's handler raises, anywhere: who is given no run holds none.
        run = current_run()
        if run is not None and run is not had and holder in run._holders:
            _give_up(run, holder, None)
        raise


def finalize() -> None:
    """Turn recording off and complete the trace of this process.

    Where others hold the run, too, by an `initialize` of theirs or inside of a
    ``with tracing()``, it goes on for them, and what was recorded so far is written
    to the file. The traces of children that have died are completed, too. A call
    without a run does nothing.

    Example::

        dftrace_ai.initialize()
        try:
            train()
        finally:
            dftrace_ai.finalize()
    """
    run = current_run()
    if run is None or not run._begun:
        return
    if run._give_up(_caller()):
        end(run, "finalize", uncaught_exception("finalize"))
    elif run._settings is not None and not run._settings["core"]["flight_recorder"]:
        try:
            _native.flush(int(run._settings["core"]["finish_timeout_ms"]) / 1000)
        except OSError as error:
            tell(
                logging.WARNING,
                "the run goes on, and its trace is not up to date: %s",
                error.strerror,
            )


def dump(reason: str = "dump") -> str | None:
    """Write out what a flight recorder holds.

    The events go to the trace of this process, behind those of earlier dumps, each
    event once; an instant named ``dump`` tells the reason and how many seconds are
    complete. Without ``flight_recorder`` it is the same as `Run.flush`.

    Args:
        reason: text for the instant.

    Returns:
        The trace file; None when no run is on or nothing was recorded.

    Raises:
        OSError: the file cannot be written; what was recorded is kept, and tried
            again until it is written.

    Example::

        dftrace_ai.initialize(flight_recorder=True, flight_seconds=30)
        for step, batch in enumerate(loader):
            loss = train(batch)
            if not torch.isfinite(loss):
                dftrace_ai.dump(f"loss is {loss} at step {step}")
    """
    run = current_run()
    return None if run is None else run.dump(reason)


def tracing(config: Config | None = None, **overrides: Any) -> TracingBlock:
    """Record for the length of a ``with`` block, or of each call of a decorated function.

    Inside of a run the block joins it, as `initialize` does, and leaves it on.

    Args:
        config: as for `initialize`.
        **overrides: as for `initialize`.

    Returns:
        The block, which gives the run when it is entered.

    Raises:
        ConfigError: when entered, as `initialize`; at once where `config` is no `Config`.
        LogDirectoryError: when entered, as `initialize`.

    Example::

        with dftrace_ai.tracing(log_file="out/trace") as run:
            train()
        print(run.path)
    """
    if config is not None:
        refuse_what_is_no_config(config)
    return TracingBlock(Asked(config, overrides))


class TracingBlock(contextlib.ContextDecorator):
    """What `tracing` returns: a block, or a decorator, that may be entered any number of times."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._entered: list[_Entered] = []

    def _recreate_cm(self) -> TracingBlock:
        return TracingBlock(self._asked)

    def __enter__(self) -> Run:
        entered = _Entered()
        self._entered.append(entered)
        return hold(weakref.ref(entered), self._asked)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        run = current_run()
        if run is not None:
            failed = not isinstance(error, (SystemExit, GeneratorExit))
            _give_up(run, weakref.ref(self._entered[-1]), error if failed else None)
        self._entered.pop()


class _Entered:
    """That a block is entered; gone with the block where a signal's handler left it open."""


def _give_up(run: Run, holder: object, error: BaseException | None) -> None:
    if run._give_up(holder):
        end(run, "finalize", error)


def _caller() -> str:
    """Name the part of the program that calls: the package, or ``__main__``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package != "dftrace_ai":
            return package
        frame = frame.f_back
    return ""
