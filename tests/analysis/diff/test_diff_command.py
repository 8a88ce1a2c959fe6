"""`dftrace diff`: what it prints, its JSON, conditions and their exit status, and when it is silent."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines, small_trace
from analysis.why.made_runs import Lines, Training
from safety.commands import answer, at_terminal, invoke

from dftrace_ai.analysis.diff import conditions_of, diff

MS = 1_000_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The second has slower forwards and items, and saves checkpoints."""
    folder = tmp_path_factory.mktemp("runs")
    before = Training(steps=60).write(folder / "before", 1)
    slower = Training(steps=60, since=(0, 0.3), item_ms=1.5, checkpoint=(20, 30))
    return before, slower.write(folder / "after", 2)


def stepped(folder: Path, ms: float = 3, *, steps: int = 40, outer: str = "train") -> Path:
    """Steps of 10 ms exactly; in each a span around a forward, which takes so long."""
    trace = TraceLines()
    for step in range(steps):
        at = step * 10 * MS
        trace.span("forward", "compute", at + MS, int(ms * MS))
        trace.span(outer, "model", at + MS // 2, 8 * MS)
        trace.span("step", "compute", at + 9 * MS, MS // 2)
        trace.span("step", "pipeline", at, 10 * MS)
    trace.footer()
    return trace.write(folder / "t.pfw.gz", 50)


def test_the_text_says_what_changed_and_how_sure_that_is(runs: tuple[Path, Path]) -> None:
    done = invoke("diff", *runs)
    assert done.status == 0
    lines = done.out.splitlines()
    assert re.match(
        r"SLOWER: a step took [\d.]+ ms in A, [\d.]+ ms in B: \+\d+\.\d % \(\+", lines[0]
    )
    rows = [line.split() for line in lines if re.match(r"  (slower|new|faster|gone)\b", line)]
    assert [(row[0], row[1]) for row in rows] == [
        ("slower", "compute.forward"),
        ("slower", "data.item"),
        ("new", "checkpoint.capture"),
    ]
    assert rows[1][2] == "*"
    assert "* in other threads or processes than the one that trains" in lines
    assert f"A: {runs[0]}: 118 steady steps of 120, by loader blocks" in lines
    by_tree = invoke("diff", *runs, "--by", "tree").out
    assert "dataloader.fetch.block > compute.forward" in by_tree
    assert re.search(r"slower +compute ", invoke("diff", *runs, "--by", "category").out)
    cut = invoke("diff", *runs, "--top", 1).out
    assert "data.item" not in cut
    assert "2 rows more, which --top leaves out" in cut


def test_the_json_says_the_same(runs: tuple[Path, Path]) -> None:
    value = answer("diff", *runs)
    assert (value["kind"], value["format"], value["verdict"]) == ("dftrace diff", 1, "slower")
    rows = {(row["cat"], row["name"]): row for row in value["names"]}
    forward = rows["compute", "forward"]
    assert forward["path"] == []
    assert forward["change"]["kind"] == "slower"
    assert (forward["count_before"], forward["count_after"]) == (1, 1)
    added = forward["change"]["after_ns"] - forward["change"]["before_ns"]
    assert forward["change"]["low_ns"] < added < forward["change"]["high_ns"]
    assert rows["checkpoint", "capture"]["change"]["low_ns"] is None
    assert rows["data", "item"]["beside"]
    assert [row["name"] for row in value["categories"]] == [None] * len(value["categories"])
    assert all(row["path"] for row in value["tree"])
    assert answer("diff", *runs) == value  # the same seed each time


def test_own_times_are_told_exactly_and_a_renamed_parent_hides_no_child(tmp_path: Path) -> None:
    before = stepped(tmp_path / "a", 3)
    after = stepped(tmp_path / "b", 5, outer="fit")
    value = answer("diff", before, after)
    tree = {tuple(row["path"]): row for row in value["tree"]}
    forward = tree["pipeline.step", "model.fit", "compute.forward"]
    assert forward["path_before"] == ["pipeline.step", "model.train", "compute.forward"]
    assert forward["change"] == {
        "kind": "slower",
        "measure": "median",
        "before_ns": 3 * MS,
        "after_ns": 5 * MS,
        "low_ns": 2 * MS,
        "high_ns": 2 * MS,
    }
    assert tree["pipeline.step", "model.train"]["change"]["kind"] == "gone"
    fit = tree["pipeline.step", "model.fit"]
    assert (fit["change"]["kind"], fit["change"]["after_ns"]) == ("new", 3 * MS)
    # What lies inside of it has grown; the step and its own time have not.
    assert value["verdict"] == "none"
    assert {name: tree[name]["change"]["kind"] for name in tree if len(name) < 3} == {
        ("pipeline.step", "model.fit"): "new",
        ("pipeline.step", "model.train"): "gone",
        ("pipeline.step", "compute.step"): "same",
        ("pipeline.step",): "same",
        ("none.not annotated",): "small",
    }


def test_with_too_few_steps_nothing_is_said(tmp_path: Path) -> None:
    long, short = stepped(tmp_path / "a"), stepped(tmp_path / "b", 9, steps=19)
    value = answer("diff", long, short)
    assert (value["verdict"], value["names"], value["step"]) == ("abstained", [], None)
    assert "steady steps, 20 are needed" in value["abstained"]
    done = invoke("diff", long, short)
    assert done.out.startswith(f"NOT JUDGED: {short}: 18 steady steps, 20 are needed\n")
    small = small_trace().write(tmp_path / "c" / "t.pfw")
    assert "0 steady steps, 20 are needed" in answer("diff", long, small)["abstained"]
    idle = TraceLines()
    idle.span("forward", "compute", 0, MS)
    none = answer("diff", long, idle.write(tmp_path / "d.pfw"))
    assert "no steps were found" in none["abstained"]


CONDITIONS = [
    ("compute.forward p50 > +5%", True),
    ("compute.forward > 70%", False),
    ("compute.forward > +1.9ms", True),
    ("compute.forward > +2.1ms", False),
    ("compute.forward >= 4.9 ms", True),
    ("compute.forward > 5.1ms", False),
    ("compute.forward mean > +66%", True),
    ("model.train self < -24%", True),
    ("model.train p50 > +1%", False),
    ("model > 0%", False),
    ("compute p50 > +1ms", True),
    ("compute.forward count > 0.5", True),
    ("compute.forward count > +0%", False),
    ("step < 0.01s", False),
    ('"step" <= 10001 us', True),
    ("none < 600us", True),
]


def test_conditions_are_met_for_sure_or_not(tmp_path: Path) -> None:
    """A forward takes 5 ms instead of 3, within a span of 8 ms and steps of 10."""
    before, after = stepped(tmp_path / "a", 3), stepped(tmp_path / "b", 5)
    found = diff(before, after, conditions_of([text for text, _ in CONDITIONS]))
    assert [(one.condition, one.met) for one in found.conditions] == CONDITIONS
    assert (found.conditions[0].value, found.conditions[0].unit) == (pytest.approx(200 / 3), "%")
    for text, met in CONDITIONS[:2]:
        assert invoke("diff", before, after, "--fail-if", text).status == int(met)
    done = invoke(
        "diff", before, after, "--fail-if", CONDITIONS[1][0], "--fail-if", CONDITIONS[0][0]
    )
    assert done.status == 1
    assert "--fail-if compute.forward p50 > +5%: MET: +66.67 % (+66.67 to +66.67)" in done.out
    assert "--fail-if compute.forward > 70%: not met" in done.out
    short = stepped(tmp_path / "d", 0.02)
    assert ": MET: +14900.0 % (" in invoke("diff", short, before, "--fail-if", CONDITIONS[0][0]).out
    # Only what is in the second run, by any percentage.
    renamed = stepped(tmp_path / "c", 3, outer="fit")
    assert answer("diff", before, renamed, "--fail-if", "model.fit > 1000%", status=1)[
        "conditions"
    ] == [
        {"condition": "model.fit > 1000%", "met": True, "value": None, "low": None, "high": None}
        | {"unit": "%", "why": ""}
    ]


def test_an_interval_that_holds_the_limit_meets_no_condition(runs: tuple[Path, Path]) -> None:
    (one,) = answer("diff", *runs, "--fail-if", "compute.forward > 30%")["conditions"]
    assert one["low"] < 30 < one["high"]
    assert one["met"] is False


def test_what_cannot_be_judged_is_neither_met_nor_fine(tmp_path: Path) -> None:
    long, short = stepped(tmp_path / "a"), stepped(tmp_path / "b", steps=19)
    done = invoke("diff", long, short, "--fail-if", "step > 5%")
    assert done.status == 2
    assert "--fail-if step > 5%: cannot be judged: " in done.err
    done = invoke("diff", long, long, "--fail-if", "step p99 > 5%")
    assert (done.status, "p99 needs 500" in done.err) == (2, True)
    assert (
        answer("diff", long, short, "--fail-if", "step > 5%", status=2)["conditions"][0]["met"]
        is None
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "accepted: a name, a figure"),
        ("compute.forward", "accepted: a name, a figure"),
        ("compute.forward p50 > fast", "accepted: a name, a figure"),
        ("compute.forward p50 > 5 % more", "accepted: a name, a figure"),
        ("compute.forward p51 > 5%", "there is no figure 'p51'"),
        ("compute.forward p50 > 5", "the limit of p50 has %, ns, us, ms or s"),
        ("compute.forward count > 5ms", "the limit of count has % or no unit"),
        ("compute.forwrd > 5%", "did you mean 'compute.forward'?"),
        ("\x1b[2J > 5%", r"\x1b[2J"),
    ],
)
def test_a_wrong_condition_is_told_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    before = stepped(tmp_path / "a", 3, steps=30)
    done = invoke("diff", before, before, "--fail-if", text)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("dftrace: --fail-if ")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert "\x1b" not in done.err


