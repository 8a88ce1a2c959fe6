"""Hugging Face's Trainer: its steps, epochs, evaluations and checkpoints."""

from __future__ import annotations

import functools
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.auto import auto
from dftrace_ai.integrations.callbacks import (
    Hooks,
    Listener,
    callback_class,
    evaluating,
    framework_for,
    learning,
)
from dftrace_ai.integrations.checkpoints import recorded
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.swapping import NotInThisVersion, all_of, needed, once_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.checkpoints import Call
    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps

PART = "transformers"

# Epochs are told as a fraction that a division has made.
NEARLY = 1e-6

HOOKS: Hooks = {
    "on_train_begin": lambda training, state: training.told(step=state.global_step),
    "on_epoch_begin": lambda training, state: training.told(epoch=int((state.epoch or 0) + NEARLY)),
    "on_step_begin": lambda training, state: training.told(step=state.global_step, begins=True),
    "on_step_end": lambda training, state: training.told(step=state.global_step),
    "on_epoch_end": lambda training, _: training.pause(),
    "on_train_end": lambda training, _: training.told_all(),
}


def install(options: AutoOptions) -> Callable[[], None]:
    """Hear of the Trainers' events; record evaluations, checkpoints and models that are loaded."""
    return all_of(
        once_imported(PART, "transformers.trainer", functools.partial(_install, options)),
        once_imported(
            PART, "transformers.modeling_utils", functools.partial(_record_models, options)
        ),
    )


def _install(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    listener = Listener(PART, HOOKS)
    handler = needed(sys.modules.get("transformers.trainer_callback"), "CallbackHandler")
    trainer = needed(home, "Trainer")

    def heard(original: Any) -> Any:
        @functools.wraps(original)
        def call_event(
            self: Any, event: str, args: Any, state: Any, *others: Any, **kwargs: Any
        ) -> Any:
            listener.hear(options, event, state)
            return original(self, event, args, state, *others, **kwargs)

        return call_event

    swaps.swap(handler, "call_event", heard)
    swaps.swap(trainer, "train", functools.partial(learning, options))
    for name, stage in (("evaluate", "validate"), ("predict", "predict")):
        swaps.swap(trainer, name, functools.partial(evaluating, options, stage))
    saves = functools.partial(recorded, options, beside(ai.checkpoint.capture))
    loads = functools.partial(recorded, options, beside(ai.checkpoint.restart))
    swaps.swap(trainer, "_save_checkpoint", functools.partial(saves, _checkpoint))
    swaps.swap(trainer, "save_model", functools.partial(saves, _model))
    swaps.swap(trainer, "_load_from_checkpoint", functools.partial(loads, lambda *_: None))


def _record_models(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    model = needed(home, "PreTrainedModel")
    found = vars(model).get("from_pretrained")
    if not isinstance(found, classmethod):
        raise NotInThisVersion("PreTrainedModel.from_pretrained")
    capture, restart = beside(ai.checkpoint.capture), beside(ai.checkpoint.restart)
    saved = functools.partial(_weights, "save_directory")
    swaps.swap(model, "save_pretrained", functools.partial(recorded, options, capture, saved))
    loaded = functools.partial(_weights, "pretrained_model_name_or_path")
    loads = recorded(options, restart, loaded, found.__func__)
    swaps.put(model, "from_pretrained", classmethod(loads))


def _weights(name: str, call: Call) -> list[Path] | None:
    """Return the files of weights in a folder; None for a model that is named otherwise."""
    place = call.given(1, name)
    if not isinstance(place, (str, os.PathLike)) or not Path(place).is_dir():
        return None
    found = [*Path(place).glob("*.safetensors")]
    return found or [*Path(place).glob("pytorch_model*.bin")]


def _checkpoint(call: Call) -> str:
    trainer = call.args[0]
    return os.path.join(trainer.args.output_dir, f"checkpoint-{trainer.state.global_step}")


def _model(call: Call) -> Any:
    return call.given(1, "output_dir") or call.args[0].args.output_dir


def trace_callback(**options: Any) -> Any:
    """Return a callback for a Trainer that has the program trace itself from now on.

    It switches `dftrace_ai.auto` on, which alone records as much; what a callback is not told of,
    such as fetches, forwards and the beginning of an evaluation, comes from there.

    Args:
        **options: for `dftrace_ai.auto`.

    Raises:
        DftraceError: transformers is not installed, or what it computes with.

    Example::

        Trainer(model, arguments, callbacks=[trace_callback(log_file="out/trace")])
    """
    made = _callback_class()(**options)
    auto(**options)
    return made


@cache
def _callback_class() -> type[Any]:
    found = framework_for(
        "a Trainer's callback", "transformers", named="transformers", extra="transformers"
    )
    return callback_class(
        found.TrainerCallback, PART, HOOKS, lambda *given, **_: given[2], trace_callback
    )
