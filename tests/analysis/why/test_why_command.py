"""`dftrace why`: what it prints, its JSON, its exit status, and what it does with bad input."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from analysis.bad_traces import bad_inputs, loop
from analysis.trace_lines import TraceLines
from analysis.why.made_runs import START_NS, Lines, Training, write_ranks
from analysis.why.test_late_ranks import synchronous
from conftest import clean_environment
from printed_json import schema
from safety.commands import invoke
from typer.testing import CliRunner, Result

from dftrace_ai.analysis.summary.report import reported
from dftrace_ai.analysis.why import LIMITS, limits_of, verdict_lines, why
from dftrace_ai.cli.commands import app_for

STARVED = Training(item_ms=20, steps=60)
CLEAN = Training(steps=60)


def dftrace_why(*words: object) -> Result:
    result = CliRunner().invoke(app_for(["why"]), ["why", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def as_json(*words: object) -> dict[str, Any]:
    result = dftrace_why("--json", *words)
    assert result.exit_code == 0, result.output
    value = json.loads(result.stdout)
    schema("why").validate(value)
    return value


@pytest.fixture(scope="module")
def starved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return STARVED.write(tmp_path_factory.mktemp("starved"), 1)


def test_the_verdict_is_a_few_plain_lines(starved: Path) -> None:
    lines = dftrace_why(starved).stdout.splitlines()
    assert lines[0] == "INPUT-BOUND  (critical, high confidence)"
    assert lines[1].startswith("Steps wait for data for ")
    assert len(lines) <= 15
    rows = {line[2:12].strip(): line[12:] for line in lines[3:]}
    named = ["step", "because", "do next", "at best", "slowest", "run", "judged", "unseen"]
    assert list(rows) == named
    assert "4 workers are 9" in rows["because"]
    assert "the host has 8 cores: set num_workers=" in rows["do next"]
    # Waits come in bursts, so the mean stands beside the median.
    assert "median" in rows["step"].partition(":")[0]
    assert rows["judged"] == "118 steady steps of 120, by loader blocks"
    assert lines == verdict_lines(why([starved]))


@pytest.mark.parametrize(
    ("workers", "first"), [(4, "Look at pin_memory"), (8, "9 ranks and workers share 8 cores: ")]
)
def test_more_processes_than_cores_come_before_the_loader(
    tmp_path: Path, workers: int, first: str
) -> None:
    """Workers that have time and batches that come late may as well be waiting for a core."""
    idle = Training(take_over_ms=7, workers=workers)
    rows = {line[2:12].strip(): line[12:] for line in verdict_lines(why([idle.write(tmp_path, 1)]))}
    assert rows["do next"].startswith(first)


def test_the_json_says_the_same(starved: Path) -> None:
    value = as_json(starved)
    assert (value["kind"], value["format"], value["verdict"]) == ("dftrace why", 1, "input-bound")
    (finding,) = value["findings"]
    assert (finding["cause"], finding["severity"]) == ("workers", "critical")
    assert finding["evidence"]["workers"] == 4
    assert math.isclose(sum(part["share"] for part in value["parts"].values()), 1.0, abs_tol=1e-4)
    wait = value["parts"]["wait"]
    assert wait["low"] <= wait["share"] <= wait["high"]
    assert finding["low"] < finding["share"] < finding["high"]
    assert finding["share_of"] == "steps"
    told = finding["what"].partition(" for data for ")[2]
    ends = [float(number) / 100 for number in re.findall(r"\d+(?:\.\d+)?", told)]
    assert ends == pytest.approx([finding[name] for name in ("share", "low", "high")], abs=0.006)
    assert value["limits"]["input"] == [0.1, 0.25]


def test_what_else_is_found_has_its_interval_and_confidence_too(tmp_path: Path) -> None:
    made = Training(item_ms=20, steps=60, transfer_ms=12, checkpoint=(20, 400), leak=3e6)
    value = as_json(made.write(tmp_path, 1))
    kinds = [finding["kind"] for finding in value["findings"]]
    assert {"checkpoint-bound", "transfer-bound", "memory-creep"} <= set(kinds)
    for finding in value["findings"]:
        assert finding["low"] <= finding["share"] <= finding["high"]
    exact = {finding["kind"]: finding["low"] == finding["high"] for finding in value["findings"]}
    assert (exact["checkpoint-bound"], exact["transfer-bound"]) == (True, False)
    of = {finding["kind"]: finding["share_of"] for finding in value["findings"]}
    wanted = ("training", "steps", "growth")
    assert (of["checkpoint-bound"], of["transfer-bound"], of["memory-creep"]) == wanted
    also = [line for line in dftrace_why(tmp_path).stdout.splitlines() if line[2:6] == "also"]
    for line, finding in zip(also, value["findings"][1:], strict=False):
        assert line.endswith(f" ({finding['severity']}, {finding['confidence']} confidence)")
    assert also


def test_long_runs_are_judged_in_blocks_to_the_same_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Training(save_ms=400, epochs=6, steps=20, log_ms=6).write(tmp_path, 1)
    whole = as_json(made)
    # What lies between the steps is saving, and told as that alone.
    assert [one["kind"] for one in whole["findings"]] == ["checkpoint-bound", "other-heavy"]
    for name in ("timeline.PIECES_AT_ONCE", "timeline.ROWS_AT_ONCE", "timeline.SPANS_AT_ONCE"):
        monkeypatch.setattr(f"dftrace_ai.analysis.steps.{name}", 7)
    monkeypatch.setattr("dftrace_ai.analysis.why.evidence.PIECES_AT_ONCE", 7)
    assert as_json(made) == whole


def test_limits_are_settings(starved: Path) -> None:
    assert as_json(starved, "--threshold", "input=0.1,0.9")["findings"][0]["severity"] == "warning"
    words = (
        "--threshold",
        "input=0.99",
        "--threshold",
        "periodic=0.99",
        "--threshold",
        "two-kinds=0.99",
    )
    none = as_json(starved, *words)
    assert none["verdict"] == "none"
    assert none["limits"]["input"] == [0.99, 0.99]
    assert limits_of([]) == LIMITS


@pytest.mark.parametrize(
    ("made", "kind", "limits", "kept"),
    [
        (Training(slow={77: 600.0}), "slow-step", ["slow-step-ms=700"], ["slow-step-ms=500"]),
        (Training(slow={77: 300.0}), "slow-step", ["slow-step=0.5"], ["slow-step=0.02"]),
        (Training(warm=5, warm_ms=400), "slow-warm-up", ["warm-up-ms=2500"], ["warm-up-ms=900"]),
        (Training(start_ms=4000), "start-up-heavy", ["start-up-ms=5000"], ["start-up-ms=3500"]),
        (Training(start_ms=4000), "start-up-heavy", ["start-up-run-s=60"], ["start-up-run-s=1"]),
        (Training(between_ms=500, epochs=8, steps=20), "between-steps", ["loops-ms=9000"], []),
        (Training(between_ms=500, epochs=8, steps=20), "between-steps", ["between=0.9"], []),
        (Training(first_steps=(3, 150), epochs=4), "slow-loop-start", ["loop-start=0.5"], []),
        (Training(kinds=(0.5, 5.0)), "two-kinds", ["two-kinds=0.6"], ["two-kinds=0.2"]),
        (Training(since=(90, 1.2)), "slower-since", ["slower-ms=5000"], ["slower-ms=200"]),
        (Training(leak=3e6), "memory-creep", ["memory-mb=900"], ["memory-mb=100"]),
        (Training(leak=3e6), "memory-creep", ["memory=0.9"], ["memory=0.01"]),
        (Training(every=9, every_ms=30), "periodic", ["rhythm=1.5"], ["rhythm=0.9"]),
        (Training(every=9, every_ms=30), "periodic", ["steps=500"], ["steps=100"]),
    ],
)
def test_what_is_no_share_is_a_setting_too(
    tmp_path: Path, made: Training, kind: str, limits: list[str], kept: list[str]
) -> None:
    made.write(tmp_path, 1)

    # Runs are no longer than they have to be.
    always = ["start-up-run-s=1"] if kind == "start-up-heavy" else []

    def kinds(limits: list[str]) -> set[str]:
        limits = [*always, *limits]
        return {finding.kind for finding in why([tmp_path], limits_of(limits)).findings}

    assert kind in kinds([])
    assert kind in kinds(kept)
    assert kind not in kinds(limits)


@pytest.mark.parametrize("where", ["forward", "nowhere"])
def test_a_rhythm_of_garbage_is_told_as_that_in_whatever_span_it_lies(
    tmp_path: Path, where: str
) -> None:
    Training(every=9, every_ms=30, where=where, garbage=True).write(tmp_path, 1)
    (beat,) = [one for one in why([tmp_path]).findings if one.kind == "periodic"]
    assert re.match(
        r"Every 9th step takes .* longer, most of it collecting Python's garbage: ", beat.what
    )
    assert beat.next.startswith("Call gc.freeze() after setting up")


def test_confidence_is_high_from_the_second_number_of_steps_on(starved: Path) -> None:
    def confidence(limit: str) -> str:
        return why([starved], limits_of([limit])).findings[0].confidence

    assert [confidence(f"steps={text}") for text in ("20,100", "20,500", "500")] == [
        *("high", "medium", "low"),
    ]


@pytest.mark.parametrize(
    "limit", ["inptu=0.1", "input", "input=", "input=x", "input=0.3,0.2", "input=-1", "input=nan"]
)
def test_a_wrong_limit_is_told_in_a_line(starved: Path, limit: str) -> None:
    result = dftrace_why(starved, "--threshold", limit)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"dftrace: --threshold {limit}: ")


def test_the_exit_status_says_whether_there_are_findings_when_asked(
    starved: Path, tmp_path: Path
) -> None:
    clean = CLEAN.write(tmp_path / "clean", 1)
    assert dftrace_why(starved).exit_code == 0
    assert dftrace_why(starved, "--fail-on", "critical").exit_code == 1
    mild = ("--threshold", "input=0.1,0.9")
    assert dftrace_why(starved, *mild, "--fail-on", "critical").exit_code == 0
    assert dftrace_why(starved, *mild, "--fail-on", "warning").exit_code == 1
    assert dftrace_why(clean, "--fail-on", "warning").exit_code == 0
    assert dftrace_why(tmp_path / "nothing").exit_code == 2
    (tmp_path / "empty").mkdir()
    assert dftrace_why(tmp_path / "empty").exit_code == 2


def test_of_several_ranks_half_make_a_verdict_and_fewer_are_named(tmp_path: Path) -> None:
    """Of four ranks three wait for their data, and one of these for its copies, too."""
    more = Training(item_ms=20, steps=60, transfer_ms=12)
    write_ranks(tmp_path, [CLEAN, STARVED, STARVED, more])
    value = as_json(tmp_path)
    assert (value["verdict"], value["ranks"], value["rank"] in {1, 2, 3}) == (
        *("input-bound", 4),
        True,
    )
    assert sorted(value["findings"][0]["ranks"]) == [1, 2, 3]
    assert [finding["kind"] for finding in value["findings"]] == ["input-bound"]
    (rare,) = value["of_some_ranks"]
    assert (rare["kind"], rare["ranks"]) == ("transfer-bound", [3])
    text = dftrace_why(tmp_path).stdout
    low, high = (f"{100 * share:.0f}" for share in value["findings"][0]["of_ranks"])
    figures = f"The figures are of rank {value['rank']}."
    assert f"On 3 of 4 ranks, from {low} to {high} %: 1, 2, 3. {figures}" in text
    assert "On 1 of 4 ranks: 3." in text
    # What a step is made of is told of the same one of those that wait.
    assert as_json(*(tmp_path / f"rank{rank}" for rank in (1, 2, 3)))["parts"] == value["parts"]
    assert as_json(tmp_path / f"rank{value['rank']}")["parts"] == value["parts"]


@pytest.mark.parametrize("comm_ms", [1, 7])
def test_the_rank_that_keeps_the_others_waiting_is_in_the_words(
    tmp_path: Path, comm_ms: float
) -> None:
    """Also one that communicates for long enough to be told of, were it alone."""
    synchronous(tmp_path, 4, lambda rank, _: {"wait": 28.0} if rank == 2 else {}, comm=comm_ms)
    value = as_json(tmp_path)
    (finding,) = value["findings"]
    assert (finding["kind"], finding["cause"]) == ("late-rank", "worker")
    assert (finding["ranks"], finding["rank"]) == ([2], 2)
    assert [(one["rank"], one["part"]) for one in finding["late_ranks"]] == [(2, "wait")]
    assert finding["because"].startswith("fetch.iter ")
    assert finding["next"].startswith("Its loader: ")
    (late,) = value["of_some_ranks"]
    assert (late["kind"], late["ranks"]) == ("input-bound", [2])
    rows = [line[2:] for line in dftrace_why(tmp_path).stdout.splitlines() if line[:2] == "  "]
    (also,) = [row for row in rows if row.startswith("also")]
    assert " On 1 of 4 ranks: 2. " in also
    assert rows.index(also) < next(at for at, row in enumerate(rows) if row.startswith("slowest"))


def test_who_has_annotated_items_is_not_told_to(tmp_path: Path) -> None:
    """Workers that are busy for half of the time, and batches that come late for no one reason."""
    half_busy = Training(workers=1, item_ms=1.6, take_over_ms=6, step_ms=14)
    (finding,) = as_json(half_busy.write(tmp_path / "told", 1))["findings"]
    assert (finding["kind"], finding["cause"]) == ("input-bound", "")
    assert 0.5 < finding["evidence"]["busy"] < 0.85
    assert "Annotate" not in finding["next"]
    half_busy.data_told = False
    (finding,) = as_json(half_busy.write(tmp_path / "not", 1))["findings"]
    assert finding["next"].startswith("Annotate __getitem__ with ai.data.item")


@pytest.mark.parametrize(("workers", "advice"), [(0, "set num_workers."), (4, "prefetch_factor.")])
def test_slow_items_are_helped_by_workers_or_by_more_ahead(
    tmp_path: Path, workers: int, advice: str
) -> None:
    training = Training(workers=workers, item_ms=0.2, rare=23, rare_ms=900)
    (finding,) = as_json(training.write(tmp_path, 1))["findings"][:1]
    assert (finding["cause"], finding["next"].endswith(advice)) == ("slow-item", True)


@pytest.mark.parametrize("part", ["wait", "forward"])
def test_what_a_warm_up_needs_depends_on_where_it_is(tmp_path: Path, part: str) -> None:
    lines, now = Lines(100, rank=0, world_size=1), 0.0
    for step in range(60):
        extra = 400e6 if step < 4 else 0
        wait = 1e6 + extra * (part == "wait")
        lines.say("dataloader", "fetch.iter", now, wait, 9, count=step + 1)
        begin = now = now + wait
        for name, ns in (("forward", 6e6 + extra * (part == "forward")), ("backward", 9e6)):
            lines.say("compute", name, now, ns)
            now += ns
        lines.say("dataloader", "fetch.block", begin, now - begin, 9, count=step + 1)
    lines.footer()
    lines.write(tmp_path / "t-host-100.pfw", 10**9)
    (finding,) = as_json(tmp_path)["findings"]
    assert (finding["kind"], finding["cause"]) == ("slow-warm-up", part)
    assert ("Compilation" in finding["next"]) == (part == "forward")
    assert ("the loader does first" in finding["next"]) == (part == "wait")


def test_batches_of_a_marked_step_are_its_micro_batches(tmp_path: Path) -> None:
    main, worker = Lines(100, rank=0, world_size=1), Lines(200, ppid=100)
    for step in range(60):
        at = step * 50e6
        for batch in range(2):
            begin = at + batch * 25e6
            worker.say("data", "item", begin, 19e6)
            main.say("dataloader", "fetch.iter", begin, 20e6)
            main.say("compute", "forward", begin + 20e6, 2e6)
            main.say("compute", "backward", begin + 22e6, 2e6)
        main.say("compute", "step", at + 49e6, 0.5e6)
        main.say("pipeline", "step", at, 49.9e6, step=step)
    for lines in (main, worker):
        lines.footer()
        lines.write(tmp_path / f"t-{lines.pid}.pfw", 10**9)
    value = as_json(tmp_path)
    assert (value["steps"]["found_by"], value["steps"]["accumulation"]) == ("step spans", 2)
    (finding,) = value["findings"]
    assert math.isclose(finding["evidence"]["batch_ns"], 19e6, rel_tol=0.02)
    assert math.isclose(finding["evidence"]["rest_ns"], 5e6, rel_tol=0.02)
    assert "A batch is 19 ms of their work; the median step without the wait" in finding["because"]
    assert " for each." in finding["because"]


def test_an_evaluation_before_the_first_step_is_one_as_the_summary_has_it(tmp_path: Path) -> None:
    lines, now = Lines(100), 1e6
    for step in range(60):
        if step % 20 == 0:
            lines.say("pipeline", "evaluate", now, 100e6)
            now += 100e6
        lines.say("dataloader", "fetch.iter", now, 1e6, count=step + 1)
        for number, name in enumerate(("forward", "backward", "step")):
            lines.say("compute", name, now + 1e6 + number * 3e6, 3e6)
        lines.say("pipeline", "step", now, 10e6, step=step)
        now += 10e6
    lines.footer()
    lines.write(tmp_path / "t.pfw", 10**9)
    found = next(one for one in as_json(tmp_path)["findings"] if one["kind"] == "evaluation-heavy")
    (row,) = (one for one in reported([tmp_path]).spans if one.name == "evaluate")
    assert (found["evidence"]["times"], found["evidence"]["ns"]) == (3, row.total_us * 1000)
    assert math.isclose(found["share"], row.share, abs_tol=0.002)


@pytest.mark.parametrize("steps", [2, 6])
def test_a_loader_that_is_ahead_makes_no_other_micro_batches(tmp_path: Path, steps: int) -> None:
    lines, now = Lines(100), 0.0
    for step in range(60):
        begin, place = now, step % steps
        for batch in range(3 if place == 0 else 1 if place == steps - 1 else 2):
            count = 2 * place + (place > 0) + batch + 1
            lines.say("dataloader", "fetch.iter", now, 1e6, count=count)
            now += 1e6
        lines.say("compute", "forward", now, 9e6)
        lines.say("compute", "step", now + 9e6, 1e6)
        now += 10e6
        lines.say("pipeline", "step", begin, now - begin, step=step, epoch=step // steps)
    lines.footer()
    lines.write(tmp_path / "t.pfw", 10**9)
    assert as_json(tmp_path)["steps"]["accumulation"] == 2


def test_a_stage_of_a_pipeline_does_not_lack_a_loader(tmp_path: Path) -> None:
    for pid in (1, 2):
        lines = Lines(pid, rank=pid - 1, world_size=2)
        for step in range(60):
            at = step * 20e6
            if pid == 1:
                lines.say("dataloader", "fetch.iter", at, 1e6, 5, count=step + 1)
            lines.say("pipeline", "step", at + 1e6, 18e6)
            for number, name in enumerate(("forward", "backward", "step")):
                lines.say("compute", name, at + 2e6 + number * 3e6, 3e6)
            lines.say("comm", "send", at + 1.2e6, 0.3e6)
        lines.footer()
        lines.write(tmp_path / f"t-{pid}.pfw", 10**9)
    (finding,) = as_json(tmp_path)["findings"]
    assert (finding["kind"], finding["ranks"]) == ("not-annotated", [0, 1])
    assert finding["evidence"]["lacking"] == []
    assert "More of it" not in finding["what"]


def test_time_in_no_span_is_told_beside_the_part_that_has_more(tmp_path: Path) -> None:
    gaps = Training(steps=60, gap_ms=12, optimizer=0.02)
    value = as_json(gaps.write(tmp_path, 1))
    (finding,) = value["findings"]
    share = value["parts"]["backward"]["share"]
    assert finding["kind"] == "not-annotated"
    assert value["parts"]["none"]["share"] < share
    assert finding["what"].endswith(f"in no span. More of it is backward, {100 * share:.0f} %.")


@pytest.mark.parametrize(("unnamed_ms", "severity"), [(2.2, "info"), (9, "critical")])
def test_nobody_is_told_to_annotate_what_a_framework_does_for_each_step(
    tmp_path: Path, unnamed_ms: float, severity: str
) -> None:
    """A toy of `transformers.Trainer`: a third of its short steps is the Trainer's own work."""
    trace, now = TraceLines(rank=0, world_size=1), 10**9
    for step in range(80):
        begin = now
        for name, cat, ms in (
            *(("fetch.iter", "dataloader", 0.2), ("forward", "compute", 2)),
            *(("backward", "compute", 2), ("step", "compute", 0.4)),
        ):
            trace.span(name, cat, now, int(ms * 1e6), step=step)
            now += int(ms * 1e6)
        now += int(unnamed_ms * 1e6)
        trace.span("step", "pipeline", begin, now - begin, step=step, microbatches=1)
    trace.footer()
    trace.write(tmp_path / "t-host-100.pfw.gz")
    told = {one["kind"]: one for one in as_json(tmp_path)["findings"]}
    assert told["not-annotated"]["severity"] == severity
    assert told["not-annotated"]["next"].startswith("Look for .item(), logging, conversions")
    assert "Annotate" not in dftrace_why(tmp_path).stdout
    status = dftrace_why(tmp_path, "--fail-on", "warning").exit_code
    assert status == (1 if severity == "critical" else 0)


