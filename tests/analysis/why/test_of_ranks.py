"""Which ranks a finding is of: those that show it when each is judged alone, by their own figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis.why.made_runs import PLANTED, Training, write_ranks
from safety.commands import invoke

from dftrace_ai.analysis.why import Finding, Verdict, why
from dftrace_ai.analysis.why.words import whose

# Of a rank that waits for its data in each step, passes begin slowly, too: that is beside it.
BOTH = Training(item_ms=20, persistent=False, spawn_ms=900, epochs=10, steps=20)
JOBS = {
    "input of two kinds": ["workers start", "saturated workers", "workers start", "both"],
    "slow steps in several parts": ["slow step", "slow step, backward", "slow step", "plain"],
    "one of each": ["leak", "beat", "beat in time that is in no span", "checkpoints", "copies"],
    "two ranks": ["a sampler that prepares each epoch", "too few workers"],
}


def training(name: str) -> Training:
    if name == "both":
        return BOTH
    return PLANTED[name][1] if name in PLANTED else Training()


def thing(finding: Finding) -> tuple[str, str]:
    is_wait = finding.kind == "input-bound" and finding.cause != "start-up"
    return finding.kind, "" if is_wait else finding.cause


def shown(verdict: Verdict) -> dict[tuple[str, str], Finding]:
    told = {thing(one): one for one in (*verdict.findings, *verdict.of_some_ranks)}
    return {which: one for which, one in told.items() if one.kind != "compute-bound"}


@pytest.mark.parametrize("name", JOBS)
def test_a_finding_is_of_the_ranks_that_show_it_alone(tmp_path: Path, name: str) -> None:
    write_ranks(tmp_path, [training(one) for one in JOBS[name]])
    count = len(JOBS[name])
    alone = [shown(why([tmp_path / f"rank{rank}"])) for rank in range(count)]
    verdict = why([tmp_path])
    together = shown(verdict)
    assert together.keys() == {which for of in alone for which in of}
    for which, one in together.items():
        beside = [also for of in alone if (also := dict(of).get(which))]
        ranks = [rank for rank in range(count) if which in alone[rank]]
        # What a rank has beside a dearer finding of its input it has, too.
        more = {
            rank
            for rank in {*one.ranks} - {*ranks}
            if any("also" in other.evidence for other in alone[rank].values())
        }
        assert {*one.ranks} - more == {*ranks}, which
        own = alone[one.rank].get(which) if one.rank is not None else None
        assert own is None or (own.share, own.cause) == (one.share, one.cause)
        least, most = min(b.share for b in beside), max(b.share for b in beside)
        assert more or one.of_ranks == (least, most)


def test_shares_that_are_far_apart_are_told_from_to(tmp_path: Path) -> None:
    """Both ranks wait for data; the one waits for six times as much of its steps."""
    write_ranks(tmp_path, [training("saturated workers, mild"), Training(item_ms=60)])
    (finding,) = why([tmp_path]).findings
    assert finding.of_ranks is not None
    low, high = (f"{100 * share:.0f}" for share in finding.of_ranks)
    assert float(high) > float(low) + 40
    said = f"On all 2 ranks, from {low} to {high} %. The figures are of rank 1."
    assert said in invoke("why", tmp_path).out
    assert said in invoke("why", "--markdown", tmp_path).out
    verdict = why([tmp_path])
    assert whose(verdict.findings[0], verdict) == f" {said}"


def test_what_was_lost_and_noted_of_some_ranks_names_them(tmp_path: Path) -> None:
    """Also where the figures are of another rank."""
    write_ranks(tmp_path, [training("plain")] * 3)
    for rank, dropped, waits in ((1, 5, 2), (2, 7, 2)):
        file = tmp_path / f"rank{rank}" / "t-host-100.pfw"
        text = file.read_text("utf-8").replace('"dropped":0', f'"dropped":{dropped}')
        file.write_text(text.replace('"waits":0', f'"waits":{waits}'), "utf-8")
    verdict = why([tmp_path])
    assert "12 events that were dropped (ranks 1, 2)" in verdict.unseen
    told = "threads waited 2 times for a full spool; durations hold those waits (ranks 1, 2)"
    assert told in verdict.notes
