"""Frameworks that drive a training and take no callback: accelerate, DeepSpeed and Megatron.

They are heard of by `auto` alone, once the program has imported them.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.callbacks import Hooks, Listener, applying, evaluating
from dftrace_ai.integrations.checkpoints import recorded
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.swapping import needed, once_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.checkpoints import Call
    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps


def install_accelerate(options: AutoOptions) -> Callable[[], None]:
    """Record what an `Accelerator` saves and loads; it has no number of its steps to tell."""
    return once_imported(
        "accelerate", "accelerate.accelerator", functools.partial(_accelerate, options)
    )


def _accelerate(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    capture, restart = beside(ai.checkpoint.capture), beside(ai.checkpoint.restart)
    for name, node, place_of in (
        ("save_state", capture, lambda call: call.result),
        ("save_model", capture, lambda call: call.given(2, "save_directory")),
        ("load_state", restart, lambda call: call.given(1, "input_dir")),
    ):
        make = functools.partial(recorded, options, node, place_of)
        swaps.swap(needed(home, "Accelerator"), name, make)


ENGINE = "deepspeed.runtime.engine"
STEP = "_take_model_step"
PIPELINE = "deepspeed.runtime.pipe.engine"

HOOKS: Hooks = {
    # Behind either it is the number of the step that comes next.
    STEP: lambda training, engine: training.told(step=engine.global_steps),
    "load_checkpoint": lambda training, engine: training.told(step=engine.global_steps),
}


def install_deepspeed(options: AutoOptions) -> Callable[[], None]:
    """Record the steps of engines as a whole, with their own numbers, and their checkpoints."""
    return once_imported("deepspeed", "deepspeed", functools.partial(_deepspeed, options))


def _deepspeed(options: AutoOptions, swaps: Swaps, _: ModuleType) -> None:
    engine = needed(sys.modules.get(ENGINE), "DeepSpeedEngine")
    listener = Listener("deepspeed", HOOKS)

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


def _saved(call: Call) -> Any:
    tag = call.given(2, "tag") or f"global_step{call.args[0].global_steps}"
    return os.path.join(call.given(1, "save_dir"), str(tag))


def _loaded(call: Call) -> Any:
    place = call.result[0]
    return os.path.dirname(place) if isinstance(place, str) and Path(place).is_file() else place


SCHEDULES = "megatron.core.pipeline_parallel.schedules"


def install_megatron(options: AutoOptions) -> Callable[[], None]:
    """Record backward passes of stages whose outputs were given up: they use no door of torch's."""
    return once_imported("megatron", SCHEDULES, functools.partial(_megatron, options))


def _megatron(options: AutoOptions, swaps: Swaps, schedules: ModuleType) -> None:
    # Torch is there by now, and was not when this was.
    from dftrace_ai.integrations.torch.backward import learning_backward

    swaps.swap(schedules, "custom_backward", functools.partial(learning_backward, options))
