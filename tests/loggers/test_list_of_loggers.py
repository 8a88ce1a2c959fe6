"""A trainer that holds a list of loggers and calls each of them, as if it knew no more."""

from __future__ import annotations

import pytest
from loggers.local_lines import Kept, entry

from dftrace_ai.loggers import Logger, make_loggers


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
