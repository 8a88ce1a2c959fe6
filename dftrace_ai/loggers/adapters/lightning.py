"""Loggers as a logger of Lightning, of either of its packages."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dftrace_ai.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.loggers.logger import Logger, Loggers

__all__ = ["lightning_logger"]

# Two packages with a class of the same name each; a trainer takes its own only.
PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def lightning_logger(loggers: Logger | Loggers, package: str | None = None) -> Any:
    """Return a logger for Lightning's trainer.

    What the trainer logs reaches the interfaces as it is: Lightning has its own epochs. The run
    goes on from `fit` to `test`, and ends with the program or with ``end_log``.

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

        def __init__(self, loggers: Logger | Loggers) -> None:
            super().__init__()
            self.loggers = loggers

        @property
        def name(self) -> str:
            return str(self._facts("project") or "dftrace_ai")

        @property
        def version(self) -> str:
            return str(self._facts("run_name") or "0")

        @property
        def save_dir(self) -> str | None:
            root = self._facts("root")
            return None if root is None else str(root)

        @property
        def log_dir(self) -> str | None:
            folder = self._facts("log_dir")
            return None if folder is None else str(folder)

        @property
        def experiment(self) -> Any:
            return self.loggers

        @rank_zero_only  # type: ignore[untyped-decorator]
        def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
            self.loggers.log_metrics(metrics, step)

        @rank_zero_only  # type: ignore[untyped-decorator]
        def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
            if params:
                self.loggers.log_hyperparams(params)

        def save(self) -> None:
            self.loggers.flush()

        def finalize(self, status: str) -> None:
            # At the end of fit, of validate and of test, each.
            self.loggers.flush()

        def _facts(self, name: str) -> Any:
            entries = self.loggers._log.entries
            return getattr(entries[0].facts, name) if entries else None

    return LightningLogger
