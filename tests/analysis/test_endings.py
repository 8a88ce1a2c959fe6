"""What is said of runs whose steps, or those of a rank, end before the others."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
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


KILLED = {"ended": "died", "signal": 9}
STOPPED = {"ended": "died", "signal": 15}
EXITS = {"ended": "exit", "exit_status": 7}
RAISES = {"ended": "exception"}


@pytest.mark.parametrize(
    ("ends", "order"),
    [
        ({0: (9.0, EXITS), 1: (5.0, EXITS), 2: (7.0, RAISES)}, [1, 2, 0]),
        ({0: (9.0, {"ended": "died"}), 1: (5.0, {"ended": "died"})}, [1, 0]),
        # By when each was last seen it may have been either.
        ({0: (5.4, EXITS), 1: (5.3, KILLED)}, [1, 0]),
        ({0: (4.6, STOPPED), 1: (5.0, EXITS)}, [1, 0]),
    ],
    ids=["exits", "died", "killed, and others fail", "others are stopped"],
)
def test_who_ended_first_is_told_first(
    tmp_path: Path, ends: dict[int, tuple[float, dict[str, Any]]], order: list[int]
) -> None:
    for rank, (at_s, how) in ends.items():
        lines = Lines(80 + rank, rank=rank, world_size=len(ends))
        lines.counter("cpu %", START_NS, process=1.0)
        lines.counter("cpu %", START_NS + round(at_s * SECOND_NS), process=1.0)
        lines.footer(**how)
        lines.write(tmp_path / f"t-host-{80 + rank}.pfw.gz", 10**6)
    (told,) = [line for line in invoke("info", tmp_path).err.splitlines() if " ended: " in line]
    assert [int(rank) for rank in re.findall(r"rank (\d)", told)] == order


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
