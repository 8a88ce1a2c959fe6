"""Runs in which a cause was planted are told by it, and clean ones by nothing; `make matrices` runs all."""

from __future__ import annotations

import random
import re
import tempfile
from pathlib import Path

import pytest
from analysis.why.made_runs import CATEGORIES, CLEAN, PLANTED, Lines, Training, write_ranks
from analysis.why.verdicts import found, training_of, verdict_of, wrong_without
from safety.commands import invoke

from dftrace_ai.analysis.why import limits_of, why
from dftrace_ai.analysis.why.findings import RULES
from dftrace_ai.analysis.why.model import KINDS
from dftrace_ai.analysis.why.sentences import SENTENCES

SEEDS = (1, 2, 3, 4, 5)
# Of the settings at the edge of what can be told: silence is right there, another verdict is not.
AT_THE_EDGE = {"beat in noise", "slower and slower"}


def test_every_kind_and_cause_is_planted() -> None:
    planted = {label for label, _ in PLANTED.values()}
    kinds = {label.partition("/")[0] for label in planted}
    # Host-bound needs the tracks of a GPU, late-rank several ranks; these have tests of their own.
    assert kinds == set(KINDS) - {"compute-bound", "host-bound", "late-rank"}
    causes = {label.partition("/")[2] for label in planted if label.startswith("input-bound")}
    known = {"workers", "inline", "collate", "disk", "slow-item", "start-up", "idle-workers", ""}
    assert causes == known
    # Who is late is found, and told, by all ranks together.
    of_one_rank = set(KINDS) - {"late-rank"}
    assert SENTENCES.keys() == of_one_rank
    assert {kind for rule in RULES for kind in rule.kinds} == of_one_rank
    assert len(PLANTED) >= 40
    assert len(CLEAN) >= 20
    assert not PLANTED.keys() & CLEAN.keys()


@pytest.mark.sampled(0.2)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_is_found_and_nothing_else(name: str, seed: int) -> None:
    wanted, training = PLANTED[name]
    told = found(verdict_of(training, seed))
    assert told == [wanted] or (name in AT_THE_EDGE and not told)


@pytest.mark.sampled(0.2)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CLEAN)
def test_nothing_stands_out_in_a_clean_run(name: str, seed: int) -> None:
    verdict = verdict_of(CLEAN[name], seed)
    assert found(verdict) == []
    if name != "short":
        # A machine that slows down alike is told for information.
        assert verdict.verdict in {"compute-bound", "none", "slower-since"}


@pytest.mark.sampled(0.1)
@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize("name", [*PLANTED, *CLEAN])
def test_what_is_not_annotated_leads_to_silence_and_not_astray(name: str, category: str) -> None:
    verdict = verdict_of(training_of(name), 1, category)
    assert wrong_without(name, verdict) == []


def test_a_machine_that_slows_down_is_told_and_is_no_warning() -> None:
    """From a growth on that `slower` says, and only where it is no spell."""
    for factor, limits, told in (
        *((1.8, [], True), (1.25, [], True), (1.12, [], False)),
        *((1.12, ["slower=0.05,0.1"], True), (1.8, ["slower=0.9"], False)),
    ):
        busy = Training(contention=(300, 999, factor), steps=300)
        with tempfile.TemporaryDirectory() as folder:
            verdict = why([busy.write(Path(folder), 1)], limits_of(limits))
        assert found(verdict) == []
        assert (verdict.verdict == "slower-since") == told, (factor, limits)
        if told:
            (finding,) = verdict.findings
            assert (finding.severity, finding.cause) == ("info", "")
            assert finding.share == pytest.approx(factor - 1, abs=0.05)
            assert "in all parts alike" in finding.what
            assert "rather the machine" in finding.next
            assert abs(finding.evidence["step"] - 300) <= 20
            assert finding.what.startswith(f"From about step {finding.evidence['step']} on ")


