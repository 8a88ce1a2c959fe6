"""Processes that complete the traces of others."""

from __future__ import annotations

import os

from dftrace_ai.spools import search as spool_search
from dftrace_ai.spools.recovery import Recovery, adopt_dead
from stress.account import Place
from stress.nursery import wait_until


def _complete(place: Place) -> Recovery:
    # What others have left in the usual places would be looked at each time.
    spool_search.SPOOL_PLACES = ()
    return adopt_dead(place.out, spool_dir=place.spools)


def adopt(place: Place) -> None:
    """Complete what there is as soon as told to; say how many were finished, and how many failed."""
    wait_until((place.folder / "go").exists)
    found = _complete(place)
    os.write(1, f"{len(found.finished)} {len(found.failed)}\n".encode())


def adopt_damaged(place: Place) -> None:
    """The same, and how many kinds of damage there are."""
    found = _complete(place)
    counts = (len(found.finished), len(found.failed), len(found.damaged))
    os.write(1, f"{counts[0]} {counts[1]} {counts[2]}\n".encode())
