"""What the end of a run is not allowed to take away stays, is told of, and tells of no loss later."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import RunScript
from perfetto.trace_file import read

from dftrace_ai.spools.recovery import adopt_dead

# A child for each directory that is closed to it in the middle of its run. Root is kept out of none.
PROGRAM = """
import json, os, sys
from pathlib import Path
import dftrace_ai
from dftrace_ai import ai

def trained():
    for _ in range(100):
        with ai.compute.forward:
            pass

for closed in ("out", "spools"):
    here = Path(closed).absolute()
    places = {"out": here / "out", "spools": here / "spools"}
    for place in places.values():
        place.mkdir(parents=True)
        place.chmod(0o777)
    child = os.fork()
    if not child:
        run = dftrace_ai.initialize(log_file=places["out"] / "t", spool_dir=places["spools"])
        trained()
        run.flush()
        places[closed].chmod(0)
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        trained()
        run.flush()
        dftrace_ai.finalize()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    places[closed].chmod(0o700)
    print(json.dumps({name: str(place) for name, place in places.items()}), flush=True)
"""


def test_a_directory_is_closed_to_the_run_meanwhile(
    run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run_script(PROGRAM)
    for line in done.stdout.splitlines():
        places = json.loads(line)
        monkeypatch.setenv("DFTRACE_SPOOL_DIR", places["spools"])
        found = adopt_dead(places["out"])
        (trace,) = found.finished
        assert (found.ended_in_order, found.failed, found.damaged) == ([trace], [], [])
        assert read(Path(trace)).names == {"forward": 200}
        left = [name for place in places.values() for name in os.listdir(place)]
        assert left == [trace.rpartition("/")[2]]
    assert len(done.stdout.splitlines()) == 2
    assert "was removed" not in done.stderr
    assert done.stderr.count("the trace is complete, and the next dftrace command") == 2
