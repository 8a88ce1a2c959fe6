"""DeepSpeed: the steps of its engines, also those left out, evaluations and checkpoints."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.torch.applying import applying
from dftrace_ai.integrations.wrapping.checkpoints import recorded
from dftrace_ai.integrations.wrapping.listening import (
    Hooks,
    Listener,
    evaluating,
    needed,
    once_imported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps

__all__ = ["install"]

PART = "deepspeed"
ENGINE = "deepspeed.runtime.engine"
STEP = "_take_model_step"
PIPELINE = "deepspeed.runtime.pipe.engine"

HOOKS: Hooks = {
    # Behind either it is the number of the step that comes next.
    STEP: lambda training, engine: training.told(step=engine.global_steps),
    "load_checkpoint": lambda training, engine: training.told(step=engine.global_steps),
}


def install(options: AutoOptions) -> Callable[[], None]:
    """Record the steps of engines as a whole, with their own numbers, and their checkpoints.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.
    """
    return once_imported(PART, "deepspeed", functools.partial(_install, options))


def _install(options: AutoOptions, swaps: Swaps, _: ModuleType) -> None:
    engine = needed(sys.modules.get(ENGINE), "DeepSpeedEngine")
    listener = Listener(PART, HOOKS)

    def heard(hook: str, original: Any) -> Any:
        @functools.wraps(original)
        def tells(self: Any, *args: Any, **kwargs: Any) -> Any:
            skipped = getattr(self, "skipped_steps", 0)
            result = original(self, *args, **kwargs)
            listener.hear(options, hook, self)
            # A checkpoint may have counted more of them.
            if options.gate.recording and hook == STEP and self.skipped_steps > skipped:
                ai.instant("step skipped", args={"reason": "gradients that are not finite"})
            return result

        return tells

    swaps.swap(engine, STEP, functools.partial(applying, options))
    capture, restart = beside(ai.checkpoint.capture), beside(ai.checkpoint.restart)
    for name, node, place_of in (
        ("save_checkpoint", capture, _saved),
        ("load_checkpoint", restart, _loaded),
    ):
        swaps.swap(engine, name, functools.partial(recorded, options, node, place_of))
    for hook in HOOKS:
        swaps.swap(engine, hook, functools.partial(heard, hook))
    pipeline = getattr(sys.modules.get(PIPELINE), "PipelineEngine", None)
    if pipeline is not None:
        swaps.swap(pipeline, "eval_batch", functools.partial(evaluating, options, "validate"))


def _saved(_: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    engine = args[0]
    folder: Any = kwargs.get("save_dir", *args[1:2])
    tag = kwargs.get("tag", args[2] if len(args) > 2 else None)
    return os.path.join(folder, str(tag or f"global_step{engine.global_steps}"))


def _loaded(result: Any, _: tuple[Any, ...], __: Mapping[str, Any]) -> Any:
    place = result[0]
    return os.path.dirname(place) if isinstance(place, str) and Path(place).is_file() else place