def test_runs_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    whole = stepped(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    for other in (tmp_path / "nothing", tmp_path / "empty"):
        done = invoke("diff", whole, other)
        assert (done.status, done.out) == (2, "")
    cut = tmp_path / "cut.pfw.gz"
    cut.write_bytes(whole.read_bytes()[:-30])
    done = invoke("diff", whole, cut)
    assert done.status == 0
    assert "torn" in done.err
    lost = TraceLines()
    lost.lines = stepped_lines(whole)
    lost.footer(dropped=12)
    done = invoke("diff", whole, lost.write(tmp_path / "lost.pfw"))
    assert "LOST 12 events" in done.err


def stepped_lines(path: Path) -> list[str]:
    import gzip

    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return [line for line in lines if '"name":"end"' not in line]


def test_ranks_are_compared_together(tmp_path: Path) -> None:
    for run, slow in (("a", 0.0), ("b", 0.4)):
        for rank in range(2):
            training = Training(steps=40, epochs=1, world=2, since=(0, slow if rank else 0.0))
            for file in training.write(tmp_path / run / str(rank), 3 * rank + 1).glob("*.pfw"):
                text = file.read_text("utf-8").replace('"rank":0,', f'"rank":{rank},')
                file.write_text(text.replace("2a702c695247d487", f"{rank:016x}"), "utf-8")
    value = answer("diff", tmp_path / "a", tmp_path / "b")
    assert [value[run]["ranks"] for run in ("before", "after")] == [2, 2]
    assert [value[run]["judged"] for run in ("before", "after")] == [39, 39]
    forward = next(row for row in value["names"] if row["name"] == "forward")
    # Of the two one is slower by 40 %.
    assert forward["change"]["after_ns"] / forward["change"]["before_ns"] == pytest.approx(
        1.2, 0.05
    )
    assert value["names"][0] == forward


def test_all_that_is_slower_alike_is_a_note(tmp_path: Path) -> None:
    before = Training(steps=60, epochs=1).write(tmp_path / "a", 1)
    busy = Training(steps=60, epochs=1, contention=(0, 999, 1.4)).write(tmp_path / "b", 2)
    done = invoke("diff", before, busy)
    assert "all parts of a step are slower alike" in done.err


def waited_for(folder: Path, ms: float) -> Path:
    """Two ranks, of which one does something for so long, and the other waits for it."""
    for rank in range(2):
        lines, now = Lines(rank + 1, rank=rank, world_size=2), 0.0
        for step in range(40):
            lines.say("compute", "forward", now, MS)
            if rank == 0:
                lines.say("comm", "all_reduce", now + MS, ms * MS)
            lines.say("compute", "step", now + (1 + ms) * MS, MS / 10)
            lines.say("pipeline", "step", now, (1.2 + ms) * MS, step=step)
            now += (1.2 + ms) * MS
        if ms == 10:
            lines.say("comm", "barrier", now, MS)
        lines.footer()
        lines.write(folder / f"t-{rank}.pfw", 10**9)
    return folder


def test_ranks_that_wait_for_a_slow_one_are_on_no_other_machine(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    runs = waited_for(tmp_path / "a", 10), waited_for(tmp_path / "b", 20)
    done = invoke("diff", *runs)
    assert done.out.startswith("SLOWER")
    assert "all parts" not in done.err
    alone = Training(steps=60, epochs=1).write(tmp_path / "alone", 1)
    assert "2 ranks in the first run, 1 in the second" in invoke("diff", runs[0], alone).err
    # What lies in no judged step of either run is no row.
    assert not [row for row in diff(*runs).names if row.name == "barrier"]
    # One rank waits for nobody; it is compared with several all the same.
    alone = Training(steps=60, epochs=1, step_ms=2.0, item_ms=0.1).write(tmp_path / "alone", 1)
    assert invoke("diff", alone, runs[0]).err.count("1 rank in the first run, 2 in the second")
    assert "all parts" not in invoke("diff", runs[0], alone).err


def test_a_run_beside_itself_differs_by_nothing(tmp_path: Path) -> None:
    odd = Training(steps=40, epochs=1, bimodal=9.0, since=(20, 4.0)).write(tmp_path, 1)
    done = invoke("diff", odd, odd)
    assert "+0.0 % (+0.0 to +0.0 %)" in done.out.splitlines()[0]
    assert "A and B are one and the same run" in done.err
    rows = diff(odd, odd).names
    assert {(row.change.low_ns, row.change.high_ns) for row in rows} <= {(0.0, 0.0), (None, None)}


def of_lengths(folder: Path, steps_ms: Iterable[float]) -> Path:
    trace, at = TraceLines(), 0
    for step, ms in enumerate(steps_ms):
        took = round(ms * MS) + step % 7 * MS // 10
        trace.span("forward", "compute", at + MS // 4, took - MS // 2)
        trace.span("step", "pipeline", at, took)
        at += took
    trace.footer()
    return trace.write(folder / "t.pfw.gz", 50)


def test_pauses_now_and_then_are_slower_for_sure(tmp_path: Path) -> None:
    usual = [17, 17, 23, 18, 16, 21, 15, 21, 16, 19]
    once = [*usual, *usual, 87, *usual, *usual[1:]]
    long = iter([396, 417, 274, 518, 567, 422, 455])
    pauses = [next(long) if step in range(5, 40, 5) else ms for step, ms in enumerate(usual * 4)]
    runs = [of_lengths(tmp_path / name, ms) for name, ms in (("A", once), ("B", pauses))]
    told = "ms more than the median, 7 of 39 in B took 2.9"
    for pair, verdict, noted in ((runs, "slower", told), (runs[::-1], "faster", "7 of 39 in A")):
        found = diff(*pair)
        assert (found.verdict, found.step and found.step.measure) == (verdict, "mean")
        assert any(noted in note for note in found.notes)
    # Times that are no medians say so, and what they are.
    done = invoke("diff", *runs)
    (row,) = (line for line in done.out.splitlines() if "compute.forward" in line)
    assert row.count("~ ") == 2
    assert "~ the mean of steps, where the median says nothing for sure" in done.out
    # One pause may be chance, and is no less than what the quickest step takes.
    one = diff(runs[0], of_lengths(tmp_path / "C", [*usual, 17, 1500, *usual, *usual, *usual[2:]]))
    assert one.verdict == "none"
    assert one.step is not None
    assert one.step.low_ns == pytest.approx(15 * MS - one.step.before_ns, abs=MS)
    assert any("1 of 39 in B took 1.48 s more" in note for note in one.notes)


def test_a_median_that_a_few_steps_outweigh_is_no_verdict(tmp_path: Path) -> None:
    even = of_lengths(tmp_path / "even", [20] * 200)
    rare = of_lengths(tmp_path / "rare", [900 if at % 40 == 20 else 2 for at in range(200)])
    for pair in ((even, rare), (rare, even)):
        done = invoke("diff", *pair)
        assert done.out.startswith("NO CLEAR CHANGE: a step took ")
        assert " on average: " in done.out.splitlines()[0]
        assert "the median step went the other way: " in done.err
        value = answer("diff", *pair)
        forward = next(row for row in value["names"] if row["name"] == "forward")
        assert forward["change"]["kind"] == "unsure"
        # Nothing saves more than all of it.
        for change in (value["step"], *(row["change"] for row in value["names"])):
            assert change["low_ns"] is None or change["low_ns"] >= -change["before_ns"]


def test_of_what_is_not_sure_the_mean_is_told_where_long_steps_outweigh_the_others(
    tmp_path: Path,
) -> None:
    draw = random.Random(1)
    calm = of_lengths(tmp_path / "calm", [draw.uniform(15, 35) for _ in range(60)])
    paused = [900 if at % 30 == 10 else draw.uniform(13, 33) for at in range(60)]
    for pair in ((calm, rare := of_lengths(tmp_path / "paused", paused)), (rare, calm)):
        found = diff(*pair)
        assert (found.verdict, found.step and found.step.measure) == ("none", "mean")
        assert any("the median step went the other way" in note for note in found.notes)


def test_what_lies_between_steps_is_in_no_row(tmp_path: Path) -> None:
    run = Training(steps=20, epochs=3, workers=0, save_ms=50).write(tmp_path, 1)
    names = {row.name: row.count_after for row in diff(run, run).names}
    assert names["forward"] == 1
    assert "capture" not in names


def test_nothing_is_folded_at_a_narrow_terminal(runs: tuple[Path, Path]) -> None:
    status, text = at_terminal("diff", *runs, env={"TERM": "dumb", "COLUMNS": "80"})
    assert status == 0
    rows = [line for line in text.splitlines() if re.match(r"  (slower|new) ", line)]
    assert len(rows) == 3


def profile(folder: Path, linear_us: int, steps: int) -> Path:
    """Steps of torch.profiler, each with a name of its own, and kernels beside them."""
    lines = ["["]
    for step in range(steps):
        at = 1_700_000_000_000_000 + step * 10_000
        for cat, name, tid, start, length in (
            ("user_annotation", f"ProfilerStep#{step + steps}", 1, 0, 10_000),
            ("cpu_op", "aten::linear", 1, 100, linear_us),
            ("user_annotation", "Optimizer.step#SGD.step", 1, 8300, 1600),
            ("kernel", "sgemm", 7, 200, linear_us // 2),
        ):
            event = {"name": name, "cat": cat, "pid": 1, "tid": tid, "ph": "X"}
            lines.append(json.dumps({**event, "ts": at + start, "dur": length}))
    folder.mkdir()
    path = folder / "profile.pfw"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_runs_under_torch_profiler_are_compared(tmp_path: Path) -> None:
    value = answer("diff", profile(tmp_path / "a", 4000, 30), profile(tmp_path / "b", 5000, 40))
    told = {
        (row["name"], row["beside"]): row["change"]["kind"]
        for row in value["names"]
        if row["change"]["kind"] in {"slower", "faster", "new", "gone"}
    }
    # The step's own time is what the operator has left of it.
    assert told == {
        ("aten::linear", False): "slower",
        ("sgemm", True): "slower",
        ("ProfilerStep", False): "faster",
    }
    tree = {tuple(row["path"]) for row in value["tree"]}
    assert ("user_annotation.ProfilerStep", "cpu_op.aten::linear") in tree
