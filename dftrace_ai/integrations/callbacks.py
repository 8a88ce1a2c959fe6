"""What frameworks tell by hooks, callbacks and functions of theirs, heard without ever raising."""

from __future__ import annotations

import functools
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from dftrace_ai.annotation.tree import ai
from dftrace_ai.errors import missing_package
from dftrace_ai.integrations.auto import auto
from dftrace_ai.integrations.nodes import NOTHING, beside, depth
from dftrace_ai.integrations.swapping import NotInThisVersion, tell_of
from dftrace_ai.wording import described

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.steps import Training

Hooks: TypeAlias = "Mapping[str, Callable[[Training, Any], object]]"
"""By the name of a framework's hook: what is told to the training, with what the hook is given."""


class Listener:
    """Tells a training of what a framework's hooks are given, and raises nothing.

    Where a version of it lacks what is asked for, that is said once, and nothing is asked any more.
    """

    def __init__(self, part: str, hooks: Hooks) -> None:
        self._part = part
        self._hooks = hooks

    def hear(self, options: AutoOptions | None, hook: str, given: Any) -> None:
        """Tell the training of a hook, if it says anything and `auto` is on."""
        tells = self._hooks.get(hook)
        if tells is None or options is None or not options.gate.live:
            return
        try:
            tells(options.training, given)
        except Exception as error:  # noqa: BLE001 - the training goes on
            self._hooks = {}
            tell_of(self._part, NotInThisVersion(described(error)))


def evaluating(options: AutoOptions, stage: str, original: Any) -> Any:
    """Return a function of which each outermost call is an evaluation."""
    training = options.training

    @functools.wraps(original)
    def evaluates(*args: Any, **kwargs: Any) -> Any:
        if not options.gate.live or not training.evaluation_begins():
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            training.evaluation_ends(stage)

    return evaluates


def learning(options: AutoOptions, original: Any) -> Any:
    """Return a function that trains, behind which nothing that a framework has told holds on."""

    @functools.wraps(original)
    def learns(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            if options.gate.live:
                options.training.told_all()

    return learns


def applying(
    options: AutoOptions, original: Any, *, is_compiling: Callable[[], bool] | None = None
) -> Any:
    """Return a method that is recorded as a ``compute.step``; what steps within it is none."""
    # Whether it is called for a graph, of which nothing runs now. Torch is there by now.
    is_graph = is_compiling or sys.modules["torch"].compiler.is_compiling
    node = beside(ai.compute.step, companions=options.companions)

    @functools.wraps(original)
    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        # One that scales the loss calls another.
        if is_graph() or depth.optimizer or not options.gate.live:
            return original(self, *args, **kwargs)
        depth.optimizer = 1
        options.training.optimizer_begins(self)
        try:
            with node if options.gate.recording else NOTHING:
                return original(self, *args, **kwargs)
        finally:
            depth.optimizer = 0
            options.training.optimizer_ends(self)

    return apply


# What frameworks compute with, by module: its name, and the extra that brings it where that is
# another one than the framework's.
BACKENDS = {
    "torch": ("PyTorch", ""),
    "tensorflow": ("TensorFlow", "tensorflow"),
    "jax": ("JAX", "jax"),
}


def framework_for(what: str, module: str, *, named: str, extra: str) -> ModuleType:
    """Return a framework; a DftraceError where that, or what it computes with, is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == module.partition(".")[0]:
            raise missing_package(named, what, extra) from error
        if missing in BACKENDS:
            backend, of_backend = BACKENDS[missing]
            by_it = f"{backend}, which {named} computes with here"
            raise missing_package(by_it, what, of_backend or extra) from error
        raise


def callback_class(
    base: type[Any], part: str, hooks: Hooks, given: Callable[..., Any], again: Callable[..., Any]
) -> type[Any]:
    """Return a class of callbacks, made with the options for `auto`; pickled, `again` makes it."""
    listener = Listener(part, hooks)

    class TraceCallback(base):  # type: ignore[misc]
        """Tells the training what its framework tells its callbacks."""

        def __init__(self, **options: Any) -> None:
            super().__init__()
            self._options = options

        def __reduce__(self) -> tuple[Any, ...]:
            return functools.partial(again, **self._options), ()

    TraceCallback.__qualname__ = TraceCallback.__name__  # Lightning shows it

    def hook(name: str) -> Callable[..., None]:
        def told(*args: Any, **kwargs: Any) -> None:
            listener.hear(auto.options, name, given(*args, **kwargs))

        return told

    for name in hooks:
        setattr(TraceCallback, name, hook(name))
    return TraceCallback
