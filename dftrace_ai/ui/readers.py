"""The processes that read runs, so that the page answers meanwhile: one for what is looked at.

The other one, at low priority, reads all that nobody looks at, what was changed last first.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dftrace_ai import interpreters
from dftrace_ai.ui.kept import NO_ROOM
from dftrace_ai.wording import described, escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dftrace_ai.trace_format.json_types import Json
    from dftrace_ai.ui.kept import Kept
    from dftrace_ai.ui.runs_below import FoundRun

NICE: Final = 10
# A process that has held so much gives it back by ending.
MOST_BYTES: Final = 600 * 1024 * 1024
# A run that grows is read again after so long, or as many times as long as it takes; and by itself
# only when it rests.
AGAIN_S: Final = 15.0
TIMES_APART: Final = 10
REST_S: Final = 5.0
# Nobody looks at a page that has not asked for so long.
ATTENTION_S: Final = 60.0
LOOK_S: Final = 1.0
LAST_BYTES: Final = 4096
# One that could not be read is tried again after so long, and then after twice as long, and so on:
# there may be memory again, or room on a disk.
RETRY_S: Final = 30.0
ENDED: Final = "its reader was ended; there may be too little memory"


class Reader:
    """A process that does one task after the other; it is begun with the first."""

    def __init__(self, nice: int) -> None:
        self._nice = nice
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        # What its process says: why it has ended. A pipe that nobody empties would stop it.
        self._said: int | None = None

    def do(self, kind: str, task: list[Json]) -> tuple[str, str]:
        """Have a task done; returns what it came to, and why it could not be done, or ""."""
        with self._lock:
            line = json.dumps([kind, task]).encode() + b"\n"
            try:
                process = self._process or self._begun()
            except OSError as error:
                self._end()
                return "", f"no process to read it can be had: {described(error)}"
            said = b""
            with suppress(OSError):  # it has ended: the missing answer says so
                process.stdin.write(line)  # type: ignore[union-attr]
                process.stdin.flush()  # type: ignore[union-attr]
                said = process.stdout.readline()  # type: ignore[union-attr]
            if said:
                answer, failed, peak_bytes = json.loads(said)
                if peak_bytes > MOST_BYTES:
                    self._end()
            else:
                answer, failed = "", self._how_it_ended()
            return answer, failed

    def end(self) -> None:
        """Let its process end, whatever it does."""
        process = self._process
        if process is not None:
            process.kill()

    def _begun(self) -> subprocess.Popen[bytes]:
        words = ["dftrace_ai.ui.making", "do_tasks", str(self._nice)]
        self._said = os.memfd_create("dftrace-reader")
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and a program of ours
            [*interpreters.interpreter(), "-c", interpreters.PROGRAM, interpreters.paths(), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**interpreters.clean_environment(), **interpreters.ONE_THREAD},
            # Ctrl+C at the terminal is for the server, which ends it.
            start_new_session=True,
        )
        return self._process

    def _how_it_ended(self) -> str:
        """Return why its process has ended by itself, by the last line that it said."""
        process, found = self._process, self._said
        if process is None or found is None:
            return ENDED
        with suppress(subprocess.TimeoutExpired):
            process.wait(interpreters.GONE_S)
        status = process.returncode
        said = os.pread(found, LAST_BYTES, max(0, os.fstat(found).st_size - LAST_BYTES))
        self._end()
        if status in {None, -signal.SIGKILL}:
            return ENDED
        reason = interpreters.Answer(status, "", said.decode("utf-8", "replace")).reason
        return f"its reader has ended: {escaped(reason)}"

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            interpreters.ended(process)
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
        if self._said is not None:
            os.close(self._said)
            self._said = None


@dataclass(frozen=True)
class _Failure:
    """Why a run cannot be read, and when it is tried again."""

    why: str
    wait_s: float
    due: float


class Readers:
    """Has runs read: those that are looked at at once, the others one after the other."""

    def __init__(self, kept: Kept, all_runs: Callable[[], Sequence[FoundRun]]) -> None:
        self._kept = kept
        self._all_runs = all_runs
        self.front, self._behind = Reader(0), Reader(NICE)
        self._changed = threading.Condition()
        self._wanted: dict[str, FoundRun] = {}
        self._busy: set[str] = set()
        # Why a run cannot be read, by its id and the key of its files.
        self._failed: dict[tuple[str, str], _Failure] = {}
        self._again_at: dict[str, float] = {}
        self._asked_at = -ATTENTION_S
        self._over = False
        for of in ((self.front, self._next_wanted), (self._behind, self._next_behind)):
            threading.Thread(target=self._go_on, args=of, daemon=True).start()

    def end(self) -> None:
        """Have both processes ended."""
        self._over = True
        self.front.end()
        self._behind.end()

    def attend(self) -> None:
        """Note that somebody looks at the list."""
        self._asked_at = time.monotonic()

    def failure(self, run: FoundRun) -> str:
        """Return why a run cannot be read; empty where nothing says so."""
        failure = self._failed.get((run.id, run.key))
        return failure.why if failure else ""

    def is_fresh(self, run: FoundRun) -> bool:
        """Return whether what is kept of a run is of its files as they are, or cannot be now."""
        known = self._kept.card(run.path)
        failure = self._failed.get((run.id, run.key))
        tried = failure is not None and time.monotonic() < failure.due
        return tried or (known is not None and known[0] == run.key)

    def want(self, run: FoundRun, wait_s: float, *, again: bool = False) -> bool:
        """Have a run read that is looked at; returns whether it is being read after so long."""
        # One that grows is read now and then only, but for `again`.
        known = self._kept.card(run.path)
        recent = time.monotonic() < self._again_at.get(run.id, 0.0)
        with self._changed:
            if again:
                self._failed.pop((run.id, run.key), None)
            if not self.is_fresh(run) and not (known and recent and not again):
                self._wanted[run.id] = run
                self._changed.notify_all()
            if known is None or again:
                self._changed.wait_for(lambda: self._over or not self._is_open(run.id), wait_s)
            return self._is_open(run.id)

    def _is_open(self, run_id: str) -> bool:
        return run_id in self._busy or run_id in self._wanted

    def _go_on(self, reader: Reader, next_run: Callable[[], FoundRun | None]) -> None:
        while not self._over:
            with self._changed:
                run = next_run()
                if run is None:
                    self._changed.wait(LOOK_S)
                    continue
                self._wanted.pop(run.id, None)
                self._busy.add(run.id)
            self._read(reader, run)

    def _next_wanted(self) -> FoundRun | None:
        # What the other one reads just now is waited for, and then looked at again.
        return next((run for run in self._wanted.values() if run.id not in self._busy), None)

    def _is_attended(self) -> bool:
        return time.monotonic() - self._asked_at < ATTENTION_S

    def _next_behind(self) -> FoundRun | None:
        """Return what is read next of all that nobody looks at, while somebody has a page open."""
        for run in self._all_runs() if self._is_attended() else ():
            grows = time.time() - run.changed_s < REST_S and self._kept.card(run.path) is not None
            if run.files and not grows and not self._is_open(run.id) and not self.is_fresh(run):
                return run
        return None

    def _read(self, reader: Reader, run: FoundRun) -> None:
        logs: list[Json] = [[str(at), [name for name, *_ in logs]] for at, logs in run.logs]
        began = time.monotonic()
        while True:
            into = str(self._kept.of_run(run.path))
            task: list[Json] = [str(run.path), list(run.names), logs, into, run.key]
            _, failed = reader.do("read", [*task, list(run.thresholds)])
            if failed != NO_ROOM or not self._kept.move(run.path):
                break
        with self._changed:
            before = self._failed.pop((run.id, run.key), None)
            if failed and not self._over:
                wait_s = 2 * before.wait_s if before else RETRY_S
                due = time.monotonic() + wait_s
                self._failed[run.id, run.key] = _Failure(failed, wait_s, due)
            now = time.monotonic()
            self._again_at[run.id] = now + max(AGAIN_S, TIMES_APART * (now - began))
            self._busy.discard(run.id)
            self._changed.notify_all()
