"""What a program that logged has left behind, and how many of them are run together."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conftest import clean_environment

HERE = Path(__file__).parent
LIMIT_S = 300
SOON_S = 30


def is_running(number: str) -> bool:
    """Tell whether a process is there; one that nobody has waited for is not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@dataclass
class Case:
    """A program, by its name in `programs`, and what it is called with."""

    name: str
    program: str
    options: Mapping[str, Any] = field(default_factory=dict)
    torch: bool = False


@dataclass
class Left:
    """What a program has left behind.

    Args:
        folder: that it ran in.
        status: that it ended with; less than 0 for a signal.
    """

    folder: Path
    status: int

    @property
    def stdout(self) -> str:
        """What it printed."""
        return (self.folder / "stdout").read_text()

    @property
    def stderr(self) -> str:
        """What it printed for people to see."""
        return (self.folder / "stderr").read_text()

    def lines(self, run: str = "run") -> list[Any]:
        """What its local logs hold, in order of the files."""
        files = sorted((self.folder / "runs" / "default" / run).glob("*.jsonl"))
        lines = [line for file in files for line in file.read_text().splitlines()]
        # A full disk cuts a line, and what comes later begins on the next one.
        return [json.loads(line) for line in lines if line.endswith("}")]

    def steps(self, run: str = "run") -> list[int]:
        """The iterations in its local logs."""
        return [line["s"] for line in self.lines(run) if line["k"] == "m" and line["a"] == "i"]

    def losses(self, run: str = "run") -> list[Any]:
        """The values of `loss` there."""
        found = [line["v"] for line in self.lines(run) if line["k"] == "m" and line["a"] == "i"]
        return [values["loss"] for values in found if "loss" in values]

    def ends(self, run: str = "run") -> list[str]:
        """How its local logs end."""
        return [line["status"] for line in self.lines(run) if line["k"] == "end"]

    def taken(self, run: str = "run") -> list[str]:
        """What the tracker has taken, and at last the status that it was told."""
        path = self.folder / "runs" / "default" / run / "nasty.txt"
        return path.read_text().split() if path.exists() else []

    def told_at_last(self, run: str = "run") -> str:
        """What status the tracker was told; its process may be about to be told it."""
        until = time.monotonic() + LIMIT_S
        while not (taken := self.taken(run)) or taken[-1].isdigit():
            assert time.monotonic() < until, taken
            time.sleep(0.01)
        return taken[-1]

    def processes_at_last(self, run: str = "run") -> list[str]:
        """Those processes of the tracker that do not end, though who ends them has had time."""
        named = (self.folder / "runs" / "default" / run / "processes.txt").read_text().split()
        until = time.monotonic() + SOON_S
        while left := [number for number in named if is_running(number)]:
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        return left

    def lost(self, tracker: str = "nasty") -> list[tuple[int, int]]:
        """What was told of a tracker's loss: how many of how many, each time."""
        found = re.findall(
            rf"tracker {tracker} (?:lost|has not taken) ([\d,]+) of ([\d,]+) record", self.stderr
        )
        return [(int(lost.replace(",", "")), int(given.replace(",", ""))) for lost, given in found]


def run_all(
    cases: Sequence[Case], folder: Path, environment: Mapping[str, str] | None = None
) -> dict[str, Left]:
    """Run programs, several at once, each as a fork of one process that has imported everything."""
    told = []
    for case in cases:
        (folder / case.name).mkdir(parents=True)
        told.append({**vars(case), "folder": str(folder / case.name)})
    (folder / "cases").write_text(json.dumps(told))
    command = [sys.executable, str(HERE / "crowd.py"), str(folder / "cases")]
    done = subprocess.run(
        [*command, str(folder / "results")],
        env={**clean_environment(), "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    statuses = json.loads((folder / "results").read_text())
    return {name: Left(folder / name, status) for name, status in statuses.items()}
