"""What Python itself costs: empty context managers, a pass-through wrapper, a hand-made timer."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from bench.spans.loops import (
    Subject,
    call_loop,
    empty_loop,
    named_with_loop,
    threaded_loop,
    with_loop,
)


class EmptyContext:
    """The cheapest context manager that can be written in Python."""

    def __enter__(self) -> EmptyContext:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        return None


class TimedContext:
    """Two clock readings and an append: what one writes by hand before reaching for a tracer."""

    def __init__(self) -> None:
        self.started_ns = 0
        self.spans: list[int] = []

    def __enter__(self) -> TimedContext:
        self.started_ns = time.time_ns()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.spans[:] = (time.time_ns() - self.started_ns,)


@contextmanager
def empty_generator(name: str) -> Iterator[None]:
    """Make an empty context manager from a generator."""
    del name
    yield


def function(argument: Any) -> Any:
    """Return the argument: the function that every contestant decorates."""
    return argument


def pass_through(wrapped: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate with nothing but a handing on of the call."""

    @functools.wraps(wrapped)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)

    return wrapper


class Contestant:
    """Bare Python."""

    version = ""

    def __init__(self, mode: str, workdir: str) -> None:
        del mode, workdir

    def subjects(self) -> dict[str, Subject]:
        """Return what can be timed, by name."""
        empty = empty_loop()
        bare = call_loop(function)

        def threaded(threads: int) -> Subject:
            return Subject(
                threaded_loop(threads, lambda: with_loop(EmptyContext())),
                threaded_loop(threads, empty_loop),
                block_ns=50_000_000,
                pairs=1,
            )

        return {
            "empty_class": Subject(with_loop(EmptyContext()), empty),
            "timed_class": Subject(with_loop(TimedContext()), empty),
            "nullcontext": Subject(with_loop(nullcontext()), empty),
            "contextmanager": Subject(named_with_loop(empty_generator), empty),
            "wrapper": Subject(call_loop(pass_through(function)), bare),
            "threads_1": threaded(1),
            "threads_8": threaded(8),
        }

    def settle(self) -> None:
        """Do nothing: nothing runs in the background."""

    def close(self) -> dict[str, int]:
        """Return nothing: there is nothing to close."""
        return {}
