"""The names of DLIO's benchmark, each with what it is in a training, and a run of it that is judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dftrace_ai.analysis.steps.roles import Role, role_of
from dftrace_ai.analysis.why import why

NAMES: dict[Role, list[tuple[str, str]]] = {
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


@pytest.mark.parametrize("role", NAMES)
def test_each_name_has_its_role(role: Role) -> None:
    assert {named: role_of(*named) for named in NAMES[role]} == dict.fromkeys(NAMES[role], role)


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
