"""What recording of files needs of the native module: functions in the place of built-in ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dftrace_ai._native as _native

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["path_hash", "stand_in"]

path_hash: Callable[[str], str] = _native.path_hash
"""Returns the hash by which dftracer's lines name a file."""


def stand_in(
    original: Any,
    module: str,
    before: Callable[..., object],
    after: Callable[[Any, Any, type[BaseException] | None], object],
    only: Mapping[int, object] | None = None,
) -> Any:
    """Return a built-in function that stands in for another, with its name, signature and pickling.

    It has no frame of its own: tracebacks and warnings name who has called it.

    `before`: gets the arguments of a call; returns None to hear no more of it, or a tuple, of which
    the first is called instead of the original unless it is None; `after`: gets that tuple, the
    result or None, and the type of what was raised or None.
    """
    return _native.stand_in(original, module, before, after, only)
