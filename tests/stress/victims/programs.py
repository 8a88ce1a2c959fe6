"""Processes that start other programs, become them, or complete the traces of others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import dftrace_ai
from dftrace_ai.spools import search as spool_search
from dftrace_ai.spools.recovery import Recovery, adopt_dead
from stress.account import Place
from stress.victims.work import Maker, Pool, begin


def command(name: str, place: Place) -> list[str]:
    """The command that starts a victim."""
    return [sys.executable, "-m", "stress.victims", name, str(place.folder), "{}"]


def becomes_true(place: Place) -> None:
    """Exec of a program that knows nothing of tracing, while three threads record."""
    begin(place)
    Pool(place, 3)
    maker = Maker(place)
    maker.steps(40)
    maker.span(lambda: maker.span(lambda: os.execv("/bin/true", ["true"])))


def becomes_a_tracer(place: Place) -> None:
    """Exec of a program that records, too: in the same process it goes on with the run."""
    begin(place)
    Pool(place, 3)
    maker = Maker(place)
    maker.steps(40)
    maker.span(lambda: os.execv(sys.executable, command("programs.records", place)))


def records(place: Place) -> None:
    """A program that records because its environment says so."""
    Maker(place).steps(20)


def dies(place: Place) -> None:
    """One that is killed while it does."""
    maker = Maker(place)
    maker.steps(20)
    maker.span(lambda: os.kill(os.getpid(), signal.SIGKILL))


def runs_programs(place: Place) -> None:
    """Subprocesses, started while three threads record; one of them is killed."""
    begin(place)
    pool = Pool(place, 3, at_leisure=True)
    maker = Maker(place)
    maker.span(lambda: subprocess.run(command("programs.records", place), check=True))
    maker.span(lambda: subprocess.run(command("programs.dies", place), check=False))
    maker.span(lambda: subprocess.run(["/bin/true"], check=True))
    pool.end()
    dftrace_ai.finalize()


def _complete(place: Place) -> Recovery:
    # What others have left in the usual places would be looked at each time.
    spool_search.SPOOL_PLACES = ()
    return adopt_dead(place.out, spool_dir=place.spools)


def adopt(place: Place) -> None:
    """Complete what there is as soon as told to; say how many were finished, and how many failed."""
    from stress.nursery import wait_until  # which loads what tests need, and few victims do

    wait_until((place.folder / "go").exists)
    found = _complete(place)
    os.write(1, f"{len(found.finished)} {len(found.failed)}\n".encode())


def adopt_damaged(place: Place) -> None:
    """The same, and how many kinds of damage there are."""
    found = _complete(place)
    counts = (len(found.finished), len(found.failed), len(found.damaged))
    os.write(1, f"{counts[0]} {counts[1]} {counts[2]}\n".encode())
