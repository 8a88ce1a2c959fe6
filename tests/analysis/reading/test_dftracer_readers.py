"""dftracer's own readers, from PyPI, count and add up what is in our files."""

from __future__ import annotations

import gzip
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from safety.commands import invoke

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.analysis.reading import open_traces

TOOLS = Path(sys.executable).parent


def run(tool: str, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [str(TOOLS / tool), "-d", str(folder), *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dftracers_readers_find_every_event_of_converted_traces(tmp_path: Path) -> None:
    for at, compression in enumerate(("none", "gzip", "zstd")):
        with dftrace_ai.tracing(log_file=tmp_path / f"t{at}", compression=compression):
            for step in ai.dataloader.fetch.iter(range(100)):
                ai.update(epoch=1, step=step)
                with ai.compute.forward:
                    pass
    originals = sorted(tmp_path.glob("t*"))
    out = tmp_path / "converted"
    done = invoke("convert", *originals, "--run", "all", "--to", "dftracer", "--out", out)
    assert done.status == 0, done.err
    assert run("dftracer_event_count", out).split()[-1] == "900"
    stats = run("dftracer_stats", out)
    assert re.search(r"dataloader\s+600\b", stats)
    assert re.search(r"compute\s+300\b", stats)
    # In whole microseconds, which they take the time span from.
    assert "Time Span" in stats
    found = [event for trace in open_traces([out]) for _, event in trace.events()]
    spans = [event for event in found if event["ph"] == "X"]
    assert all(isinstance(span[member], int) for span in spans for member in ("ts", "dur"))
    exact = [event for trace in open_traces(originals) for _, event in trace.events()]
    base_us = open_traces(originals).files[0].header.time_base_us
    assert sorted(span["ts"] for span in spans) == sorted(
        math.floor(round(event["ts"] * 1000) / 1000) + base_us
        for event in exact
        if event["ph"] == "X"
    )
    assert invoke("validate", out).status == 0


@pytest.mark.parametrize("converted", [False, True], ids=["ours with an index", "converted"])
def test_dftracers_view_groups_and_filters(tmp_path: Path, converted: bool) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "ours" / "t", write_buffer_bytes=64 * 1024):
        for step in ai.dataloader.fetch.iter(range(5000)):
            ai.update(epoch=1 + step // 3000, step=step)
            with ai.compute.forward:
                pass
    folder = tmp_path / "ours"
    (path,) = folder.iterdir()
    assert b'{"name":"index"' in gzip.decompress(path.read_bytes())
    if converted:
        folder = tmp_path / "converted"
        done = invoke("convert", path, "--to", "dftracer", "--out", folder)
        assert done.status == 0, done.err
    told = run("dftracer_view", folder, "--group-by", "cat,name", "--agg", "count,sum:dur")
    groups = [json.loads(line) for line in told.splitlines()]
    assert {(one["cat"], one["name"]): one["count"] for one in groups} == {
        ("dataloader", "fetch.iter"): 5000,
        ("dataloader", "fetch.block"): 5000,
        ("compute", "forward"): 5000,
    }
    if converted:
        # Whole microseconds are added up; of others it takes none.
        spans = [event for trace in open_traces([folder]) for _, event in trace.events()]
        for one in groups:
            own = [event["dur"] for event in spans if event["name"] == one["name"]]
            assert one["sum_dur"] == sum(own)
    wanted = 'cat == "compute" and epoch == 2'
    found = [
        json.loads(line) for line in run("dftracer_view", folder, "--query", wanted).splitlines()
    ]
    assert {event["name"] for event in found} == {"forward"}
    assert sorted(event["args"]["step"] for event in found) == list(range(3000, 5000))
