"""Loops without a loader, and loaders that another thread of the program iterates."""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis.why.made_runs import MS, START_NS, Lines

from dftrace_ai.analysis.why import Verdict, why

STEPS = 40
LOADER = 777


def judged(
    folder: Path, *, fetch_ms: float = 0, items: bool = False, block: bool = True
) -> Verdict:
    """Steps of 50 ms, of which 10 are annotated; what a thread fetches meanwhile comes before them."""
    lines = Lines(100, rank=0, world_size=1)
    for step in range(STEPS):
        at = START_NS + step * 50 * MS
        if fetch_ms:
            begin = at + 40 * MS - int(fetch_ms * MS)
            lines.span("item", "data", begin, int(fetch_ms * MS) - MS // 10, tid=LOADER)
            lines.span(
                "fetch.iter", "dataloader", begin, int(fetch_ms * MS), tid=LOADER, count=step
            )
            if block:
                # The loader's thread has as many loops as the one that trains has optimizer steps.
                lines.span("fetch.block", "dataloader", at + 40 * MS, 10 * MS // 8, tid=LOADER)
        if items:
            lines.span("item", "data", at, MS)
        for number, name in enumerate(("forward", "backward", "step")):
            lines.span(name, "compute", at + (41 + 3 * number) * MS, 3 * MS)
    lines.footer()
    return why([lines.write(folder / "t-host-100.pfw", 10**6)])


def test_a_loop_without_a_loader_is_not_told_to_annotate_one(tmp_path: Path) -> None:
    verdict = judged(tmp_path)
    finding = verdict.findings[0]
    assert (finding.kind, finding.confidence) == ("not-annotated", "medium")
    assert finding.evidence["lacking"] == []
    told = " ".join([finding.what, finding.because, finding.next, *verdict.unseen])
    assert "loader" not in told


def test_a_loader_that_shows_by_its_items_is_missed(tmp_path: Path) -> None:
    verdict = judged(tmp_path, items=True)
    finding = verdict.findings[0]
    assert (finding.kind, finding.evidence["lacking"]) == ("not-annotated", ["the loader"])
    assert any(line.startswith("the wait for data (wrap the loader") for line in verdict.unseen)


@pytest.mark.parametrize("block", [True, False])
def test_steps_wait_for_a_loader_on_another_thread(tmp_path: Path, *, block: bool) -> None:
    verdict = judged(tmp_path, fetch_ms=48, block=block)
    finding = verdict.findings[0]
    assert (finding.kind, finding.cause) == ("input-bound", "inline")
    assert finding.evidence["thread_busy"] == pytest.approx(0.96, abs=0.002)
    assert finding.share == pytest.approx(39.9 / 50, abs=0.01)
    assert finding.because.startswith("Another thread of the program iterates the loader, and")
    assert [one.kind for one in verdict.findings] == ["input-bound"]


def test_a_loader_that_rests_is_not_waited_for(tmp_path: Path) -> None:
    verdict = judged(tmp_path, fetch_ms=25)
    assert [one.kind for one in verdict.findings] == ["not-annotated"]
    assert verdict.findings[0].evidence["lacking"] == []


@pytest.mark.parametrize("told", ["numbers", "spans"])
def test_a_slow_beginning_of_epochs_is_told_without_a_loader(tmp_path: Path, told: str) -> None:
    lines = Lines(100, rank=0, world_size=1)
    at, begun = START_NS, START_NS
    for step in range(240):
        in_epoch = step % 60
        forward = (5 if in_epoch >= 3 else 155) * MS + step % 7 * MS // 100
        number = in_epoch if told == "numbers" else step
        lines.span("step", "pipeline", at, forward + 5 * MS, step=number)
        lines.span("forward", "compute", at, forward)
        lines.span("backward", "compute", at + forward, 3 * MS)
        lines.span("step", "compute", at + forward + 3 * MS, 2 * MS)
        at += forward + 5 * MS
        if in_epoch == 59:
            if told == "spans":
                lines.span("epoch", "pipeline", begun, at - begun)
            begun = at
    lines.footer()
    (finding, *_) = why([lines.write(tmp_path / "t-host-100.pfw", 10**6)]).findings
    assert (finding.kind, finding.cause) == ("slow-loop-start", "forward")
    assert (finding.evidence["steps"], finding.evidence["loops"]) == (3, 4)
