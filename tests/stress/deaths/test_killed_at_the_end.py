"""A process, or who completes its trace, is killed while it removes what is not needed any more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import read_all, trace_files
from safety.commands import dftrace, invoke

from dftrace_ai.spools.recovery import adopt_dead

if TYPE_CHECKING:
    from stress.pressure.program import Pressed
    from stress.pressure.shim import Shim

pytest_plugins = ["stress.pressure.program"]

# Nobody who looks for spools knows the directory in which these lie, but for their markers.
RECORDING = """
shim = Shim()
os.mkdir("unknown")
run = dftrace_ai.initialize(spool_dir="unknown")
spans(1000)
run.flush()
{end}
"""


def is_left(traces: Path) -> tuple[int, int]:
    """How many markers and spools."""
    spools = list((traces.parent).rglob("unknown/*"))
    return len(list(traces.glob("*.spool-at"))), len(spools)


@pytest.mark.parametrize(("removal", "left"), [(1, (1, 1)), (2, (1, 0))])
def test_nothing_stays_and_nothing_is_told_as_lost(
    pressed: Pressed, traces: Path, removal: int, left: tuple[int, int]
) -> None:
    """Killed before the spool is removed, or before the marker is."""
    end = f"shim.unlink_kills = {removal}\ndftrace_ai.finalize()"
    pressed(RECORDING.format(end=end), status=-9)
    assert is_left(traces) == left
    looked = invoke("stuck", traces)
    assert ("is gone" in looked.out + looked.err, is_left(traces)) == (False, left)
    found = adopt_dead(traces)
    assert (found.failed, found.alive, found.damaged) == ([], [], [])
    assert len(found.ended_in_order) == left[1]
    assert is_left(traces) == (0, 0)
    (trace,) = read_all(trace_files(traces))
    assert trace.names == {"forward": 1000}


@pytest.mark.parametrize(("removal", "left"), [(1, (1, 1)), (2, (1, 0))])
def test_nor_is_it_by_who_completes_the_trace(
    pressed: Pressed,
    shim: Shim,
    pressed_environment: dict[str, str],
    traces: Path,
    removal: int,
    left: tuple[int, int],
) -> None:
    pressed(RECORDING.format(end="os.kill(os.getpid(), signal.SIGKILL)"), status=-9)
    shim.unlink_kills = removal
    assert dftrace("recover", traces, env=pressed_environment).status == -9
    assert is_left(traces) == left
    done = dftrace("recover", traces)
    assert (done.status, done.err) == (0, "")
    assert is_left(traces) == (0, 0)
    (trace,) = read_all(trace_files(traces))
    assert trace.names == {"forward": 1000}
