"""What `dftrace summary` prints: tables, JSON, CSV, their order, and each of its forms."""

from __future__ import annotations

import csv
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from analysis.trace_lines import TraceLines, small_trace
from conftest import Traced
from safety.commands import acting, answer, at_terminal, invoke

from dftrace_ai.analysis.texts import time_text

MS = 1_000_000


def table_rows(text: str) -> dict[str, list[str]]:
    """The words of each row of spans, by the name of the span."""
    rows = (line.split() for line in text.splitlines())
    return {words[1]: words for words in rows if len(words) > 4 and words[2].isdecimal()}


def sums(found: dict[str, Any]) -> dict[tuple[str, str], tuple[int, float]]:
    return {(row["group"], row["name"]): (row["count"], row["total_us"]) for row in found["spans"]}


def on_screen(*words: object, width: int) -> tuple[int, str]:
    """The exit status, and what a terminal of this width shows, without its colours."""
    status, text = at_terminal(*words, env={"TERM": "xterm", "COLUMNS": str(width)})
    return status, re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Ten steps of 100 ms, of which 30 ms are a forward and 45 ms a backward."""
    trace = TraceLines()
    for step in range(10):
        at = step * 100 * MS
        trace.span("forward", "compute", at, 30 * MS)
        trace.span("backward", "compute", at + 40 * MS, 45 * MS)
        trace.span("step", "pipeline", at, 100 * MS)
    trace.footer()
    return trace.write(tmp_path / "out" / "t.pfw.gz")


def test_times_are_in_the_units_that_people_read() -> None:
    assert [
        time_text(1000 * micros)
        for micros in (
            *(0, 0.05, 0.4, 0.9996, 45, 999.4, 999.6, 3200, 1_838_200),
            *(999_600_000, 7_200_000_000),
        )
    ] == [
        *("0 ns", "50 ns", "400 ns", "1 us", "45 us", "999 us", "1 ms", "3.2 ms", "1.84 s"),
        *("1,000 s", "7,200 s"),
    ]


def test_the_share_is_self_time_of_wall_time(steps: Path) -> None:
    rows = table_rows(invoke("summary", steps).out)
    assert rows["step"] == "pipeline step 10 1 s 250 ms 25.0%".split() + ["100", "ms"] * 5
    assert rows["forward"][3:8] == ["300", "ms", "300", "ms", "30.0%"]
    assert rows["backward"][3:8] == ["450", "ms", "450", "ms", "45.0%"]
    found = answer("summary", steps)
    assert found["format"] == 2
    assert {row["name"]: (row["self_us"], row["share"]) for row in found["spans"]} == {
        "step": (250_000, 0.25),
        "forward": (300_000, 0.3),
        "backward": (450_000, 0.45),
    }


def test_a_share_of_more_than_all_is_explained(tmp_path: Path) -> None:
    trace = TraceLines()
    for step in range(2):
        trace.span("step", "pipeline", 1000 * step, 1000, step=step)
        for track in range(3):
            trace.span("send", "comm", 1000 * step, 900, tid=1_342_177_280 + track, step=step)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    told = "a share of more than 100 %: several of these spans lasted at the same time"
    for words in ((), ("--by", "step")):
        done = invoke("summary", path, *words)
        assert re.search(r"send .* 270\.0%", done.out)
        assert told in done.out.splitlines()


def test_spans_that_take_no_time_have_no_share(tmp_path: Path) -> None:
    trace = TraceLines()
    trace.span("blink", "compute", 100, 0)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    assert table_rows(invoke("summary", path).out)["blink"][3:8] == ["0", "ns", "0", "ns", "-"]
    assert answer("summary", path)["spans"][0]["share"] is None


@pytest.mark.parametrize("width", [30, 50, 80, 120])
def test_figures_give_way_to_a_narrow_terminal_and_that_is_said(steps: Path, width: int) -> None:
    status, text = on_screen("summary", steps, width=width)
    lines = text.splitlines()
    assert status == 0
    assert max(map(len, lines)) <= width
    if width > 30:
        rows = [line for line in lines if " ms" in line or " s " in line]
        assert len(rows) == 3
        # Nothing is folded or cut, and figures stand below each other.
        assert {len(row.rstrip()) for row in rows} == {len(rows[0].rstrip())}
        assert "…" not in text
    said = " ".join(text.split())
    # Where names have none either, each row is lines of all figures.
    assert ("no room for" in said) == (30 < width < 120)
    assert ("row 3 category" in said) == (width == 30)
    if width == 50:
        assert "no room for self, mean, p50, p95, p99, max;" in said


def test_what_is_not_whole_stands_below_the_table(tmp_path: Path) -> None:
    small_trace().write(tmp_path / "out" / "a.pfw.gz")
    lost = small_trace(pid=200)
    lost.lines.pop()
    lost.footer(dropped=12, waits=3)
    lost.write(tmp_path / "out" / "b.pfw.gz")
    (tmp_path / "out" / "c.pfw").write_bytes(b"\x89PNG\r\n")
    status, text = at_terminal("summary", tmp_path / "out")
    assert status == 1
    below = text[text.index("20 events in 2 files") :]
    for part in ("2 spans without an end", "skipped: ", "LOST 12 events", "waited 3 times"):
        assert part in below


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Two ranks on two hosts: rank 0 in two parts, rank 10 slower; a loader that says no rank."""
    out = tmp_path / "job"
    for rank, pid, host, ms in ((0, 100, "a", 10), (10, 200, "b", 30)):
        for part in range(2 - bool(rank)):
            trace = TraceLines(pid, host=host, rank=rank)
            for step in range(4):
                at = (part * 4 + step) * 100 * MS
                trace.span("forward", "compute", at, ms * MS)
                trace.span("loss", "compute", at + 50 * MS, 2 * MS)
                trace.span("step.block", "pipeline", at, 90 * MS)
            trace.footer()
            trace.write(out / f"t-{host}-{pid}{'.part1' if part else ''}.pfw.gz")
    loader = TraceLines(300, host="b")
    loader.span("item", "data", 0, 5 * MS)
    loader.footer()
    loader.write(out / "t-b-300.pfw")
    return out


