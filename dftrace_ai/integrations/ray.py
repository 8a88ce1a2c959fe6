"""Ray Train: loops that trace themselves in its workers, and the checkpoints that they report."""

from __future__ import annotations

import functools
import os
import secrets
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.config.sources import load_config
from dftrace_ai.integrations.auto import auto
from dftrace_ai.integrations.checkpoints import Call, recorded
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.swapping import once_imported
from dftrace_ai.run.lifecycle import finalize
from dftrace_ai.run.run import LAUNCH_VARIABLE, RUN_VARIABLE, SETTINGS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps

PREFIX = "DFTRACE_"


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what `ray.train.report` does with a checkpoint."""
    return once_imported("ray", "ray.train", functools.partial(_install, options))


def _install(options: AutoOptions, swaps: Swaps, train: ModuleType) -> None:
    swaps.swap(train, "report", functools.partial(_reporting, options))


def _reporting(options: AutoOptions, original: Any) -> Any:
    node = beside(ai.checkpoint.capture, "report")
    saves = recorded(options, node, lambda call: _checkpoint(call).path, original)

    @functools.wraps(original)
    def report(*args: Any, **kwargs: Any) -> Any:
        # A barrier of all workers, but where there is no checkpoint to store.
        stores = _checkpoint(Call(None, args, kwargs)) is not None
        return (saves if stores else original)(*args, **kwargs)

    return report


def _checkpoint(call: Call) -> Any:
    return call.given(1, "checkpoint")


def trace_loop(train_loop_per_worker: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return a loop for Ray's workers in which PyTorch traces itself, from its begin to its end.

    The workers of a training are the ranks of one run. They need `dftrace_ai` installed, and a
    ``log_file`` in a directory that each of them can write.

    Args:
        train_loop_per_worker: as a trainer of Ray takes it.
        **options: for `dftrace_ai.auto`. What the variables ``DFTRACE_...`` of this process say
            holds in the workers, too.

    Example::

        TorchTrainer(trace_loop(train, log_file="out/trace"), scaling_config=...).fit()
    """
    from dftrace_ai.run.core_settings import absolute

    named = {"log_file": options["log_file"]} if "log_file" in options else {}
    given = {**options, "log_file": absolute(load_config(**named).log_file)}
    environment = {
        name: text
        for name, text in os.environ.items()
        if name.startswith(PREFIX) and name not in {RUN_VARIABLE, SETTINGS_VARIABLE}
    }
    # By it the workers of a training have one run, as ranks below `dftrace run` do.
    return _TracedLoop(
        train_loop_per_worker, {LAUNCH_VARIABLE: secrets.token_hex(16), **environment}, **given
    )


class _TracedLoop:
    """What a worker calls; it is pickled with the loop."""

    def __init__(
        self,
        loop: Callable[..., Any],
        environment: Mapping[str, str],
        **options: Any,
    ) -> None:
        functools.update_wrapper(self, loop)  # Ray looks whether it takes a config
        self._loop = loop
        self._options = options
        self._environment = environment

    def __call__(self, *args: Any) -> Any:
        """Run the loop in a worker, which knows its rank by now."""
        for name, text in self._environment.items():
            os.environ.setdefault(name, text)
        auto(**self._options)
        try:
            return self._loop(*args)
        finally:
            auto.remove()
            finalize()
