"""The figures of a report: those of `why` and `summary`, with every extreme and no loss hidden."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from analysis.report.made_pages import (
    ITERATIONS,
    LAYERS,
    ODD_LAYER,
    ODD_SINCE,
    inspected,
)
from analysis.trace_lines import TraceLines, small_trace
from analysis.why.made_runs import MS, START_NS, Lines, Training, write_ranks
from html_pages import Page
from printed_json import checked
from rich.console import Console
from safety.commands import answer, invoke

from dftrace_ai.analysis import Run
from dftrace_ai.analysis.reading.event_columns import read_on
from dftrace_ai.analysis.reading.time_window import parsed_window
from dftrace_ai.analysis.report.figures.facts import MOST_GROUPS, envelope
from dftrace_ai.analysis.report.model import HeatMap
from dftrace_ai.analysis.report.page import json_text
from dftrace_ai.analysis.report.series_plots import Shading
from dftrace_ai.analysis.summary.report import reported
from dftrace_ai.analysis.why import verdict_lines, why
from dftrace_ai.errors import TraceError
from dftrace_ai.page.palette import of_share


@pytest.fixture(scope="module")
def starved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("starved")
    return Training(item_ms=20, steps=30, epochs=3, evaluate=4, slow={50: 700.0}).write(folder, 1)


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return inspected(tmp_path_factory.mktemp("layers"))


def plain(value: Any) -> Any:
    return json.loads(orjson.dumps(value))


def test_they_are_those_of_why_and_summary(starved: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    done = invoke("report", starved, "-o", path)
    assert (done.status, done.out, done.err) == (0, f"{path}\n", "")
    text = path.read_text("utf-8")
    (best,) = [line for line in verdict_lines(why([starved])) if line.startswith("  at best")]
    assert f"<dt>at best</dt><dd>{best[12:]}</dd>" in text
    page = Page(text).figures
    checked(json.dumps(page), "report")
    assert page["verdict"] == plain(why([starved]))
    rows = {(row.cat, row.name): plain(row) for row in reported([starved]).spans}
    shown = page["summary"]["spans"]
    assert {(row["cat"], row["name"]): row for row in shown} == rows
    assert [row["self_us"] for row in shown] == sorted((r["self_us"] for r in shown), reverse=True)
    # By path they add up to the same.
    frames = [frame for frame in page["flame"]["frames"] if frame["parent"] >= 0]
    for (cat, name), row in rows.items():
        own = [one for one in frames if (one["cat"], one["name"]) == (cat, name)]
        assert sum(one["count"] for one in own) == row["count"]
        assert sum(one["total_ns"] for one in own) == round(row["total_us"] * 1000)
        assert sum(one["self_ns"] for one in own) == round(row["self_us"] * 1000)
    steps = page["steps"]
    assert steps["count"] == page["verdict"]["steps"]["count"] == 90
    assert steps["time_ns"] == sum(steps["parts"].values())
    whole = {part: time["ns"] for part, time in page["verdict"]["parts"].items()}
    assert steps["parts"] == whole
    assert (steps["split_by"], len(steps["epochs"])) == ("epoch", 3)
    for part, ns in whole.items():
        assert sum(epoch["parts"][part] for epoch in steps["epochs"]) == ns
    found = steps["histogram"]
    assert sum(found["steady"]) == steps["steady"]
    assert sum(found["steady"]) + sum(found["others"]) == steps["count"]
    first, *_ = page["slowest"]
    # The fiftieth body is that of step 49.
    assert (first["step"], first["epoch"], first["kind"]) == (49, 1, "steady")
    assert first["ns"] == steps["max_ns"] == max(steps["times"]["high"])
    window = parsed_window(first["at"])
    assert window.begin_us == pytest.approx(first["at_us"], abs=1)
    assert window.end_us - window.begin_us == pytest.approx(first["ns"] / 1000, abs=1)
    assert {"forward", "backward"} <= {span["name"] for span in first["spans"]}
    loader = page["loader"]
    wait = next(row for row in rows.values() if row["name"] == "fetch.iter")
    assert 0 < loader["wait_share"] < 1
    assert loader["workers"] == 4
    assert wait["total_us"] > 0
    other = answer("report", starved, "--threshold", "input=0.99")
    assert other.keys() == page.keys()
    assert (page["verdict"]["verdict"], other["steps"]) == ("input-bound", steps)
    assert other["verdict"]["verdict"] != "input-bound"


def test_a_run_for_notebooks_reads_what_it_is_asked_for(starved: Path, tmp_path: Path) -> None:
    missing = Run(tmp_path / "none")
    assert repr(missing) == f"<run of {tmp_path}/none>"
    with pytest.raises(TraceError):
        missing.why
    run = Run([str(starved)])
    assert run.why == why([starved])
    assert run.why is run.why
    assert run.summary == reported([starved])
    assert list(run.steps) == [0]
    assert len(run.steps[0]) == 90
    names = {(one.counter, one.key) for one in run.counters}
    assert names >= {("memory bytes", "process"), ("cpu %", "system")}
    assert run.tensor_statistics == ()
    console = Console(width=300, file=(tmp_path / "said").open("w"))
    console.print(run)
    console.file.close()
    said = [line.rstrip() for line in (tmp_path / "said").read_text().splitlines()]
    assert said == [line.rstrip() for line in verdict_lines(run.why)]
    html = run._repr_html_()
    assert html.startswith('<iframe sandbox=""')
    assert "INPUT-BOUND" in html
    assert run.report(tmp_path / "a.html").stat().st_mode & 0o777 == 0o600


def test_statistics_of_tensors_and_what_is_not_finite(layers: Path) -> None:
    run = Run(layers)
    series = {(one.layer, one.statistic): one for one in run.tensor_statistics}
    assert len(series) == 2 * LAYERS
    odd = series[f"model.layers.{ODD_LAYER}", "cur_amax"]
    assert odd.iterations.tolist() == list(range(ITERATIONS))
    assert np.flatnonzero(np.isnan(odd.values)).tolist() == list(range(ODD_SINCE, ITERATIONS))
    assert np.isinf(series[f"model.layers.{ODD_LAYER}", "l2_norm"].values[-1])
    figures = answer("report", layers)
    tensors = figures["tensors"]
    assert tensors["layers"] == LAYERS
    assert tensors["non_finite"] == 2 * (ITERATIONS - ODD_SINCE)
    assert tensors["first_non_finite"].endswith(f"{ODD_LAYER}:gradient at iteration {ODD_SINCE}")
    (mark,) = tensors["stopped"]
    assert (mark["process"], mark["layer"]) == ("rank 1", f"model.layers.{ODD_LAYER}")
    assert (mark["iteration"], mark["n_nan"], mark["n_inf"]) == (ODD_SINCE, 5, 0)
    assert parsed_window(mark["at"])
    (heat,) = [one for one in tensors["maps"] if one["statistic"] == "cur_amax"]
    assert heat["values"][ODD_LAYER][ODD_SINCE - 1 :][:2] == [20.0, "NaN"]
    assert heat["values"][0][:3] == [0.01, 0.02, 0.03]
    # Their counters are not drawn twice, and what is not finite there is told.
    (loss,) = [one for one in figures["counters"] if one["key"] == "train"]
    (line,) = loss["lines"]
    assert line["process"] == "rank 1"
    assert sum(line["values"]["non_finite"]) == 3
    assert line["values"]["high"][0] == 1.0
    assert any("LOST 7 events" in loss for loss in figures["losses"])


def test_no_spike_is_lost_and_nothing_is_averaged(tmp_path: Path) -> None:
    values = np.ones(10_000)
    values[1234], values[4321], values[777] = 1e6, -3.0, np.nan
    found = envelope(np.arange(10_000), values)
    assert len(found.low) == MOST_GROUPS
    assert (max(found.high), min(found.low)) == (1e6, -3.0)
    assert set(found.middle) == {1.0}
    assert sum(found.non_finite) == 1
    at = [n for n, high in enumerate(found.high) if high == 1e6]
    assert [found.first[n] <= 1234 <= found.last[n] for n in at] == [True]
    # Of times that are far apart, and of numbers whose sum is none.
    apart = envelope(np.array([0.0, 1.0, 1e9]), np.array([1e308, -1e308, 1e308]), by_place=True)
    assert (apart.high, apart.low) == ([1e308, -1e308, 1e308], [1e308, -1e308, 1e308])
    together = envelope(np.arange(4), np.full(4, 1.7e308), most=1)
    assert math.isfinite(together.middle[0])
    assert envelope(np.zeros(0), np.zeros(0)).low == []


def test_ranks_stand_beside_each_other_and_the_slowest_is_of_any(tmp_path: Path) -> None:
    for rank, slow in enumerate(({}, {15: 900.0})):
        made = tmp_path / f"{rank}"
        made.mkdir()
        Training(steps=20, epochs=1, workers=0, item_ms=0.1, slow=slow).write(made, rank)
        (path,) = made.iterdir()
        text = path.read_text("utf-8").replace('"rank":0', f'"rank":{rank}')
        path.write_text(text.replace('"pid":100', f'"pid":{100 + rank}'), "utf-8")
    path = tmp_path / "report.html"
    assert invoke("report", tmp_path, "-o", path).status == 0
    page = Page(path.read_text("utf-8"))
    assert "Ranks" in page.texts
    figures = page.figures
    assert [(one["rank"], one["steps"]) for one in figures["ranks"]] == [(0, 20), (1, 20)]
    first = figures["slowest"][0]
    assert (first["rank"], first["step"]) == (1, 14)
    assert figures["ranks"][1]["max_ns"] == first["ns"]


def test_workers_are_counted_at_a_time_and_busy_while_they_live(tmp_path: Path) -> None:
    # Two workers that each pass starts anew: fourteen processes, of which two live at a time.
    training = Training(steps=20, epochs=7, workers=2, item_ms=3, step_ms=5)
    training.write(tmp_path / "anew", 1)
    whole = answer("report", tmp_path / "anew")["loader"]
    for path in sorted((tmp_path / "anew").glob("t-host-2*.pfw")):
        lines = path.read_text("utf-8").splitlines()
        spans = [line for line in lines if '"ph":"X"' in line]
        others = [line for line in lines if '"ph":"X"' not in line]
        each = math.ceil(len(spans) / 7)
        path.unlink()
        for turn in range(7):
            pid = f"{path.stem.rpartition('-')[2]}{turn}"
            text = "\n".join([*others, *spans[turn * each : (turn + 1) * each]]) + "\n"
            text = re.sub(r'"pid":2\d\d', f'"pid":{pid}', text)
            (path.parent / f"t-host-{pid}.pfw").write_text(text, "utf-8")
    told = answer("report", tmp_path / "anew")["loader"]
    assert (told["workers"], told["workers_at_once"], told["inline"]) == (14, 2, False)
    # As busy as two that live as long: neither waits for the other twelve.
    assert told["busy_share"] == pytest.approx(whole["busy_share"], abs=0.1)
    assert np.mean(told["busy"]) == pytest.approx(np.mean(whole["busy"]), abs=0.1)
    invoke("report", tmp_path / "anew", "-o", tmp_path / "anew.html")
    said = (tmp_path / "anew.html").read_text("utf-8")
    assert "2 workers at a time, 14 in all, busy for " in said
    assert "The steps wait for data for " in said
    assert "of rank 0" not in said
    roots = [one["name"] for one in Page(said).figures["flame"]["frames"] if one["parent"] < 0]
    assert sorted(roots) == ["loader workers", "the training"]


def test_a_loader_without_workers_is_told_as_such(tmp_path: Path) -> None:
    Training(steps=20, epochs=1, workers=0, item_ms=3).write(tmp_path / "inline", 1)
    Training(steps=20, epochs=1, workers=0, data_told=False).write(tmp_path / "silent", 1)
    for name, said in (
        ("inline", "There are no workers (<code>num_workers=0</code>): the training loads by"),
        ("silent", "No worker of a loader is in the traces."),
    ):
        path = tmp_path / f"{name}.html"
        assert invoke("report", tmp_path / name, "-o", path).status == 0
        assert said in path.read_text("utf-8"), name


def test_the_odd_rank_is_first_and_marked_though_all_steps_take_as_long(tmp_path: Path) -> None:
    usual = dict(steps=30, epochs=1, workers=0, item_ms=0.1, jitter=0.01, hiccups=0.0)
    trainings = [
        Training(**usual, world=6, comm_ms=0.5, step_ms=30)
        if rank == 4
        else Training(**usual, world=6, comm_ms=10.5, step_ms=20)
        for rank in range(6)
    ]
    write_ranks(tmp_path / "ranks", trainings)
    path = tmp_path / "report.html"
    assert invoke("report", tmp_path / "ranks", "-o", path).status == 0
    text = path.read_text("utf-8")
    ranks = Page(text).figures["ranks"]
    assert [one["rank"] for one in ranks if one["odd"]] == [4]
    assert len({round(one["p50_ns"] / 2e6) for one in ranks}) == 1
    drawn = text[text.index('id="plot-ranks"') :].partition("</svg>")[0]
    assert re.findall(r'class="small[ a-z]*"[^>]*>(\d+)<', drawn) == list("401235")
    assert drawn.count('class="oddly"') == 1
    assert "Marked and first" in text
    assert "ONE SLOW RANK (critical" in text
    rows = re.findall(r"<tr><td[^>]*>(?:<b class=odd-rank>)?(▸ )?(\d)", text)
    longest_first = sorted(ranks, key=lambda one: (not one["odd"], -one["own_ns"]))
    assert rows[-6:] == [("▸ " if one["odd"] else "", str(one["rank"])) for one in longest_first]
    # Step by step it works longer than the others, and they wait for it.
    own, waits = Page(text).figures["rank_maps"]
    assert own["layers"] == waits["layers"] == [f"rank {rank}" for rank in (4, 0, 1, 2, 3, 5)]
    assert own["first"] == own["last"] == waits["first"] == list(range(30))
    both = np.array(own["values"]) + np.array(waits["values"])
    steps = Run(tmp_path / "ranks").steps
    expected = [(steps[rank].time_ns / 1e6).tolist() for rank in (4, 0, 1, 2, 3, 5)]
    assert both == pytest.approx(np.array(expected), abs=0.002)
    assert (np.array(own["values"][0]) > 1.3 * np.array(own["values"][1:]).max(0)).all()
    assert (np.array(waits["values"][0]) < 0.1 * np.array(waits["values"][1:]).min(0)).all()
    assert {"rank-map-0", "rank-map-1"} <= set(Page(text).plots)
    assert "of rank " in text


def test_what_does_not_change_is_told_and_the_darkest_is_zero(tmp_path: Path) -> None:
    lines = Lines(1, rank=0, world_size=1)
    for iteration in range(4):
        for layer in range(3):
            told = {
                "still": 0.0,
                "own": float(layer),
                "moves": 8.0 * iteration,
                "near": 1 + 0.1 * iteration,
            }
            told["signed"] = float(iteration - 1)
            at = START_NS + iteration * MS + layer
            more = {"iteration": iteration, "rank": 0, "feature": "LogTensorStats"}
            lines.event(
                "i", f"l{layer}:weight", "tensor_stats", at, more=',"s":"t"', **more, **told
            )
    lines.footer()
    lines.write(tmp_path / "traces" / "t-host-1.pfw", 10**9)
    path = tmp_path / "report.html"
    assert invoke("report", tmp_path / "traces", "-o", path).status == 0
    text = path.read_text("utf-8")
    found = Page(text).figures["tensors"]
    still = {
        one["statistic"]: (one["layers"], one["low"], one["high"]) for one in found["constant"]
    }
    assert still == {"still": (3, 0.0, 0.0), "own": (3, 0.0, 2.0)}
    assert "<b>still of weight</b>: 0 throughout, in 3 layers" in text
    assert "<b>own of weight</b>: 0 to 2, in each layer the same throughout, in 3 layers" in text
    maps = {one["statistic"]: Shading(HeatMap(**one)) for one in found["maps"]}
    assert set(maps) == {"moves", "near", "signed"}
    dark = of_share(0.0)
    assert [scale.of(zero) for scale, zero in zip(maps.values(), (0.0, 1.0, 0.0))] == [dark] * 3
    assert maps["moves"].of(24.0) == maps["near"].of(1.3) == maps["signed"].of(2.0) == of_share(1.0)
    # Below zero it is another colour, half as bright for half as far.
    assert maps["signed"].of(-1.0) not in {dark, maps["signed"].of(1.0)}
    assert len(re.findall("<option value=", text)) == 3


def test_each_moment_of_a_run_is_in_one_phase(tmp_path: Path, starved: Path) -> None:
    saves = Training(steps=40, evaluate=6, checkpoint=(10, 30.0), epochs=2).write(tmp_path, 1)
    for folder in (starved, saves):
        report = answer("report", folder)
        found, steps = report["phases"], report["steps"]
        assert found["rank"] == steps["rank"]
        assert sum(found["spent_s"].values()) == pytest.approx(report["wall_s"], abs=1e-6)
        by_kind: dict[str, list[Any]] = {}
        for one in found["phases"]:
            assert 0 <= one["begin_s"] <= one["end_s"] <= report["wall_s"] + 1e-9
            by_kind.setdefault(one["kind"], []).append(one)

        def length(kind: str) -> float:
            return sum(one["end_s"] - one["begin_s"] for one in by_kind.get(kind, []))  # noqa: B023

        assert found["spent_s"].get("end", 0.0) <= length("end") + 1e-9
        for kind in ("start-up", "evaluation", "checkpoint"):
            assert found["spent_s"].get(kind, 0.0) == pytest.approx(length(kind), abs=1e-6), kind
        (warm_up,), (steady,) = by_kind["warm-up"], by_kind["steady"]
        assert warm_up["name"] == f"{steps['warm_up']} step" + "s" * (steps["warm_up"] != 1)
        assert steady["name"] == f"{steps['count'] - steps['warm_up']} steps"
        assert warm_up["end_s"] == steady["begin_s"]
        assert [one["name"] for one in by_kind["loop"]] == [
            f"epoch {number}" for number in range(len(steps["epoch_starts"]))
        ]
        assert {len(shares) for shares in found["lane"].values()} == {400}
    # Eight of 30 ms, which are in no step here.
    assert len(by_kind["checkpoint"]) == 8
    assert found["spent_s"]["checkpoint"] == pytest.approx(0.24, rel=0.01)
    in_steps = (sum(steps["parts"].values()) - steps["parts"]["checkpoint"]) / 1e9
    assert found["spent_s"]["steady"] + found["spent_s"]["warm-up"] == pytest.approx(in_steps)


def test_a_run_that_grows_has_the_figures_of_one_that_is_read_whole(tmp_path: Path) -> None:
    trace = TraceLines(4100, rank=0)
    for step in range(90):
        at = 1_000_000_000 + 30_000_000 * step
        trace.span("step", "pipeline", at, 29_000_000, step=step)
        trace.span(f"forward.{step // 40}", "compute", at + 1000, 7_000_000 + step, step=step)
        trace.counter("memory", at, bytes=step)
        trace.lines += ["no event"] if step % 25 == 7 else []
    lines = [line.encode() + b"\n" for line in trace.lines]
    blocks = [gzip.compress(b"".join(lines[at : at + 40])) for at in range(0, len(lines), 40)]
    whole = b"".join(blocks)
    ends = [sum(map(len, blocks[:count])) for count in range(len(blocks) + 1)]
    # What has become shorter is read from its begin.
    cuts = [ends[2], ends[3] - 9, ends[3] + 11, ends[5], len(whole), ends[4], ends[6]]

    def figures(name: str, end: int) -> Any:
        path = tmp_path / name / "t-host-4100.pfw.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(whole[:end])
        run = Run(path)
        read_on(run.traces)
        return json.loads(json_text(run.figures).replace(str(path), "it")) | {"made_at": ""}

    seen = [figures("grows", end) for end in cuts]
    read_on([])
    assert seen == [figures(str(at), end) for at, end in enumerate(cuts)]
    read_on([])
    assert seen[4]["steps"]["count"] == 90
    assert any("without an event" in loss for loss in seen[4]["losses"])


def test_a_run_without_steps_says_so(tmp_path: Path) -> None:
    lines = small_trace()
    lines.lines = [line.replace('"step":2,', "") for line in lines.lines]
    lines.write(tmp_path / "t-host-1.pfw")
    lines = small_trace(7)
    lines.lines = lines.lines[:3]
    lines.write(tmp_path / "t-host-7.pfw")
    for part in (3, 5):
        lines = TraceLines(8)
        lines.footer(ended="rotated", overwritten=12 if part == 5 else 0, damaged=part // 5)
        lines.write(tmp_path / f"t-host-8.part{part}.pfw")
    path = tmp_path / "report.html"
    done = invoke("report", tmp_path, "-o", path)
    assert done.status == 0, done.err
    page = Page(path.read_text("utf-8"))
    figures = page.figures
    checked(json.dumps(figures), "report")
    assert (figures["steps"], figures["slowest"]) == (None, [])
    assert figures["verdict"]["verdict"] == "abstained"
    assert any(text.startswith("This run has no steps to show") for text in page.texts)
    assert "flame" in page.plots
    assert any("no closing line" in loss for loss in figures["losses"])
    assert any("1 span without an end" in loss for loss in figures["losses"])
    for said in (
        "t-host-8.part5.pfw: 12 events let go by the flight recorder",
        "t-host-8.part5.pfw: its spool was damaged in 1 way",
        "t-host-8: 4 parts of 6 deleted by max_files",
    ):
        assert any(said in loss for loss in figures["losses"]), said
    assert any("no closing line" in text for text in page.texts)


def test_processes_without_ranks_are_called_by_their_numbers(tmp_path: Path) -> None:
    for pid, ms in ((4711, 2), (4712, 5)):
        lines = Lines(pid)
        for step in range(30):
            at = step * ms * MS
            lines.say("compute", "forward", at, ms * MS - 1000, step=step)
            lines.say("pipeline", "step", at, ms * MS - 500, step=step)
        lines.footer()
        lines.write(tmp_path / f"t-host-{pid}.pfw.gz", 10**6)
    found = Run([tmp_path])
    assert {one.who for one in found.figures.ranks} == {"process 4711", "process 4712"}
    assert "the steps of process 4712 are shown" in " ".join(found.why.notes)
    assert found.figures.steps is not None
    assert found.figures.steps.who == "process 4712"
    page = invoke("report", tmp_path, "-o", tmp_path / "page.html")
    assert page.status == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "of process 4712" in text
    assert "rank 0" not in text
