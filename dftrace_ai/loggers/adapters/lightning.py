"""Loggers as a logger of Lightning, of either of its packages."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.logger import begun_again

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.loggers.logger import Logger, Loggers

# Two packages with a class of the same name each; a trainer takes its own only.
PACKAGES = ("lightning.pytorch", "pytorch_lightning")


class _Place(NamedTuple):
    """What a trainer asks where it keeps files; the same in each of its processes.

    The trainer makes paths of `project` and `version`: they are the parts of the run's directory.
    """

    project: str
    version: str
    run_name: str
    root: str | None
    log_dir: str | None


def lightning_logger(loggers: Logger | Loggers, package: str | None = None) -> Any:
    """Return a logger for Lightning's trainer.

    What the trainer logs reaches the interfaces as it is: Lightning has its own epochs. The run
    goes on from `fit` to `test`, and ends with the program or with ``end_log``. Where the trainer
    forks or spawns processes that train, the first of them goes on with the run.

    Args:
        loggers: where it is logged.
        package: ``"lightning.pytorch"`` or ``"pytorch_lightning"``; by default the one that the
            program has imported.

    Raises:
        ConfigError: neither is installed.

    Example::

        Trainer(logger=lightning_logger(make_loggers("experiment.yaml")))
    """
    return _class_for(package or _imported())(loggers)


def _imported() -> str:
    for package in PACKAGES:
        if package in sys.modules:
            return package
    for package in PACKAGES:
        if find_spec(package.partition(".")[0]) is not None:
            return package
    raise ConfigError("neither lightning nor pytorch_lightning is installed")


@cache
def _class_for(package: str) -> type[Any]:
    base: Any = import_module(f"{package}.loggers.logger").Logger
    rank_zero_only: Any = import_module(f"{package}.utilities.rank_zero").rank_zero_only

    class LightningLogger(base):  # type: ignore[misc]
        """Hands on what a trainer of Lightning logs."""

        def __init__(self, loggers: Logger | Loggers, place: _Place | None = None) -> None:
            super().__init__()
            self.loggers = loggers
            self._place = _place(loggers) if place is None else place
            self._at_home = os.getpid() if place is None else 0

        def __reduce__(self) -> tuple[Any, ...]:
            """In a process that was spawned it stands for the same run."""
            return _elsewhere, (package, self.loggers, self._place)

        @property
        def name(self) -> str:
            return self._place.project

        @property
        def version(self) -> str:
            return self._place.version

        @property
        def save_dir(self) -> str | None:
            return self._place.root

        @property
        def log_dir(self) -> str | None:
            return self._place.log_dir

        @property
        def experiment(self) -> Any:
            return self._here()

        @rank_zero_only  # type: ignore[untyped-decorator]
        def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
            self._here().log_metrics(metrics, step)

        @rank_zero_only  # type: ignore[untyped-decorator]
        def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
            if params:
                self._here().log_hyperparams(params)

        def save(self) -> None:
            self.loggers.flush()

        def finalize(self, status: str) -> None:
            # At the end of fit, of validate and of test, each.
            self.loggers.flush()

        def _here(self) -> Logger | Loggers:
            """Return the loggers; where a trainer trains in processes of its own, those of one."""
            if self._at_home != os.getpid() and self._place.log_dir and not rank_zero_only.rank:
                self.loggers = begun_again(self.loggers, self._place.run_name)
            self._at_home = os.getpid()
            return self.loggers

    return LightningLogger


def _place(loggers: Logger | Loggers) -> _Place:
    for entry in loggers._pipeline.entries:
        if entry.facts is not None:
            facts = entry.facts
            project, version = facts.log_dir.parts[-2:]
            return _Place(project, version, facts.run_name, str(facts.root), str(facts.log_dir))
    return _Place("dftrace_ai", "0", "0", None, None)


def _elsewhere(package: str, loggers: Logger | Loggers, place: _Place) -> Any:
    return _class_for(package)(loggers, place)
