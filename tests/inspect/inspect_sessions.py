"""Sessions for the tests: a config in a line, and the files that they leave."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

SIX = ["min", "max", "mean", "std", "l1_norm", "l2_norm"]

LINE = re.compile(r"INFO - (\S+)\s+iteration=(\d+)\s+value=(\S+)\n")


class Scalar(NamedTuple):
    """A line of the statistics."""

    name: str
    iteration: int
    value: str


def base_config(stats: list[str] | None = None, **keys: Any) -> dict[str, Any]:
    """A config for explicit calls on every layer."""
    feature = {"enabled": True, "stats": stats or SIX, "tensors": ["activation"], "freq": 1}
    feature |= keys
    layers = {"layer_types": ["all"]}
    return {"stats": {"enabled": True, "layers": layers, "LogTensorStats": feature}}


def main_log(folder: Path, rank: int = 0) -> list[str]:
    """The lines of the main log."""
    path = folder / "nvdlfw_inspect_logs" / f"nvdlfw_inspect_globalrank-{rank}.log"
    return path.read_text().splitlines()


def statistics_path(folder: Path, rank: int = 0) -> Path:
    """Where the statistics of a rank lie."""
    return folder / "nvdlfw_inspect_statistics_logs" / f"nvdlfw_inspect_globalrank-{rank}.log"


def scalars(folder: Path, rank: int = 0) -> list[Scalar]:
    """The statistics, each line as a reader understands it."""
    text = statistics_path(folder, rank).read_text()
    found = LINE.findall(text)
    assert len(found) == text.count("\n")
    return [Scalar(name, int(iteration), value) for name, iteration, value in found]
