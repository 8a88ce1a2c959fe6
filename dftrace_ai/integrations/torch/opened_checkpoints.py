"""`safe_open` of safetensors: checkpoints that are read tensor by tensor."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.torch.depth import depth
from dftrace_ai.integrations.torch.sizes import bytes_of
from dftrace_ai.integrations.wrapping.checkpoints import begin_checkpoint
from dftrace_ai.integrations.wrapping.listening import needed, once_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps
    from dftrace_ai.integrations.wrapping.checkpoints import Begun

__all__ = ["record_opened"]

READING = ("get_tensor", "get_tensors")


def record_opened(options: AutoOptions) -> Callable[[], None]:
    """Record what is read by `safe_open`, once the program has imported safetensors.

    The class keeps its identity and has other methods meanwhile: who has imported it before by its
    name is recorded, too.
    """
    return once_imported("checkpoint", "safetensors", functools.partial(_install, options))


def _install(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    kind, reads = needed(home, "safe_open"), _Reads(options)
    swaps.swap(kind, "__enter__", reads.entering)
    swaps.swap(kind, "__exit__", reads.leaving)
    for name in READING:
        if hasattr(kind, name):  # some came later
            swaps.swap(kind, name, reads.reading)
    if hasattr(kind, "get_slice"):
        swaps.swap(kind, "get_slice", functools.partial(reads.slicing, swaps))


class _Reads:
    """What is read of files that are open."""

    def __init__(self, options: AutoOptions) -> None:
        self._options = options
        self._node = beside(ai.checkpoint.restart)
        self._part = beside(self._node, "part")
        # Of those that a block holds open, by identity: they take no attributes.
        self._open: dict[int, _Block] = {}
        # Tensors of which parts are read, by identity, too; who takes over one's is noted anew.
        self._slices: dict[int, _Block] = {}
        self._known: set[type] = set()

    def entering(self, original: Any) -> Any:
        @functools.wraps(original)
        def enter(handle: Any) -> Any:
            result = original(handle)
            self._open[id(handle)] = _Block(self._begin(self._node))
            return result

        return enter

    def leaving(self, original: Any) -> Any:
        @functools.wraps(original)
        def leave(handle: Any, *raised: Any) -> Any:
            block = self._open.pop(id(handle), None)
            self._slices = {key: of for key, of in self._slices.items() if of is not block}
            try:
                return original(handle, *raised)
            finally:
                if block is not None:
                    block.end(raised[0] if raised else None)

        return leave

    def reading(self, original: Any) -> Any:
        @functools.wraps(original)
        def read(handle: Any, *args: Any, **kwargs: Any) -> Any:
            return self._read(self._open.get(id(handle)), original, handle, *args, **kwargs)

        return read

    def slicing(self, swaps: Swaps, original: Any) -> Any:
        @functools.wraps(original)
        def get_slice(handle: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(handle, *args, **kwargs)
            if self._options.gate.live:
                if type(result) not in self._known:  # a class that has no name in the package
                    self._known.add(type(result))
                    swaps.swap(type(result), "__getitem__", self._taking)
                block = self._open.get(id(handle))
                if block is None:
                    self._slices.pop(id(result), None)
                else:
                    self._slices[id(result)] = block
            return result

        return get_slice

    def _taking(self, original: Any) -> Any:
        @functools.wraps(original)
        def take(piece: Any, place: Any) -> Any:
            return self._read(self._slices.get(id(piece)), original, piece, place)

        return take

    def _read(self, block: _Block | None, original: Any, *args: Any, **kwargs: Any) -> Any:
        if block is None:  # of no block: each is a part of a restart that nobody tells
            return self._read_alone(original, *args, **kwargs)
        result = original(*args, **kwargs)
        block.take(result)
        return result

    def _read_alone(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        block = _Block(self._begin(self._part))
        try:
            result = original(*args, **kwargs)
            block.take(result)
        except BaseException as error:
            block.end(type(error))
            raise
        block.end(None)
        return result

    def _begin(self, node: Any) -> Begun | None:
        # Samples that a data set loads are no checkpoints.
        return None if depth.waiting else begin_checkpoint(self._options, node, self._part)


class _Block:
    """A file while it is read."""

    def __init__(self, begun: Begun | None) -> None:
        self._begun = begun
        self._size: int | None = 0

    def take(self, read: Any) -> None:
        """Count what has been read: a tensor, or several by their names."""
        size = bytes_of(list(read.values()) if type(read) is dict else read)
        # Of one that does not tell its size, all that is read has none that is known.
        self._size = None if self._size is None or size is None else self._size + size

    def end(self, error: type[BaseException] | None) -> None:
        if self._begun is not None:
            self._begun.end(self._size or None, error)
