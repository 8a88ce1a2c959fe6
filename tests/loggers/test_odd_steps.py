"""Numbers of iterations and epochs that are none, or no reader could take: told once, never raised."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loggers.local_lines import Kept, entry

from dftrace_ai.loggers import Logger, make_loggers
from dftrace_ai.loggers.runs.reading import read_runs


class Lost:
    """As a tensor on a device that has failed."""

    def __index__(self) -> int:
        raise RuntimeError("device-side assert triggered")


@pytest.mark.parametrize(
    "odd",
    [1 << 63, 2**63 + 5, -(10**30), Lost(), 2.5, math.nan, math.inf, "3", b"3", 1j],
    ids=["large", "larger", "small", "lost", "part", "nan", "inf", "text", "bytes", "complex"],
)
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


def test_calls_of_log_without_a_step_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with make_loggers({"local": entry(tmp_path)}) as loggers:
        for value in range(3):
            loggers.log({"loss": float(value)})
        loggers.log({"loss": 3.0, "late": 3.0}, step=10)
        loggers.log({"loss": 4.0})
        loggers.log_metrics({"val": 1.0})
        loggers.log_text("note", "of the last")
        for odd in (2**63 + 5, 2.5, math.nan, "3"):
            loggers.log({"loss": 5.0}, step=odd)
        whole = (np.int64(20), np.float32(21), torch.tensor(22), torch.tensor(23.0), 24.0, True)
        for step in whole:
            loggers.log({"step": float(step)}, step=step)
        loggers.log({"loss": 6.0})
    kept = Kept(tmp_path)
    assert [step for step, _ in kept.metric("loss")] == [0, 1, 2, 10, 11, 12, 13, 14, 15, 2]
    assert kept.metric("val") == [(11, 1.0)]
    assert kept.of("x")[0]["s"] == 11
    assert kept.metric("step") == [(int(step), float(step)) for step in whole]
    assert caplog.text.count("a step has to be a whole number") == 3  # once for each type


def test_what_is_logged_beside_iterations_belongs_to_the_last(tmp_path: Path) -> None:
    with make_loggers({"local": entry(tmp_path), "trace": entry(tmp_path)}) as loggers:
        loggers.log({"before": 1.0})
        for value in range(3):
            loggers.log_iter({"loss": float(value)})
            loggers.log({"rate": 0.5})
        loggers.log({"val": 1.0}, step=7)
        loggers.log({"val": 2.0})
        loggers[0].log({"alone": 1.0})
        loggers[0].log_metrics({"alone": 2.0})
        loggers.log_iter({"loss": 3.0})
    kept = Kept(tmp_path)
    assert kept.metric("before") == [(0, 1.0)]
    assert kept.metric("loss") == [(step, float(step)) for step in range(4)]
    assert kept.metric("rate") == [(step, 0.5) for step in range(3)]
    assert kept.metric("val") == [(7, 1.0), (2, 2.0)]
    assert kept.metric("alone") == [(2, 1.0), (2, 2.0)]


def test_each_name_counts_where_nothing_else_does(tmp_path: Path) -> None:
    with make_loggers({"local": entry(tmp_path)}) as loggers:
        for value in range(3):
            loggers.add_scalar("loss", float(value))
            loggers.log_metrics({"a": 1.0, "b": 2.0})
        loggers.add_scalar("loss", 9.0, 9)
        loggers.add_scalar("loss", 10.0)
    kept = Kept(tmp_path)
    assert [step for step, _ in kept.metric("loss")] == [0, 1, 2, 9, 10]
    assert [step for step, _ in kept.metric("b")] == [0, 1, 2]


def test_a_run_that_goes_on_goes_on_counting(tmp_path: Path) -> None:
    for again in range(3):
        with make_loggers({"local": entry(tmp_path)}) as loggers:
            if again < 2:
                for _ in range(3):
                    loggers.log_iter({"loss": float(again)})
                loggers.log_epoch()
            else:
                loggers.log({"loss": 2.0})
                loggers.log({"loss": 2.0})
    kept = Kept(tmp_path)
    assert kept.metric("loss") == [(step, float(step // 3)) for step in range(8)]
    assert kept.metric("epoch/loss/last") == [(0, 0.0), (1, 1.0)]
