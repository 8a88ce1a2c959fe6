"""Which files are looked at, and how one operation on them becomes a span.

Apart from `files`, which swaps the functions: what is recorded of a call knows of no patch.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import weakref
from pathlib import PurePath
from threading import get_ident
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from dftrace_ai._native import path_hash
from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.checkpoints import is_in_checkpoint
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.steps import is_resting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.options import AutoOptions

# Below them the kernel answers, and no disk.
NO_DISK: Final = ("/proc", "/sys", "/dev")
MOST_KNOWN: Final = 4096


class Places:
    """Folders, and whether a path leads into one of them, be it by symbolic links on the way."""

    # A file that is a link itself lies where the link does.
    def __init__(self, folders: tuple[str, ...]) -> None:
        self._shown = [(_below(os.path.realpath(one)), _below(one)) for one in folders]
        self._known: dict[str, str | None] = {}

    def is_elsewhere(self, path: str) -> bool:
        """Return whether an absolute path is known to lead elsewhere; the quick way of `shown`."""
        return path[:1] == "/" and self._known.get(path[: path.rfind("/")], path) is None

    def shown(self, path: str) -> str | None:
        """Return the path by which a file is told of; None for one that is elsewhere."""
        if path[:1] != "/":
            try:
                path = f"{os.getcwd()}/{path}"
            except OSError:
                return None
        folder, _, name = path.rpartition("/")
        try:
            place = self._known[folder]
        except KeyError:
            place = self._place_of(folder)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[folder] = place
        return None if place is None else f"{place}{name}"

    def _place_of(self, folder: str) -> str | None:
        try:
            forms = _below(os.path.realpath(folder or "/")), _below(os.path.normpath(folder or "/"))
        except ValueError:  # a path with a null byte: to open it fails
            return None
        if any(form.startswith(_below(one)) for form in forms for one in NO_DISK):
            return None
        for form in forms:
            for real, given in self._shown:
                for one in (real, given):
                    if form.startswith(one):
                        return given + form[len(one) :]
        return None


def _below(folder: str) -> str:
    return folder if folder.endswith("/") else f"{folder}/"


Name: TypeAlias = Literal["open", "read", "write", "close", "sync"]
SYNC: Final = "sync"
NO_ARGUMENTS: Mapping[str, int] = MappingProxyType({})


class KnownFile:
    """A regular file that is looked at."""

    __slots__ = ("facts", "identity", "of_checkpoint", "path")

    def __init__(self, path: str, identity: tuple[int, int]) -> None:
        self.identity = identity  # device and inode
        self.of_checkpoint = is_in_checkpoint()
        # An argument of the first event, None once it has been told; facts are those of each.
        self.path: str | None = told(path)
        self.facts = {"fhash": path_hash(self.path)}


class Opening:
    """A file that is being opened; one that is `known` is open already, and a number is given."""

    __slots__ = ("__weakref__", "known", "node", "path", "span")

    def __init__(self, path: str | None, node: ProfilerNode, known: bool) -> None:
        self.path = path  # None where it is known behind it alone
        self.known = known
        self.node = node
        self.span: Any = None  # None where nothing is recorded now


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
        """Begin to open a file; `opened` or `failed` ends it."""
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
        arguments: Mapping[str, int] = NO_ARGUMENTS,
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


# Tests of programs put another in its place.
FSTAT: Final = os.fstat
OUR_OWN: Final = "dftrace_ai."
# They open files for whoever calls them.
FOR_OTHERS: Final = frozenset({"pathlib", "pathlib._local", "tempfile", "os", "codecs", "gzip"})


class KnownFiles(dict[int, KnownFile]):
    """Files that are looked at, by number."""

    def __init__(self, places: Places, operations: Operations) -> None:
        super().__init__()
        self.places = places
        self.operations = operations

    def meant(self, file: object) -> tuple[bool, str | None]:
        """Return whether a file may be one to look at, and its path where that is known by now."""
        operations = self.operations
        if not operations.is_live or operations.is_opening:
            return False, None
        kind = type(file)
        if kind is str or kind is bytes or issubclass(kind, PurePath):
            text = os.fsdecode(file)  # type: ignore[arg-type]
            path = self.places.shown(text)
            if path is None and is_in_checkpoint():
                path = os.path.abspath(text)  # noqa: PTH100 - a link is told of as it is named
            return path is not None and not _is_ours(), path
        # What somebody's own kind of path says is asked by `open` alone.
        return not _is_ours(), None

    def opened(self, number: int, opening: Opening) -> KnownFile | None:
        """Return a file that has been opened and is to be looked at."""
        try:
            facts = FSTAT(number)
        except OSError:
            return None
        if not stat.S_ISREG(facts.st_mode):
            return None
        identity = facts.st_dev, facts.st_ino
        known = self.get(number)
        if opening.known and known is not None and known.identity == identity:
            return known
        path = opening.path or self._path_of(number)
        if path is None:
            return None
        file = self[number] = KnownFile(path, identity)
        return file

    def of(self, number: int) -> KnownFile | None:
        """Return the file that a number means, if it is looked at."""
        known = self.get(number)
        if known is None:
            return None
        # It may mean another file by now: libraries close files that they were given.
        try:
            facts = FSTAT(number)
        except OSError:
            return None
        if (facts.st_dev, facts.st_ino) == known.identity:
            return known
        self.pop(number, None)
        return None

    def _path_of(self, number: int) -> str | None:
        try:
            path = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - twice as quick
        except OSError:
            return None
        if path[:1] != "/":
            return None
        found = self.places.shown(path)
        return path if found is None and is_in_checkpoint() else found


def _is_ours() -> bool:
    # Behind this, who asks, and what hears of the opening, which is called without a frame.
    frame: Any = sys._getframe(2).f_back
    while frame is not None and frame.f_globals.get("__name__") in FOR_OTHERS:
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(OUR_OWN)
