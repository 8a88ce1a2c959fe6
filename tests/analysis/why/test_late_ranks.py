"""The ranks that all others wait for: named by what they do longer, in words, JSON and the report; or silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines

from dftrace_ai.analysis import ranks
from dftrace_ai.analysis.ranks.model import limits_of
from dftrace_ai.analysis.ranks.words import verdict_lines as rank_lines
from dftrace_ai.analysis.why import verdict_lines, why

MS = 1_000_000
USUAL = {"wait": 2.0, "forward": 6.0, "backward": 8.0, "checkpoint": 0.0, "none": 0.0}
NAMES = {
    "wait": ("fetch.iter", "dataloader"),
    "forward": ("forward", "compute"),
    "backward": ("backward", "compute"),
    "checkpoint": ("capture", "checkpoint"),
    "none": ("", ""),
}
Plant = Callable[[int, int], dict[str, float]]


def synchronous(
    folder: Path,
    ranks: int,
    plant: Plant,
    *,
    wait: bool = True,
    comm: float = 1,
    steps: int = 80,
    gone: int | None = None,
    epoch_ms: int = 0,
) -> Path:
    """Steps of ranks that all leave their all_reduce when the last has come, if they wait at all.

    Halfway they all do something else for so long as `epoch_ms`.
    One that is `gone` exits in the last step, in which the others wait for 2 s and give up.
    """
    own = [
        [
            {
                part: ms * (1 + 0.01 * ((7 * rank + 3 * step) % 5))
                for part, ms in (USUAL | plant(rank, step)).items()
            }
            for step in range(steps)
        ]
        for rank in range(ranks)
    ]
    for rank in range(ranks):
        trace = TraceLines(4000 + rank, rank=rank, world_size=ranks)
        at = 1000 * MS
        for step in range(steps):
            longest = max(sum(parts[step].values()) for parts in own)
            begin, now = at, at
            for part, ms in own[rank][step].items():
                name, cat = NAMES[part]
                if ms and name:
                    trace.span(name, cat, now, int(ms * MS), step=step)
                now += int(ms * MS)
            at = begin + int((longest + comm) * MS) if wait else now + 4 * MS
            if gone not in {None, rank} and step == steps - 1:
                at += 2000 * MS
            trace.span("all_reduce", "comm", now, at - now, step=step)
            trace.span("step", "pipeline", begin, at - begin, step=step)
            at += MS // 10 + (epoch_ms * MS if 2 * step == steps else 0)
        trace.footer(**({} if gone is None else {"ended": "exit", "exit_status": 7}))
        trace.write(folder / f"t-host-{4000 + rank}.pfw.gz")
    return folder


def late(*ranks: int, since: int = 0, every: int = 1, **parts: float) -> Plant:
    return lambda rank, step: parts if rank in ranks and step >= since and step % every == 0 else {}


# By name: how many ranks, what is planted, which are late, and in what they are.
PLANTED: dict[str, tuple[int, Plant, list[int], str]] = {
    "a loader, of four": (4, late(2, wait=16), [2], "wait"),
    "a loader, of eight": (8, late(5, wait=16), [5], "wait"),
    "a forward, of 64": (64, late(17, forward=20), [17], "forward"),
    "a checkpoint of one": (8, late(0, every=10, checkpoint=150), [0], "checkpoint"),
    "a loader since a step": (8, late(3, since=42, wait=26), [3], "wait"),
    "a backward since a step": (8, late(6, since=42, backward=30), [6], "backward"),
    "a sleep": (4, late(2, none=30), [2], "none"),
    "two loaders": (8, late(1, 6, wait=16), [1, 6], "wait"),
    "nothing": (8, late(), [], ""),
    "one of two": (2, late(1, wait=16), [1], "wait"),
    "half of them": (4, late(0, 2, forward=16), [0, 2], "forward"),
}
# By the part of a step, the span that `dftrace ranks` names.
SPANS = {"wait": "fetch.iter", "checkpoint": "capture", "none": "time in no span"}


@pytest.mark.parametrize("name", PLANTED)
def test_who_keeps_the_others_waiting_is_named(tmp_path: Path, name: str) -> None:
    count, plant, named, part = PLANTED[name]
    verdict = why(synchronous(tmp_path, count, plant))
    lines = verdict_lines(verdict)
    if not named:
        assert not any(one.late_ranks for one in (*verdict.findings, *verdict.of_some_ranks))
        return
    first, many = verdict.findings[0], len(named) > 1
    assert (verdict.verdict, verdict.rank) == ("late-rank", named[0])
    assert [one.rank for one in first.late_ranks] == named == [*first.ranks]
    assert not any(one.kind == "communication-bound" for one in verdict.findings)
    since = plant(named[0], 0).get(part, 0.0) == 0.0 and part != "checkpoint"
    title = "SLOW SINCE STEP 4" if since else "SLOW RANKS" if many else "ONE "
    title = "TWO KINDS OF RANKS" if 2 * len(named) == count > 2 else title
    assert lines[0].startswith(title)
    who = f"anks {named[0]}, {named[-1]} " if many else f"ank {named[0]} "
    assert who in lines[1]
    assert " ranks: " not in lines[1]
    row = next(line for line in lines if line.startswith("  because "))
    # A span stands as it is called, time in none as the beginning of a sentence.
    span = SPANS.get(part, part)
    span = span[0].upper() + span[1:] if part == "none" else span
    assert row[len("  because   ") :].startswith(span), row
    assert "The others wait " in row
    share = 0.1 if part == "checkpoint" else 1.0
    for one in first.late_ranks:
        assert one.part == part
        assert one.ns == pytest.approx(share * plant(one.rank, 50)[part] * MS, rel=0.15)
        assert one.others_ns == pytest.approx(USUAL[part] * MS, rel=0.06)
    assert any("at best" in line for line in lines)
    # That this time is in no span is what the finding says.
    assert not any(one.kind == "not-annotated" for one in verdict.of_some_ranks)


PAUSE_MS, EVERY, STEPS = 100, 8, 80


def pausing_at_the_end(folder: Path) -> Path:
    """Rank 1 saves behind the last collective of a step: the other waits in its next step."""
    ends = [0, 0]
    traces = [TraceLines(4000 + rank, rank=rank, world_size=2) for rank in range(2)]
    for step in range(STEPS):
        begins = list(ends)
        met = max(begins) + 3 * MS
        for rank, trace in enumerate(traces):
            begin, at = 1000 * MS + begins[rank], 1000 * MS + met
            trace.span("forward", "compute", begin, 2 * MS, step=step)
            called = begin + 2 * MS
            trace.span("all_reduce", "comm", called, at - called, step=step)
            pause = PAUSE_MS * MS if rank and step % EVERY == EVERY - 1 else 0
            if pause:
                trace.span("capture", "checkpoint", at, pause, step=step)
            ends[rank] = met + pause + MS // 10
            trace.span("step", "pipeline", begin, at + pause - begin, step=step)
    for rank, trace in enumerate(traces):
        trace.footer()
        trace.write(folder / f"t-host-{4000 + rank}.pfw.gz")
    return folder


def test_what_others_wait_for_in_their_next_step_counts_once(tmp_path: Path) -> None:
    (finding,) = ranks(pausing_at_the_end(tmp_path)).findings
    pauses = PAUSE_MS * STEPS / EVERY
    whole = pauses + 3.1 * STEPS
    assert (finding.kind, finding.ranks, finding.name) == ("bursts", (1,), "checkpoint/capture")
    assert finding.cost == pytest.approx(pauses / whole, rel=0.05)
    assert finding.without == pytest.approx(whole / (whole - pauses), rel=0.2)
    assert finding.evidence.waited_in is not None
    assert finding.evidence.waited_in.ns == pytest.approx(pauses / STEPS * MS, rel=0.15)


def test_a_rank_that_nobody_waits_for_is_not_late(tmp_path: Path) -> None:
    verdict = why(synchronous(tmp_path, 8, late(5, forward=30), wait=False))
    assert verdict.verdict == "communication-bound"
    assert not any(one.late_ranks for one in verdict.findings)


def both(*plants: Plant) -> Plant:
    return lambda rank, step: {k: v for plant in plants for k, v in plant(rank, step).items()}


@pytest.mark.parametrize(("count", "forward"), [(4, 22.0), (8, 22.0), (8, 46.0)])
def test_two_ranks_that_are_late_by_two_causes_are_told_each(
    tmp_path: Path, count: int, forward: float
) -> None:
    """The one by its forward, the other by its loader: as late as it, or far less."""
    folder = synchronous(tmp_path, count, both(late(1, forward=forward), late(3, wait=18)))
    verdict = ranks([folder])
    assert len(verdict.findings) == 2
    told = {one.ranks: one for one in verdict.findings}
    first, second = told[(1,)], told[(3,)]
    assert (first.name, second.name) == ("compute/forward", "dataloader/fetch.iter")
    assert {one.severity for one in verdict.findings} == {"critical"}
    # What is won by it when the other is as fast as all are.
    assert second.cost == pytest.approx(16 / 33, rel=0.05)
    assert second.without == pytest.approx(33 / 17, rel=0.05)
    assert second.evidence.beside_ranks == (1,)
    assert first.evidence.beside_ranks == ((3,) if forward < 30 else ())
    rows = rank_lines(verdict)
    for text in ("as fast as the others", "do next   what rank 1 does in forward", "its loader"):
        assert any(text in row for row in rows), text
    rows = verdict_lines(why([folder]))
    for text in (
        "But for rank 1, rank 3 was the slowest",
        "What rank 1 does in forward",
        "Its loader",
    ):
        assert any(text in row for row in rows), text


def test_one_rank_that_is_late_in_two_spans_is_told_with_both(tmp_path: Path) -> None:
    (told,) = ranks([synchronous(tmp_path, 4, late(2, wait=20, forward=16))]).findings
    shares = [(one.name, one.part) for one in told.evidence.excess]
    assert [name for name, _ in shares] == ["dataloader/fetch.iter", "compute/forward"]
    assert [part for _, part in shares] == [
        pytest.approx(18 / 28, rel=0.05),
        pytest.approx(10 / 28, rel=0.05),
    ]
    assert told.next.startswith("its loader")
    assert told.next.endswith("; and what rank 2 does in forward")


def test_waiting_for_a_late_rank_is_no_communication_in_a_run_of_few_steps(tmp_path: Path) -> None:
    """Of a run that has begun a second epoch for most of its time steps are little so far."""
    folder = synchronous(tmp_path, 2, late(1, none=20), epoch_ms=120_000)
    (told,) = ranks([folder]).findings
    assert (told.kind, told.ranks, told.severity) == ("worker", (1,), "info")
    assert told.cost < 0.03
    first, *others = [one for one in why([folder]).findings if one.kind != "between-steps"]
    assert (first.kind, first.ranks, first.severity) == ("late-rank", (1,), "critical")
    assert not any(one.kind in {"communication-bound", "not-annotated"} for one in others)


def test_what_one_rank_held_up_once_is_told_once(tmp_path: Path) -> None:
    """The others have a step that is long by its communication: it is that of the late one."""
    verdict = why(
        synchronous(
            tmp_path, 4, lambda rank, step: {"forward": 306.0 if (rank, step) == (2, 50) else 6.0}
        )
    )
    first = verdict.findings[0]
    assert (first.kind, first.cause, first.ranks) == ("late-rank", "once", (2,))
    assert first.what.startswith("Rank 2 kept the others waiting once, in step 50, for 312 ms;")
    assert [(one.rank, one.part) for one in first.late_ranks] == [(2, "forward")]
    assert not any(one.kind == "slow-step" for one in verdict.of_some_ranks)


def test_a_step_in_which_a_rank_was_gone_is_not_judged(tmp_path: Path) -> None:
    verdict = why(synchronous(tmp_path, 2, late(1, forward=26), gone=1))
    found = (*verdict.findings, *verdict.of_some_ranks)
    assert [(one.kind, one.cause, one.ranks) for one in found] == [("late-rank", "worker", (1,))]
    (told,) = ranks([tmp_path]).findings
    assert (told.kind, told.ranks, told.severity) == ("worker", (1,), "critical")
    assert told.cost == pytest.approx(20 / 37, rel=0.05)


def test_which_steps_of_a_short_job_are_judged_is_told(tmp_path: Path) -> None:
    folder = synchronous(tmp_path, 2, late(1, forward=26), gone=1, steps=20)
    silent = ranks([folder])
    assert silent.findings == ()
    assert silent.abstained[0].why == (
        "18 steady steps that all ranks have (of 20: the warm-up is not judged, nor the last, in "
        "which the job broke off), 20 are needed; --threshold steps=18 judges these, with low "
        "confidence"
    )
    (told,) = ranks([folder], limits_of(["steps=18"])).findings
    assert (told.kind, told.ranks, told.confidence) == ("worker", (1,), "low")


@pytest.mark.parametrize("plant", [late(2, forward=30), late()])
def test_of_few_steps_waiting_is_not_said_to_be_communication(tmp_path: Path, plant: Plant) -> None:
    """Seven steps do not tell who is late, but that links are slow they do not, either."""
    few = synchronous(tmp_path, 4, plant, comm=1 if plant(2, 0) else 60, steps=8)
    verdict = why(few)
    told = [one.why for one in verdict.abstained if one.what == "whom ranks wait for"]
    if plant(2, 0):
        assert verdict.verdict == "abstained"
        assert verdict.findings == ()
        (said,) = told
        assert said.startswith("rank 2 works 24")
        assert "20 steady steps are needed" in said
    else:
        assert (verdict.verdict, told) == ("communication-bound", [])


def test_communication_that_a_late_rank_is_little_of_comes_first(tmp_path: Path) -> None:
    """All communicate for 100 ms of a step, and one is 12 ms late."""
    verdict = why(synchronous(tmp_path, 4, late(2, forward=18), comm=100))
    first, second = verdict.findings[:2]
    assert (first.kind, second.kind) == ("communication-bound", "late-rank")
    assert first.ranks == (0, 1, 2, 3)
    assert second.ranks == (2,)
    assert f"  also      {second.what} ({second.severity}, " in "\n".join(verdict_lines(verdict))


def test_that_a_rank_has_fewer_steps_as_its_trace_is_torn_is_shown(tmp_path: Path) -> None:
    folder = synchronous(tmp_path, 4, late())
    torn = folder / "t-host-4003.pfw.gz"
    torn.write_bytes(torn.read_bytes()[:-3000])
    rows = [line for line in verdict_lines(why([folder])) if line.startswith("  note")]
    assert f"  note      {torn}: torn: " in rows[0]
    assert rows[1].startswith("  note      rank 3 has ")
