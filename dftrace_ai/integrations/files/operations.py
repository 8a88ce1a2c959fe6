"""One operation on a file becomes a span, with its bytes, its place in the file and the file."""

from __future__ import annotations

import os
import threading
import weakref
from threading import get_ident
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from dftrace_ai.annotation.built_in.stand_ins import path_hash
from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.steps.training import is_resting
from dftrace_ai.integrations.wrapping.checkpoints import is_in_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.options import AutoOptions

__all__ = ["KnownFile", "Name", "Opening", "Operations", "bytes_of", "place_of"]

Name: TypeAlias = Literal["open", "read", "write", "close", "sync"]
SYNC: Final = "sync"
NO_ARGUMENTS: Mapping[str, object] = MappingProxyType({})


class KnownFile:
    """A regular file that is looked at.

    Attributes:
        identity: device and inode.
        of_checkpoint: it was opened inside of what saves or loads one.
        facts: arguments that each of its events has.
        path: argument of the first; None once it has been told.
    """

    __slots__ = ("facts", "identity", "of_checkpoint", "path")

    def __init__(self, path: str, identity: tuple[int, int]) -> None:
        self.identity = identity
        self.of_checkpoint = is_in_checkpoint()
        self.path: str | None = told(path)
        self.facts = {"fhash": path_hash(self.path)}


class Opening:
    """A file that is being opened.

    Attributes:
        path: of it; None where that is known behind it alone.
        known: it is open already, and a number is given.
        span: of it; None where nothing is recorded now.
        node: of the span.
    """

    __slots__ = ("__weakref__", "known", "node", "path", "span")

    def __init__(self, path: str | None, node: ProfilerNode, known: bool) -> None:
        self.path = path
        self.known = known
        self.node = node
        self.span: Any = None


class _Mine(threading.local):
    def __init__(self) -> None:
        # Whatever ends the call, such as a handler of a signal, drops what is being opened.
        self.opening: weakref.ref[Opening] | None = None
        self.nodes: dict[tuple[str, bool, bool, bool], ProfilerNode] = {}


class Operations:
    """Records operations of this process while it is to be done."""

    def __init__(self, options: AutoOptions) -> None:
        self.options = options
        self._mine = _Mine()

    @property
    def is_live(self) -> bool:
        """Whether the part is installed."""
        return self.options.gate.live

    def is_on(self) -> bool:
        """Return whether an operation is recorded now."""
        gate = self.options.gate
        return gate.live and (gate.recording if gate.shared is None else bool(gate.shared.value))

    @property
    def is_opening(self) -> bool:
        """Whether this thread is opening a file: what that opens is a part of it."""
        opening = self._mine.opening
        return opening is not None and opening() is not None

    def opens(self, path: str | None, *, known: bool = False) -> Opening:
        """Begin to open a file; `opened` or `failed` ends it.

        `path`: of it; None where that is known behind it alone.
        """
        opening = Opening(path, self._node("open", is_in_checkpoint(), first=True), known)
        if not known and self.is_on():
            opening.span = opening.node._begin()
        self._mine.opening = weakref.ref(opening)
        return opening

    def opened(self, opening: Opening, file: KnownFile | None) -> None:
        """End to open a file; None is one that is not looked at."""
        self._mine.opening = None
        span = opening.span
        if span is None:
            return
        if file is None:
            span.cancel()
            return
        opening.node._merge_args({"path": file.path, **file.facts})
        span.end()
        file.path = None

    def failed(self, opening: Opening, error: type[BaseException]) -> None:
        """End to open a file that could not be opened."""
        self._mine.opening = None
        span = opening.span
        if span is None:
            return
        if opening.path is None:
            span.cancel()
            return
        path = told(opening.path)
        opening.node._merge_args({"path": path, "fhash": path_hash(path)})
        span.end(error)

    def begin(self, name: Name, file: KnownFile) -> Any:
        """Begin something else; returns what `end` ends, or None."""
        gate = self.options.gate  # as `is_on` asks, without a call
        if not (gate.live and (gate.recording if gate.shared is None else gate.shared.value)):
            return None
        of_checkpoint = file.of_checkpoint or is_in_checkpoint()
        node = self._node(name, of_checkpoint, first=file.path is not None)
        span = node._begin()
        return None if span is None else (node, span, file)

    def end(
        self,
        begun: Any,
        error: type[BaseException] | None = None,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> None:
        """End what was begun."""
        node, span, file = begun
        if file.path is None:
            node._merge_args({**arguments, **file.facts})
        else:
            node._merge_args({**arguments, "path": file.path, **file.facts})
            file.path = None
        span.end(error)

    def moves(
        self,
        name: Literal["read", "write"],
        file: KnownFile,
        number: int,
        move: Callable[..., Any],
        *args: Any,
    ) -> Any:
        """Read or write, at the place where the file is."""
        begun = self.begin(name, file)
        if begun is None:
            return move(*args)
        try:
            result = move(*args)
        except BaseException as error:
            self.end(begun, type(error), {"bytes": 0, "offset": place_of(number)})
            raise
        count = bytes_of(result)
        offset = place_of(number) - count
        self.end(begun, None, {"bytes": count, "offset": max(0, offset)})
        return result

    def around(self, begun: Any, call: Callable[..., Any], *args: Any) -> Any:
        """Call what was begun, and end it."""
        if begun is None:
            return call(*args)
        try:
            result = call(*args)
        except BaseException as error:
            self.end(begun, type(error))
            raise
        self.end(begun)
        return result

    def _node(self, name: Name, of_checkpoint: bool, *, first: bool) -> ProfilerNode:
        # Arguments of one event are those of the node's next, too: who tells the path has his own.
        key = name, of_checkpoint, first, is_resting()
        node = self._mine.nodes.get(key)
        if node is None:
            io = (ai.checkpoint if of_checkpoint else ai.data).io
            copy = 4 * get_ident() + 2 * first + key[3]
            home = getattr(io, "write" if name == SYNC else name)
            part = SYNC if name == SYNC else None
            # A worker has heard of no step since it was forked.
            node = beside(home, part, of_the_step=not key[3], copy=copy)
            self._mine.nodes[key] = node
        return node


def told(path: str) -> str:
    """Return a path as text: the file system may have any bytes in it."""
    return path if path.isprintable() else ascii(path)[1:-1]


def place_of(number: int) -> int:
    """Return where in a file the next byte is read or written; 0 where it has no such place."""
    try:
        return os.lseek(number, 0, os.SEEK_CUR)
    except OSError:
        return 0


def bytes_of(result: Any) -> int:
    """Return how many bytes an operation has moved, by its result."""
    if isinstance(result, int):
        return result
    if isinstance(result, bytes):
        return len(result)
    # Not every array gives its buffer away, such as one of dates.
    size = getattr(result, "nbytes", 0)
    return size if isinstance(size, int) else 0