@pytest.mark.parametrize("other", [True, False])
def test_that_another_thread_communicates_meanwhile_is_told(tmp_path: Path, *, other: bool) -> None:
    """Of what the thread that trains has called for itself nothing else waits."""
    trace = TraceLines(rank=0, world_size=2)
    for step in range(60):
        at = 10**9 + step * 30_000_000
        for name, cat, begin, ms in (
            *(("fetch.iter", "dataloader", 0, 1), ("forward", "compute", 1, 2)),
            *(("backward", "compute", 3, 2), ("step", "compute", 27, 1)),
        ):
            trace.span(name, cat, at + begin * 10**6, ms * 10**6, step=step)
        told = {"step": step, "group": "0", "seq": step, "nth": step}
        told |= {"waited_us": 100, "waited_by": 4711} if other else {"until": "dropped"}
        trace.span("all_reduce", "comm", at + 6 * 10**6, 20 * 10**6, tid=(1 << 30) + 1, **told)
        begin, length = at, 28 * 10**6
        trace.span("step", "pipeline", begin, length, 1 << 30, step=step, microbatches=1)
    trace.footer()
    trace.write(tmp_path / "t-host-100.pfw.gz")
    (finding,) = (one for one in as_json(tmp_path)["findings"] if one["kind"] == "not-annotated")
    said = "of that time another thread of the program communicates."
    assert (said in finding["because"], "Thread.join" in finding["next"]) == (other, other)
    assert finding["evidence"]["beside_comm"] == pytest.approx(20 / 22 if other else 0, abs=0.01)


