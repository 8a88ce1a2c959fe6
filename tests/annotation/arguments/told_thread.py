"""A thread that does one thing after the other, each when it is told to, in blocks that stay open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue

LIMIT_S = 60
Order = Callable[["ToldThread"], object]


class Failed(Exception):
    """Ends a block from inside."""


class ToldThread(threading.Thread):
    """Does what `do` is given, which may call `stay` to be in a block until `leave` ends it.

    Whoever tells it waits until it has done so: what several of these do has one order.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._reports: SimpleQueue[BaseException | None] = SimpleQueue()
        self._over = False
        self.start()
        self._report()

    def run(self) -> None:
        """Do what is told until the outermost block is left."""
        try:
            self.stay()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._reports.put(error)

    def stay(self) -> None:
        """Do what is told, here, until it is to go on behind."""
        self._reports.put(None)
        while not self._over and (order := self._orders.get(timeout=LIMIT_S)) is not None:
            if order is _fail:
                raise Failed
            with suppress(Failed):
                order(self)
            self._reports.put(None)

    def staying(self, items: int) -> Iterator[int]:
        """Yield so many items, and stay before each."""
        for number in range(items):
            self.stay()
            yield number

    def do(self, order: Order | None) -> None:
        """Have it do something, and wait until it has, or is in the block that this opens."""
        self._orders.put(order)
        self._report()

    def leave(self, *, failing: bool = False) -> None:
        """Have it leave the innermost block."""
        self.do(_fail if failing else None)

    def end(self) -> None:
        """Have it leave all blocks, whatever is done in them otherwise."""
        self._over = True
        self._orders.put(None)
        self.join(LIMIT_S)

    def _report(self) -> None:
        report = self._reports.get(timeout=LIMIT_S)
        if report is not None:
            raise report


def _fail(_: ToldThread) -> None:
    """Stands for an order to fail."""
