"""How deep calls of one thread lie within one another: signal handlers come into whatever waits."""

from __future__ import annotations

from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Nesting"]

# A handler may end the program behind its call, so it waits, and so does one that comes into it. Of
# one that comes again and again the stack would be full in the end.
MOST = 5


class Nesting:
    """Bounds how many calls that wait lie within one another.

    Example::

        nesting = Nesting()
        with nesting.within() as may_wait:
            if may_wait:
                wait()
    """

    __slots__ = ("_threads",)

    def __init__(self) -> None:
        # Appended to and removed from, for neither can be interrupted.
        self._threads: list[int] = []

    @contextmanager
    def within(self) -> Iterator[bool]:
        """Go one deeper on this thread; gives whether that is not too deep to wait."""
        here = get_ident()
        self._threads.append(here)
        try:
            yield self._threads.count(here) <= MOST
        finally:
            self._threads.remove(here)
