"""The files of tensor inspection: the main log, and the statistics, a line for each number."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dftrace_ai.run.run import current_run
from dftrace_ai.spools.held import HeldLog
from dftrace_ai.wording import ToldOnce, escaped

if TYPE_CHECKING:
    from collections.abc import Mapping

LEVEL_VARIABLE = "NVDLFW_INSPECT_LOG_LEVEL"
OVERWRITE_VARIABLE = "NVDLFW_INSPECT_ENABLE_LOG_OVERWRITE"
STAMPED_VARIABLE = "NVDLFW_INSPECT_ENABLE_LOG_TIMESTAMP"
STAMP_VARIABLE = "NVDLFW_INSPECT_LOG_TIMESTAMP"

MAIN_DIRECTORY = "nvdlfw_inspect_logs"
STATISTICS_DIRECTORY = "nvdlfw_inspect_statistics_logs"

LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
}

NAME_COLUMNS = 77
TAB = "\t"
# Lines are gathered up to the first; where they cannot be written up to the second.
GATHERED_BYTES = 64 * 1024
KEPT_BYTES = 1024 * 1024


def _switched_on(environ: Mapping[str, str], variable: str, *, default: bool) -> bool:
    said = environ.get(variable, "").strip().lower()
    return {"0": False, "false": False, "1": True, "true": True}.get(said, default)


class LogNames:
    """Where the files of a session lie and how they are opened, from the environment."""

    def __init__(self, log_dir: str | os.PathLike[str], rank: int) -> None:
        self.overwrites = _switched_on(os.environ, OVERWRITE_VARIABLE, default=True)
        self.stamped = _switched_on(os.environ, STAMPED_VARIABLE, default=False)
        stamp = ""
        if self.stamped:
            # Kept in the environment, so that child processes name their files alike.
            stamp = os.environ.setdefault(STAMP_VARIABLE, time.strftime("%Y%m%d_%H%M%S")) + "_"
            stamp = stamp.replace("/", "-")
        file = f"nvdlfw_inspect_{stamp}globalrank-{rank}.log"
        self.main = Path(log_dir) / MAIN_DIRECTORY / file
        self.statistics = Path(log_dir) / STATISTICS_DIRECTORY / file


class LogFile:
    """A log whose lines are gathered; a link at its path is not followed."""

    # Any thread may write, and so may the handler of a signal while another call is under way.
    # Lines are appended wherever the file ends, so that another process that begins the same file
    # anew leaves no gap in it. A new one has the `file_mode` of the run that is on, and without a
    # run is its owner's alone.

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self.closed = False
        self._gathered: list[bytes] = []
        self._bytes = 0
        self._lock = threading.RLock()
        self._pid = os.getpid()
        path.parent.mkdir(parents=True, exist_ok=True)
        run = current_run()
        settings = run._settings if run is not None else None
        mode = int(settings["core"]["file_mode"]) if settings is not None else 0o600
        self._log = HeldLog(path, overwrite=overwrite, mode=mode)
        self.path = self._log.path

    def write(self, text: str) -> None:
        """Add text; OSError where what was gathered cannot be written."""
        # That is kept for the next try as long as it is not too much; beyond, new text is lost.
        line = text.encode("utf-8", errors="backslashreplace")
        with self._own_lock():
            if self._bytes < KEPT_BYTES:
                self._gathered.append(line)
                self._bytes += len(line)
            if self._bytes >= GATHERED_BYTES:
                self.flush()

    def flush(self) -> None:
        """Bring the text into the file; where it cannot be written it is kept for the next try."""
        with self._own_lock():
            gathered, self._gathered, self._bytes = self._gathered, [], 0
            rest = b"".join(gathered)
            try:
                while rest:
                    rest = rest[os.write(self._log.number(), rest) :]
            finally:
                if rest:
                    self._gathered.insert(0, rest)
                    self._bytes += len(rest)

    def close(self) -> None:
        """Bring the text into the file, and close that in any case."""
        if self.closed:
            return
        try:
            self.flush()
        finally:
            self.closed = True
            self._log.close()

    def _own_lock(self) -> threading.RLock:
        if self._pid != os.getpid():
            # Forked: a thread that is not here may hold the lock, and these lines are the parent's.
            self._pid = os.getpid()
            self._lock = threading.RLock()
            self._gathered, self._bytes = [], 0
        return self._lock


def tell_on_stderr(line: str) -> None:
    """Write a line to standard error, if there is one: a process may have closed or replaced it."""
    try:
        sys.stderr.write(f"{line}\n")
    except Exception:  # noqa: BLE001 - None, closed, a pipe that nobody reads, an object that raises
        return  # there is nobody left to be told


def _stamp() -> str:
    """Return the time as `logging` writes it, at the beginning of a line."""
    now = time.time()
    whole = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    return f"{whole},{int(now % 1 * 1000):03d} - "


class MainLog:
    """The main log of a session; warnings and worse are told on standard error, too."""

    def __init__(self, names: LogNames) -> None:
        said = os.environ.get(LEVEL_VARIABLE, "").strip().upper()
        self._least = LEVELS.get(said, logging.INFO)
        self._stamped = names.stamped
        self._told = ToldOnce()
        self._file = LogFile(names.main, overwrite=names.overwrites)

    def write(self, message: str, level: int = logging.INFO) -> None:
        """Write one line."""
        line = f"{logging.getLevelName(level)} - {escaped(message, TAB)}"
        if level >= logging.WARNING:
            tell_on_stderr(f"NVDLFW INSPECT - {line}")
        if level < self._least or self._file.closed:
            return
        try:
            self._file.write(f"{_stamp() if self._stamped else ''}{line}\n")
            self._file.flush()
        except OSError as error:
            if self._told.first():
                tell_on_stderr(f"dftrace: {self._file.path}: {error.strerror}")

    def close(self) -> None:
        """Close the file; later messages go to standard error only."""
        try:
            self._file.close()
        except OSError as error:
            tell_on_stderr(f"dftrace: {self._file.path}: {error.strerror}")


@lru_cache(maxsize=16_384)
def _column(before: str, stat: str) -> str:
    return f"{escaped(before + stat, TAB):<{NAME_COLUMNS}}"


class StatisticsFile:
    """The statistics, a line for each number."""

    def __init__(self, path: Path, *, overwrite: bool = True, stamped: bool = False) -> None:
        self._stamped = stamped
        self._file = LogFile(path, overwrite=overwrite)

    def write(self, before: str, values: Mapping[str, float], iteration: int) -> None:
        """Write the numbers of a tensor in the columns of Transformer Engine's statistics log."""
        # A name is ``{layer}_{tensor}_{statistic}``, of which `before` is all but the statistic;
        # four decimals of a number are written.
        began = f"{_stamp() if self._stamped else ''}INFO - "
        middle = f" iteration={iteration:06d}{'':18}value="
        lines = [
            f"{began}{_column(before, stat)}{middle}{value:.4f}\n" for stat, value in values.items()
        ]
        self._file.write("".join(lines))

    def flush(self) -> None:
        """Bring the lines into the file."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
