"""Keras 3: its steps, epochs, evaluations and files of models, and what it computes."""

from __future__ import annotations

import functools
import sys
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.auto import auto
from dftrace_ai.integrations.callbacks import (
    Hooks,
    Listener,
    applying,
    callback_class,
    evaluating,
    framework_for,
    learning,
)
from dftrace_ai.integrations.checkpoints import recorded
from dftrace_ai.integrations.nodes import NOTHING, beside, depth
from dftrace_ai.integrations.swapping import needed, once_imported, original_of, standing_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.checkpoints import Call
    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.steps import Training
    from dftrace_ai.integrations.swapping import Swaps

PART = "keras"


def _batch_begins(training: Training, given: Any) -> None:
    params, batch = given
    steps, epoch = (params or {}).get("steps"), training.epoch
    step = None if steps is None or epoch is None else epoch * steps + batch
    training.told(step=step, begins=True)


HOOKS: Hooks = {
    "on_epoch_begin": lambda training, given: training.told(epoch=given[1]),
    "on_train_batch_begin": _batch_begins,
    "on_epoch_end": lambda training, _: training.pause(),
    "on_train_end": lambda training, _: training.told_all(),
}
"""Each is given the callback's `params` and the number of the epoch or batch."""


def install(options: AutoOptions) -> Callable[[], None]:
    """Hear of what `fit` tells its callbacks; record what Keras does without torch's classes."""
    return once_imported(PART, "keras", functools.partial(_install, options))


def _install(options: AutoOptions, swaps: Swaps, keras: ModuleType) -> None:
    listener = Listener(PART, HOOKS)
    # A thing that the Keras of TensorFlow 2 has not.
    symbol = needed(keras, "KerasTensor")
    model, callbacks = needed(keras, "Model"), needed(keras, "callbacks")

    def heard(hook: str, original: Any) -> Any:
        @functools.wraps(original)
        def tells(self: Any, *args: Any, **kwargs: Any) -> Any:
            listener.hear(options, hook, (self.params, next(iter((*args, *kwargs.values())), None)))
            return original(self, *args, **kwargs)

        return tells

    for hook in HOOKS:
        swaps.swap(needed(callbacks, "CallbackList"), hook, functools.partial(heard, hook))
    swaps.swap(model, "fit", functools.partial(learning, options))
    for name, stage in (("evaluate", "validate"), ("predict", "predict")):
        swaps.swap(model, name, functools.partial(evaluating, options, stage))
    capture, restart = beside(ai.checkpoint.capture), beside(ai.checkpoint.restart)
    homes = [getattr(keras, name, None) for name in ("saving", "models")]
    for owners, name, node, place in (
        ([model], "save", capture, 1),
        ([model], "save_weights", capture, 1),
        ([model], "load_weights", restart, 1),
        (homes, "save_model", capture, 1),
        (homes, "load_model", restart, 0),
    ):
        make = functools.partial(recorded, options, node, functools.partial(_file, place))
        for owner in owners:
            if owner is model or hasattr(owner, name):
                swaps.swap(owner, name, make)
    backend = needed(needed(keras, "backend"), "backend")()
    _record_compiled(options, swaps, model, always=backend != "torch")
    in_graph = getattr(sys.modules.get("tensorflow"), "inside_function", None)
    # Steps of optimizers in loops that are the program's own, or run by torch.
    optimizer = needed(needed(keras, "optimizers"), "Optimizer")
    if backend == "torch":
        swaps.swap(optimizer, "apply", functools.partial(applying, options))

    def is_symbolic(args: Any) -> bool:
        """Whether a model is only asked for the shapes of what it returns."""
        while isinstance(args, (list, tuple, dict)) and args:
            args = next(iter(args.values() if isinstance(args, dict) else args))
        return isinstance(args, symbol) or bool(getattr(args, "is_meta", False))

    options.not_meant.append(is_symbolic)
    swaps.then(lambda: options.not_meant.remove(is_symbolic))
    if backend == "tensorflow" and in_graph is not None:

        def is_one_function() -> bool:
            return depth.computing > 0 or in_graph()

        make = functools.partial(applying, options, is_compiling=is_one_function)
        swaps.swap(optimizer, "apply", make)
        make = functools.partial(_judging_model, options, in_graph, is_symbolic)
        swaps.swap(model, "__call__", make)


