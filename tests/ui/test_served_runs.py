"""The page over all runs, asked over HTTP: what it says is what commands say."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from analysis.report import made_pages
from analysis.trace_lines import TIME_BASE_US, TraceLines, small_trace
from analysis.why.made_runs import Training
from loggers.runs.made_logs import Log
from printed_json import checked
from safety.commands import answer, invoke
from ui.served_runs import Served, ranks, serving

from dftrace_ai.analysis.report import step_plots
from dftrace_ai.analysis.steps.measuring import STEP_PARTS
from dftrace_ai.analysis.steps.timeline import PARTS
from dftrace_ai.analysis.texts import part_name
from dftrace_ai.analysis.why.model import KINDS
from dftrace_ai.ui import answers
from dftrace_ai.ui.kept import parted_map
from dftrace_ai.ui.step_table import StepColumns, StepTable, write_table

LONG = "n" * 100_000
HOSTILE = ["<img src=x onerror=alert(1)>", "a..%2f", "a&b=c", '"quoted"', "-n", "\u202egnp", "100%"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root") / "runs"
    for name, training in {
        "slow-loader": Training(item_ms=20),
        "healthy": Training(),
        "evaluating": Training(evaluate=20, checkpoint=(10, 30.0), epochs=3),
    }.items():
        training.write(root / "made" / name, 1)
    ranks(root / "job" / "eight", 8, late=5)
    layers = TraceLines(4900, rank=1)
    for iteration in range(5):
        for number in range(9):
            at, value = 1_000_000_000 + 1000 * iteration, 10.0 * number + iteration
            made_pages.statistics(layers, "layer", f"w{number}", at, iteration, value)
    layers.footer()
    layers.write(ranks(root / "layers", 1, pid=4800) / "t-host-4900.pfw.gz")
    for name in HOSTILE:
        small_trace().write(root / "names" / name / "t-host-100.pfw")
    (root / "bad").mkdir()
    (root / "bad" / "t-host-1.pfw.gz").write_bytes(b"no trace at all")
    outside = root.parent / "outside"
    small_trace().write(outside / "t-host-7.pfw")
    (root / "led-out").symlink_to(outside)
    (root / "job" / "linked").mkdir()
    (root / "job" / "linked" / "t-host-7.pfw").symlink_to(outside / "t-host-7.pfw")
    made = ranks(root / "logged", 1, steps=40, pid=5000)
    log = Log(
        root / "logs", "p/r", number=int((TIME_BASE_US / 1e6 + 1) * 1e9), t=TIME_BASE_US / 1e6 + 1
    )
    log.path = log.path.rename(log.folder / log.path.name.replace(f"-{os.getpid()}-", "-5000-"))
    log.add("p", v={"lr": 0.1, "model": "<b>net", "prompt": "x" * 100_000})
    for step in range(5000):
        log.add(
            "m", s=step, a="i", v={"loss": 1 / (step + 1)}, t=TIME_BASE_US / 1e6 + 1 + step / 1e3
        )
    log.add("m", s=5000, a="i", v={"loss": "NaN"}, t=TIME_BASE_US / 1e6 + 7)
    (log.folder / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    (log.folder / "x.svg").write_bytes(b"<svg onload='alert(1)'/>")
    for file in ("x.png", "x.svg", "../../outside/t-host-7.pfw"):
        log.add("f", s=1, a="i", kind="image", name="samples", file=file, t=TIME_BASE_US / 1e6 + 2)
    log.add("f", s=2, a="i", kind="image", name=LONG, file="x.png", t=TIME_BASE_US / 1e6 + 2)
    log.end()
    assert made.is_dir()
    return root


@pytest.fixture(scope="module")
def served(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(root, tmp_path_factory.mktemp("cache")) as (page, _):
        yield page


def test_a_card_says_what_why_says(served: Served, root: Path) -> None:
    rows = served.read()
    for run in ("made/slow-loader", "made/healthy", "made/evaluating", "job/eight", "logged"):
        card, verdict = rows[run]["card"], answer("why", root / run)
        assert rows[run]["state"] == "ended", card
        assert card["verdict"] == verdict["verdict"]
        assert card["steps"] == verdict["steps"]["count"]
        assert card["median_ns"] == verdict["steps"]["median_ns"]
        assert card["ranks"] == verdict["ranks"]
        first = (verdict["findings"] or [None])[0]
        assert card["share"] == (first and first["share"])
        assert first is None or card["what"] == first["what"]
        assert len(card["spark"]) == 30
    assert rows["made/slow-loader"]["card"]["words"] == "waits for data"
    assert rows["made/slow-loader"]["card"]["severity"] == "critical"
    assert rows["job/eight"]["card"]["late_ranks"] == [5]


def test_every_verdict_has_words_and_every_part_a_name() -> None:
    assert set(KINDS) | {"none", "abstained"} <= set(answers.WORDS)
    assert [part["part"] for part in answers.PARTS] == list(step_plots.PARTS)
    assert [part["words"] for part in answers.PARTS] == list(map(part_name, step_plots.PARTS))


def test_a_run_is_its_report(served: Served, root: Path) -> None:
    run = served.json("run", id="job/eight")
    report = answer("report", root / "job" / "eight")
    for once in ("made_at", "title", "paths"):
        assert run["figures"].pop(once)
        report.pop(once)
    assert run["figures"] == report
    # The steps of the whole run come with it, as they are when they are asked for.
    window = {"rank": run["strip"]["rank"], "a": 0, "b": run["strip"]["wall_s"], "n": 900}
    assert run["steps"] == served.json("steps", id="job/eight", **window)
    # A stretch shorter than a step has what the step goes to, not what it does just then.
    assert max(run["figures"]["phases"]["lane"]["forward"]) == pytest.approx(20 / 30, abs=0.02)
    assert run["step_ranks"] == list(range(8))
    assert run["measures"] == ["own", "time", "forward", "comm", "none"]
    checked(json.dumps(served.json("run", id="made/healthy")["figures"]), "report")


def steps_by_sql(folder: Path, rank: int) -> list[dict[str, Any]]:
    query = f"select * from steps where rank = {rank} order by start_ns"
    return list(json.loads(invoke("sql", "--json", folder, query).out))


@pytest.mark.parametrize(
    ("run", "rank", "window", "columns"),
    [
        ("job/eight", 5, (0.0, 100.0), 900),
        ("job/eight", 0, (0.5, 1.2), 900),
        ("job/eight", 3, (0.0, 100.0), 7),
        ("made/evaluating", 0, (0.0, 1e6), 11),
        ("made/evaluating", 0, (1.0, 3.0), 4000),
        ("made/healthy", 0, (0.7, 0.7001), 10),
        ("made/healthy", 0, (1e5, 1e6), 10),
    ],
)
def test_a_window_has_the_steps_that_lie_in_it(
    served: Served, root: Path, run: str, rank: int, window: tuple[float, float], columns: int
) -> None:
    figures = served.json("run", id=run)["figures"]
    origin_ns = int(figures["first_us"] * 1000)
    every = steps_by_sql(root / run, rank)
    low, high = (round(at * 1e9) + origin_ns for at in window)
    steps = [one for one in every if one["end_ns"] > low and one["start_ns"] < high]
    seen = served.json("steps", id=run, rank=rank, a=window[0], b=window[1], n=columns)
    assert (seen["count"], seen["total"]) == (len(steps), len(every))
    if not steps:
        assert (seen["t"], seen["p"], seen["hist"], seen["worst"]) == ([], None, None, [])
        return
    cuts = [k * len(steps) // len(seen["t"]) for k in range(len(seen["t"]) + 1)]
    groups = [steps[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
    assert len(groups) == min(columns, len(steps))
    times = [[one["dur_ns"] / 1000 for one in group] for group in groups]
    assert seen["number"] == [group[0]["step"] for group in groups]
    for name, figure in (("low", min), ("mid", statistics.median), ("high", max)):
        assert seen[name] == pytest.approx([figure(each) for each in times], abs=0.006)
    assert seen["t"] == pytest.approx(
        [(group[0]["start_ns"] - origin_ns) / 1e9 for group in groups], abs=2e-6
    )
    for part in PARTS:
        mean = [statistics.fmean(one.get(f"{part}_ns", 0) / 1000 for one in g) for g in groups]
        assert seen["parts"].get(part, [0.0] * len(mean)) == pytest.approx(mean, abs=0.006)
    whole = np.percentile([one["dur_ns"] for one in steps], [0, 50, 95, 99, 100]) / 1e6
    assert seen["p"] == pytest.approx(whole.tolist(), abs=1e-6)
    slow = sorted(steps, key=lambda one: -one["dur_ns"])[:5]
    assert [one["us"] for one in seen["worst"]] == pytest.approx(
        [one["dur_ns"] / 1000 for one in slow], abs=0.006
    )
    assert sum(seen["hist"]["n"]) == len(steps)
    inside = sum(min(one["end_ns"], high) - max(one["start_ns"], low) for one in steps)
    assert sum(seen["outside"].values()) == pytest.approx((high - low - inside) / 1e9, abs=1e-5)


def test_the_time_between_steps_is_told(served: Served) -> None:
    whole = served.json("run", id="made/evaluating")
    strip = whole["strip"]
    found = whole["figures"]["phases"]
    kinds = {phase["kind"] for phase in found["phases"]}
    assert {"start-up", "loop", "evaluation", "checkpoint"} <= kinds
    seen = served.json("steps", id="made/evaluating", rank=0, a=0, b=strip["wall_s"])
    evaluated = sum(
        phase["end_s"] - phase["begin_s"]
        for phase in found["phases"]
        if phase["kind"] == "evaluation"
    )
    assert seen["outside"]["evaluation"] == pytest.approx(evaluated, rel=0.01)
    assert all(len(shares) == 400 for shares in found["lane"].values())
    assert max(map(max, found["lane"].values())) <= 1.0


def test_a_heat_map_has_the_ranks_that_differ_first(served: Served) -> None:
    served.read()
    body = served.get("api/heat", id="job/eight", what="own", a=0.0, b=1.9, cols=40).body
    head, cells = parted_map(body)
    assert (head["rows"], head["odd"]) == ([5, 0, 1, 2, 3, 4, 6, 7], 1)
    assert len(cells) == 8 * 40
    rows = [cells[40 * row : 40 * row + 40] for row in range(8)]
    # Own time is 22 ms against 7: a ratio of about 3; the others are as the median is.
    known = [cell for cell in rows[0] if cell != 255]
    assert min(known) > 160
    assert all(95 <= cell <= 105 for row in rows[1:] for cell in row if cell != 255)
    assert head["median_us"][0] == pytest.approx(22_000, rel=0.05)
    equal = served.get("api/heat", id="job/eight", what="time", a=0.0, b=1.9, cols=40).body
    assert parted_map(equal)[0]["odd"] == 0
    # That of the whole run was made beforehand, and is no other.
    wall_s = served.json("run", id="job/eight")["strip"]["wall_s"]
    made, asked = (
        parted_map(served.get("api/heat", id="job/eight", a=a, b=wall_s, cols=640).body)
        for a in (0.0, 1e-12)
    )
    assert made == ({**asked[0], "a": 0.0}, asked[1])


@pytest.mark.parametrize("hosts", [13, 1])
def test_very_many_ranks_share_rows(tmp_path: Path, hosts: int) -> None:
    count, late = 1300, 700
    start = np.arange(4) * 10_000_000
    none = np.zeros((2, 0), np.int64)

    class Shown:
        evaluation = none
        timeline = SimpleNamespace(of=lambda part: none)

    def columns(rank: int) -> StepColumns:
        time = np.full(4, 8_000_000 + (rank == 1299) * np.array([0, 0, 1_600_000, 0]))
        time = 2 * time if rank == late else time
        parts = dict.fromkeys(STEP_PARTS, np.zeros(4, np.int64))
        return StepColumns(f"node{rank % hosts}", start, start + 9_000_000, time, start, parts)

    write_table(tmp_path, {rank: columns(rank) for rank in range(count)}, (0, Shown()), 0)
    head, cells = StepTable(tmp_path).heat("time", 0.0, 0.04, 4)
    assert (head["ranks"], head["odd"], head["rows"][0]) == (count, 1, late)
    groups = head["groups"]
    assert len(head["rows"]) == 1 + len(groups) <= 1024
    assert sum(group["count"] for group in groups) == count - 1
    rows = [list(cells[4 * row : 4 * row + 4]) for row in range(len(head["rows"]))]
    assert rows[0] == [150] * 4
    if hosts > 1:
        assert [group["host"] for group in groups] == [f"node{at}" for at in range(hosts)]
        assert (groups[12]["first"], groups[12]["last"]) == (12, 1299)
        slow = 1 + 12
    else:
        assert (groups[0]["first"], groups[0]["last"], groups[0]["count"]) == (0, 1, 2)
        assert groups[-1]["last"] == 1299
        slow = len(rows) - 1
    # A row has the longest of all of its ranks.
    assert [row for row in range(1, len(rows)) if rows[row] != [100] * 4] == [slow]
    assert rows[slow][2] > rows[slow][0] == 100


def test_what_was_logged_is_with_the_trace_of_its_process(served: Served) -> None:
    row = served.read()["logged"]
    # The list is asked for again and again; the page of the run has the whole.
    assert len(row["card"]["params"].pop("prompt")) <= 200
    assert row["card"]["params"] == {"lr": 0.1, "model": "<b>net"}
    assert row["card"]["metrics"] == {"loss": "NaN"}
    run = served.json("run", id="logged")
    assert run["params"]["prompt"] == "x" * 100_000
    assert run["metrics"] == [{"name": "loss", "axis": "iteration", "count": 5001}]
    (loss,) = served.json("metrics", id="logged", name="loss")["metrics"]
    assert len(loss["v"]) == len(loss["t"]) == 2000
    assert loss["v"][-1] == "NaN"
    assert loss["high"][0] == 1.0
    assert served.json("metrics", id="logged", name="other") == {"metrics": []}
    # Names may be longer than an address.
    assert served.json("metrics", id="logged", at=[0, 7]) == {"metrics": [loss]}
    assert run["media"] == [
        {"name": "samples", "kind": "image", "count": 3},
        {"name": LONG, "kind": "image", "count": 1},
    ]
    (long,) = served.json("media", id="logged", at=1)["items"]
    assert served.get("api/picture", id="logged", at=1, n=long["n"]).status == 200
    assert served.json("media", id="logged", at=2)["items"] == []
    assert len(served.json("media", id="logged", name="samples")["items"]) == 3
    shown = [served.get("api/picture", id="logged", name="samples", n=n) for n in range(4)]
    assert [one.status for one in shown] == [200, 404, 404, 404]
    assert shown[0].headers["Content-Type"] == "image/png"
    assert served.json("run", id="made/healthy")["not_recorded"]


def test_each_heat_map_of_tensors_can_be_asked_for(served: Served) -> None:
    run = served.json("run", id="layers")
    drawn, further = run["figures"]["tensors"]["maps"], run["tensor_maps"]
    assert len(further) == run["figures"]["tensors"]["maps_left_out"] > 0
    asked = [served.json("tensors", id="layers", at=at) for at in range(len(further))]
    assert [{"statistic": one["statistic"], "tensor": one["tensor"]} for one in asked] == further
    every = {(one["statistic"], one["tensor"]): one["values"] for one in (*drawn, *asked)}
    assert every == {
        (name, f"w{number}"): [[times * (10.0 * number + at) for at in range(5)]]
        for name, times in (("cur_amax", 1), ("l2_norm", 3))
        for number in range(9)
    }
    for at in (str(len(further)), "x", "../1"):
        assert served.get("api/tensors", id="layers", at=at).status in (400, 409)


def test_conditions_are_those_of_runs(served: Served) -> None:
    served.read()

    def match(*conditions: str) -> Any:
        found = served.json("match", where=conditions)
        return found["error"] or sorted(found["ids"])

    assert match("lr=0.1") == ["logged"]
    assert match("ranks >= 8 and steps > 10") == ["job/eight"]
    assert match("verdict = input-bound", "ranks < 3") == ["made/slow-loader"]
    assert "did you mean" in match("rankss > 1")
    assert match("lr >")
    assert match("(" * 100)


def test_two_runs_are_compared_as_by_diff(served: Served, root: Path) -> None:
    seen = served.json("diff", a="made/healthy", b="made/slow-loader")
    said = answer("diff", root / "made/healthy", root / "made/slow-loader")
    bars = seen.pop("distributions")
    for one in (seen, said):
        one["before"].pop("path"), one["after"].pop("path")
    assert seen == said
    assert len(bars["a"]) == len(bars["b"]) == len(bars["edges_us"]) - 1
    assert (sum(bars["a"]), sum(bars["b"])) == (seen["before"]["steps"], seen["after"]["steps"])
    refused = served.get("api/diff", a="made/healthy", b="bad")
    assert refused.status == 409
    assert "t-host-1.pfw.gz" in refused.json["error"]


def test_names_are_data(served: Served) -> None:
    rows = served.read()
    for name in HOSTILE:
        run = f"names/{name}"
        assert rows[run]["card"]["verdict"] == "abstained"
        assert served.json("run", id=run)["id"] == run
    # What is no run by its very name is none, whatever it is as a path.
    for name in (
        *("..", "../outside", "job/../../outside", "/etc", "led-out", "job/linked", "names"),
        *("", "job/eight/", "job//eight", "./job/eight", "job/eight\0", "%2e%2e/outside"),
    ):
        for what in ("run", "steps", "heat", "metrics", "media", "picture", "live"):
            asked = served.get(f"api/{what}", id=name, rank=0, a=0, b=1, name="x", n=0)
            assert (name, what, asked.status) == (name, what, 404)
        assert served.get("perfetto", id=name).status == 404
        assert served.ask(f"/{served.token}/api/recover?id={name!r}", "POST").status == 404
    assert rows["bad"]["state"] == "unreadable"
    assert "t-host-1.pfw.gz" in rows["bad"]["card"]["what"]
    assert served.json("run", id="bad")["figures"] is None


def test_only_the_page_of_this_server_is_answered(served: Served) -> None:
    page = served.get("")
    assert page.status == 200
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    own = f"/{served.token}/api/runs"
    other = served.token[:-1] + ("y" if served.token.endswith("x") else "x")
    for path in ("/", "/api/runs", f"/{served.token}", f"/{other}/api/runs"):
        assert served.ask(path)[::2] == (404, b"")
    for name in (
        "../site.py",
        "%2e%2e/site.py",
        "static/app.js",
        ".",
        "..",
        "app.js/",
        "%00",
        "x" * 5000,
    ):
        assert served.ask(f"/{served.token}/{name}")[::2] == (404, b"")
    for headers in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{served.port}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Length": "0"},
    ):
        assert served.ask(own, **headers)[::2] == (404, b"")
    assert (
        served.ask(own, Host=f"localhost:{served.port}", Sec_Fetch_Site="same-origin").status == 200
    )
    assert served.ask(own, "OPTIONS")[::2] == (404, b"")
    assert served.ask(own, "POST")[::2] == (404, b"")
    recover = f"/{served.token}/api/recover?id=job%2Feight"
    assert served.ask(recover, "POST", Sec_Fetch_Site="cross-site")[::2] == (404, b"")
    assert served.ask(recover)[::2] == (404, b"")


@pytest.mark.parametrize(
    "asked",
    [
        {"rank": "x"},
        {"rank": "-1"},
        {"rank": "9" * 40},
        {"a": "nan"},
        {"b": "1e999"},
        {"a": "-1e11", "b": "1e11"},
        {"a": "-3.9e9", "b": "3.9e9"},
        {"n": "many"},
        {"rank": "99"},
        {"a": "1", "b": "0"},
        {"n": "999999999"},
        {"n": "0"},
    ],
)
def test_what_is_asked_wrongly_is_told(served: Served, asked: dict[str, str]) -> None:
    said = served.get("api/steps", id="job/eight", **{"rank": 0, "a": 0, "b": 1, **asked})
    if said.status == 200:
        assert {"b", "n"} & set(asked)
        assert len(said.json["t"]) <= 60
    else:
        assert said.status in (400, 409)
        assert said.json["error"]
    assert served.get("api/heat", id="job/eight", what="nothing", a=0, b=1).status == 409


def test_a_run_is_shown_in_perfetto_by_the_same_server(served: Served) -> None:
    zero_s = served.json("run", id="job/eight")["strip"]["zero_s"]
    sent = served.get("perfetto", id="job/eight", at=f"{zero_s + 0.5:.6f}s+0.1s", ranks="5")
    assert sent.status == 302
    address = sent.headers["Location"]
    assert f"127.0.0.1:{served.port}/" in address
    assert served.token not in address
    secret = address.split(f"{served.port}/")[1].split("/")[0]
    assert served.ask(f"/{secret}/").status in (200, 404)  # as the offline UI is there or not
    assert served.get("perfetto", id="job/eight", ranks="99").status == 409
    assert served.get("perfetto", id="job/eight", at="soon").status == 409
