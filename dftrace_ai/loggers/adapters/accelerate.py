"""Loggers as a tracker of Hugging Face's accelerate."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.loggers.logger import Logger, Loggers
    from dftrace_ai.loggers.records import Metrics, Params

NAME = "dftrace_ai"


def accelerate_tracker(loggers: Logger | Loggers) -> Any:
    """Return a tracker for ``Accelerator(log_with=...)``.

    Args:
        loggers: where it is logged.

    Example::

        accelerator = Accelerator(log_with=accelerate_tracker(make_loggers("experiment.yaml")))
        accelerator.init_trackers("project", config={"lr": 0.1})
        accelerator.log({"loss": 0.5}, step=1)
        accelerator.end_training()
    """
    tracker = _tracker_class()(NAME)
    tracker.loggers = loggers
    return tracker


def register_tracker() -> str:
    """Make ``log_with="dftrace_ai"`` known to accelerate, where it can be told of trackers.

    The config is given as ``init_trackers(name, init_kwargs={"dftrace_ai": {"config": ...}})``.

    Returns:
        The name for ``log_with``.

    Raises:
        ImportError: this accelerate has no `register_tracker_class`.
    """
    from accelerate.tracking import register_tracker_class

    register_tracker_class(_tracker_class())
    return NAME


@cache
def _tracker_class() -> type[Any]:
    from accelerate.tracking import GeneralTracker, on_main_process

    class DftraceTracker(GeneralTracker):  # type: ignore[misc]
        """Hands on what an `Accelerator` logs."""

        name = NAME
        requires_logging_directory = False
        main_process_only = True

        def __init__(self, run_name: str, config: Any = None, **kwargs: Any) -> None:
            super().__init__()
            self.run_name = run_name
            self.loggers: Any = None
            if config is not None:
                from dftrace_ai.loggers.logger import make_loggers

                self.loggers = make_loggers(config)

        def __reduce__(self) -> tuple[Any, ...]:
            """In a process that was spawned, it logs nothing, as its loggers do."""
            return accelerate_tracker, (self.loggers,)

        @on_main_process  # type: ignore[untyped-decorator]
        def start(self) -> None:
            """Do nothing: the loggers have begun."""

        @property
        def tracker(self) -> Any:
            return self.loggers

        @on_main_process  # type: ignore[untyped-decorator]
        def store_init_configuration(self, values: Params) -> None:
            self.loggers.log_hyperparams(values)

        @on_main_process  # type: ignore[untyped-decorator]
        def log(self, values: Metrics, step: int | None = None, **kwargs: Any) -> None:
            numbers = {name: one for name, one in values.items() if not isinstance(one, str)}
            if numbers:
                self.loggers.log(numbers, step)
            for name, one in values.items():
                if isinstance(one, str):
                    self.loggers.log_text(name, one, step)

        @on_main_process  # type: ignore[untyped-decorator]
        def log_images(
            self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any
        ) -> None:
            for name, images in values.items():
                self.loggers.log_image(name, images, step)

        @on_main_process  # type: ignore[untyped-decorator]
        def finish(self) -> None:
            self.loggers.end_log()

    return DftraceTracker
