"""The binding of decorated methods, as torch.compile finds it in the type."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from dftrace_ai._native import TracedFunction, show_binding

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["know_torch", "needs_plain_functions"]


def _not_compiling() -> bool:
    return False


# torch.compiler.is_compiling, once torch is here: Dynamo makes a constant of it.
_is_compiling: Callable[[], bool] = _not_compiling
_native_get: Any = TracedFunction.__get__
_plain_functions = False


# CPython binds by the slot of the type, which stays native; Dynamo binds by what it finds under the
# name, and calls what it cannot look into without the object. Neither defaults nor a closure: torch
# 2.13 fails on the guards that it would make for those of a `__get__`.
def _get(self: Any, obj: Any, /, *owner: Any) -> Any:
    if _is_compiling():
        return self if obj is None else functools.partial(self, obj)
    return _native_get(self, obj, *owner)


show_binding(_get)


def know_torch() -> None:
    """Take note of torch if it is imported by now; called where that costs nothing."""
    global _is_compiling, _plain_functions
    if _is_compiling is not _not_compiling or "torch" not in sys.modules:
        return
    torch = sys.modules["torch"]
    predicate = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    if predicate is None:  # being imported at this moment, or without torch.compile
        return
    _is_compiling = predicate
    _plain_functions = _version(str(torch.__version__)) < (2, 8)


def needs_plain_functions() -> bool:
    """Whether the torch that is here takes only plain functions in properties and class methods."""
    know_torch()
    return _plain_functions


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.partition("+")[0].split(".")[:2] if part.isdecimal())
