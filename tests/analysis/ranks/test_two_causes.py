"""Two causes at once in made jobs: each is told with its cost, and nobody is told wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from dftrace_ai.analysis import ranks, whatif, why
from dftrace_ai.analysis.ranks.words import verdict_lines
from dftrace_ai.analysis.whatif.words import verdict_lines as whatif_lines
from dftrace_ai.generating import Job, cause_of, generate

HOST, STAGE = (4, 5, 6, 7), (*range(8, 16),)


class Pair(NamedTuple):
    """Two causes of a job of 16 ranks, four a host, and what is told of them, in this order."""

    causes: str
    told: tuple[tuple[str, tuple[int, ...]], ...]
    pp: int = 1
    text: str = ""


# A sample of all pairs of what can be planted.
PAIRS = {
    "a rank, and all collect garbage": Pair(
        "gc:40:10 slow-rank:3:8",
        (("pauses", ()), ("worker", (3,))),
        text="once nobody is late by turns",
    ),
    "a rank, and each by turns": Pair(
        "rotating:10 slow-rank:3:8", (("pauses", ()), ("worker", (3,)))
    ),
    "a rank, and a host": Pair(
        "slow-rank:3:8 slow-host:1:20",
        (("worker", (3,)), ("node", HOST)),
        text="once rank 3 is as fast as the others",
    ),
    "a rank of a slow host": Pair(
        "slow-host:1:20 loader:5:12", (("worker", (5,)), ("node", (4, 6, 7)))
    ),
    "a host, and uneven data": Pair("slow-host:1:20 sequence:15", (("node", HOST), ("data", ()))),
    "two hosts, one far slower": Pair(
        "slow-host:1:40 slow-host:2:15", (("node", HOST), ("node", (8, 9, 10, 11)))
    ),
    "memory of two": Pair("memory:1 memory:2", (("memory", (1, 2)),)),
    "a rank of a stage, and the other stage": Pair(
        "loader:5:12 stage:1:30", (("worker", (5,)), ("stage", STAGE)), pp=2
    ),
    "a rank and a host of one stage": Pair(
        "slow-rank:3:8 slow-host:1:20", (("worker", (3,)), ("node", HOST)), pp=2
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_both_are_told_and_nobody_else(tmp_path: Path, name: str) -> None:
    pair = PAIRS[name]
    causes = tuple(map(cause_of, pair.causes.split()))
    made = tmp_path / "made"
    generate(Job(ranks=16, per_host=4, steps=60, pp=pair.pp, causes=causes), made)
    verdict = ranks([made])
    told = [(one.kind, one.ranks) for one in verdict.findings]
    if name == "a host, and uneven data":
        told.sort(reverse=True)
    assert told == [*pair.told], verdict.findings
    assert all(one.severity != "info" or one.kind == "memory" for one in verdict.findings)
    assert pair.text in "\n".join(verdict_lines(verdict))
    # What is so once the first is mended stands behind it, and costs beside it.
    for first, second in zip(verdict.findings, verdict.findings[1:], strict=False):
        assert not {*second.ranks} & {*first.evidence.beside_ranks}
    if pair.pp > 1:
        # What ranks wait for them, and while the pipeline fills, is not told as communication.
        whole = why([made])
        assert [one.cause for one in whole.findings if one.kind == "late-rank"] == [
            kind for kind, _ in pair.told
        ]
        assert not any(one.kind == "communication-bound" for one in whole.findings)


@pytest.mark.parametrize(
    ("causes", "named"),
    [
        ("slow-rank:3:8 loader:9:12", ("rank 9", "rank 3")),
        ("slow-rank:3:8 slow-host:1:20", ("rank 3", "host node0001")),
        ("slow-rank:3:8 slow-rank:9:8", ("rank 3", "rank 9")),
        ("slow-rank:3:8", ()),
    ],
)
def test_whatif_tells_each_and_what_the_run_wins_without_it(
    tmp_path: Path, causes: str, named: tuple[str, ...]
) -> None:
    """As much, to 2 %, as the same job without the causes that are told up to there."""
    planted = tuple(map(cause_of, causes.split()))
    took = []
    for name, some in (("slow", planted), ("clean", ())):
        generate(Job(ranks=16, per_host=4, steps=40, causes=some), tmp_path / name)
        took.append(json.loads((tmp_path / name / "truth.json").read_text())["took_ns"])
    found = whatif([tmp_path / "slow"])
    each = [" ".join(one.asked[0]) for one in found.in_turn]
    assert each == [*named]
    if not named:
        assert (found.cause.kind, found.cause.ranks) == ("worker", (3,))
        return
    assert found.in_turn[-1].ratio == pytest.approx(took[0] / took[1], rel=0.02)
    assert all(a.ratio <= b.ratio for a, b in zip(found.in_turn, found.in_turn[1:], strict=False))
    text = "\n".join(whatif_lines(found))
    assert all(f"{one} " in text for one in named)
