"""The ways in which a program ends by its own doing."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import dftrace_ai
from stress.account import Place, note_time
from stress.victims.work import Maker, Pool, begin


def begin_and_note_the_end(place: Place) -> None:
    """Start the run, and tell when it ends: handlers are called last in, first out."""
    atexit.register(note_time, place, "closed")
    begin(place)
    atexit.register(note_time, place, "closing")


def returns(place: Place) -> None:
    """The end of the program, without finalize."""
    begin(place)
    Maker(place).steps(60)


def short(place: Place) -> None:
    """The end of a short program."""
    begin(place)
    Maker(place).steps(5)


def finalizes(place: Place) -> None:
    """The end of the run while four threads go on and on."""
    begin(place)
    Pool(place, 4)
    Maker(place).steps(40)
    note_time(place, "closing")
    dftrace_ai.finalize()
    note_time(place, "closed")
    os._exit(0)


ENDS: dict[str, Callable[[], object]] = {
    "exit": lambda: os._exit(3),
    "abort": os.abort,
    "address zero": lambda: ctypes.string_at(0),
}


def inside_of_spans(place: Place, end: str) -> None:
    """An end of the process at once, inside of spans, while four threads record."""
    begin(place)
    Pool(place, 4)
    maker = Maker(place)
    maker.steps(40)
    maker.span(lambda: maker.span(ENDS[end]))


def sys_exit(place: Place, settings: dict[str, Any]) -> None:
    """sys.exit inside of spans; what was started stays open."""
    begin(place, **settings)
    maker = Maker(place)
    maker.steps(50)
    maker.leave_open()
    maker.span(lambda: maker.span(lambda: sys.exit(3)))


def raises(place: Place) -> None:
    """An exception that nobody catches, inside of spans."""
    begin(place)
    maker = Maker(place)
    maker.steps(50)
    maker.span(lambda: maker.span(lambda: int("no number")))


def raises_in_a_thread(place: Place) -> None:
    """An exception that ends a thread, and a thread that leaves a span open."""
    begin(place)

    def fail() -> None:
        maker = Maker(place)
        maker.steps(20)
        maker.span(lambda: int("no number"))

    def leave() -> None:
        maker = Maker(place)
        maker.steps(20)
        maker.leave_open()

    for work in (fail, leave):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    Maker(place).steps(50)


def leaves_daemon_threads(place: Place) -> None:
    """The interpreter shuts down while four daemon threads record."""
    begin_and_note_the_end(place)
    Pool(place, 4)
    Maker(place).steps(40)


def leaves_threads(place: Place) -> None:
    """The main thread ends before the others do, for which the interpreter waits."""
    begin(place)
    pool = Pool(place, 4, daemon=False, at_leisure=True)
    Maker(place).steps(20)
    main = threading.current_thread()

    def end_the_others() -> None:
        main.join()
        Maker(place).steps(40)
        pool.end()

    threading.Thread(target=end_the_others).start()
