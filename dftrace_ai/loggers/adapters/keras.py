"""Loggers as a callback of Keras 3."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.records import SoFar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.loggers.logger import Logger, Loggers


def keras_callback(loggers: Logger | Loggers) -> Any:
    """Return a callback for ``model.fit``: an iteration a batch, an epoch an epoch.

    What Keras tells of a batch is of all of its epoch so far. What is logged of an epoch is what
    Keras tells of it.

    Args:
        loggers: where it is logged; the run ends with the program or with ``end_log``.

    Example::

        model.fit(x, y, callbacks=[keras_callback(make_loggers("experiment.yaml"))])
    """
    return _callback_class()(loggers)


@cache
def _callback_class() -> type[Any]:
    import keras

    class DftraceCallback(keras.callbacks.Callback):  # type: ignore[misc]
        """Hands on what `fit` tells its callbacks."""

        def __init__(self, loggers: Logger | Loggers) -> None:
            super().__init__()
            self.loggers = loggers

        def __reduce__(self) -> tuple[Any, ...]:
            """In a process that was spawned, it logs nothing, as its loggers do."""
            return keras_callback, (self.loggers,)

        def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
            self.loggers.log_hyperparams(dict(self.params))

        def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
            # Keras tells means, and what else its metrics are, of all of the epoch so far.
            self.loggers.log_iter(
                {k: SoFar(v) if type(v) is float else v for k, v in (logs or {}).items()}
            )

        def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
            validated = {k: v for k, v in (logs or {}).items() if k.startswith("val_")}
            if validated:
                self.loggers.log_metrics(validated)
            self.loggers.log_epoch(epoch)

        def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
            self.loggers.flush()

    return DftraceCallback
