"""Completing what the dead left, as a user does it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import clean_environment

from dftrace_ai.spools import search as spool_search
from dftrace_ai.spools.recovery import Recovery, adopt_dead
from stress.account import Place


def recover(place: Place) -> Recovery:
    """Complete the traces of the dead; nothing may be in the way."""
    with pytest.MonkeyPatch.context() as patch:
        # What others have left in the usual places would be looked at each time.
        patch.setattr(spool_search, "SPOOL_PLACES", ())
        # Where spools of these victims are, also of one killed before it could tell.
        recovery = adopt_dead(place.out, spool_dir=place.spools)
    assert not recovery.failed, recovery.failed
    return recovery


def recover_by_command(place: Place) -> str:
    """The same by the next command that reads the traces; gives what it says about that."""
    command = [sys.executable, "-m", "dftrace_ai.cli", "summary", str(place.out)]
    environment = {**clean_environment(), "DFTRACE_SPOOL_DIR": str(place.spools)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "not completed" not in done.stderr, done.stderr
    return done.stderr