def test_what_only_some_steps_do_on_a_busy_machine_is_told_with_low_confidence() -> None:
    """A list that grows makes every step slower; others' programs leave some as fast as ever."""
    lines, now = Lines(100, rank=0, world_size=1), 0.0
    chance = random.Random(1)
    for step in range(600):
        busy = chance.random() < step / 400
        forward = chance.lognormvariate(0, 0.05) * (16e6 if busy else 8e6)
        lines.say("dataloader", "fetch.iter", now, 2e5, 9, count=step + 1)
        begin, now = now + 2e5, now + 2e5
        for name, ns in (("forward", forward), ("backward", 6e6), ("step", 1e6)):
            lines.say("compute", name, now, ns)
            now += ns
        lines.say("dataloader", "fetch.block", begin, now - begin, 9, count=step + 1)
    lines.footer()
    with tempfile.TemporaryDirectory() as folder:
        lines.write(Path(folder, "t-host-100.pfw"), 10**9)
        (finding,) = why([folder]).findings
    assert (finding.kind, finding.confidence) == ("slower-since", "low") or (
        *(finding.kind, finding.confidence),
    ) == ("slower-and-slower", "low")


@pytest.mark.parametrize(
    ("passes", "gap_ms", "wait_ms", "kind", "cause"),
    [
        # By the numbers of steps alone the time between epochs is that of the last of each.
        ([7, 13, 9, 20, 11, 5, 17], 600, 0, "not-annotated", ""),
        ([10] * 7, 600, 0, "not-annotated", ""),
        ([30, 40, 35], 0, 3000, "input-bound", "start-up"),
        ([30, 40], 3000, 0, "between-steps", "loops"),
        ([2] * 30, 0, 300, "input-bound", "start-up"),
        ([3] * 5, 300, 0, "between-steps", "loops"),
        # The first step of each pass is the rule where there is no other.
        ([1] * 30, 0, 300, "input-bound", ""),
        ([1] * 30, 300, 0, "between-steps", "loops"),
    ],
)
def test_a_run_that_is_mostly_elsewhere_is_told_to_be(
    passes: list[int], gap_ms: float, wait_ms: float, kind: str, cause: str, tmp_path: Path
) -> None:
    """However few the passes and their steps are, and however steps are found."""
    numbered, now = gap_ms == 600, 0.0
    lines = Lines(100, rank=0, world_size=1)
    for epoch, steps in enumerate(passes):
        for step in range(steps):
            tags = {"epoch": epoch, "step": step} if numbered else {}
            wait = (0.3 if step else wait_ms or 0.3) * 1e6
            begin = now + wait
            if not numbered:
                lines.say("dataloader", "fetch.iter", now, wait, 900 + epoch, count=step + 1)
            now = begin
            for name, ms in (("forward", 3), ("backward", 6), ("step", 0.7)):
                lines.say("compute", name, now, ms * 1e6, **tags)
                now += ms * 1e6
            if not numbered:
                length = now + 10 - begin
                lines.say("dataloader", "fetch.block", begin, length, 900 + epoch, count=step + 1)
            now += 20
        now += gap_ms * 1e6
    lines.footer()
    lines.write(tmp_path / "t-host-100.pfw", 10**9)
    assert invoke("why", tmp_path, "--fail-on", "warning").status == 1
    first = why([tmp_path]).findings[0]
    assert (first.kind, first.cause, first.severity) == (kind, cause, "critical")
    assert first.cost > 0.8


def test_two_passes_are_too_few_to_judge_how_they_begin() -> None:
    """As few as the guide says; what they cost is told."""
    for epochs, told in ((2, []), (3, ["input-bound/start-up"])):
        verdict = verdict_of(Training(persistent=False, spawn_ms=400, epochs=epochs, steps=30), 1)
        assert found(verdict) == told
        words = "went to the beginnings of 2 passes over the loader; 3 are needed to judge it"
        assert sum(words in note for note in verdict.notes) == (epochs == 2)
        assert verdict.verdict == ("none" if epochs == 2 else "input-bound")


def test_the_start_of_a_short_run_is_a_note() -> None:
    short = Training(start_ms=4000)
    verdict = verdict_of(short, 1)
    assert found(verdict) == []
    assert any("of this short run, 4" in note for note in verdict.notes)
    with tempfile.TemporaryDirectory() as folder:
        short.write(Path(folder), 1)
        (finding,) = why([folder], limits_of(["start-up-run-s=5"])).findings
    assert (finding.kind, finding.share_of) == ("start-up-heavy", "run")