def test_ranks_hosts_and_processes_are_added_up_apart(job: Path) -> None:
    ranks = answer("summary", job, "--by", "rank")
    assert ranks["by"] == "rank"
    assert sums(ranks) == {
        ("0", "forward"): (8, 80_000),
        ("0", "loss"): (8, 16_000),
        ("0", "step.block"): (8, 720_000),
        ("10", "forward"): (4, 120_000),
        ("10", "loss"): (4, 8_000),
        ("10", "step.block"): (4, 360_000),
        ("-", "item"): (1, 5_000),
    }
    assert [row["group"] for row in ranks["spans"]] == ["0"] * 3 + ["10"] * 3 + ["-"]
    # Of the time from the first event of each process to its last, over both parts of a file.
    shares = {(row["group"], row["name"]): row["share"] for row in ranks["spans"]}
    assert shares["0", "forward"] == pytest.approx(80 / 790)
    assert shares["10", "forward"] == pytest.approx(120 / 390)
    assert shares["-", "item"] == 1
    hosts = sums(answer("summary", job, "--by", "host"))
    assert {group for group, _ in hosts} == {"a", "b"}
    assert hosts["b", "item"] == (1, 5_000)
    processes = sums(answer("summary", job, "--by", "process"))
    assert {group for group, _ in processes} == {"a:100", "b:200", "b:300"}
    # Files, other events and counts are those of all.
    whole = answer("summary", job)
    for member in ("files", "others", "events", "warnings"):
        assert ranks[member] == whole[member]
    rows = [line.split() for line in invoke("summary", job, "--by", "rank").out.splitlines()]
    assert ["rank", "category", "name"] in [row[:3] for row in rows]
    assert ["10", "compute", "forward", "4", "120", "ms"] in [row[:6] for row in rows]


def test_rows_are_sorted_and_cut(job: Path) -> None:
    for sort in ("total", "self", "count", "mean", "p99", "max"):
        member = "count" if sort == "count" else f"{sort}_us"
        rows = answer("summary", job, "--by", "rank", "--sort", sort)["spans"]
        assert len(rows) == 7
        values = [row[member] for row in rows if row["loop"] is None]
        assert all(before >= after for before, after in pairwise(values))
    found = answer("summary", job, "--top", 2)
    assert [row["name"] for row in found["spans"]] == ["forward", "loss", "step.block"]
    assert found["rows_left_out"] == 1
    out = invoke("summary", job, "--top", 2).out
    assert list(table_rows(out)) == ["forward", "loss", "step.block"]
    assert "1 row more, which --top leaves out" in out
    # Shares are of all rows, also of those that are not printed.
    assert found["spans"][0]["share"] == pytest.approx(200 / 1180)


def test_csv_has_all_figures_of_the_rows(job: Path, tmp_path: Path) -> None:
    done = invoke("summary", job, "--csv", "--by", "rank")
    assert done.status == 0
    read = list(csv.DictReader(done.out.splitlines()))
    rows = answer("summary", job, "--by", "rank")["spans"]
    assert [[*row.values()] for row in read] == [
        ["" if value is None else str(value) for value in row.values()] for row in rows
    ]
    assert list(read[0]) == list(rows[0])
    trace = TraceLines()
    trace.span('a,"b"\n\x1b[2J', "compute", 0, 5)
    trace.footer()
    text = invoke("summary", "--csv", trace.write(tmp_path / "t.pfw")).out
    assert "\x1b" not in text
    assert [row["name"] for row in csv.DictReader(text.splitlines())] == [r'a,"b"\n\x1b[2J']
    assert invoke("summary", job, "--csv", "--json").status == 2


