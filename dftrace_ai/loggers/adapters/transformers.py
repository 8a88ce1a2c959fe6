"""Loggers as a callback of Hugging Face's Trainer."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.loggers.logger import Logger, Loggers


def trainer_callback(loggers: Logger | Loggers) -> Any:
    """Return a callback that logs what a Trainer logs, and its arguments as hyper-parameters.

    Args:
        loggers: where it is logged; the run ends with the program or with ``end_log``.

    Example::

        Trainer(model, arguments, callbacks=[trainer_callback(make_loggers("experiment.yaml"))])
    """
    return _callback_class()(loggers)


@cache
def _callback_class() -> type[Any]:
    from transformers import TrainerCallback

    class DftraceCallback(TrainerCallback):  # type: ignore[misc]
        """Hands on what a Trainer logs."""

        def __init__(self, loggers: Logger | Loggers) -> None:
            self.loggers = loggers

        def __reduce__(self) -> tuple[Any, ...]:
            """In a process that was spawned, it logs nothing, as its loggers do."""
            return trainer_callback, (self.loggers,)

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.is_world_process_zero:
                self.loggers.log_hyperparams(args.to_sanitized_dict())

        def on_log(
            self,
            args: Any,
            state: Any,
            control: Any,
            logs: Mapping[str, float | str] | None = None,
            **kwargs: Any,
        ) -> None:
            numbers = {k: v for k, v in (logs or {}).items() if not isinstance(v, str)}
            if numbers and state.is_world_process_zero:
                self.loggers.log_metrics(numbers, state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.loggers.flush()

    return DftraceCallback
