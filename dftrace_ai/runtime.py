"""The life of a run in this process: initialize, finalize, children, and the end of the program."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from dftrace_ai import _native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.config import Config
    from dftrace_ai.counters import SystemCounters
    from dftrace_ai.node import ProfilerNode

__all__ = ["Run", "current_run", "dump", "finalize", "initialize", "tracing"]

_log = logging.getLogger("dftrace_ai")

RUN_VARIABLE = "DFTRACE_RUN"

# By so many bytes a spool grows.
SPOOL_UNIT = 64 * 1024


class Run:
    """A run of this process: from `initialize` to `finalize`.

    Example::

        run = dftrace_ai.initialize(log_file="out/trace")
        train()
        dftrace_ai.finalize()
        print(run.path)
    """

    def __init__(self, settings: dict[str, Any] | None, *, inherited: bool = False) -> None:
        self._settings = settings
        self._inherited = inherited
        self._outcome: dict[str, Any] | None = None
        self._pid = os.getpid()

    @property
    def enabled(self) -> bool:
        """False when the configuration turned the run off."""
        return self._settings is not None

    @property
    def path(self) -> str | None:
        """Trace file of this process; None when the run recorded nothing.

        Until the first event is written it is the name that the file will have if
        nobody else has taken it.
        """
        if self._settings is None:
            return None
        if self._outcome is not None:
            return str(self._outcome["trace_path"]) or None
        return str(_native.stats().get("trace_path") or self._settings["expected_path"])

    def stats(self) -> dict[str, Any]:
        """Counts of the run: what was written, dropped, waited for, sanitised.

        Returns:
            While it runs: ``trace_path``, ``spool_path``, ``spool_bytes``,
            ``written_bytes``, ``written_spans``. After its end: ``trace_path``,
            ``events``, ``lost_lines``, ``error``. Always, once there was a first
            event: ``dropped``, ``waits``, ``unmatched_stops``, ``args_sanitised``.
            While it runs also ``overwritten``, the events that a flight recorder
            has let go.
        """
        return dict(self._outcome if self._outcome is not None else _native.stats())

    def dump(self, reason: str = "dump") -> str | None:
        """Write out what a flight recorder holds; see `dftrace_ai.dump`."""
        if self._settings is None:
            return None
        _native.dump(reason)
        return str(_native.stats().get("trace_path", "")) or None

    def flush(self) -> None:
        """Write everything recorded so far to the trace file.

        A flight recorder writes what it holds, as by `dump`.

        Raises:
            OSError: the file cannot be written; what was recorded is kept for
                the next try.
        """
        _native.flush()


_run: Run | None = None
_counters: SystemCounters | None = None
_hooked = False
# Nodes that the configuration, not the user, turned off for this run.
_switched_off: list[ProfilerNode] = []


def current_run() -> Run | None:
    """Return the run that is on, or None."""
    return _run


def initialize(config: Config | None = None, **overrides: Any) -> Run:
    """Turn recording on for this process and its children.

    A second call while a run is on returns that run. Nothing is written before
    the first event.

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
    global _run
    inherited = _run if _run is not None and _run._inherited else None
    if _run is not None and (inherited is None or (config is None and not overrides)):
        return _run
    from dftrace_ai.config import Config, load_config

    if config is None:
        config = load_config(**overrides)
    elif overrides:
        config = Config(**{**config.model_dump(exclude_unset=True), **overrides})
    _log.setLevel(config.log_level)
    if not config.enabled:
        _run = Run(None)
        return _run
    from dftrace_ai.run_settings import check_directory, run_settings

    check_directory(config)
    settings = run_settings(config, inherited._settings if inherited is not None else None)
    if inherited is not None:
        _end(inherited, "finalize")
    _run = _begin(settings)
    if config.system_counters_s is not None:
        _start_counters(config.system_counters_s)
    return _run


def _begin(settings: dict[str, Any], *, inherited: bool = False) -> Run:
    from dftrace_ai.tree import ai

    # Still on when the package is imported a second time (sys.modules was cleared).
    if not _native.is_on():
        _take_signal(settings["dump_signal"])
        _native.start(settings)
    if not settings["io"]:
        _switched_off.extend(
            branch.io for branch in (ai.data, ai.checkpoint, ai.other) if branch.io.enabled
        )
        for node in _switched_off:
            node.disable()
    os.environ.update(settings["inheritable"])
    _hook_into_process()
    return Run(settings, inherited=inherited)


def _take_signal(name: str | None) -> None:
    if name is None:
        return
    import signal

    from dftrace_ai.errors import ConfigError

    try:
        _native.set_dump_signal(int(signal.Signals[name]))
    except ValueError as error:
        raise ConfigError(f"dump_signal {name}: {error}; choose another one") from None


def join_run_of_parent() -> None:
    """Go on with the run of the process that started this one, if the environment names it."""
    global _run
    if not os.environ.get(RUN_VARIABLE):
        return
    from dftrace_ai.run_settings import settings_of_child

    settings = settings_of_child(os.environ)
    if settings is None:
        _log.warning("%s is not understood: this process records nothing", RUN_VARIABLE)
        return
    from dftrace_ai.errors import ConfigError

    try:
        _run = _begin(settings, inherited=True)
    except ConfigError as error:
        _log.warning("%s", error)
        _run = _begin({**settings, "dump_signal": None}, inherited=True)


