"""Processes that fork, by every door there is."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Callable
from typing import NoReturn

import dftrace_ai
from stress.account import Place, forget_the_parents
from stress.victims.work import Maker, Pool, begin

CLONE = {"x86_64": 56, "aarch64": 220}


def finalize_and_exit() -> None:
    """An end in order."""
    dftrace_ai.finalize()
    os._exit(0)


# The ways in which the children end, one after the other.
ENDINGS: list[Callable[[], object]] = [
    finalize_and_exit,
    lambda: os._exit(0),
    lambda: os.kill(os.getpid(), signal.SIGKILL),
    os.abort,
]


def fork() -> int:
    """The fork of Python."""
    return os.fork()


def fork_from_c() -> int:
    """The fork of a library: C's handlers are run, and Python's are not."""
    pid: int = ctypes.PyDLL(None).fork()
    if pid == 0:
        forget_the_parents()
    return pid


def clone() -> int:
    """The bare system call: no handler of anybody is run."""
    pid: int = ctypes.PyDLL(None).syscall(CLONE[platform.machine()], signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        forget_the_parents()
    return pid


BY = {"fork": fork, "fork_from_c": fork_from_c, "clone": clone}


def child(place: Place, ending: int) -> NoReturn:
    """Make spans and end."""
    maker = Maker(place)
    maker.steps(20)
    maker.span(ENDINGS[ending])
    raise AssertionError("not reached")


def children(place: Place, by: str, threads: int) -> None:
    """Forks children, each ending in its way, while so many threads record."""
    begin(place)
    pool = Pool(place, threads, at_leisure=True)
    maker = Maker(place)
    for ending in range(len(ENDINGS)):
        maker.step()
        pid = BY[by]()
        if pid == 0:
            child(place, ending)
        os.waitpid(pid, 0)
    pool.end()
    dftrace_ai.finalize()


def inside_a_span(place: Place, by: str) -> None:
    """Both processes leave the spans that were open at the fork; they are the parent's."""
    begin(place)
    maker = Maker(place)
    pid = -1

    def split() -> None:
        nonlocal pid
        maker.step()
        pid = BY[by]()
        if pid == 0:
            Maker(place).steps(20)

    maker.span(lambda: maker.span(split))
    if pid == 0:
        Maker(place).steps(20)
        finalize_and_exit()
    os.waitpid(pid, 0)
    maker.step()
    dftrace_ai.finalize()


def three_deep(place: Place) -> None:
    """A child has a child has a child, and none of them but the first ends in order."""
    begin(place)
    generation = 0
    while generation < 3:
        Maker(place).steps(20)
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            break
        generation += 1
    maker = Maker(place)
    maker.steps(20)
    if generation:
        maker.span(ENDINGS[generation])
    dftrace_ai.finalize()
