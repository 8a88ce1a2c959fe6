"""What saves or loads a checkpoint becomes a span, and what it calls to do so a part of it."""

from __future__ import annotations

import functools
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dftrace_ai.integrations.nodes import asked, beside
from dftrace_ai.integrations.steps import is_resting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.options import AutoOptions


class Call(NamedTuple):
    """A call of what saves or loads, which is over."""

    result: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def given(self, place: int, name: str) -> Any:
        """Return an argument by its name or position; None where it was not given."""
        return self.kwargs.get(name, self.args[place] if len(self.args) > place else None)


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


class Begun:
    """A span that `begin_checkpoint` has begun."""

    def __init__(self, node: ProfilerNode) -> None:
        self._node = node
        self._span = node._begin()

    def end(self, size: int | None, error: type[BaseException] | None) -> None:
        """End it, with the bytes that were moved where that is known."""
        if size is not None:
            self._node._merge_args({"bytes": size})
        if self._span is not None:
            self._span.end(error)


def begin_checkpoint(options: AutoOptions, node: ProfilerNode, part: ProfilerNode) -> Begun | None:
    """Begin the span of a checkpoint that is more than one call; None where none is recorded."""
    if not options.gate.live or is_resting() or _depth.whole:
        return None
    options.training.pause()
    if not options.gate.recording:
        return None
    return Begun(_alike(part if _depth.checkpoints else node))


def _alike(node: ProfilerNode) -> ProfilerNode:
    # Arguments of one span are those of the node's next, too.
    return node._alike(node.name, type(node))


def recorded(
    options: AutoOptions,
    node: ProfilerNode,
    place_of: Callable[[Call], Any],
    original: Any,
    *,
    whole: bool = False,
) -> Any:
    """Return a function that is recorded: the outermost as the node, one within it as its part."""
    gate, inner = options.gate, beside(node, "part")

    @functools.wraps(original)
    def saves(*args: Any, **kwargs: Any) -> Any:
        if not gate.live or is_resting() or _depth.whole:
            return original(*args, **kwargs)
        options.training.pause()
        if not gate.recording:
            return original(*args, **kwargs)
        mine = _alike(inner if _depth.checkpoints else node)
        _depth.checkpoints += 1
        _depth.whole += whole
        try:
            with mine:
                result = original(*args, **kwargs)
                size = asked(lambda: _bytes_of(place_of(Call(result, args, kwargs))))
                if size is not None:
                    mine._merge_args({"bytes": size})
                return result
        finally:
            _depth.whole -= whole
            _depth.checkpoints -= 1

    return saves


def _bytes_of(place: Any) -> int | None:
    """Return the length of a file that is named, of several, or of those in a folder; else None."""
    if isinstance(place, list):
        return sum(Path(one).stat().st_size for one in place)
    if not isinstance(place, (str, os.PathLike)):
        return None
    path = Path(place)
    files = path.iterdir() if path.is_dir() else [path]
    return sum(one.stat().st_size for one in files if not one.is_dir())