def test_durations_that_hold_waits_of_the_recorder_are_told_of(tmp_path: Path) -> None:
    for pid, waits in ((1, 0), (2, 5)):
        lines = Lines(pid, rank=0, world_size=1)
        loop(lines, 60)
        lines.footer(waits=waits)
        lines.write(tmp_path / f"t-host-{pid}.pfw", 10**9)
    said = "threads waited 5 times for a full spool; durations hold those waits"
    assert said in as_json(tmp_path / "t-host-2.pfw")["notes"]
    assert as_json(tmp_path / "t-host-1.pfw")["notes"] == []


def test_bad_input_never_ends_the_program_with_a_traceback(tmp_path: Path) -> None:
    for path in bad_inputs(tmp_path):
        for words in ((path,), ("--json", path)):
            result = dftrace_why(*words)
            assert result.exit_code == 0, (path.name, result.output)
            assert "\x1b" not in result.stdout
    for name, verdict in (("no steps", "abstained"), ("two steps", "abstained")):
        value = as_json(tmp_path / f"{name}.pfw")
        assert (value["verdict"], value["findings"]) == (verdict, [])
        assert value["abstained"]
    assert "no steps were found" in dftrace_why(tmp_path / "no steps.pfw").stdout
    # All of them at once are a run, too.
    as_json(tmp_path)


