"""Async iteration with spans around the wait for an item and around what is done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

    from dftrace_ai._native import Node, Span

__all__ = ["TracedAsyncIterator"]

T = TypeVar("T")


class TracedAsyncIterator(Generic[T]):
    """The items of an async iterable, each with a span for the wait and one for the body.

    Args:
        iterable: where the items come from.
        wait: the node of the wait, or None.
        block: the node of the body, or None.
    """

    def __init__(self, iterable: AsyncIterable[T], wait: Node | None, block: Node | None) -> None:
        self._open: Span | None = None  # first: a failure below leaves an object to be deleted
        if not hasattr(type(iterable), "__aiter__"):
            raise TypeError(f"{type(iterable).__name__!r} object is not an async iterable")
        self._source: AsyncIterator[T] = iterable.__aiter__()
        self._wait = wait
        self._block = block
        self._count = 0

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        self._end_block()
        span = self._wait._begin() if self._wait is not None else None
        try:
            item = await self._source.__anext__()
        except StopAsyncIteration:
            # The last request only learns that there is nothing more.
            if span is not None:
                span.end_unless_empty()
            raise
        except BaseException as error:
            if span is not None:
                span.end(type(error), self._count + 1)
            raise
        self._count += 1
        if span is not None:
            span.end(None, self._count)
        if self._block is not None:
            self._open = self._block._begin()
        return item

    def _end_block(self) -> None:
        span, self._open = self._open, None
        if span is not None:
            span.end(None, self._count)

    def __del__(self) -> None:
        # A loop that is left by break lets go of its iterator at once.
        self._end_block()

    async def aclose(self) -> None:
        """End the open block, and the source if it can be ended."""
        self._end_block()
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()
