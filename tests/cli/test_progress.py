"""The bar of commands that read for long: when it is there, what it says, that it goes."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from analysis.trace_lines import small_trace
from conftest import clean_environment
from rich.console import Console

from dftrace_ai.cli import terminal
from dftrace_ai.cli.terminal import Bar, shown_progress

# A command that finds everything slow. It looks once, since nobody reads the terminal meanwhile.
IMPATIENT = """
import sys
from dftrace_ai.cli import main, terminal
terminal.SHOWN_AFTER_S = 0.0
terminal.LOOK_EVERY_S = 1000.0
sys.argv[0] = "dftrace"
main()
"""


class Screen:
    """A terminal, and what was written to it since one last looked."""

    def __init__(self) -> None:
        self.near, far = pty.openpty()
        os.set_blocking(self.near, False)
        self.file = os.fdopen(far, "w")
        self.console = Console(
            file=self.file, force_terminal=True, width=80, color_system=None, legacy_windows=False
        )

    def written(self) -> str:
        self.file.flush()
        pieces = []
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.near, 65536):
                pieces.append(piece)
        return b"".join(pieces).decode()

    def close(self) -> None:
        self.file.close()
        os.close(self.near)


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    made.close()


def test_a_bar_appears_after_two_seconds_and_goes_at_the_end(
    screen: Screen, tmp_path: Path
) -> None:
    (tmp_path / "a.pfw").write_bytes(b"x" * 3_000_000)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.pfw.gz").write_bytes(b"x" * 1_000_000)
    (tmp_path / "notes.txt").write_bytes(b"x" * 500_000)
    now, read = [100.0], [7_000_000]
    paths = [tmp_path]
    bar = Bar("reading", paths, screen.console, clock=lambda: now[0], read=lambda: read[0])
    for now[0] in (100.0, 101.0, 101.9):
        bar.look()
    assert screen.written() == ""
    now[0], read[0] = 102.0, 8_000_000
    bar.look()
    text = screen.written()
    assert "reading" in text
    assert "1.0/4.0 MB" in text
    # The ends of files are read beside the rest.
    now[0], read[0] = 163.0, 11_100_000
    bar.look()
    text = screen.written()
    assert "4.0/4.0 MB" in text
    assert "pass" not in text
    assert "0:01:03" in text
    now[0], read[0] = 164.0, 12_000_000
    bar.look()
    text = screen.written()
    assert "reading, pass 2" in text
    assert "1.0/4.0 MB" in text
    now[0], read[0] = 165.0, 17_000_000
    bar.look()
    text = screen.written()
    assert "reading, pass 3" in text
    assert "2.0/4.0 MB" in text
    bar.end()
    assert screen.written().endswith("\x1b[2K")


def test_a_bar_without_an_amount_only_moves(screen: Screen) -> None:
    now = [0.0]
    bar = Bar("recovering", [], screen.console, clock=lambda: now[0], read=lambda: 5)
    now[0] = 3.0
    bar.look()
    text = screen.written()
    assert "recovering" in text
    assert "B" not in text
    bar.end()


def test_without_a_terminal_there_is_not_even_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("work for a bar that nobody sees")

    monkeypatch.setattr(terminal.threading, "Thread", refused)
    monkeypatch.setattr(terminal, "console", refused)
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr("sys.stderr", nowhere)
        with shown_progress("reading", [Path("/")]):
            pass


def test_the_commands_show_it_and_take_it_away(tmp_path: Path) -> None:
    small_trace().write(tmp_path / "out" / "a.pfw.gz")
    near, far = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, "summary", str(tmp_path / "out")],
        stdin=far,
        stdout=subprocess.PIPE,
        stderr=far,
        env={**clean_environment(), "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(far)
    out, _ = process.communicate(timeout=100)
    written = bytearray()
    with contextlib.suppress(OSError):  # how Linux tells that nobody has the other side any more
        while piece := os.read(near, 65536):
            written += piece
    os.close(near)
    assert process.returncode == 0
    assert b"10 events in 1 file" in out
    assert b"\x1b" not in out
    assert b"reading" in written
    assert b"completing traces" in written
    assert bytes(written).rstrip(b"\r\n").endswith(b"\x1b[2K")


def test_in_a_narrow_terminal_it_is_one_line_from_the_beginning_on(
    screen: Screen, tmp_path: Path
) -> None:
    """And its time counts from when the command began to read, not from when it was first seen."""
    (tmp_path / "a.pfw").write_bytes(b"x" * 3_000_000)
    screen.console.width = 40
    now = [100.0]
    bar = Bar("reading", [tmp_path], screen.console, clock=lambda: now[0], read=lambda: 0)
    now[0] = 103.5
    bar.look()
    text = screen.written()
    assert "0:00:03" in text
    # A bar of two lines would be moved up by one before it is drawn anew.
    assert "reading" in text
    assert "\x1b[1A" not in text
    assert " MB" not in text
    bar.end()