@pytest.mark.parametrize("way", ["step numbers", "loader blocks", "step spans", None])
def test_one_step_is_a_step_of_which_nothing_is_judged(tmp_path: Path, way: str | None) -> None:
    """However it is found; one end of an optimizer's step does not say where the step began."""
    lines = Lines(100, rank=0, world_size=1)
    tags = {"epoch": 0, "step": 0} if way == "step numbers" else {}
    if way == "step spans":
        lines.say("pipeline", "step", 0, 20e6)
    if way == "loader blocks":
        lines.say("dataloader", "fetch.iter", 0, 1e6, 9, count=1)
        lines.say("dataloader", "fetch.block", 1e6, 19e6, 9, count=1)
    lines.say("compute", "forward", 1e6, 9e6, **tags)
    lines.say("compute", "step", 10e6, 9e6, **tags)
    lines.footer()
    lines.write(tmp_path / "t-host-100.pfw", 10**9)
    text = dftrace_why(tmp_path).stdout
    rows = [line[2:12].strip() for line in text.splitlines()[1:]]
    assert rows.count("because") == rows.count("run") == 1
    page = tmp_path / "report.html"
    assert invoke("report", tmp_path, "-o", page).status == 0
    why_not = text.partition("  because   ")[2].partition("\n")[0]
    assert f"<dt>because</dt><dd>{why_not}</dd>" in page.read_text("utf-8")
    if way is None:
        assert "no steps were found: " in why_not
        assert why_not.endswith("no two optimizer steps (ai.compute.step)")
    else:
        assert why_not == "0 steady steps, at least 3 are needed"
        assert f"0 steady steps of 1, by {way}" in text
        assert rows[0] == "step"


