"""Programs that record while a test looks at them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest
from conftest import clean_environment
from safety.commands import Done, invoke

LIMIT_S = 300.0

T = TypeVar("T")

# Every program begins with this: `done(...)` says that it is where it should be, and waits there
# until the test has looked.
PREAMBLE = """
import sys, threading, time
import dftrace_ai
from dftrace_ai import ai

def done(*words):
    print(*words, "ready", flush=True)
    sys.stdin.readline()

"""


class Program:
    """A running program; it ends when its standard input does."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def wait_until_ready(self) -> str:
        """What it said when it was where it should be."""
        assert self.process.stdout is not None
        # Some versions of gloo tell there whom they have met.
        while (line := self.process.stdout.readline()).startswith("[Gloo]"):
            pass
        assert "ready" in line, self.process.communicate(timeout=LIMIT_S)
        return line.removesuffix("ready\n").strip()

    def go_on(self) -> None:
        """Lets it go on to the next place."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """As the kernel does it when memory is short."""
        self.process.kill()
        self.process.wait(LIMIT_S)


@contextmanager
def program(source: str, folder: Path, *, wait: bool = True, **env: str) -> Iterator[Program]:
    """Runs a program that traces into a folder, until it is ready if that is waited for."""
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(source)],
        env={
            **clean_environment(),
            "DFTRACE_LOG_FILE": str(folder / "t"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **env,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    running = Program(process)
    try:
        if wait:
            running.wait_until_ready()
        yield running
    finally:
        # With all that it has started.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=LIMIT_S)


def until(look: Callable[[], T], holds: Callable[[T], bool]) -> T:
    """Looks until what is seen is as it should be."""
    deadline = time.monotonic() + LIMIT_S
    while not holds(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)
    return seen


def dftrace(*words: object) -> Done:
    """Runs the command in this process, with a screen of 120 columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "120")
        return invoke(*words)
