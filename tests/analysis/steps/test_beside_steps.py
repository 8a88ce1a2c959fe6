"""Memory and tensors beside steps, against what was written; and a run of DLIO's benchmark, by its names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from analysis.trace_lines import TraceLines
from safety.commands import invoke

from dftrace_ai.analysis import Run
from dftrace_ai.analysis.steps.roles import Role, role_of
from dftrace_ai.analysis.why import why

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


OF_DLIO: dict[Role, list[tuple[str, str]]] = {
    "wait": [("dlio_benchmark", "loop.iter"), ("data_loader", "fetch.iter")],
    "block": [("dlio_benchmark", "loop.yield"), ("dataloader", "fetch.block")],
    "evaluation": [("dlio_benchmark", "DLIOBenchmark._eval")],
    "transparent": [
        ("dlio_benchmark", "DLIOBenchmark._train"),
        ("dlio_benchmark", "DLIOBenchmark.initialize"),
        ("config", "ConfigArguments.reconfigure"),
        ("data_loader", "TorchDataLoader.next"),
        ("data_loader", "TorchDataLoader.read"),
        ("data_loader", "TorchDataset.worker_init"),
        ("reader", "NPZReader.__init__"),
    ],
    "item": [
        ("data_loader", "TorchDataset.__getitem__"),
        ("reader", "NPZReader.read_index"),
        ("reader", "read_index"),
    ],
    "io": [
        ("reader", "NPZReader.open"),
        ("reader", "HDF5Reader.get_sample"),
        ("reader", "TFReader.close"),
        ("storage", "FileStorage.get_data"),
    ],
    "data": [("reader", "FormatReader.preprocess"), ("reader", "FormatReader.resize")],
    "compute": [("ai_framework", "TorchFramework.compute"), ("framework", "TFFramework.compute")],
    "checkpoint": [("checkpoint", "PyTorchCheckpointing.checkpoint")],
    # A category of one's own that has the same name is no part of DLIO.
    "other": [("storage", "upload"), ("config", "load"), ("generator", "NPZGenerator.generate")],
}


@pytest.mark.parametrize("role", OF_DLIO)
def test_each_name_has_its_role(role: Role) -> None:
    assert {named: role_of(*named) for named in OF_DLIO[role]} == dict.fromkeys(OF_DLIO[role], role)


def test_a_run_of_it_is_judged(tmp_path: Path) -> None:
    """One rank that computes for 10 ms and waits for 6; a worker that reads all the time."""
    lines: dict[int, list[str]] = {7: ["["], 8: ["["]}

    def span(pid: int, cat: str, name: str, at: int, length: int, **args: str) -> None:
        event = {"id": len(lines[pid]), "name": name, "cat": cat, "pid": pid, "tid": pid, "ph": 1}
        lines[pid].append(json.dumps({**event, "ts": at, "dur": length, "args": args}))

    at = 1_700_000_000_000_000
    for epoch in range(3):
        begin = at
        for step in range(40):
            tags = {"step": str(step), "epoch": str(epoch)}
            span(7, "dlio_benchmark", "loop.iter", at, 6000, count=str(step + 1), **tags)
            span(7, "dlio_benchmark", "loop.yield", at + 6000, 10_500, count=str(step + 1), **tags)
            span(7, "ai_framework", "TorchFramework.compute", at + 6100, 10_000, **tags)
            span(8, "reader", "NPZReader.read_index", at, 15_900, step="1")
            span(8, "reader", "NPZReader.open", at + 10, 15_000, step="1")
            at += 16_500
        span(7, "dlio_benchmark", "DLIOBenchmark._train", begin, at - begin)
        span(7, "checkpoint", "PyTorchCheckpointing.checkpoint", at, 20_000)
        at += 25_000
        begin = at
        for step in range(10):
            span(7, "dlio_benchmark", "loop.iter", at, 500, count=str(step + 1))
            span(7, "dlio_benchmark", "loop.yield", at + 500, 4000, count=str(step + 1))
            span(7, "ai_framework", "TorchFramework.compute", at + 600, 3800)
            at += 4500
        span(7, "dlio_benchmark", "DLIOBenchmark._eval", begin, at - begin)
    for pid, text in lines.items():
        (tmp_path / f"trace-{pid}-of-2.pfw").write_text("\n".join(text) + "\n")
    verdict = why([tmp_path])
    assert verdict.steps is not None
    assert (verdict.steps.count, verdict.steps.found_by) == (120, "loader blocks")
    # Numbers that stand there as texts tell where each loop begins.
    assert verdict.steps.steady == 117
    parts = {name: time.share for name, time in verdict.parts.items() if time.share > 0.02}
    assert parts == pytest.approx(
        {"wait": 6 / 16.5, "compute": 10 / 16.5, "none": 0.5 / 16.5}, abs=1e-4
    )
    first = verdict.findings[0]
    assert (first.kind, first.cause) == ("input-bound", "disk")
    assert first.evidence["workers"] == 1
    assert not any("evaluation" in line for line in verdict.unseen)
