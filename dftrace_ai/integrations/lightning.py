"""Lightning, of either of its packages: its steps, epochs, evaluations and checkpoints."""

from __future__ import annotations

import functools
import sys
import threading
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.errors import missing_package
from dftrace_ai.integrations.auto import auto
from dftrace_ai.integrations.callbacks import Hooks, Listener, callback_class, framework_for
from dftrace_ai.integrations.checkpoints import recorded
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.swapping import all_of, needed, once_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.steps import Training
    from dftrace_ai.integrations.swapping import Swaps

PART = "lightning"
PACKAGES = ("lightning.pytorch", "pytorch_lightning")
WHAT = "a trainer's callback"


def _validates(training: Training, trainer: Any) -> None:
    training.evaluation_ends("sanity_check" if trainer.sanity_checking else "validate")


HOOKS: Hooks = {
    "on_train_start": lambda training, trainer: training.told(step=trainer.global_step),
    "on_train_epoch_start": lambda training, trainer: training.told(epoch=trainer.current_epoch),
    "on_train_batch_start": lambda training, trainer: training.told(
        step=trainer.global_step, begins=True
    ),
    "on_train_batch_end": lambda training, trainer: training.told(step=trainer.global_step),
    "on_train_epoch_end": lambda training, _: training.pause(),
    "on_train_end": lambda training, _: training.told_all(),
    "on_exception": lambda training, _: training.told_all(),
    "on_validation_start": lambda training, _: training.evaluation_begins(),
    "on_validation_end": _validates,
    "on_test_start": lambda training, _: training.evaluation_begins(),
    "on_test_end": lambda training, _: training.evaluation_ends("test"),
    "on_predict_start": lambda training, _: training.evaluation_begins(),
    "on_predict_end": lambda training, _: training.evaluation_ends("predict"),
}


def install(options: AutoOptions) -> Callable[[], None]:
    """Hear of the trainers' hooks, and record the checkpoints that they write."""
    return all_of(
        *(
            once_imported(PART, package, functools.partial(_install, options, package))
            for package in PACKAGES
        )
    )


def _install(options: AutoOptions, package: str, swaps: Swaps, home: ModuleType) -> None:
    listener = Listener(PART, HOOKS)
    calls = needed(sys.modules.get(f"{package}.trainer"), "call")

    def heard(original: Any) -> Any:
        @functools.wraps(original)
        def hooks(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
            listener.hear(options, hook_name, trainer)
            return original(trainer, hook_name, *args, **kwargs)

        return hooks

    swaps.swap(calls, "_call_callback_hooks", heard)

    def begun(original: Any) -> Any:
        @functools.wraps(original)
        def reset(loop: Any, *args: Any, **kwargs: Any) -> Any:
            listener.hear(options, "on_validation_start", getattr(loop, "trainer", None))
            return original(loop, *args, **kwargs)

        return reset

    # What an evaluation starts with, its loader's workers among it, comes before its first hook.
    loops = sys.modules.get(f"{package}.loops.evaluation_loop")
    evaluations = getattr(loops, "_EvaluationLoop", None)
    if hasattr(evaluations, "reset"):
        swaps.swap(evaluations, "reset", begun)
    node = beside(ai.checkpoint.capture)
    make = functools.partial(recorded, options, node, lambda call: call.given(1, "filepath"))
    swaps.swap(needed(home, "Trainer"), "save_checkpoint", make)


def trace_callback(package: str | None = None, **options: Any) -> Any:
    """Return a callback for Lightning's trainer that has the program trace itself from now on.

    It switches `dftrace_ai.auto` on, which alone records as much. As a callback it reaches the
    processes that a trainer spawns, too.

    Args:
        package: ``"lightning.pytorch"`` or ``"pytorch_lightning"``; by default the one that the
            program has imported.
        **options: for `dftrace_ai.auto`.

    Raises:
        DftraceError: Lightning is not installed, or PyTorch is not.

    Example::

        Trainer(callbacks=[trace_callback(log_file="out/trace")])
    """
    made = _callback_class(_chosen(package))(**options)
    auto(**options)
    return made


def trace_profiler(package: str | None = None) -> Any:
    """Return a profiler for Lightning's trainer: what it does, and each callback, is a span.

    The spans are of the category `other` and named ``lightning.`` and what Lightning calls them.

    Raises DftraceError: Lightning is not installed, or PyTorch is not.
    """
    return _profiler_class(_chosen(package))()


def _chosen(package: str | None) -> str:
    known = PACKAGES if package is None else (package,)
    for one in known:
        if sys.modules.get(one) is not None:
            return one
    for one in known:
        if find_spec(one.partition(".")[0]) is not None:
            return one
    raise missing_package("Lightning", WHAT, "lightning")


def _framework(module: str) -> ModuleType:
    return framework_for(WHAT, module, named="Lightning", extra="lightning")


@cache
def _callback_class(package: str) -> type[Any]:
    again = functools.partial(trace_callback, package)
    return callback_class(
        _framework(package).Callback, PART, HOOKS, lambda *given, **_: given[1], again
    )


class _Open(threading.local):
    """Spans of this thread that a profiler has begun, by action."""

    def __init__(self) -> None:
        self.spans: dict[str, list[Any]] = {}


@cache
def _profiler_class(package: str) -> type[Any]:
    base: Any = _framework(f"{package}.profilers").Profiler

    class TraceProfiler(base):  # type: ignore[misc]
        """Records what a trainer does, by the names that it gives."""

        def __init__(self) -> None:
            super().__init__()
            self._open = _Open()

        def __reduce__(self) -> tuple[Any, ...]:
            return trace_profiler, (package,)

        def start(self, action_name: str) -> None:
            span = ai.other._child(f"lightning.{action_name}")._begin()
            self._open.spans.setdefault(action_name, []).append(span)

        def stop(self, action_name: str) -> None:
            begun = self._open.spans.get(action_name)
            if begun:
                begun.pop().end()

    return TraceProfiler
