"""Steps and checkpoints of DeepSpeed's engines, which take no callback."""

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


ENGINE = "deepspeed.runtime.engine"
STEP = "_take_model_step"
PIPELINE = "deepspeed.runtime.pipe.engine"

HOOKS: Hooks = {
    # Behind either it is the number of the step that comes next.
    STEP: lambda training, engine: training.told(step=engine.global_steps),
    "load_checkpoint": lambda training, engine: training.told(step=engine.global_steps),
}


def install(options: AutoOptions) -> Callable[[], None]:
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
