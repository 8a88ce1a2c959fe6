"""Numbers of iterations and epochs that are none, or no reader could take: told once, never raised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loggers.local_lines import Kept, entry

from dftrace_ai.loggers import Logger
from dftrace_ai.loggers.runs.reading import read_runs


class Lost:
    """As a tensor on a device that has failed."""

    def __index__(self) -> int:
        raise RuntimeError("device-side assert triggered")


@pytest.mark.parametrize("odd", [1 << 63, -(10**30), Lost()], ids=["large", "small", "lost"])
def test_the_next_number_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, odd: Any
) -> None:
    with Logger({"local": entry(tmp_path)}) as logger:
        logger.log_iter({"loss": 0.0}, step=7)
        logger.log_iter({"loss": 1.0}, step=odd)
        logger.log_iter({"loss": 2.0}, step=odd)
        logger.log_metrics({"lr": 3.0}, step=odd)
        logger.log_epoch(odd)
    assert caplog.text.count("a step has to be a whole number") == 1
    kept = Kept(tmp_path)
    assert kept.metric("loss") == [(7, 0.0), (8, 1.0), (9, 2.0)]
    assert kept.metric("lr") == [(9, 3.0)]
    assert kept.metric("epoch/loss/last") == [(0, 2.0)]
    runs = read_runs(tmp_path)
    assert not runs.notes