def test_the_help_has_an_example_and_names_every_limit() -> None:
    text = " ".join(dftrace_why("--help").stdout.split())
    assert "Example: dftrace why" in text
    from dftrace_ai.cli.shared_options import Thresholds

    (option,) = Thresholds.__metadata__
    assert set(LIMITS) <= set(re.findall(r"[a-z-]+", option.help))


def test_a_trace_of_one_step_thread_is_enough(tmp_path: Path) -> None:
    trace = TraceLines()
    for step in range(30):
        trace.span("step", "compute", 10**15 + step * 10**7, 10**6)
    value = as_json(trace.write(tmp_path / "t.pfw.gz"))
    assert value["steps"]["found_by"] == "optimizer ends"
    assert value["verdict"] == "not-annotated"


def test_the_parts_of_a_trace_are_one_process(starved: Path, tmp_path: Path) -> None:
    """Cut where a file grew too long, in the middle of steps."""
    for file in starved.glob("*.pfw"):
        lines = file.read_text("utf-8").splitlines()
        head = next(at for at, line in enumerate(lines) if '"name":"dftrace"' in line) + 1
        cut = len(lines) // 2
        for part, kept in ((0, lines[:cut]), (1, [*lines[:head], *lines[cut:]])):
            name = file.name.replace(".pfw", ".part1.pfw" if part else ".pfw")
            (tmp_path / name).write_text("\n".join(kept) + "\n", "utf-8")
    whole, parts = as_json(starved), as_json(tmp_path)
    assert parts["ranks"] == 1
    parts["notes"] = whole["notes"]
    assert parts == whole


