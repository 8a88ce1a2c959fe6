"""Spans without a pause: room is made ready for them ahead, within the limit, and goes when they end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import RunScript

# A unit takes a thousand spans: these are many, one behind the other.
BURST = """
    import json, os, time
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
        for _ in range(2):
            burst(40_000)
            until = time.monotonic() + 100
            while spool().st_blocks * 512 > run.stats()["spool_bytes"]:
                assert time.monotonic() < until, (spool(), run.stats())
                time.sleep(0.01)
    assert run.stats()["dropped"] == 0
    """,
        env=env,
    )
    (trace,) = done.traces(perfetto=False)
    assert trace.footer["spans"] == 80_000


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