ACTS = ["=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-x", "\uff1d1", "-1.5", "plain=1"]


def test_what_a_spreadsheet_or_a_terminal_would_obey_is_made_harmless(tmp_path: Path) -> None:
    trace = TraceLines()
    for number, name in enumerate([*ACTS, "\x9b2J"]):
        trace.span(name, "compute", 10 * number, 5)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    safe = {"'" + name if name not in ACTS[-2:] else name for name in ACTS}
    query = "select name, -dur_ns as dur_ns from spans"
    for words in (("summary", path), ("sql", path, query)):
        done = invoke(*words, "--csv")
        rows = list(csv.DictReader(done.out.splitlines()))
        assert safe < {row["name"] for row in rows}
        assert all(float(row.get("dur_ns", -1)) < 0 for row in rows)
        done = invoke(*words, "--json")
        assert "\x9b" not in done.out
        found = json.loads(done.out)
        named = found["spans"] if isinstance(found, dict) else found
        assert {row["name"] for row in named} == {*ACTS, "\x9b2J"}


@pytest.mark.parametrize(
    "words",
    [
        ("--by", "tree", "--csv"),
        ("--by", "tree", "--sort", "self"),
        ("--by", "tensor", "--csv"),
        ("--by", "tensor", "--top", 3),
    ],
)
def test_forms_that_do_not_go_together_are_refused(steps: Path, words: tuple[object, ...]) -> None:
    done = invoke("summary", steps, *words)
    assert (done.status, done.out) == (2, "")
    assert "cannot be given together" in " ".join(done.err.split())


def test_a_rank_is_shown_with_its_place_in_a_parallel_training(traced: Traced) -> None:
    import dftrace_ai

    for rank, layout in enumerate(("dp=0,pp=1", None)):
        with traced(perfetto=False, rank=rank, world_size=2, layout=layout) as run:
            with dftrace_ai.ai.compute.forward:
                pass
    done = invoke("summary", run.folder.parent, "--by", "rank")
    rows = [line.split() for line in done.out.splitlines() if "forward" in line]
    assert [row[: row.index("forward")] for row in rows] == [
        ["0", "dp=0,pp=1", "compute"],
        ["1", "compute"],
    ]
    said = answer("summary", run.folder.parent, "--by", "rank")
    assert [row["group"] for row in said["spans"]] == ["0", "1"]
    assert [(file["rank"], file["layout"]) for file in said["files"]] == [
        (0, "dp=0,pp=1"),
        (1, None),
    ]


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
    found = answer("summary", nested, "--by", "tree")
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
    out = invoke("summary", nested, "--by", "tree").out
    shown = [line[2:26].rstrip() for line in out.splitlines() if "compute." in line]
    assert shown == ["  compute.model", "    compute.forward", "  compute.forward"]
    assert len(answer("summary", nested, "--by", "tree", "--top", 2)["tree"]) == 2
    # What lies around what is asked for is there, without figures of its own.
    some = answer(
        "summary", nested, "--by", "tree", "--where", "name = 'forward' and dur_us < 20000"
    )
    assert [(row["path"][-1], row["count"], row["mean_us"]) for row in some["tree"]] == [
        ("pipeline.step", 0, None),
        ("compute.forward", 3, 10_000),
    ]
    assert (some["chosen_events"], some["where"]) == (3, "name = 'forward' and dur_us < 20000")


def test_threads_steps_and_epochs_are_added_up_apart(nested: Path) -> None:
    threads = sums(answer("summary", nested, "--by", "thread"))
    assert threads["host:100 100 MainThread", "forward"] == (3, 90_000)
    assert threads["host:101 101 MainThread", "forward"] == (6, 120_000)
    assert threads["host:101 7", "item"] == (3, 60_000)
    steps = answer("summary", nested, "--by", "step")
    assert list(dict.fromkeys(row["group"] for row in steps["spans"])) == ["0/0", "0/1", "1/0", "-"]
    assert sums(steps)["0/1", "forward"] == (2, 60_000)
    assert sums(steps)["-", "forward"] == (3, 30_000)
    epochs = sums(answer("summary", nested, "--by", "epoch"))
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
    found = answer("summary", path, "--by", "step")
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
        group
        for group, _ in sums(answer("summary", numbered.write(tmp_path / "n.pfw"), "--by", "step"))
    }
    assert groups == {"1/5", "1/6", "-"}


@pytest.mark.parametrize("by", ["thread", "step", "epoch"])
def test_a_process_without_spans_has_no_groups(nested: Path, by: str) -> None:
    before = answer("summary", nested, "--by", by)["spans"]
    idle = TraceLines(pid=555)
    idle.counter("memory", 0, rss=1.0)
    idle.write(nested / "idle-host-555.pfw.gz")
    assert answer("summary", nested, "--by", by)["spans"] == before


