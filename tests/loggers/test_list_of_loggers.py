"""A trainer that holds a list of loggers and calls each of them, as if it knew no more."""

from __future__ import annotations

import io
import logging
import re
import threading
import time

import pytest
from loggers.local_lines import Kept, entry

from dftrace_ai.loggers import BaseLogint, Logger, make_loggers


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
