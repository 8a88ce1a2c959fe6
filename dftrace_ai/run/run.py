"""A run of this process, as its user sees it, and who holds it."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import dftrace_ai._native as _native
from dftrace_ai.wording import LastWord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.config.settings import Config
    from dftrace_ai.run.native_types import RunSettings
    from dftrace_ai.spools.outcome_types import WriteOutcome
    from dftrace_ai.trace_format.json_types import JsonObject

# What a process leaves in the environment for the programs it starts.
RUN_VARIABLE = "DFTRACE_RUN"
SETTINGS_VARIABLE = "DFTRACE_RUN_SETTINGS"
# What `dftrace run` leaves there: a name of this launch, and behind it what the launcher needs.
LAUNCH_VARIABLE = "DFTRACE_LAUNCH"
# How that name begins where all ranks of a job have it, though each has its own `dftrace run`.
OF_JOB = "job-"

# Holds the run of a child that has not said anything of its own.
PARENT = "the parent process"


def run_text(settings: RunSettings, *place: int) -> str:
    """Return what `RUN_VARIABLE` says: the run, its clock, and a rank of how many."""
    return "-".join((settings["run"], str(settings["clock"]["epoch_offset_ns"]), *map(str, place)))


def launch_of(environ: Mapping[str, str]) -> str:
    """Return the name of the launch below which a process is; empty for none."""
    return environ.get(LAUNCH_VARIABLE, "").partition("@")[0].partition(".")[0]


class Run:
    """A run of this process: from `initialize` to `finalize`.

    Example::

        run = dftrace_ai.initialize(log_file="out/trace")
        train()
        dftrace_ai.finalize()
        print(run.path)
    """

    def __init__(self) -> None:
        self._settings: RunSettings | None = None
        self._config: Config | None = None
        self._number = 0
        self._outcome: WriteOutcome | None = None
        # Blocks by reference, and parts of the program by name, in the order in which they came.
        self._holders: dict[object, None] = {}
        # What has begun with it; None before recording is on, and after.
        self._hooks: list[Any] | None = None
        self._ended_hooks: list[Any] = []
        self._lock = threading.RLock()
        self._begun = False
        self._begun_ns = time.time_ns()
        self._beginner = threading.get_ident()
        self._ending = False
        self._last_word = LastWord()
        self._over = False
        self._told_without_effect: set[str] = set()

    def __repr__(self) -> str:
        state = "off" if not self.enabled else "ended" if self._outcome is not None else "on"
        return f"<dftrace run, {state}: {self.path or 'no trace'}>"

    @property
    def enabled(self) -> bool:
        """False when the configuration turned the run off."""
        return self._settings is not None

    @property
    def path(self) -> str | None:
        """Trace file of this process; None when the run recorded nothing.

        Until the first event is written it is the name that the file will have if
        nobody else takes it first.
        """
        if self._settings is None:
            return None
        if self._outcome is not None:
            return str(self._outcome["trace_path"]) or None
        written = _native.stats().get("trace_path")
        if not written:
            expected = _expected_path(self._settings)
            # Made meanwhile, it is itself what has the first name.
            written = _native.stats().get("trace_path") or expected
        return str(written)

    def stats(self) -> JsonObject:
        """Counts of the run: what was written, dropped, waited for, sanitised.

        Returns:
            While it runs: ``trace_path``, ``spool_path``, ``spool_bytes``,
            ``written_bytes``, ``written_spans``. After its end: ``trace_path``,
            ``events``, ``lost_lines``, ``error``, and ``spoilt_lines``, those of
            ``lost_lines`` that were in a file which somebody removed or cut. Always,
            once there was a first event: ``dropped``, ``waits``, ``unmatched_stops``,
            ``args_sanitised``.
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

    def _config_in_force(self) -> Config:
        """Return the settings; of a child that goes on with its parent's run, the parent's."""
        if self._config is None:
            from dftrace_ai.config.settings import Config

            given: Any = self._settings["config"] if self._settings is not None else {}
            self._config = Config(**given)
        return self._config

    def _is_only_parents(self) -> bool:
        return list(self._holders) == [PARENT]

    def _take(self, holder: object) -> bool:
        """Hold the run for somebody; False when it is about to end."""
        with self._lock:
            if not self._ending:
                self._holders[holder] = None
            return not self._ending

    def _give_up(self, holder: object) -> bool:
        """Let go of the run for somebody; True when nobody holds it any more, and it has to end."""
        with self._lock:
            if holder in self._holders:
                del self._holders[holder]
            elif isinstance(holder, str):
                # Begun in one part and ended in another, as by a handler of a signal. A block ends
                # by itself, whoever else ends something in it.
                named = next((one for one in self._holders if isinstance(one, str)), None)
                if named is not None:
                    del self._holders[named]
            if isinstance(holder, str):
                # Of a block that is gone nobody will call the end.
                for one in list(self._holders):
                    if isinstance(one, weakref.ref) and one() is None:
                        del self._holders[one]
            self._ending |= not self._holders
            return self._ending


def current_run() -> Run | None:
    """Return the run that is on, or None."""
    run: Run | None = _native.current_run()
    return None if run is None or run._over else run


def _expected_path(settings: RunSettings) -> str:
    """Return the name that the trace of this process will have if nobody takes it first."""
    from dftrace_ai.trace_format.file_names import SUFFIX_OF

    own = settings["made_in"] == os.getpid()
    pid = (own and settings["of_process"]["shown_pid"]) or os.getpid()
    stem = f"{settings['prefix']}-{settings['of_process']['host']}-{pid}"
    suffix = SUFFIX_OF[str(settings["core"]["compression"])]
    path, number = f"{stem}{suffix}", 0
    while os.path.lexists(path):
        number += 1
        path = f"{stem}-{number}{suffix}"
    return path
