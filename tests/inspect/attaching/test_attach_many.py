"""Models of very many layers: what is done grows with them, and no faster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attached_models import statistics_of
from torch import nn

import dftrace_ai.inspect as debug_api


def calls_in(work: Callable[[], Any]) -> int:
    """How many functions, of Python and of C, are called in the course of a function."""
    count = 0

    def on_event(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def calls_of_a_session(folder: Path, layers: int) -> dict[str, int]:
    sections = {
        f"s{number}": next(
            iter(
                statistics_of(["max"], ["output"], start_step=5).values(),
            )
        )
        | {"layers": {"layer_numbers": [number]}}
        for number in range(layers)
    }
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(layers)))
    counts = {"initialize": calls_in(lambda: debug_api.initialize(sections, log_dir=folder))}
    counts["attach"] = calls_in(lambda: debug_api.attach(model))
    counts["first step"] = calls_in(debug_api.step)
    counts["step"] = calls_in(debug_api.step)
    counts["end_debug"] = calls_in(debug_api.end_debug)
    return counts


def test_a_session_takes_no_more_than_its_share_for_each_layer(tmp_path: Path) -> None:
    calls_of_a_session(tmp_path, 2)  # what is done once in a process
    few = calls_of_a_session(tmp_path, 25)
    many = calls_of_a_session(tmp_path, 400)
    for part in ("initialize", "first step", "end_debug"):
        assert many[part] <= 20 * few[part], part
    # Each layer is held against each section, which is one call of little cost.
    assert many["attach"] <= 20 * few["attach"] + 6 * 400 * 400
    assert many["step"] <= few["step"] + 10
