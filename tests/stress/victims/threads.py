"""Threads that make spans."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import threading
import time
from typing import Any

from stress.account import Place
from stress.victims.work import Maker, Pool, begin, never

SYS_EXIT = {"x86_64": 60, "aarch64": 93}


def until_killed(place: Place, threads: int, settings: dict[str, Any]) -> None:
    """Make spans in so many threads, the main thread among them, until something kills."""
    begin(place, **settings)
    keep = Pool(place, threads - 1)
    Maker(place).until(never)
    keep.end()


def killed_by_itself(place: Place) -> None:
    """Killed when two threads have filled several units each, none of which is written yet."""
    begin(place, flush_interval_ms=60_000)
    thread = threading.Thread(target=lambda: Maker(place).steps(200))
    thread.start()
    thread.join()
    maker = Maker(place)
    maker.steps(200)
    # On a busy machine the run begins before the file that tells where its spool lies is made.
    while not any(place.out.glob("*.spool-at")):
        time.sleep(0.001)
    maker.span(lambda: os.kill(os.getpid(), signal.SIGKILL))


def without_the_first(place: Place) -> None:
    """Three threads make spans, and the first thread of the process is no more."""
    begin(place, flush_interval_ms=5)
    Pool(place, 3, at_leisure=True)
    Maker(place).steps(20)
    ctypes.CDLL(None).syscall(SYS_EXIT[platform.machine()], 0)


def killed_by_an_argument(place: Place) -> None:
    """Killed when the end of a span asks for the text of an argument: the span is still open."""

    class Killer:
        def __str__(self) -> str:
            os.kill(os.getpid(), signal.SIGKILL)
            return "not reached"

    begin(place)
    maker = Maker(place)
    maker.steps(20)
    node = maker.leave_open()
    node.update(done=Killer())
    node.stop()


def inside_a_long_span(place: Place, killed: bool) -> None:
    """A span that stays open while its arguments, and those of many others, change again and again."""
    run = begin(place)
    maker = Maker(place)
    node = maker.leave_open()
    while not maker.full:
        node.update(done=maker.made)
        maker.steps(20)
        run.flush()
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)


def until_memory_ends(place: Place, group: str | None) -> None:
    """Take ever more memory while three threads record; kill itself where nobody sets a limit."""
    begin(place)
    if group is not None:
        with open(group, "w", encoding="ascii") as members:
            members.write(str(os.getpid()))
    Pool(place, 3)
    maker = Maker(place)
    taken = []

    def take() -> None:
        taken.append(b"\1" * (8 << 20))
        if group is None and len(taken) == 8:
            os.kill(os.getpid(), signal.SIGKILL)

    while True:
        maker.step()
        maker.span(take)
