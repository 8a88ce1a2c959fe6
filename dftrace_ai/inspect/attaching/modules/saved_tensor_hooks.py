"""Compilations within a checkpoint, whose hooks for saved tensors see nothing that is tried out."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from dftrace_ai.run.loaded_torch import is_older_than
from dftrace_ai.run.place.late_import import when_imported

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["keep_compilations_from_hooks"]

T = TypeVar("T")

_COMPILER = "torch._dynamo.convert_frame"
_autograd: Any = torch._C._autograd


@functools.cache
def keep_compilations_from_hooks() -> None:
    """Have checkpoints count no tensors of compilations, from now on.

    A checkpoint that is not reentrant counts by hooks what its forward saves, and what it saves
    when it is computed again. Torch before 2.5 shows such hooks what its compiler tries out, too,
    which belongs to one of the two alone, and the backward raises. Attaching and detaching have
    layers compiled anew, also within a checkpoint in which they were not compiled before.
    """
    if is_older_than(2, 5):
        when_imported(_COMPILER, _lay)


def _lay() -> None:
    compiler: Any = sys.modules[_COMPILER]
    compiler._compile = _out_of_sight(compiler._compile)


def _out_of_sight(compile_frame: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compile_frame)
    def compile_unseen(*args: Any, **kwargs: Any) -> Any:
        if not _hooks_are_on():
            return compile_frame(*args, **kwargs)
        # Torch asks the innermost hooks alone.
        with torch.autograd.graph.saved_tensors_hooks(_same, _same):
            return compile_frame(*args, **kwargs)

    return compile_unseen


def _hooks_are_on() -> bool:
    """Tell whether this thread has hooks for saved tensors: torch refuses to forbid them then."""
    if not _autograd._saved_tensors_hooks_is_enabled():
        return False
    try:
        _autograd._saved_tensors_hooks_disable("asked for")
    except RuntimeError:
        return True
    finally:
        _autograd._saved_tensors_hooks_enable()
    return False


def _same(saved: T) -> T:
    return saved