def test_what_others_do_on_the_machine_lowers_the_confidence() -> None:
    slow = {"slow": {77: 600.0}}
    (sure,) = verdict_of(Training(**slow), 1).findings
    verdict = verdict_of(Training(**slow, crowded=True), 1)
    (unsure,) = verdict.findings
    assert (sure.confidence, unsure.confidence) == ("high", "low")
    assert "other programs used 78 % of the processors of the host meanwhile" in verdict.notes
    # Shares of all steps are more sure; but the first thing to do is to have the machine alone.
    (waiting,) = verdict_of(Training(item_ms=20, crowded=True), 1).findings
    assert waiting.confidence == "medium"
    assert waiting.next.startswith("Others use 78 % of the processors: train without them first. ")
    (both,) = verdict_of(
        Training(item_ms=20, first_batch_ms=3000, epochs=8, crowded=True), 1
    ).findings
    assert (both.confidence, both.evidence["also"]["confidence"]) == ("medium", "medium")
    # What the job's own workers use is not others'.
    (own,) = verdict_of(Training(item_ms=20, crowded=True, children=1400.0), 1).findings
    assert (own.confidence, "Others" in own.next) == ("high", False)


def test_what_others_use_is_told_once_of_each_host(tmp_path: Path) -> None:
    write_ranks(tmp_path, [Training(steps=20, crowded=True, io_wait=10.0)] * 2)
    begin = "other programs used 78 % of the processors of the host of ranks"
    apart = [note for note in why([tmp_path]).notes if "processors" in note]
    waited = "waited for disks meanwhile (I/O wait)"
    assert apart == [
        *(f"{begin} {rank} meanwhile" for rank in (0, 1)),
        *(f"1.6 processors of the host of ranks {rank} {waited}" for rank in (0, 1)),
    ]
    for file in tmp_path.glob("*/*.pfw"):
        text = file.read_text().replace(f"{1:016x}", f"{0:016x}").replace('"h1"', '"h0"')
        file.write_text(text)
    used, waiting = [note for note in why([tmp_path]).notes if "processors" in note]
    assert re.fullmatch(r"other programs used \d\d % of the processors of the host meanwhile", used)
    assert waiting == f"1.6 processors of the host {waited}"


def test_what_the_counters_say_of_disks_and_gpus_is_noted() -> None:
    gpu = {"busy": 12.0, "power": 0.4, "heat": 0.0}
    notes = verdict_of(Training(io_wait=10.0, gpu=gpu), 1).notes
    assert "1.6 processors of the host waited for disks meanwhile (I/O wait)" in notes
    assert "GPU 0 was in use for 12 % of the time, as its driver counts" in notes
    (slowed,) = [note for note in notes if "slowed down" in note]
    share = int(slowed.removeprefix("GPU 0 was slowed down by its power limit in ").split(" %")[0])
    assert 20 <= share <= 60
    well = verdict_of(Training(io_wait=2.0, gpu={"busy": 91.0, "power": 0.0, "heat": 0.0}), 1)
    assert not [note for note in well.notes if "GPU" in note or "disks" in note]


def test_a_heavy_optimizer_is_told_where_it_may_wait_for_ranks_that_are_not_seen() -> None:
    for world, confidence in ((1, "high"), (4, "low")):
        verdict = verdict_of(Training(step_ms=30, optimizer=0.69, world=world), 1)
        (finding,) = verdict.findings
        assert (finding.kind, finding.confidence) == ("optimizer-heavy", confidence)
        assert ("3 other ranks may be part of it" in finding.because) == (world > 1)
        assert ("ai.comm" in finding.next) == (world > 1)
        silent = [one.what for one in verdict.abstained]
        assert silent == (["compute-bound"] if world > 1 else [])


@pytest.mark.parametrize("steps", [2, 3, 5, 12, 19])
def test_few_steps_are_judged_by_what_is_clear_alone(steps: int) -> None:
    clear = Training(workers=0, item_ms=2, steps=steps + 1, epochs=1)
    verdict = verdict_of(clear, 1)
    if steps < 3:
        assert (verdict.verdict, verdict.findings) == ("abstained", ())
        assert "at least 3" in verdict.abstained[0].why
    else:
        (finding,) = verdict.findings
        assert (finding.kind, finding.severity, finding.confidence) == (
            "input-bound",
            "critical",
            "low",
        )
        assert f"looks input-bound: only {steps} steps were seen" in finding.what
    assert verdict.parts["wait"].share > 0.3
    # What is only a warning, or a shape, is not told from few steps.
    for unclear in (
        Training(transfer_ms=3.2, steps=steps + 1, epochs=1),
        Training(slow={2: 900.0}, transfer_ms=0.1, steps=steps + 1, epochs=1),
    ):
        assert found(verdict_of(unclear, 1)) == []
