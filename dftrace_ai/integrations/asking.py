"""Asking a program's objects for what an event tells of them: who does not answer goes without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["asked"]

T = TypeVar("T")


def asked(question: Callable[..., T], *of: Any) -> T | None:
    """Return what a question is answered, None where it raises.

    An object of the program's may raise at whatever it is asked: that costs an argument of the
    event, and not the training.
    """
    try:
        return question(*of)
    except Exception:  # noqa: BLE001 - the argument is left out, which is what a reader sees
        return None
