"""The stacks of a rank as a flame graph of the report, by part of its steps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from analysis.lines.made_programs import Program, write_job
from safety.commands import invoke

DECODE = ("decode", "pkg/augment.py", 88)
NORM = ("Tensor.norm", "torch/_tensor.py", 0, True)
INNER = ("norm", "torch/functional.py", 0, True)


def report(folder: Path, out: Path) -> tuple[Any, str]:
    done = invoke("report", folder, "--out", out)
    assert done.status == 0, done.err
    page = out.read_text("utf-8")
    found = re.search(r"<script[^>]* id=[\"']?figures[\"']?[^>]*>(.*?)</script>", page, re.S)
    assert found
    return json.loads(found[1]), page


def test_each_phase_has_the_stacks_of_its_samples(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    program = Program(
        steps=60, item=[(3, 1, [DECODE]), (0.3, 1, [])], loop=[(15, 1, [NORM, INNER])]
    )
    program.write(folder)
    figures, page = report(folder, tmp_path / "report.html")
    stacks = figures["stacks"]
    frames = stacks["frames"]
    assert stacks["counts"] == "sample"
    paths: dict[tuple[str, ...], Any] = {}
    for frame in frames:
        above = frame["parent"]
        path = (*frames[above]["path"], frame["name"]) if above >= 0 else (frame["name"],)
        frame["path"] = path
        paths[path] = frame
    roots = {frame["name"]: frame for frame in frames if frame["parent"] < 0}
    # What the loop loads itself is its wait, and no phase beside it.
    assert {"the wait for data", "backward", "forward", "what is not annotated"} <= set(roots)
    assert "item" not in roots
    top = ("train.py:120", "main (train.py:57)")
    decode = paths[
        ("the wait for data", *top, "Data.__getitem__ (data.py:41)", "decode (augment.py:88)")
    ]
    assert (decode["cat"], decode["part"]) == ("program", "wait")
    assert decode["self_ns"] == decode["total_ns"] == decode["count"] * 10_000_000
    getitem = frames[decode["parent"]]
    assert getitem["count"] > decode["count"] >= 0.8 * getitem["count"]
    # What a library does for itself is no frame of its own.
    norm = paths[("what is not annotated", *top, "Tensor.norm (_tensor.py)")]
    assert (norm["cat"], norm["part"]) == ("library", "none")
    assert not any("functional.py" in frame["name"] for frame in frames)
    # All time of a frame is its own or that of those inside.
    for number, frame in enumerate(frames):
        inside = sum(one["total_ns"] for one in frames if one["parent"] == number)
        assert frame["total_ns"] == inside + frame["self_ns"]
    # By ranges of steps, too: all together they are the whole.
    (shown,) = figures["stacks_of_ranks"]
    assert [frame["name"] for frame in shown["graph"]["frames"]] == [
        frame["name"] for frame in frames
    ]
    assert [sum(times) for times in shown["range_ns"]] == [frame["total_ns"] for frame in frames]
    ranges = shown["ranges"]
    assert sum(one["steps"] for one in ranges) == 60
    assert [one["first"] for one in ranges[1:]] == [one["last"] + 1 for one in ranges[:-1]]
    # As `dftrace sql` counts them.
    (row,) = json.loads(
        invoke(
            "sql",
            folder,
            "select count(*) as n from samples join stacks using (stack) where line = 88",
            "--json",
        ).out
    )
    assert row["n"] == decode["count"]
    assert 'id="plot-lines"' in page
    assert "because" in page
    assert "of item lies in decode (augment.py:88)" in page


def test_each_rank_has_its_stacks_by_ranges_of_steps(tmp_path: Path) -> None:
    programs = [Program(steps=32, loop=[(10, 1, [NORM])]) for _ in range(3)]
    programs[1] = Program(steps=32, since=16, loop=[(30, 1, [DECODE])])
    figures, _ = report(write_job(tmp_path / "job", programs), tmp_path / "report.html")
    ranks = figures["stacks_of_ranks"]
    assert sorted(one["rank"] for one in ranks) == [0, 1, 2]
    assert ranks[0]["graph"] == figures["stacks"]
    slow = next(one for one in ranks if one["rank"] == 1)
    names = [frame["name"] for frame in slow["graph"]["frames"]]
    times = slow["range_ns"][names.index("decode (augment.py:88)")]
    assert len(times) == 16
    assert not any(times[:8])
    assert sum(times[8:]) / 16 == pytest.approx(30e6, rel=0.15)


def test_without_samples_there_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    Program(steps=60, hz=0).write(folder)
    figures, page = report(folder, tmp_path / "report.html")
    assert figures["stacks"] is None
    assert figures["stacks_of_ranks"] == []
    assert 'id="plot-lines"' not in page
