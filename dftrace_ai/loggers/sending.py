"""Handing over what is kept of earlier runs; loaded late, by `dftrace runs --send`."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from dftrace_ai.errors import DftraceError
from dftrace_ai.loggers.delivery.delivery import Delivery
from dftrace_ai.loggers.delivery.keeping import BEGINNING, MARK, SUFFIX, record_of
from dftrace_ai.loggers.delivery.own_process import OwnProcess
from dftrace_ai.loggers.delivery.shared_count import SharedCount
from dftrace_ai.loggers.delivery.waiting import wait_until
from dftrace_ai.loggers.trackers.base import RunFacts
from dftrace_ai.loggers.trackers.file_paths import opened_file
from dftrace_ai.wording import described, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.loggers.records import Status
    from dftrace_ai.loggers.trackers.base import BaseLogint

COUNT_SUFFIX: Final = ".count"
LIMIT_S: Final = 60.0
OVER_S: Final = 5.0
MOST_QUEUE: Final = 10_000_000
OTHERS: Final = 0o077


@dataclass(frozen=True)
class Sent:
    """What became of a file: how many records were handed over, and how many wait."""

    path: Path
    tracker: str
    run: str
    sent: int
    left: int


def unsent_files(folder: Path) -> list[Path]:
    """Return the files below the directory of a run, of a project or of all runs."""
    name = f"{BEGINNING}*{SUFFIX}"
    return sorted(path for below in ("", "*/", "*/*/") for path in folder.glob(f"{below}{name}"))


def send(path: Path) -> Sent:
    """Hand over what a file keeps that was not handed over before; a DftraceError says why not."""
    # The process that has a record taken notes so in a file beside it, at once: nothing is handed
    # over twice, whoever is killed.
    count = path.with_suffix(COUNT_SUFFIX)
    with _locked(path, os.O_RDONLY) as file, _locked(count, os.O_RDWR | os.O_CREAT) as counts:
        try:
            kind, facts, name = _head_of(path, file.readline())
            lines = file.readlines()
            status: Status = "killed"
            if lines and lines[-1].startswith(b'{"end"'):
                status = json.loads(lines.pop())["end"]
            told = SharedCount.kept(counts.fileno())
            before = told.seen
            records = [record_of(line) for line in lines[before:]]
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise DftraceError(f"{quoted(str(path))}: is damaged: {described(error)}") from error
        if records:
            delivery = Delivery(name, OwnProcess(kind, facts, LIMIT_S, told), MOST_QUEUE)
            for record in records:
                delivery.put(record)
            delivery.close(status, LIMIT_S, LIMIT_S)
            delivery.settle()
            # Until then it has what is locked here, too.
            wait_until(lambda: told.is_over, time.monotonic() + OVER_S)
        else:
            fcntl.flock(counts, fcntl.LOCK_UN)
        left = len(lines) - told.seen
        if not left:
            path.unlink()
            count.unlink()
        return Sent(path, name, f"{facts.project}/{facts.run_name}", told.seen - before, left)


@contextmanager
def _locked(path: Path, flags: int) -> Iterator[IO[bytes]]:
    """Open a file of ours that nobody has at the moment: no training, and nobody who hands over."""
    try:
        number = opened_file(path, flags)
    except OSError as error:
        raise DftraceError(f"{quoted(str(path))}: cannot be read: {error.strerror}") from error
    with os.fdopen(number, "rb" if flags == os.O_RDONLY else "r+b", buffering=1 << 16) as file:
        found = os.fstat(number)
        if found.st_uid != os.geteuid() or found.st_mode & OTHERS:
            raise DftraceError(f"{quoted(str(path))}: others may have written it")
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DftraceError(
                f"{quoted(str(path))}: its training goes on, or it is being handed over; try again "
                "later"
            ) from error
        # Somebody may have handed it over, and removed it, since it was opened.
        if not (path.exists() and path.samefile(f"/proc/self/fd/{number}")):
            raise DftraceError(f"{quoted(str(path))}: was handed over meanwhile")
        yield file


def _head_of(path: Path, line: bytes) -> tuple[type[BaseLogint], RunFacts, str]:
    head = json.loads(line)
    if head["kind"] != MARK or head["format"] != 1:
        raise ValueError("another version has written it")
    run = head["run"]
    facts = RunFacts(
        **{**run, "tags": tuple(run["tags"]), "root": Path(run["root"]), "resume": "allow"},
        log_dir=path.parent.absolute(),
    )
    try:
        # It stands in a file that nobody else can have written.
        kind: Any = import_module(head["module"])
        for part in head["class"].split("."):
            kind = getattr(kind, part)
    except (ImportError, AttributeError) as error:
        raise DftraceError(
            f"{quoted(str(path))}: the tracker cannot be loaded (PYTHONPATH): {described(error)}"
        ) from error
    return kind, facts, head["tracker"]
