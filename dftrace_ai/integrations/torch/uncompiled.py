"""Torch's own say on frames: which it leaves alone, and what compiles those of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch

from dftrace_ai.run.loaded_torch import is_older_than

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["compiler_of_thread", "left_alone"]

F = TypeVar("F")


def left_alone(function: F) -> F:
    """Have torch.compile neither compile a function nor what it calls.

    Torch calls it from C++, also between the graphs of a program that is compiled, where every
    frame of Python is taken for one of the program's. The compiler is not imported for it.
    """
    frames = _frames()
    strategy, action = (
        getattr(frames, f"_Frame{name}", None) for name in ("ExecStrategy", "Action")
    )
    code = function.__code__  # type: ignore[attr-defined]
    if strategy is not None and action is not None:
        frames.set_code_exec_strategy(code, strategy(action.SKIP, action.SKIP))
    elif hasattr(frames, "skip_code"):  # of older versions, and of what it calls nothing is said
        frames.skip_code(code)
    return function


def compiler_of_thread() -> Callable[[], object] | None:
    """Return torch's function that returns what compiles the frames of the thread that calls it.

    Gives the function, which returns None where nothing does; None where this torch has none. That
    of 2.6 returns a reference that it does not own: only those that were tried are taken.
    """
    if is_older_than(2, 10):
        return None
    found: Callable[[], object] | None = getattr(_frames(), "get_eval_frame_callback", None)
    return found


def _frames() -> Any:
    """Return the part of torch that runs frames, which is there without the compiler."""
    return getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
