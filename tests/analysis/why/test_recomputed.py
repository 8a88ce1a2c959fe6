"""Every figure of a verdict, in JSON, in its lines and on the page of a report, against plain arithmetic on the lines."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from analysis.why.made_runs import Training, write_ranks
from safety.commands import invoke

PART_OF = {
    ("dataloader", "fetch.iter"): "wait",
    ("device", "transfer"): "transfer",
    ("compute", "forward"): "forward",
    ("compute", "backward"): "backward",
    ("compute", "step"): "optimizer",
    ("comm", "all_reduce"): "comm",
    ("checkpoint", "capture"): "checkpoint",
    ("other", "other.log"): "other",
}


class Line(NamedTuple):
    """A span, in nanoseconds from the beginning of the trace's clock."""

    start: int
    end: int
    cat: str
    name: str
    count: int


class Step(NamedTuple):
    """A step: from the wait for its batch to the end of its body."""

    start: int
    end: int
    first: bool
    parts: dict[str, int]

    @property
    def ns(self) -> int:
        return self.end - self.start


def lines_of(folder: Path) -> list[Line]:
    """The spans of the process that trains, by nothing but the text of its file."""
    found = []
    for text in (folder / "t-host-100.pfw").read_text("utf-8").splitlines():
        if '"ph":"X"' not in text:
            continue
        event = json.loads(text.rstrip(","))
        start, dur = round(event["ts"] * 1000), round(event["dur"] * 1000)
        count = event["args"].get("count", 0)
        found.append(Line(start, start + dur, event["cat"], event["name"], count))
    return sorted(found)


def steps_of(lines: list[Line]) -> list[Step]:
    waits = [line for line in lines if line.name == "fetch.iter"]
    bodies = [line for line in lines if line.name == "fetch.block"]
    found = []
    for wait, body in zip(waits, bodies, strict=True):
        inside = [line for line in lines if wait.start <= line.start < body.end]
        parts = dict.fromkeys(PART_OF.values(), 0)
        for line in inside:
            if part := PART_OF.get((line.cat, line.name)):
                parts[part] += line.end - line.start
        # What is sent is sent within the backward pass.
        parts["backward"] -= parts["comm"]
        parts["none"] = body.end - wait.start - sum(parts.values())
        found.append(Step(wait.start, body.end, wait.count == 1, parts))
    return found


def time_text(ns: float) -> str:
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= size:
            value = ns / size
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{ns:.0f} ns"


def check_parts(value: dict[str, Any], steps: list[Step], used: list[Step]) -> None:
    """Holds the parts of a verdict against those of all steps and of the ones that shares are of."""
    whole = sum(step.ns for step in used)
    for part, told in value["parts"].items():
        assert told["ns"] == sum(step.parts.get(part, 0) for step in steps), part
        share = sum(step.parts.get(part, 0) for step in used) / whole
        assert told["share"] == pytest.approx(share, abs=1e-6), part


def judged_of(facts: dict[str, Any], steps: list[Step]) -> tuple[list[Step], list[Step]]:
    """The steady steps, and of them those that shares are of; holds their figures against both."""
    steady = [step for at, step in enumerate(steps) if at >= facts["warm_up"] and not step.first]
    assert (facts["count"], facts["steady"]) == (len(steps), len(steady))
    times = [step.ns for step in steady]
    median = statistics.median(times)
    assert facts["median_ns"] == int(median)
    scale = max(1.4826 * statistics.median(abs(time - median) for time in times), 0.02 * median)
    assert facts["scale_ns"] == int(scale)
    # Shares are of the steady steps, without a few that are many times longer.
    bound = median + max(8 * scale, 2 * median)
    odd = {step.start for step in steady if step.ns > bound}
    keep_all = len(steady) < 20 or len(odd) > max(1, 0.02 * len(steady))
    used = [step for step in steady if keep_all or step.start not in odd]
    assert facts["mean_ns"] == int(sum(step.ns for step in used) / len(used))
    return steady, used


