"""Runs the command as a user does: in a process with bounded memory, and at a terminal."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import clean_environment
from printed_json import checked
from typer.testing import CliRunner

from dftrace_ai.cli.commands import app_for

# A machine for tests must survive a reader that takes what it is offered.
MOST_ADDRESS_SPACE = 6 << 30
LIMIT_S = 300

COMMAND = [sys.executable, "-m", "dftrace_ai.cli"]
# The same, which shows no bar on a machine so busy that it takes for long.
PATIENT = """
import sys
from dftrace_ai.cli import main, terminal
terminal.SHOWN_AFTER_S = 1000.0
sys.argv[0] = "dftrace"
main()
"""
# The same, holding no copy in memory: what archives and profiles hold goes to TMPDIR.
COPYING = """
import sys
from dftrace_ai.analysis.reading.importing import copies
from dftrace_ai.cli import main
copies.MOST_MEMORY_BYTES = 0
sys.argv[0] = "dftrace"
main()
"""
COPYING_COMMAND = [sys.executable, "-c", COPYING]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str


def bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_SPACE, MOST_ADDRESS_SPACE))


def dftrace(*words: object, env: Mapping[str, str] | None = None) -> Done:
    """Runs the command with its output in pipes."""
    done = subprocess.run(
        [*COMMAND, *map(os.fspath, map(str, words))],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        env={**clean_environment(), **(env or {})},
        timeout=LIMIT_S,
        preexec_fn=bounded,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def invoke(*words: object) -> Done:
    """Runs the command in this process, which ends with it should it hang.

    As `dftrace` does, it makes the one command that is called: all of them take ten times as long.
    """
    given = [str(word) for word in words]
    signal.alarm(LIMIT_S)
    try:
        result = CliRunner().invoke(app_for(given), given)
    finally:
        signal.alarm(0)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def answer(command: str, *words: object, status: int = 0) -> Any:
    """What a command prints as JSON, which is as its schema says."""
    done = invoke(command, "--json", *words)
    assert done.status == status, done.err
    return checked(done.out, command)


def read_by(reader: str, folder: Path) -> tuple[dict[str, list[Any]], int]:
    """What a reader says of each file of a folder, and the MiB that its process took."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("reading.py"), reader, *sorted(folder.iterdir())],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    return said["found"], said["peak_mib"]


def at_terminal(*words: object, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Runs the command at a terminal of one colour; returns its status and all that it wrote."""
    main, far = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PATIENT, *map(str, words)],
        stdin=far,
        stdout=far,
        stderr=far,
        env={**clean_environment(), "TERM": "dumb", "COLUMNS": "240", **(env or {})},
    )
    os.close(far)
    written = bytearray()
    try:
        while piece := os.read(main, 65536):
            written += piece
    except OSError:
        pass  # how Linux tells that nobody has the other side open any more
    finally:
        os.close(main)
    return process.wait(LIMIT_S), written.decode("utf-8", "surrogateescape")


def acting(text: str) -> set[str]:
    """The characters of a text that do something to a terminal, line ends excepted."""
    return {
        letter
        for letter in text.replace("\r\n", "\n")
        if letter != "\n" and unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }
