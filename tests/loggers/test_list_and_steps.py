"""A training's loggers: a list whose parts are called by themselves, odd steps, full queues."""

from __future__ import annotations

import io
import logging
import math
import re
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inspect_sessions import statistics_of
from loggers.local_lines import Kept, entry

import dftrace_ai.inspect as debug_api
from dftrace_ai.loggers import BaseLogint, Logger, make_loggers
from dftrace_ai.loggers.runs.reading import read_runs


def trainer(loggers: list[Logger], epochs: int, iterations: int) -> None:
    """Calls every logger of the list by itself."""
    for epoch in range(epochs):
        for iteration in range(iterations):
            data = {"loss": float(epoch * iterations + iteration)}
            for logger in loggers:
                logger.log_iter(data)
        for logger in loggers:
            logger.log_epoch()


@pytest.mark.parametrize("end", ["each", "all", "block"])
def test_every_logger_has_everything(end, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    loggers = make_loggers({"local": entry(folders[0]), "tensorboard": entry(folders[1])})
    assert isinstance(loggers, list)
    assert all(isinstance(logger, Logger) for logger in loggers)
    if end == "block":
        with loggers:
            trainer(loggers, 3, 50)
    else:
        trainer(loggers, 3, 50)
        for logger in loggers if end == "each" else [loggers]:
            logger.end_log()
    kept = Kept(folders[0])
    assert kept.metric("loss") == [(step, float(step)) for step in range(150)]
    assert [step for step, _ in kept.metric("epoch/loss/mean")] == [0, 1, 2]
    assert kept.status == "finished"
    assert {logger.status for logger in loggers} == {"finished"}
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folders[1] / "default" / "run" / "tensorboard"))
    found.Reload()
    assert [(e.step, e.value) for e in found.Scalars("loss")] == kept.metric("loss")


def test_a_training_that_begins_late_is_logged(tmp_path):
    """The machine is sampled long before the first iteration."""
    settings = entry(tmp_path)["config"] | {"system_metrics_s": 0.1}
    with make_loggers({"local": {"config": settings}}) as loggers:
        until_s = time.monotonic() + 60
        while len(Kept(tmp_path).of("m")) < 2 and time.monotonic() < until_s:
            time.sleep(0.01)
        loggers.log_iter({"loss": 1.0})
    assert Kept(tmp_path).metric("loss") == [(0, 1.0)]


def test_the_line_of_an_epoch_tells_of_that_epoch(tmp_path, capfd):
    settings = entry(tmp_path)["config"] | {"status_line": True}
    with make_loggers({"local": {"config": settings}}) as loggers:
        trainer([loggers], 3, 50)
    told = [line.split("  ") for line in capfd.readouterr().err.splitlines()]
    assert [(line[0], line[1], line[3]) for line in told] == [
        ("[run] epoch 0", "iteration 50", "loss 24.5"),
        ("[run] epoch 1", "iteration 100", "loss 74.5"),
        ("[run] epoch 2", "iteration 150", "loss 124.5"),
    ]
    assert all(line[2].endswith(" it/s") for line in told)


class Held(io.StringIO):
    """A stream that takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written, self.may_go_on = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.is_written.set()
        self.may_go_on.wait()
        return len(text)


def test_calls_that_find_the_queue_full_are_told_as_such(tmp_path, monkeypatch, caplog):
    held = Held()
    monkeypatch.setattr("sys.stderr", held)
    settings = entry(tmp_path)["config"] | {"status_line": True, "queue": 3}
    with make_loggers({"local": {"config": settings}}) as loggers:
        loggers.log_epoch()
        held.is_written.wait()
        # The epoch is still among those that wait.
        for step in range(7):
            loggers.log_iter({"loss": float(step)})
        held.may_go_on.set()
    told = "5 logging calls reached no tracker: 5 as more than the queue holds waited"
    assert [told] == [one.getMessage() for one in caplog.records]
    assert Kept(tmp_path).metric("loss") == [(0, 0.0), (1, 1.0)]


class Hanging(BaseLogint):
    """A tracker whose server does not answer until it is told to."""

    name = "hanging"
    own_process = False
    asked, answers = threading.Event(), threading.Event()

    def log_metrics(self, metrics, step):
        self.asked.set()
        self.answers.wait()

    def log_file(self, name, data, suffix, step):
        """Take it."""


class Telling(logging.Handler):
    """Keeps what is told, and lets others wait for the first line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.has_told = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.has_told.set()


def test_a_tracker_that_hangs_is_told_of_while_the_training_goes_on(tmp_path):
    """Once its queue is full, and not only at an end that may be days away, or may never come."""
    telling = Telling()
    logging.getLogger("dftrace_ai").addHandler(telling)
    settings = entry(tmp_path)["config"]
    given = {"hanging": {"config": settings | {"queue": 3}}, "local": {"config": settings}}
    try:
        with make_loggers(given) as loggers:
            for step in range(20):
                loggers.log_iter({"loss": float(step)})
                assert Hanging.asked.wait(60)  # it has the first one
            has_told = telling.has_told.wait(60)
            told, telling.lines = telling.lines, []
            Hanging.answers.set()
    finally:
        logging.getLogger("dftrace_ai").removeHandler(telling)
    full = (
        "the tracker hanging does not keep up: 3 records wait for it, as many as its queue "
        "holds, and what comes until it takes some is lost"
    )
    assert has_told
    assert told == [full]
    (line,) = telling.lines
    lost = re.fullmatch(r"the tracker hanging lost (\d+) of 20 records: its queue is full", line)
    assert lost
    assert 1 <= int(lost[1]) <= 16
    assert Kept(tmp_path).metric("loss") == [(step, float(step)) for step in range(20)]


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


def test_statistics_of_tensors_are_metrics_of_their_step(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    wanted = {}
    config = statistics_of(["min", "max", "mean"], ["activation"], freq=2)
    with make_loggers({"local": entry(tmp_path / "runs")}) as loggers:
        debug_api.initialize(config, log_dir=tmp_path, statistics_logger=loggers)
        try:
            debug_api.attach(model)
            for step in range(5):
                given = torch.randn(8, 4)
                model(given)
                debug_api.step()
                if step % 2 == 0:
                    wanted[step] = given.max().item()
        finally:
            debug_api.end_debug()
    kept = Kept(tmp_path / "runs")
    found = {name for line in kept.of("m") for name in line["v"]}
    (name,) = (name for name in found if name.endswith("activation_max"))
    assert dict(kept.metric(name)) == pytest.approx(wanted)
    assert len(found) == 3
