"""What stands where the recorder is not built: annotations are all there, and record nothing.

The recorder is a module of this name in C++, for Linux, which Python finds before this one where it
is there. Of it here is what annotations and runs ask for while nothing is recorded, with the
signatures of `_native.pyi`; `dftrace_ai.recorder` tells which of the two it is.
"""

from __future__ import annotations

import errno
import operator
import os
import time
from typing import TYPE_CHECKING, Any

from dftrace_ai import recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


class Node:
    """What a name of a category carries; its spans are nothing."""

    _below: tuple[Node, ...] = ()

    def __new__(cls, cat: str, name: str, enabled: bool = True) -> Any:
        """Make a node; what else its class takes is for its constructor."""
        node = super().__new__(cls)
        node._rename(cat, name)
        node._on, node._args = bool(enabled), {}
        return node

    cat = property(operator.attrgetter("_cat"))
    name = property(operator.attrgetter("_label"))
    enabled = property(operator.attrgetter("_on"))

    def __enter__(self) -> Any:
        return self

    def __exit__(self, exc_type: object, exc: object, traceback: object, /) -> None:
        pass

    def _rename(self, cat: str, name: str, /) -> None:
        self._cat, self._label = cat, name

    def _each(self) -> Iterator[Node]:
        yield self
        for node in self._below:
            yield from node._each()

    def _add_child(self, child: Node, /) -> None:
        self._below = (*self._below, child)

    def _merge_args(self, args: Any, /) -> None:
        for node in self._each():
            node._args = {**node._args, **args}

    def _take_args(self, other: Node, /) -> None:
        self._args = other._args

    def _clear_args(self) -> None:
        for node in self._each():
            node._args = {}

    def _copy_args(self) -> Any:
        return dict(self._args)

    def _switch(self, on: bool, /) -> None:
        for node in self._each():
            node._on = bool(on)

    def _takes_told(self, yes: bool, /) -> None:
        pass

    def _begin(self) -> None:
        return None

    def _start(self, shown: Node | None = None, /) -> None:
        pass

    def _stop(self) -> bool:
        return True


class TracedFunction:
    """A decorated function; it is none of these, for `wrap` leaves it as it was."""

    def __init__(self, node: Node, function: Callable[..., Any]) -> None:
        self.node, self.__wrapped__ = node, function

    def __get__(self, instance: object, owner: type | None = None, /) -> Any:
        return self.__wrapped__.__get__(instance, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)


class TracedIterator:
    """An iterable as it was, which ``next`` takes, too."""

    __slots__ = ("_closed", "_iterable", "_source")

    def __init__(
        self,
        node: Node,
        iterable: Iterable[Any],
        wait_name: str | None,
        block_name: str | None,
    ) -> None:
        if not hasattr(type(iterable), "__iter__") and not hasattr(type(iterable), "__getitem__"):
            raise TypeError(f"{type(iterable).__name__!r} object is not iterable")
        self._iterable, self._closed = iterable, False
        self._source: Iterator[Any] | None = None

    def __iter__(self) -> Any:
        return self if self._source is not None or self._closed else iter(self._iterable)

    def __next__(self) -> Any:
        if self._closed:
            raise StopIteration
        if self._source is None:
            self._source = iter(self._iterable)
        return next(self._source)

    def __len__(self) -> int:
        sized: Any = self._iterable
        return len(sized)

    def __bool__(self) -> bool:
        return bool(self._iterable)

    def __length_hint__(self) -> int:
        return operator.length_hint(self._source or self._iterable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterable, name)

    def __setattr__(self, name: str, value: Any) -> None:
        owner: Any = super() if name in TracedIterator.__slots__ else self._iterable
        owner.__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._iterable, name)

    def close(self) -> None:
        """Give no more items."""
        self._closed = True
        if hasattr(self._source, "close"):
            self._source.close()


class ApartSpan:
    """A span of which nothing is recorded."""

    is_open = False
    moment = None

    def end(
        self,
        args: object = None,
        exc_type: type[BaseException] | None = None,
        /,
    ) -> None:
        """Do nothing."""


class ThreadCounts:
    """What a thread is inside of, where nobody looks."""

    forward = backward = optimizer = waiting = hooked = computing = 0


class HeldFile:
    """A file held open, whose number is looked at before each use."""

    def __init__(self, number: int, /) -> None:
        self._number = number
        self._file = self._found()

    def _found(self) -> tuple[int, int]:
        found = os.fstat(self._number)
        return found.st_dev, found.st_ino

    def now(self) -> int:
        """Return the number, for the next call only."""
        if self.leads_elsewhere():
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._number

    def leads_elsewhere(self) -> bool:
        """Return whether somebody else has closed it."""
        try:
            return self._found() != self._file
        except OSError:
            return True

    def has_no_name(self) -> bool:
        """Return whether the file was removed."""
        return os.fstat(self._number).st_nlink == 0

    def open_again(self, path: str | os.PathLike[str], flags: int, /) -> None:
        """Open what was closed; OSError where another file lies there now."""
        held, self._number = self._file, os.open(path, flags)
        if self._found() != held:
            os.close(self._number)
            self._number = -1
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), os.fspath(path))

    def close(self) -> None:
        """Close it, unless the number is somebody else's by now."""
        if not self.leads_elsewhere():
            os.close(self._number)
            self._number = -1


def QuickMethod(function: Callable[..., Any], name: str, /) -> Callable[..., Any]:  # noqa: N802
    """Return a function that calls a method, whose face it gets."""

    def method(node: Node, /, *args: Any, **kwargs: Any) -> Any:
        return function(node, *args, **kwargs)

    return method


# The run that is on, as `dftrace_ai.run` has it; it records nothing.
_run: Any = None


def current_run() -> Any:
    """Return what was put there last."""
    return _run


def exchange_run(expected: object, wanted: object, /) -> bool:
    """Put another run in the place of the one that is expected there."""
    global _run
    if _run is not expected:
        return False
    _run = wanted
    return True


def time_us() -> int:
    """Return microseconds since the epoch."""
    return time.time_ns() // 1000


def moment() -> tuple[int, int, int, int]:
    """Return the present, in no span."""
    return time.time_ns(), 0, 0, 0


def path_hash(path: str, /) -> str:
    """Return nothing, for nobody reads it."""
    return ""


def begin(cat: str, name: str, args: object, track: str, /) -> ApartSpan:
    """Return a span of which nothing is recorded."""
    return ApartSpan()


def told_values(values: Mapping[str, float], /) -> tuple[dict[str, str], dict[str, float]]:
    """Return nothing of what is given."""
    return {}, {}


def _nothing(*given: object, **named: object) -> None:
    """Do nothing."""


def _zero() -> int:
    return 0


quick_calls = show_method = _nothing
instant = counter = flow = metadata = log_event = log_within = log_between = _nothing
flush = dump = count_unmatched_stop = tensor_records_as = plain_tensors_are = _nothing
is_on = run_number = ticks = epoch_offset_ns = _zero


def stats() -> dict[str, int]:
    """Return no counts."""
    return {}


class _Recorded:
    """What only a run has that records; it can be derived from, and not be made."""

    def __new__(cls, *_: object, **__: object) -> Any:
        raise NotImplementedError(recorder.lack())


class TrainingState(_Recorded):
    """Where a training is; nobody looks."""

    rest = forget_told = staticmethod(_nothing)
    is_resting = staticmethod(lambda: True)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (_Recorded,), {})
