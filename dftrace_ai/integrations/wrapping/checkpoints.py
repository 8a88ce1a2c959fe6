"""What saves or loads a checkpoint becomes a span, and what it calls to do so a part of it."""

from __future__ import annotations

import functools
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.steps.training import is_resting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.options import AutoOptions

__all__ = ["in_checkpoint", "is_in_checkpoint", "recorded"]


class _Depth(threading.local):
    checkpoints: int = 0
    whole: int = 0


_depth = _Depth()


def is_in_checkpoint() -> bool:
    """Return whether this thread is saving or loading a checkpoint."""
    return _depth.checkpoints > 0


@contextmanager
def in_checkpoint() -> Iterator[None]:
    """Have this thread be one that saves or loads a checkpoint which is recorded elsewhere."""
    _depth.checkpoints += 1
    _depth.whole += 1
    try:
        yield
    finally:
        _depth.whole -= 1
        _depth.checkpoints -= 1


def recorded(
    options: AutoOptions,
    node: ProfilerNode,
    place_of: Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any],
    original: Any,
    *,
    whole: bool = False,
) -> Any:
    """Return a function that is recorded: the outermost as the node, one within it as its part.

    Args:
        options: of `auto`.
        node: its span.
        place_of: gets the result and the arguments; returns the file, several or a folder.
        original: the function.
        whole: what it calls to do so is not recorded, such as `torch.save` for each tensor.
    """
    gate, inner = options.gate, beside(node, "part")

    @functools.wraps(original)
    def saves(*args: Any, **kwargs: Any) -> Any:
        if not gate.live or is_resting() or _depth.whole:
            return original(*args, **kwargs)
        options.training.pause()
        if not gate.recording:
            return original(*args, **kwargs)
        mine = inner if _depth.checkpoints else node
        mine = mine._alike(mine.name, type(mine))
        _depth.checkpoints += 1
        _depth.whole += whole
        try:
            with mine:
                result = original(*args, **kwargs)
                size = _bytes_of(place_of(result, args, kwargs))
                if size is not None:
                    mine._merge_args({"bytes": size})
                return result
        finally:
            _depth.whole -= whole
            _depth.checkpoints -= 1

    return saves


def _bytes_of(place: Any) -> int | None:
    """Return the length of a file that is named, of several, or of those in a folder; else None."""
    try:
        if isinstance(place, list):
            return sum(Path(one).stat().st_size for one in place)
        if not isinstance(place, (str, os.PathLike)):
            return None
        path = Path(place)
        files = path.iterdir() if path.is_dir() else [path]
        return sum(one.stat().st_size for one in files if not one.is_dir())
    except OSError:
        return None
