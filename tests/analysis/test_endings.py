"""What is said of runs whose steps, or those of a rank, end before the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from analysis.why.made_runs import START_NS, Lines
from safety.commands import invoke

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
SECOND_NS = 1000 * MS


def notes(command: str, folder: Path) -> list[str]:
    told: dict[str, Any] = json.loads(invoke(command, folder, "--json").out)
    return [note for note in told["notes"] if "step" in note]


def test_a_rank_that_leaves_in_the_middle_is_told(tmp_path: Path) -> None:
    made = ("--ranks", "4", "--steps", "40", "--per-host", "2")
    assert invoke("generate", tmp_path / "dead", *made, "--cause", "dead:2:20").status == 0
    assert invoke("generate", tmp_path / "well", *made).status == 0
    for command in ("why", "ranks"):
        (note,) = notes(command, tmp_path / "dead")
        assert note.startswith("rank 2 has 20 steps, others 40: not there to the end")
        assert notes(command, tmp_path / "well") == []


def hung(folder: Path, quiet_s: int) -> Path:
    """A run of 30 steps, after which counters alone are recorded, until somebody kills it."""
    lines = Lines(70)
    for step in range(30):
        begin = START_NS + step * 2 * MS
        lines.span("fetch.iter", "dataloader", begin, MS // 10, count=step + 1, step=step)
        lines.span("forward", "compute", begin + MS // 5, MS, step=step)
        lines.span("fetch.block", "dataloader", begin + MS // 10, 19 * MS // 10, count=step + 1)
    for second in range(quiet_s + 1):
        lines.counter("cpu %", START_NS + 60 * MS + second * SECOND_NS, process=1.0)
    lines.footer(ended="died", signal=9)
    lines.write(folder / "t-host-70.pfw.gz", 10**6)
    return folder


def test_that_there_was_no_step_for_long_is_told(tmp_path: Path) -> None:
    (note,) = notes("why", hung(tmp_path / "hung", 93))
    ended = "the program killed, or by os._exit (signal 9)"
    assert note == f"no step for the last 93 s; ended: {ended}"
    assert f"  note      {note}\n" in invoke("why", tmp_path / "hung").out
    assert notes("why", hung(tmp_path / "short", 2)) == []
