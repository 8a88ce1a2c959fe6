"""`dftrace ranks` and `dftrace whatif`: options, exit status, JSON, and input of which no rank may be accused."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from analysis.ranks.made_schedules import Schedule, pipeline
from analysis.trace_lines import TraceLines
from printed_json import checked
from safety.commands import Done, invoke

from dftrace_ai.analysis import ranks, why
from dftrace_ai.analysis.ranks.job import RanksOfJob, read_ranks
from dftrace_ai.analysis.ranks.lateness import lateness_of
from dftrace_ai.analysis.ranks.partials import own_only
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.errors import TraceError

MS = 1_000_000
Lines = Callable[[int], TraceLines]


def job(
    folder: Path,
    count: int = 4,
    *,
    steps: int = 60,
    late: int | None = 2,
    late_ms: float = 30,
    has_group: bool = True,
    has_calls: bool = True,
    members: Callable[[int], list[int]] | None = None,
    seq: Callable[[int, int], int] = lambda _, step: step,
    skipped: Callable[[int, int], bool] = lambda _, __: False,
    garbage_ms: Callable[[int, int], float] = lambda _, __: 0,
    **header: Any,
) -> Path:
    """Ranks that do 10 ms of work in a step, one of them more, and meet in an all_reduce."""
    for rank in range(count):
        facts = {"rank": rank, "world_size": count, "local_rank": rank, "node": "node0", **header}
        trace = TraceLines(4000 + rank, **facts)
        if has_group:
            ranks_of = members(rank) if members else [*range(count)]
            told = f'{{"name":"0","description":"default_pg","ranks":{ranks_of}}}'
            trace.custom("process_group", told.replace(" ", ""))
        at = 1000 * MS
        for step in range(steps):
            collected = [garbage_ms(one, step) for one in range(count)]
            own = 10 + 0.1 * ((7 * rank + 3 * step) % 5) + (late_ms if rank == late else 0)
            own += collected[rank]
            longest = 10.4 + (0 if late is None else late_ms) + max(collected)
            end = at + int((longest + 2) * MS)
            if not skipped(rank, step):
                trace.span("backward", "compute", at, int(own * MS), step=step)
                if collected[rank]:
                    trace.span("gc", "host", at + MS, int(collected[rank] * MS), generation=2)
                if has_calls:
                    call = {"group": "0", "seq": seq(rank, step), "bytes": 1 << 20}
                    begin = at + int(own * MS)
                    trace.span("all_reduce", "comm", begin, end - begin, step=step, **call)
                trace.span("step", "pipeline", at, end - at, step=step)
            at = end + MS // 10
        trace.footer()
        trace.write(folder / f"t-host-{4000 + rank}.pfw.gz")
    return folder


def answer(folder: Path, *words: str, command: str = "ranks") -> Any:
    done = invoke(command, folder, *words, "--json")
    assert done.status == 0, done.err
    return checked(done.out, command)


@pytest.mark.parametrize("said", ['"x"', "-3", "9999"])
def test_one_file_whose_rank_can_be_none_hides_nothing_of_the_others(
    tmp_path: Path, said: str
) -> None:
    folder = job(tmp_path / "out")
    (spoilt,) = folder.glob("*4003*")
    text = gzip.decompress(spoilt.read_bytes())
    spoilt.write_bytes(gzip.compress(text.replace(b'"rank":3', f'"rank":{said}'.encode(), 1)))
    told = "a process with steps and no rank of the job: left out: host:4003"
    told += ", rank 9999 of 4" if said == "9999" else ""
    for command in ("ranks", "why"):
        found = answer(folder, command=command)
        assert found["findings"][0]["ranks"] == [2], command
        assert told in found["notes"], command
    even = answer(folder, command="whatif")
    assert (even["cause"]["kind"], even["cause"]["ranks"]) == ("worker", [2])
    assert told in even["notes"]


def test_numbers_that_most_ranks_say_beyond_their_world_are_believed(tmp_path: Path) -> None:
    """As where each node is one task, and its ranks are numbered by hand."""
    found = answer(job(tmp_path, world_size=2))
    assert (found["findings"][0]["ranks"], found["ranks"]["seen"]) == ([2], 4)


def test_a_pipeline_whose_messages_alone_say_the_stages(tmp_path: Path) -> None:
    """Stages of one rank each; the third has more to do in its forward, or in all of its passes."""

    def later_ms(stage: int, name: str) -> float:
        return 6 * (stage == 2) * (name == "forward" or 2 * in_all)

    for in_all, kind, following in (
        (False, "stage", "what stage 2 does in forward and the others do not; or move layers"),
        (True, "stage or worker", "the machine of rank 2 first"),
    ):
        folder = pipeline(tmp_path / kind, 4, 4, steps=26, later_ms=later_ms)
        late = answer(folder)["findings"][0]
        assert (late["kind"], late["stages"], late["ranks"]) == (kind, [2], [2])
        assert late["next"].startswith(following)
        even = answer(folder, command="whatif")
        assert (even["cause"]["kind"], even["cause"]["stages"]) == (kind, [2])
        assert even["cause"]["ranks"] == [2]
        assert even["cause"]["since"] is None
        assert [one["name"] for one in even["cause"]["excess"]][:1] == [
            "compute/backward" if in_all else "compute/forward"
        ]
        assert even["next"].startswith(following.replace("rank 2", "stage 2"))
        (of_why, *_) = answer(folder, command="why")["findings"]
        assert (of_why["cause"], of_why["ranks"]) == (kind, [2])
        table = lines(invoke("ranks", folder, "--by", "stage"))
        rows = [line.split()[0] for line in table if re.match(r"  \d ", line)]
        assert (rows[0], sorted(rows)) == ("2", ["0", "1", "2", "3"])
        asked = answer(folder, "--without", "stage=2", command="whatif")["without"]
        assert asked[0]["ranks"] == [2]
    untold = pipeline(tmp_path / "untold", 4, 4, steps=26, later_ms=later_ms, told=False)
    late = answer(untold)["findings"][0]
    assert (late["kind"], late["stages"], late["ranks"]) == ("worker", [], [2])


@pytest.mark.parametrize(
    ("schedule", "stages", "micro_batches"),
    [("1f1b", 2, 2), ("1f1b", 4, 4), ("gpipe", 4, 8), ("gpipe", 2, 60)],
)
def test_a_pipeline_that_fills_and_drains_is_told_as_that(
    tmp_path: Path, schedule: Schedule, stages: int, micro_batches: int
) -> None:
    """Nobody is slow, and nothing is to be done about links: (p - 1) / (m + p - 1) is idle."""
    idle = (stages - 1) / (micro_batches + stages - 1)
    folder = pipeline(tmp_path, stages, micro_batches, schedule=schedule, steps=22)
    found = answer(folder)
    of_why = answer(folder, command="why")
    if idle < 0.05:
        assert (found["verdict"], found["findings"]) == ("none", [])
        assert "late-rank" not in {one["kind"] for one in of_why["findings"]}
        return
    (bubble,) = found["findings"]
    assert (bubble["kind"], bubble["ranks"], bubble["severity"]) == ("bubble", [], "critical")
    assert bubble["cost"] == pytest.approx(idle, abs=0.01)
    (messages,) = found["collectives"]
    assert (messages["name"], messages["imposed_ns_per_step"]) == ("send", None)
    table = lines(invoke("ranks", folder, "--table"))
    # 1,024 bytes in 100 us, where it is known how long one took.
    assert re.search(
        r"%  +-  +(-|0\.010) *$", next(line for line in table if line.startswith("  send"))
    )
    even = answer(folder, "--without", "stage=0", command="whatif")
    assert (even["cause"]["kind"], even["severity"]) == ("bubble", "critical")
    assert even["bubble"]["share"] == pytest.approx(idle, abs=0.01)
    assert even["next"] == bubble["next"]
    told = lines(invoke("whatif", folder, "--without", "stage=0"))
    assert told[0] == "PIPELINE BUBBLE  (critical)"
    assert re.match(r"The run is .* with even work\. Even so all ranks wait ", told[1])
    assert "  without   stage 0: the run would take as long" in told
    assert (bubble["evidence"]["stages"], bubble["evidence"]["passes"]) == (stages, micro_batches)
    assert {(one["kind"], one["cause"]) for one in of_why["findings"]} == {("late-rank", "bubble")}
    assert of_why["findings"][0]["next"].startswith("More micro-batches a step")


def lines(done: Done) -> list[str]:
    assert done.status in {0, 1}, done.err
    return done.out.splitlines()


def test_the_late_rank_is_named_in_words_and_in_json(tmp_path: Path) -> None:
    job(tmp_path)
    told = lines(invoke("ranks", tmp_path))
    assert told[0] == "ONE SLOW RANK  (critical, high confidence)"
    assert told[1].startswith("Rank 2 was the slowest in 100 % of the steps, by 29.9 ms of ")
    assert len(told) <= 15
    value = answer(tmp_path)
    (finding,) = value["findings"]
    assert (value["verdict"], finding["ranks"], finding["name"]) == (
        "worker",
        [2],
        "compute/backward",
    )
    assert value["ranks"] == {"world": 4, "seen": 4, "missing": []}
    assert [row["rank"] for row in value["by_rank"]] == [0, 1, 2, 3]
    (row,) = value["collectives"]
    assert (row["name"], row["ranks"], row["root"][0]["rank"]) == ("all_reduce", [0, 1, 2, 3], 2)
    waited = finding["evidence"]["waited_in"]
    assert (waited["name"], waited["part"]) == ("all_reduce", 1)
    assert waited["ns"] == pytest.approx(32 * MS, abs=0.4 * MS)
    assert ranks([tmp_path]).findings[0].what == finding["what"]


@pytest.mark.parametrize("often", [1, 12])
def test_why_and_ranks_tell_one_time_that_others_wait(tmp_path: Path, often: int) -> None:
    job(
        tmp_path,
        late=None,
        garbage_ms=lambda rank, step: 60 * (rank == 2 and step % often == 3 % often),
    )
    (of_ranks, *_), (of_why, *_) = (
        answer(tmp_path, command=command)["findings"] for command in ("ranks", "why")
    )
    assert of_ranks["kind"] == of_why["cause"] == ("worker" if often == 1 else "bursts")
    waits = of_ranks["evidence"]["waited_in"]["ns"]
    assert waits == pytest.approx(of_why["evidence"]["waits_ns"], abs=0.01 * MS)
    # Of bursts on average over all steps, as it is told of a step; the transfer takes 2 ms.
    assert waits == pytest.approx((60 / often + 2) * MS, abs=0.6 * MS)


def test_a_job_of_even_work_accuses_nobody(tmp_path: Path) -> None:
    told = lines(invoke("ranks", job(tmp_path, late=None), "--fail-on", "warning"))
    assert told[0] == "NOBODY IS LATE"
    assert told[1].startswith("The slowest of 4, rank ")
    assert answer(tmp_path)["verdict"] == "none"


def test_status_says_whether_there_is_a_finding(tmp_path: Path) -> None:
    job(tmp_path)
    assert invoke("ranks", tmp_path, "--fail-on", "critical").status == 1
    assert invoke("ranks", tmp_path, "--threshold", "cost=0.9", "--fail-on", "warning").status == 0
    wrong = invoke("ranks", tmp_path, "--threshold", "costs=0.9")
    assert (wrong.status, "there is no threshold 'costs'" in wrong.err) == (2, True)
    assert invoke("whatif", tmp_path, "--fail-on", "warning").status == 1


def test_some_steps_alone_are_judged(tmp_path: Path) -> None:
    job(tmp_path)
    assert answer(tmp_path, "--steps", "10:40")["steps"]["common"] == 30
    few = answer(tmp_path, "--steps", "10:20")
    assert few["verdict"] == "abstained"
    assert "20 are needed" in few["abstained"][0]["why"]
    none = answer(tmp_path, "--steps", "900:")
    assert none["abstained"][0]["why"] == "the ranks have no step in common"
    assert invoke("ranks", tmp_path, "--steps", "b").status == 2


@pytest.mark.parametrize("layout", ["dp=0,pp=0", '{"dp": 0, "pp": 0}', {"dp": 0, "pp": 0}])
def test_ranks_are_put_together_by_what_they_have_in_common(
    tmp_path: Path, layout: str | dict[str, int]
) -> None:
    job(tmp_path, layout=layout)
    for words, name in ((["rank"], "2 *"), (["host"], "node0 *"), (["dp"], "0 *")):
        told = lines(invoke("ranks", tmp_path, "--by", *words, "--table"))
        assert any(line.split("  ")[1:2] == [name] for line in told), told
        assert any(line.strip().startswith("all_reduce") for line in told)
    # Three ranks work 10.2 ms and wait 32, one works 40.2 and waits 2: a row is not of the lower.
    (row,) = [line for line in told if line.startswith("  0 *")]
    own, wait = (float(ms) for ms in re.findall(r"([\d.]+) ms", row)[:2])
    assert own == pytest.approx(17.7, abs=0.2)
    assert own + wait == pytest.approx(42.4, abs=0.2)
    wrong = invoke("ranks", tmp_path, "--by", "tp")
    assert wrong.status == 2
    assert "there are: dp, pp" in wrong.err


def test_what_if_a_rank_did_as_much_as_the_others(tmp_path: Path) -> None:
    value = answer(
        job(tmp_path), "--without", "rank=2", "--without", "host=node0", command="whatif"
    )
    assert value["cause"]["ranks"] == [2]
    # Even work has what it does more in it, dealt out to four.
    faster = (
        r"Did it as little as the others do now, and saw communication end as soon, "
        r"the run would be 3\.\d+ times as fast\."
    )
    assert re.search(faster, value["what"])
    first, second = value["without"]
    assert (first["asked"], first["ranks"]) == ([["rank", "2"]], [2])
    assert first["saved_ns"] == pytest.approx(30 * MS, rel=0.1)
    assert second["ranks"] == [0, 1, 2, 3]
    # All of them together are one sentence.
    both = lines(invoke("whatif", tmp_path, "--without", "rank=2", "--without", "rank=1"))
    (row,) = [line for line in both if line.startswith("  without")]
    assert re.match(r"  without   rank 2, rank 1: the run would be [\d.]+ times as fast, 2\d", row)
    assert "; each alone: rank 2 3." in row
    for words, said in (
        ("rank=9", "no such rank"),
        ("tp=1", "tells its tp"),
        ("2", "rank=17"),
        ("rank=0,rank=1", "a --without of its own"),
    ):
        wrong = invoke("whatif", tmp_path, "--without", words)
        assert (wrong.status, said in wrong.err) == (2, True), wrong.err


def test_the_ideal_timeline_is_written_beside_the_measured_one(tmp_path: Path) -> None:
    job(tmp_path / "out")
    answer(tmp_path / "out", "--timeline", str(tmp_path / "ideal"), command="whatif")
    names = sorted(path.name.partition("-")[0] for path in (tmp_path / "ideal").iterdir())
    assert names == ["ideal"] * 4 + ["measured"] * 4
    assert invoke("validate", tmp_path / "ideal").status == 0
    few = job(tmp_path / "few", count=1, late=0)
    none = invoke("whatif", few, "--timeline", tmp_path / "none")
    assert (none.status, "nothing is written" in none.err) == (0, True)


def test_collecting_garbage_is_told_and_not_the_span_that_it_lies_in(tmp_path: Path) -> None:
    """By turns it is what pauses are made of, of one rank what it does longer."""
    by_turns = job(
        tmp_path / "turns",
        steps=120,
        late=None,
        garbage_ms=lambda rank, step: 40 if step % 10 == 3 and step // 10 % 4 == rank else 0,
    )
    value = answer(by_turns)
    assert (value["verdict"], value["findings"][0]["name"]) == ("pauses", "host/gc")
    assert "  mostly    in garbage collection (" in invoke("ranks", by_turns).out
    even = answer(by_turns, command="whatif")
    assert even["cause"]["kind"] == "garbage collection"
    assert even["next"].startswith("call gc.freeze()")
    alone = job(
        tmp_path / "alone",
        steps=120,
        late=None,
        garbage_ms=lambda rank, step: 40 if rank == 1 and step % 8 == 3 else 0,
    )
    (finding,) = answer(alone)["findings"]
    assert (finding["kind"], finding["ranks"], finding["name"]) == ("bursts", [1], "host/gc")
    assert finding["next"].startswith("call gc.freeze()")
    even = answer(alone, command="whatif")
    assert (even["cause"]["ranks"], even["cause"]["excess"][0]["name"]) == ([1], "host/gc")
    assert even["next"].startswith("call gc.freeze()")
    assert why([alone]).findings[0].next.startswith("Call gc.freeze()")


def test_own_work_alone_says_the_same_of_who_is_late(tmp_path: Path) -> None:
    """What `dftrace why` holds of each rank, to a microsecond, is judged as all of it is."""
    whole = read_ranks(open_traces([job(tmp_path, steps=300)]))
    short = RanksOfJob.of(map(own_only, whole.ranks))
    (one,), (other,) = (lateness_of(of, scores=False).found for of in (whole, short))
    assert (other.ranks, other.kind, other.last_share) == (one.ranks, one.kind, one.last_share)
    assert other.late_ns == pytest.approx(one.late_ns, abs=2000)
    assert [name.name for name in other.names] == [name.name for name in one.names]


# By name: what is odd of the input, what has the answer of `ranks`, and whether whatif is silent.
SILENT: dict[str, tuple[dict[str, Any], str]] = {
    "one rank": (
        {"count": 1, "late": 0, "world_size": 4},
        "ranks have no trace that can be judged: 1, 2, 3",
    ),
    "no number of a rank": ({"count": 1, "late": 0, "rank": None, "world_size": None}, "one rank"),
    "no collective": ({"has_calls": False}, "no collectives were found"),
    "few steps": ({"steps": 12}, "20 are needed"),
    "no step in common": ({"skipped": lambda rank, step: step % 4 != rank}, "no step in common"),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_says_too_little_has_a_reason_and_no_name(tmp_path: Path, name: str) -> None:
    given, why = SILENT[name]
    job(tmp_path, **given)
    told = lines(invoke("ranks", tmp_path))
    assert told[0] == "NO VERDICT"
    assert any(line.startswith("  because ") and why in line for line in told), told
    value = answer(tmp_path)
    assert (value["verdict"], value["findings"]) == ("abstained", [])
    nothing = answer(tmp_path, command="whatif")
    assert (nothing["severity"], nothing["cause"]["kind"]) == (None, "abstained")
    # Of few steps it is told how much slower they are, and no cause.
    assert (nothing["slowdown"] is None) == (name != "few steps")
    if name == "few steps":
        assert nothing["what"].endswith("Of only 11 steps no cause is named.")
    else:
        assert nothing["abstained"][0]["why"]


# What is odd, and leaves the late rank as it is; what is said beside.
NAMED: dict[str, tuple[dict[str, Any], str]] = {
    "no group lines": ({"has_group": False}, ""),
    "members that differ": (
        {"members": lambda rank: [0, 1, 2, 3] if rank < 3 else [0, 3]},
        "",
    ),
    "numbers of calls that differ": ({"seq": lambda rank, step: step * (1 + rank)}, ""),
    "steps that some lack": ({"skipped": lambda rank, step: rank == 1 and step % 7 == 0}, ""),
    "ranks without a trace": ({"world_size": 40}, "36 of 40 ranks have no trace"),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_is_odd_makes_no_wrong_name(tmp_path: Path, name: str) -> None:
    given, said = NAMED[name]
    value = answer(job(tmp_path, **given))
    assert [finding["ranks"] for finding in value["findings"]] == [[2]]
    assert said in "; ".join(value["unseen"])
    if said:
        assert value["findings"][0]["confidence"] == "low"
    answer(tmp_path, command="whatif")


def test_traces_of_two_runs_are_refused(tmp_path: Path) -> None:
    job(tmp_path / "one", run="aa11")
    job(tmp_path / "two", late=1, run="bb22")
    for command in ("ranks", "whatif"):
        both = invoke(command, tmp_path / "one", tmp_path / "two", "--run", "all")
        assert both.status == 2
        assert "aa11" in both.err
        assert "bb22" in both.err
    with pytest.raises(TraceError, match="2 runs"):
        ranks([tmp_path])


def test_a_rank_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    job(tmp_path)
    other = TraceLines(9000, rank=2, world_size=4)
    for step in range(30):
        other.span("step", "pipeline", (1000 + 40 * step) * MS, 30 * MS, step=step)
    other.footer()
    other.write(tmp_path / "t-host-9000.pfw.gz")
    done = invoke("ranks", tmp_path)
    assert (done.status, "rank 2 is there twice" in done.err) == (2, True), done.err


def test_of_two_starts_the_last_is_judged_or_the_one_that_is_asked_for(tmp_path: Path) -> None:
    job(tmp_path / "first", restarts=0)
    job(tmp_path / "second", late=1, restarts=1, time_base_us=1_762_570_000_000_000)
    for path in (tmp_path / "first").iterdir():
        shutil.copy(path, tmp_path / "second" / f"again-{path.name}")
    assert answer(tmp_path / "second")["findings"][0]["ranks"] == [1]
    assert answer(tmp_path / "second", "--attempt", "1")["findings"][0]["ranks"] == [2]
    assert invoke("ranks", tmp_path / "second", "--attempt", "3").status == 2
