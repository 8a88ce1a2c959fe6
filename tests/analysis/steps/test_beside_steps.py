"""Memory and tensors beside steps: in the verdict, the report and SQL, against what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from analysis.trace_lines import TraceLines
from safety.commands import invoke

from dftrace_ai.analysis import Run

MS = 1_000_000
MB = 10**6
# Steps of 10 ms each, of which those are slower.
SLOW_MS = {12: 19, 30: 18, 41: 17}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Fifty steps; memory is sampled before some and within others, tensors break in two."""
    trace = TraceLines()
    for step in range(50):
        at = step * 20 * MS
        length = SLOW_MS.get(step, 10) * MS
        trace.span("forward", "compute", at, length // 2)
        trace.span("step", "pipeline", at, length)
    # Nobody has sampled anything before step 13.
    for step, ms, resident, on_gpus in (
        *((13, 1, 100, None), (29, 5, 300, (10, 20)), (30, 2, 400, (30, 40)), (30, 8, 350, (1, 2))),
        *((40, 15, 500, (7, 7)), (41, 30, 900, (9, 9))),
    ):
        at = step * 20 * MS + ms * MS
        trace.counter("memory bytes", at, used=9e9, process=resident * MB)
        if on_gpus:
            levels = {f"allocated {gpu}": level * MB for gpu, level in enumerate(on_gpus)}
            trace.counter("GPU memory bytes", at, **levels, **{"reserved 0": 8e9})
    trace.counter("memory of others", 41 * 20 * MS, process=1e12)
    for step, ms, name in (
        (30, 3, "fc:out"),
        (30, 4, "fc:grad"),
        (41, 19, "fc:in"),
        (41, 1, "a:b"),
    ):
        trace.event(
            "i", name, "nonfinite", step * 20 * MS + ms * MS, more=',"s":"t"', iteration=step
        )
    trace.footer()
    trace.write(tmp_path / "t-host-100.pfw.gz")
    return tmp_path


WANTED = {
    12: (None, None, 0, None),
    # The greatest within the step, all GPUs together.
    30: (400 * MB, 70 * MB, 2, "fc:out"),
    # The last before it, since none is within; what comes after it is no part of it.
    41: (500 * MB, 14 * MB, 1, "a:b"),
}
NAMES = ("rss_bytes", "device_bytes", "nonfinite", "nonfinite_tensor")


def beside(step: dict[str, Any]) -> tuple[object, ...]:
    return tuple(step[name] for name in NAMES)


def test_the_slowest_steps_tell_memory_and_tensors(run: Path) -> None:
    value = json.loads(invoke("why", "--json", run).out)
    assert {step["step"]: beside(step) for step in value["slowest"]} == WANTED
    (line,) = [line for line in invoke("why", run).out.splitlines() if "slowest" in line]
    assert "step 12 (--at 0.240s+19.0ms), step 30 (" in line
    assert "ms; 400 MB, 70 MB on the GPU, fc:out and 1 more not finite), step 41 (" in line
    assert line.endswith("; 500 MB, 14 MB on the GPU, a:b not finite)")


def test_so_does_the_report(run: Path, tmp_path: Path) -> None:
    figures = Run(run).figures
    slowest = {step.step: beside(vars(step)) for step in figures.slowest[:3]}
    assert slowest == WANTED
    page = Run(run).report(tmp_path / "r.html").read_text("utf-8")
    table = page[page.index('<table id="slowest"') :]
    table = table[: table.index("</table>")]
    assert "<th>beside it</th>" in table.replace(" class=figure", "")
    assert "fc:out and 1 more not finite" in table


def test_so_does_sql(run: Path) -> None:
    pytest.importorskip("duckdb")
    query = "select step, rss_bytes, device_bytes, nonfinite from steps order by step"
    rows = {row["step"]: row for row in json.loads(invoke("sql", "--json", run, query).out)}
    assert {step: tuple(rows[step][name] for name in NAMES[:3]) for step in WANTED} == {
        step: wanted[:3] for step, wanted in WANTED.items()
    }
    # Each step has what was known then.
    assert [rows[step]["rss_bytes"] for step in (13, 14, 29, 42, 49)] == [
        level * MB for level in (100, 100, 300, 900, 900)
    ]
    assert sum(row["nonfinite"] for row in rows.values()) == 3


def test_what_is_not_finite_comes_first(run: Path, tmp_path: Path) -> None:
    """Also where nothing else is known; gradients alone are what a scaler of losses looks for."""
    first = (
        "fc:out is the first tensor that is not finite, in step 30 (--at 0.603s); 3 more after it."
    )
    assert invoke("why", run).out.splitlines()[:3] == ["NOT FINITE", first, ""]
    value = json.loads(invoke("why", "--json", run).out)
    assert value["nonfinite"] == {
        "tensor": "fc:out",
        "rank": 0,
        "step": 30,
        "at_us": 603_000.0,
        "marks": 4,
    }
    assert value["verdict"] != "abstained"
    page = Run(run).report(tmp_path / "r.html").read_text("utf-8")
    assert page.index(f"<strong>NOT FINITE</strong> {first}") < page.index("id=verdict")
    for name in ("fc:activation", "fc:gradient"):
        trace = TraceLines(pid=200)
        trace.event("i", name, "nonfinite", 7 * MS, more=',"s":"t"', iteration=3)
        trace.footer()
        lines = invoke(
            "why", trace.write(tmp_path / f"{name[3:]}-host-200.pfw.gz")
        ).out.splitlines()
        told = ["NOT FINITE", f"{name} is the first tensor that is not finite (--at 0.007s).", ""]
        assert lines[:-3] == (told if name == "fc:activation" else [])
        assert lines[-3] == "NO VERDICT"
