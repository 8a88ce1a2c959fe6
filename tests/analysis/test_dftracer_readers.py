"""dftracer's own readers, from PyPI, count and add up what is in our files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dftrace_ai
from dftrace_ai import ai

TOOLS = Path(sys.executable).parent


def run(tool: str, folder: Path) -> str:
    done = subprocess.run(
        [str(TOOLS / tool), "-d", str(folder)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("timestamps", ["relative", "epoch_us"])
def test_dftracers_readers_find_every_event(tmp_path: Path, timestamps: str) -> None:
    with dftrace_ai.tracing(
        log_file=tmp_path / "t", timestamps=timestamps, write_buffer_bytes=4096
    ):
        for step in ai.dataloader.fetch.iter(range(500)):
            ai.update(epoch=1, step=step)
            with ai.compute.forward:
                pass
    assert run("dftracer_event_count", tmp_path).split()[-1] == "1500"
    stats = run("dftracer_stats", tmp_path)
    assert re.search(r"dataloader\s+1000\b", stats)
    assert re.search(r"compute\s+500\b", stats)
    # Whole microseconds since 1970 are what they take the time span from.
    assert ("Time Span" in stats) == (timestamps == "epoch_us")
