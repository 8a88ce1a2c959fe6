"""The forms of `dftrace summary`: a tree, tables of tensors, by step, and only what is asked for."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines, small_trace
from cli.summed_up import MS, as_json, sums
from safety.commands import acting, invoke


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """Two ranks: steps with a forward that is in a model, some of them twice; a loader's thread."""
    out = tmp_path / "nested"
    for rank in range(2):
        trace = TraceLines(100 + rank, rank=rank)
        for step in range(3):
            at, said = step * 100 * MS, {"epoch": step // 2, "step": step % 2}
            trace.span("item", "data", at, 20 * MS, tid=7, **said)
            trace.span("forward", "compute", at + 10 * MS, 30 * MS, **said)
            trace.span("model", "compute", at + 5 * MS, 40 * MS, **said)
            if rank:
                trace.span("forward", "compute", at + 60 * MS, 10 * MS)
            trace.span("step", "pipeline", at, 90 * MS, **said)
        trace.footer(dropped=3 * rank, waits=1)
        trace.write(out / f"t-host-{100 + rank}.pfw.gz")
    return out


def test_the_tree_has_all_ranks_and_threads_in_one(nested: Path) -> None:
    found = as_json(nested, "--tree")
    assert (found["by"], found["spans"], found["chosen_events"]) == ("tree", [], None)
    rows = [(row["path"], row["count"], row["total_us"], row["self_us"]) for row in found["tree"]]
    assert rows == [
        (["pipeline.step"], 6, 540_000, 270_000),
        (["pipeline.step", "compute.model"], 6, 240_000, 60_000),
        (["pipeline.step", "compute.model", "compute.forward"], 6, 180_000, 180_000),
        (["pipeline.step", "compute.forward"], 3, 30_000, 30_000),
        (["data.item"], 6, 120_000, 120_000),
    ]
    # Of both processes, from the first event to the last; the loader's thread beside the other.
    assert {row["wall_us"] for row in found["tree"][:3]} == {580_000}
    assert found["tree"][3]["wall_us"] == 290_000
    assert sum(row["share"] for row in found["tree"][:3]) == pytest.approx(510 / 580)
    forward = found["tree"][2]
    assert [forward[name] for name in ("p50_us", "p95_us", "p99_us")] == [30_000] * 3
    out = invoke("summary", nested, "--tree").out
    shown = [line[2:26].rstrip() for line in out.splitlines() if "compute." in line]
    assert shown == ["  compute.model", "    compute.forward", "  compute.forward"]
    assert len(as_json(nested, "--tree", "--top", 2)["tree"]) == 2
    # What lies around what is asked for is there, without figures of its own.
    some = as_json(nested, "--tree", "--where", "name = 'forward' and dur_us < 20000")
    assert [(row["path"][-1], row["count"], row["mean_us"]) for row in some["tree"]] == [
        ("pipeline.step", 0, None),
        ("compute.forward", 3, 10_000),
    ]
    assert (some["chosen_events"], some["where"]) == (3, "name = 'forward' and dur_us < 20000")


def test_threads_steps_and_epochs_are_added_up_apart(nested: Path) -> None:
    threads = sums(as_json(nested, "--by", "thread"))
    assert threads["host:100 100 MainThread", "forward"] == (3, 90_000)
    assert threads["host:101 101 MainThread", "forward"] == (6, 120_000)
    assert threads["host:101 7", "item"] == (3, 60_000)
    steps = as_json(nested, "--by", "step")
    assert list(dict.fromkeys(row["group"] for row in steps["spans"])) == ["0/0", "0/1", "1/0", "-"]
    assert sums(steps)["0/1", "forward"] == (2, 60_000)
    assert sums(steps)["-", "forward"] == (3, 30_000)
    epochs = sums(as_json(nested, "--by", "epoch"))
    assert epochs["0", "step"] == (4, 360_000)
    assert epochs["1", "step"] == (2, 180_000)
    assert re.search(r"^  1/0 +pipeline ", invoke("summary", nested, "--by", "step").out, re.M)
    read = list(
        csv.DictReader(invoke("summary", nested, "--csv", "--by", "epoch").out.splitlines())
    )
    assert {row["group"] for row in read} == {"0", "1", "-"}


def test_steps_that_do_not_say_their_number_have_that_of_why(tmp_path: Path) -> None:
    trace = TraceLines()
    for step in range(3):
        at = step * 100 * MS
        trace.span("fetch.iter", "dataloader", at, 10 * MS)
        trace.span("forward", "compute", at + 20 * MS, 30 * MS)
        trace.span("item", "data", at + 25 * MS, 5 * MS, tid=7)
        trace.span("backward", "compute", at + 60 * MS, 20 * MS, epoch=4, step=9)
        trace.span("step", "pipeline", at + 10 * MS, 80 * MS)
    trace.span("capture", "checkpoint", 300 * MS, 5 * MS)
    trace.footer()
    path = trace.write(tmp_path / "t-host-100.pfw.gz")
    found = as_json(path, "--by", "step")
    # The wait before a step is its own; what says its step itself is believed.
    assert sums(found) == {
        **{
            (str(step), name): (1, ms * 1000)
            for step in range(3)
            for name, ms in (("fetch.iter", 10), ("forward", 30), ("item", 5), ("step", 80))
        },
        ("4/9", "backward"): (3, 60_000),
        ("-", "capture"): (1, 5_000),
    }
    shares = {(row["group"], row["name"]): row["share"] for row in found["spans"]}
    assert shares["1", "forward"] == pytest.approx(30 / 90)
    assert shares["4/9", "backward"] == pytest.approx(60 / 220)
    assert invoke("why", path).status == 0
    # Steps with a number are not numbered anew.
    numbered = TraceLines()
    for step in (5, 6):
        numbered.span("forward", "compute", step * MS, MS // 2)
        numbered.span("step", "pipeline", step * MS, MS, epoch=1, step=step)
    groups = {
        group for group, _ in sums(as_json(numbered.write(tmp_path / "n.pfw"), "--by", "step"))
    }
    assert groups == {"1/5", "1/6", "-"}


@pytest.mark.parametrize("by", ["thread", "step", "epoch"])
def test_a_process_without_spans_has_no_groups(nested: Path, by: str) -> None:
    before = as_json(nested, "--by", by)["spans"]
    idle = TraceLines(pid=555)
    idle.counter("memory", 0, rss=1.0)
    idle.write(nested / "idle-host-555.pfw.gz")
    assert as_json(nested, "--by", by)["spans"] == before


def test_only_what_is_asked_for_is_added_up(nested: Path) -> None:
    found = as_json(nested, "--where", "rank = 1 and not name like 'f%' and cat != 'data'")
    assert {row["name"]: (row["count"], row["self_us"]) for row in found["spans"]} == {
        "model": (3, 30_000),  # without the forward inside of it, which is not asked for
        "step": (3, 120_000),
    }
    assert (found["events"], found["chosen_events"]) == (27, 6)
    text = invoke("summary", nested, "--where", "args.step = 1", "--by", "rank").out
    assert "27 events in 2 files\nof these 8 meet --where\n" in text
    none = as_json(nested, "--where", "cat = 'comm'")
    assert (none["spans"], none["chosen_events"]) == ([], 0)
    categories = as_json(nested, "--by", "category", "--where", "cat = 'compute'")
    assert [(row["cat"], row["count"]) for row in categories["spans"]] == [("compute", 15)]
    done = invoke("summary", nested, "--where", "cat = comm")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("dftrace: --where 'cat = comm' is not accepted at 'comm'")


def test_losses_of_all_files_stand_below_the_table(nested: Path) -> None:
    found = as_json(nested)
    assert found["losses"] == {"dropped": 3, "waits": 2}
    below = invoke("summary", nested).out.partition("27 events in 2 files")[2]
    assert "in all: LOST 3 events, the spool was full" in below
    assert "in all: threads waited 2 times for a full spool" in below
    broken = small_trace()
    broken.lines.insert(-1, "nonsense")
    path = broken.write(nested / "more.pfw")
    assert as_json(path)["losses"] == {"unfinished": 1, "unreadable": 1}
    assert "in all: 1 line without an event, not counted" in invoke("summary", path, "--tree").out


def test_statistics_of_tensors_have_a_table(tmp_path: Path) -> None:
    for rank in range(2):
        trace = TraceLines(100 + rank)
        for step in (2, 0, 1):
            broken = rank and step
            values = {"max": None, "max_str": "nan"} if broken else {"max": step + 0.5 - rank}
            args = {"iteration": step, "rank": rank, "feature": "stats", "n": 10, "n_nan": 1}
            trace.event(
                *("i", "fc:input", "tensor_stats", step * MS),
                more=',"s":"t"',
                **{**args, **values, "min": -1.0},
            )
        trace.footer()
        trace.write(tmp_path / f"t-{rank}.pfw.gz")
    found = as_json(tmp_path, "--tensors")
    assert found["tensors"] == [
        {"name": "fc:input", "statistic": "max", "count": 6, "nonfinite": 2}
        | {"first": 0.5, "last": 2.5, "min": -0.5, "max": 2.5, "first_nonfinite_step": 1},
        {"name": "fc:input", "statistic": "min", "count": 6, "nonfinite": 0}
        | {"first": -1, "last": -1, "min": -1, "max": -1, "first_nonfinite_step": None},
    ]
    out = invoke("summary", tmp_path, "--tensors").out
    rows = [line.split() for line in out.splitlines() if "fc:input" in line]
    assert rows[0] == ["fc:input", "max", "6", "0.5", "2.5", "-0.5", "2.5", "1"]
    assert rows[1][-1] == "-"
    assert (
        "6 events with statistics of tensors; --tensors has a table"
        in invoke("summary", tmp_path).out
    )
    some = as_json(tmp_path, "--tensors", "--where", "args.rank = 0")["tensors"]
    assert [(row["statistic"], row["count"]) for row in some] == [("max", 3), ("min", 3)]


def test_without_statistics_of_tensors_it_says_so_and_how_to_have_some(nested: Path) -> None:
    done = invoke("summary", nested, "--tensors")
    assert done.status == 0
    assert "Statistics of tensors" not in done.out
    assert done.out.startswith("no statistics of tensors are in these traces.")
    assert "log_tensor_stats" in done.out
    out = invoke("summary", nested, "--tensors", "--where", "args.rank = 0").out
    assert out.startswith("no statistics of tensors meet --where\n")
    assert as_json(nested, "--tensors")["tensors"] == []


def test_more_rows_than_fit_are_refused_and_not_cut(
    nested: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dftrace_ai.analysis.summary.choosing.MOST_AT_ONCE", 8)
    done = invoke("summary", nested, "--by", "step")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(
        "dftrace: more than 8 rows; ask for fewer of them, such as with --where"
    )
    assert invoke("summary", nested, "--by", "step", "--where", "name = 'step'").status == 0


def test_names_in_a_tree_and_of_tensors_cannot_act(tmp_path: Path) -> None:
    trace = TraceLines()
    trace.span("a\x1b[2Jb", "c\u202e", 0, 5)
    trace.event("i", "t\x1b[2J", "tensor_stats", 5, more=',"s":"t"', **{"m\x1b": 1.5})
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    for option in ("--tree", "--tensors"):
        out = invoke("summary", path, option).out
        assert r"\x1b[2J" in out
        assert not acting(out)
