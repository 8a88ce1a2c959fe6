"""What the embedded tracker has written, line by line, as a test reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["Kept", "entry"]


def entry(folder: Path, *loggers: str, **settings: Any) -> dict[str, Any]:
    """An entry whose run is quiet, has the time it needs, and is looked at as soon as it has ended."""
    config = {"loggers": list(loggers) or ["metric"], "log_dir": str(folder), "run_name": "run"}
    config |= {"status_line": False, "system_metrics_s": None, "limit_s": 100.0}
    return {"config": config | settings}


class Kept:
    """The lines of one run of one process."""

    def __init__(self, folder: Path, run_name: str = "run", project: str = "default") -> None:
        self.folder = folder / project / run_name
        self.lines = [
            json.loads(line)
            for path in sorted(self.folder.glob("*.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Lines of one kind."""
        return [line for line in self.lines if line["k"] == kind]

    def metric(self, name: str) -> list[tuple[int, float]]:
        """Steps and values of a metric, in the order in which they were written."""
        return [(line["s"], float(line["v"][name])) for line in self.of("m") if name in line["v"]]

    def file(self, line: dict[str, Any]) -> Path:
        """The file that a line names."""
        return self.folder / line["file"]

    @property
    def status(self) -> str | None:
        """What the last line of the end says."""
        ends = self.of("end")
        return ends[-1]["status"] if ends else None
