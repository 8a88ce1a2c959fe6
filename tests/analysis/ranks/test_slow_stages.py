"""Pipelines: what a slow stage costs, whom a busy host stops by turns; and a slow link, or host."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from analysis.ranks import made_schedules
from analysis.ranks.made_schedules import TRANSFER, pipeline
from safety.commands import invoke

from dftrace_ai.analysis import ranks, whatif, why

SLOW_MS = {"forward": 3, "backward": 6}


def stalls(passes: int, mean_ms: dict[int, float]) -> Callable[[int, str], float]:
    """What each rank stands still in its first pass of a step, as one that lacks a processor."""
    draw = random.Random(3)
    called = {number: count() for number in mean_ms}

    def later_ms(number: int, _: str) -> float:
        stands = next(called[number]) % passes == 0
        return draw.expovariate(1 / mean_ms[number]) if stands else 0

    return later_ms


@pytest.mark.parametrize("slow", [0, 1])
def test_a_slow_stage_costs_what_the_run_wins_without_it(tmp_path: Path, slow: int) -> None:
    """Less than it works more: without it all ranks wait while the pipeline fills and drains."""
    even, uneven = tmp_path / "even", tmp_path / "uneven"
    for folder in (even, uneven):
        folder.mkdir()
    pipeline(even, 4, 8)
    pipeline(uneven, 4, 8, later_ms=lambda number, name: SLOW_MS[name] if number == slow else 0)
    told = why([uneven])
    wins = told.length_ns / why([even]).length_ns
    (finding,) = ranks([uneven]).findings
    assert (finding.ranks, finding.stages) == ((slow,), (slow,))
    assert finding.without == pytest.approx(wins, rel=0.02)
    assert whatif([uneven]).cause.without == pytest.approx(wins, rel=0.01)
    assert [one.cost for one in told.findings] == [pytest.approx(finding.cost, rel=1e-4)]


def test_a_stage_that_is_stopped_now_and_then_is_not_accused(tmp_path: Path) -> None:
    pipeline(tmp_path, 4, schedule="gpipe", later_ms=stalls(8, {0: 12, 1: 30, 2: 12, 3: 12}))
    findings = ranks([tmp_path]).findings
    assert findings[0].kind == "bubble"
    assert not any(one.ranks for one in findings)
    assert whatif([tmp_path]).cause.kind == "bubble"
    verdict = why([tmp_path])
    assert (verdict.findings[0].kind, verdict.findings[0].cause) == ("late-rank", "bubble")
    assert verdict.findings[0].what == findings[0].what


def test_the_slow_one_of_two_stages_is_named_though_the_mean_has_half_of_it(tmp_path: Path) -> None:
    stands = stalls(8, {0: 12, 1: 12})
    pipeline(
        tmp_path,
        2,
        schedule="gpipe",
        later_ms=lambda number, name: (
            stands(number, name) + (20 if (number, name) == (1, "forward") else 0)
        ),
    )
    found = whatif([tmp_path])
    assert (found.cause.kind, found.cause.ranks) == ("stage", (1,))
    assert found.cause.share < 0.5
    (finding,) = ranks([tmp_path]).findings
    assert finding.without == pytest.approx(found.cause.without, rel=0.05)


def test_messages_that_were_waited_for_tell_how_fast_links_are(tmp_path: Path) -> None:
    """Their end is when the wait for them was over; sends tell none."""
    (row,) = ranks([pipeline(tmp_path, 4, 8)]).collectives
    assert (row.name, row.bytes) == ("send", 1024)
    assert row.busbw_gbs == pytest.approx(1024 / TRANSFER, rel=0.01)
    assert row.transfer_ns is not None
    assert row.transfer_ns.p50 == pytest.approx(TRANSFER, rel=0.01)


def test_a_slow_link_of_a_stage_is_told_and_not_the_stage(tmp_path: Path) -> None:
    made = ("--ranks", "8", "--pp", "4", "--per-host", "2", "--steps", "30")
    assert invoke("generate", tmp_path / "made", *made, "--cause", "link:2:2000").status == 0
    found = json.loads(invoke("ranks", tmp_path / "made", "--json").out)["findings"]
    assert [one["kind"] for one in found] == ["link", "bubble"]
    assert (found[0]["ranks"], found[0]["severity"]) == ([4, 5], "critical")


@pytest.mark.parametrize("transfer_ms", [0.1, 6.0])
def test_messages_of_two_stages_are_told_beside_the_bubble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transfer_ms: float
) -> None:
    """There is no other link that says whether theirs is slow."""
    monkeypatch.setattr(made_schedules, "TRANSFER", round(transfer_ms * 10**6))
    (finding,) = ranks([pipeline(tmp_path, 2, 4, steps=30)]).findings
    assert (finding.kind, finding.cost) == ("bubble", pytest.approx(0.2, abs=0.01))
    is_more = "Another 27 % they wait for messages" in finding.what
    assert is_more == (transfer_ms > 1)
    assert finding.next.startswith("dftrace ranks --table tells how long messages") == is_more
    assert (finding.evidence.beyond or 0) == pytest.approx(0.27 if is_more else 0, abs=0.02)


def test_one_host_of_two_is_a_node_with_even_work_too(tmp_path: Path) -> None:
    made = ("--ranks", "4", "--per-host", "2", "--steps", "30", "--cause", "slow-host:1:25")
    assert invoke("generate", tmp_path / "made", *made).status == 0
    cause = json.loads(invoke("whatif", tmp_path / "made", "--json").out)["cause"]
    assert (cause["kind"], cause["hosts"], cause["ranks"]) == ("node", ["node0001"], [2, 3])