def _file(place: int, call: Call) -> Any:
    return call.given(place, "filepath")


def _record_compiled(options: AutoOptions, swaps: Swaps, model: Any, *, always: bool) -> None:
    """Record what a model has made of its steps: one function, compiled."""
    models: weakref.WeakSet[Any] = weakref.WeakSet()

    def making(attribute: str, around: Any, original: Any) -> Any:
        @functools.wraps(original)
        def make(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            made = original_of(getattr(self, attribute))
            compiled = always or getattr(self, "jit_compile", False)
            if options.gate.live and compiled and made is not None:
                models.add(self)
                setattr(self, attribute, standing_for(made, around))
            return result

        return make

    def put_back() -> None:
        for one in models:
            for attribute in COMPILED:
                setattr(one, attribute, original_of(getattr(one, attribute)))

    for attribute, learns in COMPILED.items():
        around = functools.partial(_recorded_function, learns, options)
        make = functools.partial(making, attribute, around)
        swaps.swap(model, f"make_{attribute}", make)
    swaps.then(put_back)


def _recorded_function(learns: bool, options: AutoOptions, original: Any) -> Any:
    gate, training = options.gate, options.training
    node = beside(ai.compute) if learns else beside(ai.compute.forward, "eval")

    @functools.wraps(original)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if not gate.live:
            return original(*args, **kwargs)
        if learns:
            training.told(begins=True)
        span = node._begin() if gate.recording else None
        depth.computing = 1
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            # It has asked for a batch, and there was none.
            ran_out = isinstance(error, StopIteration) or type(error).__name__ == "OutOfRangeError"
            if span is not None and ran_out:
                span.end_unless_empty()
            elif span is not None:
                span.end(type(error))
            if learns and ran_out:
                training.fetched_nothing(None)
            raise
        finally:
            depth.computing = 0
        if span is not None:
            span.end()
        if learns:
            training.optimizer_ends(original)
        return result

    return compiled


def _judging_model(
    options: AutoOptions,
    in_graph: Callable[[], bool],
    is_symbolic: Callable[[Any], bool],
    original: Any,
) -> Any:
    """Record the call of a model outside of a tape: nothing is learned from it."""
    gate, training = options.gate, options.training
    node = beside(ai.compute.forward, "eval", companions=options.companions)

    @functools.wraps(original)
    def judges(self: Any, *args: Any, **kwargs: Any) -> Any:
        inside = depth.forward or depth.computing or in_graph()
        is_meant = self in options.models and not is_symbolic(args)
        if inside or not gate.live or not is_meant:
            return original(self, *args, **kwargs)
        training.forward(False)
        depth.forward = 1
        try:
            with node if gate.recording else NOTHING:
                return original(self, *args, **kwargs)
        finally:
            depth.forward = 0
            training.judged()

    return judges


COMPILED = {"train_function": True, "test_function": False, "predict_function": False}
"""Attributes of a model with the functions that it has compiled, and whether each learns."""


def trace_callback(**options: Any) -> Any:
    """Return a callback for ``model.fit`` that has the program trace itself from now on.

    It switches `dftrace_ai.auto` on, which alone records as much. Forwards, optimizers and fetches
    are recorded where Keras computes by torch; by another backend a batch is one ``compute``.

    Args:
        **options: for `dftrace_ai.auto`.

    Raises:
        DftraceError: Keras is not installed, or what it computes with.

    Example::

        model.fit(x, y, callbacks=[trace_callback(log_file="out/trace")])
    """
    made = _callback_class()(**options)
    auto(**options)
    return made


@cache
def _callback_class() -> type[Any]:
    found = framework_for("a callback of `fit`", "keras", named="Keras", extra="keras")

    def given(callback: Any, number: int | None = None, *_: Any, **__: Any) -> Any:
        return callback.params, number

    return callback_class(found.callbacks.Callback, PART, HOOKS, given, trace_callback)