def test_only_what_is_asked_for_is_added_up(nested: Path) -> None:
    found = answer(
        "summary", nested, "--where", "rank = 1 and not name like 'f%' and cat != 'data'"
    )
    assert {row["name"]: (row["count"], row["self_us"]) for row in found["spans"]} == {
        "model": (3, 30_000),  # without the forward inside of it, which is not asked for
        "step": (3, 120_000),
    }
    assert (found["events"], found["chosen_events"]) == (27, 6)
    text = invoke("summary", nested, "--where", "args.step = 1", "--by", "rank").out
    assert "27 events in 2 files\nof these 8 meet --where\n" in text
    none = answer("summary", nested, "--where", "cat = 'comm'")
    assert (none["spans"], none["chosen_events"]) == ([], 0)
    categories = answer("summary", nested, "--by", "category", "--where", "cat = 'compute'")
    assert [(row["cat"], row["count"]) for row in categories["spans"]] == [("compute", 15)]
    twice = answer("summary", nested, "--where", "cat = compute", "--where", "rank = 1 or rank = 7")
    assert sum(row["count"] for row in twice["spans"]) == twice["chosen_events"] > 0
    assert twice["where"] == "(cat = compute) and (rank = 1 or rank = 7)"
    done = invoke("summary", nested, "--where", "cat = comm compute")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("dftrace: --where 'cat = comm compute' is not accepted at 'compute'")


@pytest.mark.parametrize("form", [(), ("--by", "rank"), ("--tree",)])
def test_where_there_are_no_spans_a_line_says_so(
    nested: Path, tmp_path: Path, form: tuple[str, ...]
) -> None:
    text = invoke("summary", nested, *form, "--where", "cat = 'comm'").out
    assert text.startswith("no spans meet --where\n")
    idle = TraceLines()
    idle.counter("memory", 0, rss=1.0)
    text = invoke("summary", idle.write(tmp_path / "idle-host-555.pfw.gz"), *form).out
    assert text.startswith("there are no finished spans\n")
    assert "Spans" not in text


def test_losses_of_all_files_stand_below_the_table(nested: Path) -> None:
    found = answer("summary", nested)
    assert found["losses"] == {"dropped": 3, "waits": 2}
    below = invoke("summary", nested).out.partition("27 events in 2 files")[2]
    assert "in all: LOST 3 events, the spool was full" in below
    assert "in all: threads waited 2 times for a full spool" in below
    broken = small_trace()
    broken.lines.insert(-1, "nonsense")
    path = broken.write(nested / "more.pfw")
    assert answer("summary", path)["losses"] == {"unfinished": 1, "unreadable": 1}
    assert (
        "in all: 1 line without an event, or a span's duration, not counted"
        in invoke("summary", path, "--by", "tree").out
    )


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
    found = answer("summary", tmp_path, "--by", "tensor")
    assert found["tensors"] == [
        {"name": "fc:input", "statistic": "max", "count": 6, "nonfinite": 2}
        | {"first": 0.5, "last": 2.5, "min": -0.5, "max": 2.5, "first_nonfinite_step": 1},
        {"name": "fc:input", "statistic": "min", "count": 6, "nonfinite": 0}
        | {"first": -1, "last": -1, "min": -1, "max": -1, "first_nonfinite_step": None},
    ]
    out = invoke("summary", tmp_path, "--by", "tensor").out
    rows = [line.split() for line in out.splitlines() if "fc:input" in line]
    assert rows[0] == ["fc:input", "max", "6", "0.5", "2.5", "-0.5", "2.5", "1"]
    assert rows[1][-1] == "-"
    assert (
        "6 events with statistics of tensors; --by tensor has a table"
        in invoke("summary", tmp_path).out
    )
    some = answer("summary", tmp_path, "--by", "tensor", "--where", "args.rank = 0")["tensors"]
    assert [(row["statistic"], row["count"]) for row in some] == [("max", 3), ("min", 3)]


def test_without_statistics_of_tensors_it_says_so_and_how_to_have_some(nested: Path) -> None:
    done = invoke("summary", nested, "--by", "tensor")
    assert done.status == 0
    assert "Statistics of tensors" not in done.out
    assert done.out.startswith("no statistics of tensors are in these traces.")
    assert "log_tensor_stats" in done.out
    out = invoke("summary", nested, "--by", "tensor", "--where", "args.rank = 0").out
    assert out.startswith("no statistics of tensors meet --where\n")
    assert answer("summary", nested, "--by", "tensor")["tensors"] == []


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
    for form in ("tree", "tensor"):
        out = invoke("summary", path, "--by", form).out
        assert r"\x1b[2J" in out
        assert not acting(out)
