"""Annotations as torch.compile finds them: in one graph with what they stand around, and inert."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from dftrace_ai._native import TracedFunction, show_method
from dftrace_ai.run.late_import import is_older_than, when_imported
from dftrace_ai.wording import briefly, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.annotation.dynamo_rules import DynamoRules

K = TypeVar("K", bound="type[Any]")

DYNAMO = "torch._dynamo"

# Types whose instances stand in a `with` statement; what is in a graph is known by its exact type.
_kinds: list[type] = []
_rules: DynamoRules | None = None


def _not_compiling() -> bool:
    return False


# torch.compiler.is_compiling, once torch is here: Dynamo makes a constant of it.
_is_compiling: Callable[[], bool] = _not_compiling
_native_get: Any = TracedFunction.__get__


# CPython binds and calls by the slots of the type, which stay native; Dynamo reads what it finds
# under the names, and calls what it cannot look into without the object. Neither defaults nor a
# closure: torch 2.13 fails on the guards that it would make for those of a `__get__`.
def _get(self: Any, obj: Any, /, *owner: Any) -> Any:
    if _is_compiling():
        return self if obj is None else functools.partial(self, obj)
    return _native_get(self, obj, *owner)


def _call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    if _is_compiling():
        return self.__wrapped__(*args, **kwargs)
    return self(*args, **kwargs)


def has_kind(kind: K) -> K:
    """Take note of a type whose instances stand in ``with`` statements."""
    _kinds.append(kind)
    if _rules is not None:
        _rules.add_kind(kind)
    return kind


def teach_dynamo() -> None:
    """Have annotations in compiled code be inert, from the import of ``torch._dynamo`` on.

    Of decorated functions Dynamo reads a Python function, for which it needs nothing of ours. What
    stands in a `with` is told to it by its own tables; where they are no more what they were, that
    is told once, and such a `with` breaks the graph.
    """
    global _rules, _is_compiling
    if _rules is not None:
        return
    try:
        _is_compiling = sys.modules["torch.compiler"].is_compiling
        show_method("__call__", _call)
        from dftrace_ai.annotation.dynamo_rules import DynamoRules

        _rules = DynamoRules(_kinds, _call)
    except Exception as error:  # noqa: BLE001 - whatever another torch has changed
        warn(
            "a `with ai...:` inside of a compiled function breaks its graph with this torch: %s",
            briefly(error),
        )


def needs_plain_functions() -> bool:
    """Whether the torch that is here takes only plain functions in properties and class methods."""
    return is_older_than(2, 10)


show_method("__get__", _get)
when_imported(DYNAMO, teach_dynamo)