RUNS = {
    "plain": Training(steps=60),
    "growing": Training(steps=100, slower=0.006),
    "from the middle on": Training(since=(100, 1.8)),
    "waiting": Training(item_ms=20, steps=60),
    "warming up": Training(warm=9, warm_ms=300),
    "many parts": Training(comm_ms=4, log_ms=3, checkpoint=(25, 60), jitter=0.2),
    "odd steps": Training(slow={77: 600.0}, hiccups=0.1),
    "few": Training(steps=9, epochs=1, transfer_ms=12),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_figure_is_what_the_lines_add_up_to(name: str, tmp_path: Path) -> None:
    RUNS[name].write(tmp_path / "run", 3)
    steps = steps_of(lines_of(tmp_path / "run"))
    done = invoke("why", "--json", tmp_path / "run")
    assert done.status == 0, done.err
    value: dict[str, Any] = json.loads(done.out)
    facts = value["steps"]
    assert facts["found_by"] == "loader blocks"
    steady, used = judged_of(facts, steps)
    median = statistics.median(step.ns for step in steady)
    whole = sum(step.ns for step in used)
    check_parts(value, steps, used)
    slowest = sorted(steady, key=lambda step: -step.ns)[:3]
    assert [one["ns"] for one in value["slowest"]] == [step.ns for step in slowest]
    assert [one["step"] for one in value["slowest"]] == [steps.index(step) for step in slowest]
    assert [one["at_us"] for one in value["slowest"]] == [step.start / 1000 for step in slowest]
    for finding in value["findings"]:
        if finding["share_of"] == "steps" and finding["kind"].endswith("-bound"):
            parts = {"input": ["wait", "data"], "communication": ["comm"], "transfer": ["transfer"]}
            parts["compute"] = ["forward", "backward", "optimizer"]
            named = parts[finding["kind"].removesuffix("-bound")]
            share = sum(step.parts.get(part, 0) for step in used for part in named) / whole
            assert finding["share"] == pytest.approx(share, abs=1e-6)

    mean = whole / len(used)
    # The mean comes first where steps come in bursts, on the page as well.
    told_step = f"{time_text(mean)}, median " if mean > 1.1 * median else ""
    told_step += time_text(int(median))
    shares = sorted(((told["share"], part) for part, told in value["parts"].items()), reverse=True)
    text = invoke("why", tmp_path / "run").out
    assert f"\n  step      {told_step}: " in text
    for share, _ in shares[:2]:
        assert f" {100 * share:,.0f} %" in text.partition("\n  step ")[2].partition("\n")[0]
    assert f"{len(steady)} steady steps of {len(steps)}, by loader blocks" in text

    page = tmp_path / "report.html"
    assert invoke("report", tmp_path / "run", "-o", page).status == 0
    html = page.read_text("utf-8")
    row = text.partition("\n  step      ")[2].partition("\n")[0]
    assert f"<dt>step</dt><dd>{row}</dd>" in html
    told = json.loads(invoke("report", "--json", tmp_path / "run").out)
    assert told["verdict"] == value
    figures, every = told["steps"], sorted(step.ns for step in steps)
    assert (figures["count"], figures["steady"]) == (len(steps), len(steady))
    assert (figures["max_ns"], figures["time_ns"]) == (every[-1], sum(every))
    assert figures["p50_ns"] == pytest.approx(statistics.median(every))


def test_all_figures_of_several_ranks_are_of_one_of_them(tmp_path: Path) -> None:
    """Of which one the words say: the headline, the step, its parts, the slowest steps, the page."""
    own_ms = (20, 9, 6)
    write_ranks(tmp_path, [Training(steps=60, comm_ms=9, step_ms=ms, world=3) for ms in own_ms])
    value = json.loads(invoke("why", "--json", tmp_path).out)
    (finding,) = value["findings"]
    rank = value["rank"]
    assert (finding["kind"], finding["ranks"]) == ("communication-bound", [0, 1, 2])
    assert finding["rank"] == rank == 1
    steps = steps_of(lines_of(tmp_path / f"rank{rank}"))
    check_parts(value, steps, judged_of(value["steps"], steps)[1])
    assert finding["share"] == pytest.approx(value["parts"]["comm"]["share"], abs=1e-6)
    text = invoke("why", tmp_path).out
    low, high = (f"{100 * share:.0f}" for share in finding["of_ranks"])
    whose = f"On all 3 ranks, from {low} to {high} %. The figures are of rank {rank}."
    assert text.splitlines()[1] == f"{finding['what']} {whose}"
    row = text.partition("\n  step      ")[2].partition("\n")[0]
    assert f"communication {100 * finding['share']:,.0f} %" in row
    assert f"shown of rank {rank}" in text
    page = tmp_path / "report.html"
    assert invoke("report", tmp_path, "-o", page).status == 0
    html = page.read_text("utf-8")
    assert f"<dt>step</dt><dd>{row}</dd>" in html
    assert f"<p class=what>{finding['what']}</p><p>{whose}</p>" in html