@pytest.mark.parametrize("words", [("why",), ("diff", ".")])
def test_without_numpy_it_says_what_to_install(starved: Path, words: tuple[str, ...]) -> None:
    code = "import sys; sys.modules['numpy'] = None; from dftrace_ai.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words, str(starved)],
        capture_output=True,
        text=True,
        env=clean_environment(),
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    needed = "this needs NumPy; install it with: pip install 'dftrace-ai[analysis]'"
    assert done.stderr == f"dftrace: {needed}\n"


@pytest.mark.parametrize(("every", "told"), [(1, None), (2, "the wait for data in many steps (")])
def test_waits_that_some_steps_have_are_not_said_to_be_missing(
    tmp_path: Path, every: int, told: str | None
) -> None:
    lines = Lines(100, rank=0, world_size=1)
    for step in range(40):
        begin_ns = START_NS + step * 100_000_000
        if step % every == 0:
            lines.span("fetch.iter", "dataloader", begin_ns, 20_000_000, count=step + 1)
        lines.span("forward", "compute", begin_ns + 21_000_000, 70_000_000)
        lines.span("step", "pipeline", begin_ns, 99_000_000, step=step)
    lines.footer()
    unseen = why([lines.write(tmp_path / "t-host-100.pfw", 10**6)]).unseen
    found = [line for line in unseen if line.startswith("the wait for data")]
    assert [line.startswith(str(told)) for line in found] == [True] * (told is not None)
