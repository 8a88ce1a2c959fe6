"""Programs that have handlers of their own for signals."""

from __future__ import annotations

import signal
import sys

import dftrace_ai
from stress.account import ANY_PARENT, Place
from stress.victims.work import Maker, Pool, begin, never


def handler_before(place: Place) -> None:
    """A handler for SIGTERM that exits, set before the run begins."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    begin(place)
    Maker(place).until(never)


def handler_after(place: Place) -> None:
    """The same, set when the run is on."""
    begin(place)
    maker = Maker(place)
    maker.step()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    maker.until(never)


def handler_that_goes_on(place: Place) -> None:
    """A handler for SIGTERM after which the program goes on to its end."""
    calls = []
    signal.signal(signal.SIGTERM, lambda *_: calls.append(1))
    begin(place)
    maker = Maker(place)
    maker.until(lambda: bool(calls))
    maker.steps(50)
    dftrace_ai.finalize()


def interrupted(place: Place) -> None:
    """No handler but Python's for SIGINT, while two threads record."""
    begin(place)
    Pool(place, 0)
    Maker(place).until(never)


def interrupt_caught(place: Place) -> None:
    """A KeyboardInterrupt after which the program goes on to its end."""
    begin(place)
    try:
        Maker(place).until(never)
    except KeyboardInterrupt:
        Maker(place).steps(50)
    dftrace_ai.finalize()


def handler_that_records(place: Place) -> None:
    """A timer whose handler makes spans in the middle of others, a hundred times."""
    begin(place)
    ticks = Maker(place, parent=ANY_PARENT)
    calls = []
    busy = False

    def tick(*_: object) -> None:
        nonlocal busy
        if not busy:  # the next tick may interrupt this one
            busy = True
            calls.append(1)
            ticks.step()
            busy = False

    signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    Maker(place).until(lambda: len(calls) >= 100)
    signal.setitimer(signal.ITIMER_REAL, 0)
    dftrace_ai.finalize()
