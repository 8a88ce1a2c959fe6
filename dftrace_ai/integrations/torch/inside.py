"""What torch is asked below its public face: sizes, backward passes, and what compiles frames."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch

from dftrace_ai.integrations.nodes import asked
from dftrace_ai.integrations.swapping import NotInThisVersion
from dftrace_ai.run.late_import import is_older_than

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F")


def left_alone(function: F) -> F:
    """Have torch.compile neither compile a function nor what it calls, without loading that."""
    # Torch calls it from C++, also between the graphs of a program that is compiled, where every
    # frame of Python is taken for one of the program's.
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
    """Return torch's function that tells what compiles the frames of a thread, if it has one."""
    # That of 2.6 returns a reference that it does not own: only those that were tried are taken.
    if is_older_than(2, 10):
        return None
    found: Callable[[], object] | None = getattr(_frames(), "get_eval_frame_callback", None)
    return found


def _frames() -> Any:
    """Return the part of torch that runs frames, which is there without the compiler."""
    return getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def running_graph_task() -> Callable[[], int]:
    """Return what tells which backward pass calls, -1 outside of any."""
    found: Callable[[], int] | None = getattr(torch._C, "_current_graph_task_id", None)
    if found is None:
        raise NotInThisVersion("torch._C._current_graph_task_id")
    return found


def compiler_flags() -> Any:
    """Return the module in which torch has its flag of compiling and exporting; None for none."""
    return torch.compiler if hasattr(torch.compiler, "_is_compiling_flag") else None


# What a sparse tensor consists of: `nbytes` is that of the matrix it stands for, or raises.
_COMPRESSED_ROWS: Final = ("crow_indices", "col_indices", "values")
_COMPRESSED_COLUMNS: Final = ("ccol_indices", "row_indices", "values")
PIECES: Final[dict[Any, tuple[str, ...]]] = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: _COMPRESSED_ROWS,
    torch.sparse_bsr: _COMPRESSED_ROWS,
    torch.sparse_csc: _COMPRESSED_COLUMNS,
    torch.sparse_bsc: _COMPRESSED_COLUMNS,
}

unheard: Final = torch._C.DisableTorchFunction
"""A block in which what tensors are asked reaches neither their classes nor modes of functions."""

# The pieces are made by operators, which modes that count operators would count.
_unseen: Final[Any] = getattr(torch._C, "_DisableTorchDispatch", nullcontext)


def bytes_of(given: Any) -> int | None:
    """Return the bytes of a tensor or of those in a list; None where a class answers and raises."""
    return asked(_bytes_of, given)


def _bytes_of(given: Any) -> int:
    with unheard():
        return _sum_of(given)


def _sum_of(given: Any) -> int:
    if isinstance(given, (list, tuple)):
        return sum(map(_sum_of, given))
    pieces = PIECES.get(getattr(given, "layout", None))
    if pieces is not None:
        with _unseen():
            return sum(_sum_of(getattr(given, piece)()) for piece in pieces)
    size = given.nbytes
    if type(size) is not int:  # that of a graph is a symbol, which a look at it would bind
        raise TypeError("a size is no number")
    return size
