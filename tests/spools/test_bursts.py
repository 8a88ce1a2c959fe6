"""Spans without a pause: room is made ready for them ahead, within the limit, and goes when they end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import RunScript, read_all, trace_files

import dftrace_ai.spools.recovery

# A unit takes a thousand spans: these are many, one behind the other.
BURST = """
    import json, os, signal, sys, time
    from pathlib import Path
    import dftrace_ai
    from dftrace_ai import ai

    def burst(n):
        node = ai.compute.forward
        for _ in range(n):
            with node:
                pass

    def spool():
        (found,) = Path(os.environ["DFTRACE_SPOOL_DIR"]).glob("*.spool")
        return found.stat()
    """


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The variables by which the spools of a program lie where its test looks for them."""
    spools = Path("/dev/shm") / re.sub(r"\W", "-", str(tmp_path))
    spools.mkdir()
    return {"DFTRACE_SPOOL_DIR": str(spools)}


@pytest.fixture(autouse=True)
def _spools_are_gone(env: dict[str, str]) -> Iterator[None]:
    yield
    Path(env["DFTRACE_SPOOL_DIR"]).rmdir()  # and nothing is left there


def test_room_that_nobody_took_is_given_back_while_the_program_goes_on(
    run_script: RunScript, env: dict[str, str]
) -> None:
    done = run_script(
        BURST
        + """
    with dftrace_ai.tracing(flush_interval_ms=60_000) as run:
        for _ in range(3):
            burst(100_000)
            until = time.monotonic() + 30
            while spool().st_blocks * 512 > run.stats()["spool_bytes"]:
                assert time.monotonic() < until, (spool(), run.stats())
                time.sleep(0.01)
    assert run.stats()["dropped"] == 0
    """,
        env=env,
    )
    (trace,) = done.traces(perfetto=False)
    assert trace.footer["spans"] == 300_000


@pytest.mark.parametrize("overflow", ["drop", "wait"])
def test_no_burst_makes_the_spool_longer_than_its_limit(
    run_script: RunScript, env: dict[str, str], overflow: str
) -> None:
    done = run_script(
        BURST
        + f"""
    limit, most = 2 << 20, 0
    with dftrace_ai.tracing(spool_bytes=limit, overflow="{overflow}", flush_interval_ms=10) as run:
        for _ in range(20):
            burst(5_000)
            most = max(most, spool().st_size, spool().st_blocks * 512)
    print(json.dumps([most, run.stats()["dropped"]]))
    assert most <= limit
    """,
        env=env,
    )
    (trace,) = done.traces(perfetto=False)
    ((_, dropped),) = done.said
    assert trace.footer["spans"] + dropped == 100_000
    assert dropped == 0 or overflow == "drop"


@pytest.mark.parametrize("spans", [1, 1_500, 40_000, 150_000])
def test_killed_in_a_burst_nothing_of_it_is_lost(
    run_script: RunScript, env: dict[str, str], spans: int
) -> None:
    done = run_script(
        BURST
        + f"""
    dftrace_ai.initialize()
    burst({spans})
    os.kill(os.getpid(), signal.SIGKILL)
    """,
        status=-9,
        env=env,
    )
    outcome = dftrace_ai.spools.recovery.adopt_dead(done.folder)
    assert (outcome.failed, outcome.damaged) == ([], [])
    (trace,) = read_all(trace_files(done.folder))
    assert (trace.footer["ended"], trace.footer["spans"]) == ("died", spans)


def test_a_child_that_is_forked_in_a_burst_makes_its_own_room(
    run_script: RunScript, env: dict[str, str]
) -> None:
    done = run_script(
        BURST
        + """
    with dftrace_ai.tracing():
        burst(50_000)
        child = os.fork()
        burst(60_000 if child else 70_000)
        if child:
            assert os.waitpid(child, 0)[1] == 0
        else:
            dftrace_ai.finalize()
            os._exit(0)
    """,
        env=env,
    )
    counts = sorted(trace.footer["spans"] for trace in done.traces(perfetto=False))
    assert counts == [70_000, 110_000]