def finalize() -> None:
    """Turn recording off and complete the trace of this process.

    The traces of its children that have died are completed, too. A call without
    a run does nothing.

    Example::

        dftrace_ai.initialize()
        try:
            train()
        finally:
            dftrace_ai.finalize()
    """
    _finalize("finalize")


def _finalize(ended: str) -> None:
    global _run
    run, _run = _run, None
    if run is not None:
        _end(run, ended)


def _end(run: Run, ended: str) -> None:
    global _counters
    counters, _counters = _counters, None
    if counters is not None:
        counters.stop()
    if run._settings is None:
        return
    while _switched_off:
        _switched_off.pop().enable()
    # Only the process that set it for its children takes it away.
    variables = run._settings["inheritable"]
    if os.environ.get(RUN_VARIABLE) == variables[RUN_VARIABLE]:
        for name in variables:
            os.environ.pop(name, None)
    error = _uncaught_exception(ended)
    outcome = run._outcome = (
        _native.finish(ended) if error is None else _native.finish("exception", error)
    )
    if run._settings["dump_signal"] is not None:
        _native.set_dump_signal(0)
    if outcome["error"]:
        _log.error("%s", _not_complete(outcome, run._settings["prefix"]))
    if outcome["dropped"]:
        limit = run._settings["spool_bytes"]
        full = outcome["spool_bytes"] + SPOOL_UNIT > limit
        _log.warning(
            "%d events were dropped: %s",
            outcome["dropped"],
            f"the spool of {limit} bytes was full; raise spool_bytes, or set overflow='wait'"
            if full
            else f"the spool could not grow beyond {outcome['spool_bytes']} bytes "
            f"({outcome['spool_refusal'] or 'a file system without room'}); choose another place "
            "with spool_dir",
        )
    if outcome["abandoned"]:
        return  # the directory would not answer either
    from dftrace_ai.recovery import complete_children

    directory = os.path.dirname(run._settings["prefix"]) or "."
    spool_dir = run._settings["spool_dir"] or None
    for line in complete_children(directory, run._settings["run"], spool_dir):
        _log.error("%s", line)


def _not_complete(outcome: dict[str, Any], prefix: str) -> str:
    if not outcome["spool_path"]:
        return (
            f"the trace {outcome['trace_path'] or prefix} is not complete: {outcome['error']}; "
            f"{outcome['lost_lines']} events are lost, since the spool was removed"
        )
    if outcome["abandoned"]:
        kept, where_to = "what was not written is", "."
    else:
        kept = f"{outcome['lost_lines']} events are"
        where_to = (
            " and are added by the next dftrace command that reads the directory"
            if os.access(os.path.dirname(prefix), os.F_OK)
            else ", but its directory is gone: dftrace recover DIR --orphans writes them"
        )
    return (
        f"the trace {outcome['trace_path'] or prefix} is not complete: {outcome['error']}; "
        f"{kept} kept in {outcome['spool_path']}{where_to}"
    )


def _uncaught_exception(ended: str) -> str | None:
    """Name the exception that is on its way out of a ``with tracing()`` or of the program."""
    kind = sys.exc_info()[0]
    if kind is None and ended == "exit" and not hasattr(sys, "ps1"):
        # Set by the interpreter when it has printed the traceback, before it calls exit handlers;
        # at a prompt by any line that failed.
        kind = getattr(sys, "last_type", None)
    if kind is None or issubclass(kind, (SystemExit, GeneratorExit)):
        return None
    return kind.__qualname__


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
    return None if _run is None else _run.dump(reason)


@contextlib.contextmanager
def tracing(config: Config | None = None, **overrides: Any) -> Iterator[Run]:
    """Record for the length of a ``with`` block.

    Args:
        config: as for `initialize`.
        **overrides: as for `initialize`.

    Yields:
        The run.

    Raises:
        ConfigError: as `initialize`.
        LogDirectoryError: as `initialize`.

    Example::

        with dftrace_ai.tracing(log_file="out/trace") as run:
            train()
        print(run.path)
    """
    run = initialize(config, **overrides)
    try:
        yield run
    finally:
        finalize()


def _start_counters(interval_s: float) -> None:
    global _counters
    from dftrace_ai.counters import SystemCounters

    _counters = SystemCounters(interval_s)
    _counters.start()


def _hook_into_process() -> None:
    """See to the end of this process and of its forked children, once."""
    global _hooked
    if _hooked:
        return
    _hooked = True
    atexit.register(_finalize, "exit")
    os.register_at_fork(after_in_child=_after_fork)
    _hook_into_multiprocessing()


def _after_fork() -> None:
    global _counters
    # The thread that samples is the parent's.
    _counters = None
    if _run is not None:
        _run._pid = os.getpid()
        _run._outcome = None
    _hook_into_multiprocessing()


class _ForkWitness:
    """What multiprocessing calls back in each of its children."""


_witness = _ForkWitness()


def _hook_into_multiprocessing() -> None:
    # A child of multiprocessing leaves by os._exit: of the ways to say a last word only its own
    # finalizers are run, and those are cleared after the fork, before the after-fork callbacks.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(_witness, _finalize_with_worker)
        if util.sys.modules["multiprocessing.process"].parent_process() is not None:
            _finalize_with_worker(_witness)


def _finalize_with_worker(_: _ForkWitness) -> None:
    util = sys.modules["multiprocessing.util"]
    util.Finalize(None, _finalize, args=("exit",), exitpriority=-1000)
