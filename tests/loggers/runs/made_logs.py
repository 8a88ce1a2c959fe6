"""Logs made by hand, line by line, and the runs that are read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dftrace_ai.loggers.runs.processes import here
from dftrace_ai.loggers.runs.reading import Runs, read_runs

__all__ = ["BEGUN_S", "Log", "only_run"]

BEGUN_S = 1_700_000_000.0
"""When each log begins, where nobody says otherwise; a second passes with each line."""


class Log:
    """The log of a process, which is this one where nobody says otherwise."""

    def __init__(
        self, root: Path, run: str = "p/r", *, rank: int = 0, number: int = 1, **facts: Any
    ) -> None:
        self.folder = root / run
        self.folder.mkdir(parents=True, exist_ok=True)
        self.time_s = facts.pop("t", BEGUN_S)
        process = here()
        project, _, name = run.rpartition("/")
        self.path = self.folder / f"rank{rank}-{process.pid}-{number}.jsonl"
        self.add(
            "run",
            **{
                "project": project,
                "name": name,
                "group": "",
                "tags": [],
                "rank": rank,
                "world_size": 1,
                "argv": [],
                "host": process.host,
                "boot": process.boot,
                "pid_ns": process.pid_namespace,
                "pid": process.pid,
                "start": process.start,
                **facts,
            },
        )

    def add(self, kind: str, /, **members: Any) -> Log:
        """Append a line; without a time of its own, a second after the one before."""
        line = {"k": kind, "t": self.time_s, **members}
        self.time_s = line["t"] + 1 if isinstance(line["t"], float) else self.time_s + 1
        return self.raw(json.dumps(line).encode() + b"\n")

    def metrics(self, step: int, axis: str = "i", **values: Any) -> Log:
        """Append numbers."""
        return self.add("m", s=step, a=axis, v=values)

    def end(self, status: str = "finished") -> Log:
        """Append the end."""
        return self.add("end", status=status)

    def raw(self, data: bytes) -> Log:
        """Append bytes."""
        with self.path.open("ab") as file:
            file.write(data)
        return self


def only_run(root: Path) -> Any:
    """The only run that is there."""
    (run,) = read_runs(root)
    return run


def by_key(runs: Runs) -> dict[str, Any]:
    """Runs by their keys."""
    return {run.key: run for run in runs}
