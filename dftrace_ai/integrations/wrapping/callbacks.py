"""Classes of callbacks that tell the training what a framework tells them."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dftrace_ai.errors import missing_package

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.wrapping.listening import Hooks, Listener

__all__ = ["callback_class", "framework_for"]

# What frameworks compute with, by module: its name, and the extra that brings it where that is
# another one than the framework's.
BACKENDS = {
    "torch": ("PyTorch", ""),
    "tensorflow": ("TensorFlow", "tensorflow"),
    "jax": ("JAX", "jax"),
}


def framework_for(what: str, module: str, *, named: str, extra: str) -> ModuleType:
    """Return a framework's module.

    Raises DftraceError: the framework is not installed, or what it computes with.
    """
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
    base: type[Any],
    hooks: Hooks,
    listener: Listener,
    *,
    given: Callable[..., Any],
    again: Callable[..., Any],
    options_now: Callable[[], AutoOptions | None],
) -> type[Any]:
    """Return a class of callbacks, made with the options for `auto`.

    `options_now`: those of `auto`; None while it is off.
    """

    class TraceCallback(base):  # type: ignore[misc]
        """Tells the training what its framework tells its callbacks."""

        def __init__(self, options: Mapping[str, object]) -> None:
            super().__init__()
            self._options = options

        def __reduce__(self) -> tuple[Any, ...]:
            return functools.partial(again, **self._options), ()

    TraceCallback.__qualname__ = TraceCallback.__name__  # Lightning shows it

    def hook(name: str) -> Callable[..., None]:
        def told(*args: Any, **kwargs: Any) -> None:
            listener.hear(options_now(), name, given(*args, **kwargs))

        return told

    for name in hooks:
        setattr(TraceCallback, name, hook(name))
    return TraceCallback
