"""Functions of ours that torch.compile has to leave alone."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

__all__ = ["left_alone"]

F = TypeVar("F")


def left_alone(function: F) -> F:
    """Have torch.compile neither compile a function nor what it calls.

    Torch calls it from C++, also between the graphs of a program that is compiled, where every
    frame of Python is taken for one of the program's. The compiler is not imported for it.

    Args:
        function: the function, of which all that have its code are meant.

    Returns:
        The function.
    """
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    strategy, action = (
        getattr(frames, f"_Frame{name}", None) for name in ("ExecStrategy", "Action")
    )
    code = function.__code__  # type: ignore[attr-defined]
    if strategy is not None and action is not None:
        frames.set_code_exec_strategy(code, strategy(action.SKIP, action.SKIP))
    elif hasattr(frames, "skip_code"):  # of older versions, and of what it calls nothing is said
        frames.skip_code(code)
    return function
