"""Runs of many spans, of which few are at hand at a time, are what they are in one piece."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis.trace_lines import TraceLines
from sampling import SEED

from dftrace_ai.analysis.diff import diff
from dftrace_ai.analysis.reading import long_columns, open_traces, set_aside
from dftrace_ai.analysis.reading.long_columns import LongColumn, SumColumn
from dftrace_ai.analysis.steps import Job, Steps, measure
from dftrace_ai.analysis.why import why
from dftrace_ai.generating import Job as MadeJob
from dftrace_ai.generating import cause_of, generate

# Rows of a stretch; runs of some hundred spans are long ones then.
FEW = 24


@pytest.mark.parametrize("way", ["apart", "beside", "behind"])
def test_a_long_column_gives_what_it_was_given(way: Any) -> None:
    random = np.random.default_rng(SEED)
    count = 500
    noise = random.integers(-9, 9, count)
    for values in (
        np.sort(random.integers(0, 2**61, count)),
        np.sort(random.integers(0, 10**13, count)) + 10**18,
        np.arange(count) * 5 + noise,
        np.where(noise > 0, -(2**63), noise),
        np.full(count, 7),
        np.sort(random.integers(0, 20, count)),
    ):
        column, first = LongColumn(way), 0
        while first < count:
            behind = first + int(random.integers(1, 100))
            column.add(values[first:behind])
            first = behind
        low, high = np.sort(random.integers(0, count, 2))
        mask = noise > 5
        anywhere = random.integers(-count, count, 30)
        assert len(column) == count
        assert np.asarray(column).tolist() == values.tolist()
        assert column[low:high].tolist() == values[low:high].tolist()
        assert column[mask].tolist() == values[mask].tolist()
        assert column[anywhere].tolist() == values[anywhere].tolist()
        assert column[-1] == values[-1]
        assert (column.min(), column.max()) == (values.min(), values.max())
        assert (column > 3).tolist() == (values > 3).tolist()
        if (np.diff(values) >= 0).all():
            asked = random.choice(values, 30) + random.integers(-1, 2, 30)
            for side in ("left", "right"):
                at = np.searchsorted(column, asked, side)  # type: ignore[call-overload]
                assert at.tolist() == np.searchsorted(values, asked, side).tolist()


def test_numbers_of_64_bits_are_kept() -> None:
    column = LongColumn("beside", np.uint64)
    for values in ([1, 2**64 - 1], [2**63, 5]):
        column.add(np.array(values, np.uint64))
    assert np.asarray(column).tolist() == [1, 2**64 - 1, 2**63, 5]


def _lines(path: Path, steps: int) -> Path:
    """Write a run with all that makes an order difficult: around many, at once, of other threads."""
    pick, lines, at = random.Random(SEED), TraceLines(rank=0), 1_000_000
    for loop in range(4):
        begin = at
        for step in range(steps):
            start = at
            at += pick.choice([20_000, 20_000, 900_000])
            lines.span("fetch.iter", "dataloader", start, at - start, count=step + 1, epoch=loop)
            block = at
            for name in ("forward", "backward", "step"):
                took = pick.randrange(50_000, 90_000) if step != 7 else 3_000_000
                lines.span(name, "compute", at, took)
                lines.span("gelu", "compute", at, took)
                at += took
            if step % 5 == 0:
                lines.span("read", "mine", at, 40_000)
                lines.span("item", "data", start, at - start, tid=9)
                lines.counter("memory bytes", at, process=step * 1e6)
            lines.span("fetch.block", "dataloader", block, at - block, count=step + 1, epoch=loop)
        lines.span("evaluate", "pipeline", at, 5_000_000)
        lines.span("epoch", "pipeline", begin, at - begin, epoch=loop)
        at += 6_000_000
    lines.span("train", "pipeline", 1_000_000, at)
    return lines.write(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return directories of runs: one of a loop, and made ones of two ranks."""
    root = tmp_path_factory.mktemp("runs")
    (root / "loops").mkdir()
    _lines(root / "loops" / "a-h-100.pfw", 30)
    found = [root / "loops"]
    for name, cause in (("even", []), ("late", [cause_of("slow-rank:1:4")])):
        generate(MadeJob(ranks=2, steps=40, causes=tuple(cause)), root / name)
        found.append(root / name)
    return [str(path) for path in found]


def _shown(steps: Steps | None) -> list[Any]:
    if steps is None:
        return []
    line, thread = steps.timeline, steps.thread
    columns = [
        *(steps.start_ns, steps.end_ns, steps.time_ns, steps.number, steps.first, steps.on_gpu),
        *(line.start_ns, line.length_ns, line.part, line.span),
        *(thread.start_ns, thread.end_ns, thread.role, thread.tid, thread.id, thread.row),
        *steps.evaluation,
        *steps.gaps,
        *steps.standstill,
        *steps.parts.values(),
    ]
    return [steps.found_by, steps.hidden_ns, [np.asarray(one).tolist() for one in columns]]


def _told(runs: list[str]) -> tuple[list[Any], bool]:
    """Return what is told of runs, and whether their spans came in stretches."""
    told: list[Any] = []
    in_stretches = []
    for run in runs:
        job = Job(open_traces([run]))
        for rank in job.ranks:
            spans = rank.process.spans
            in_stretches.append(isinstance(spans.start_ns, LongColumn))
            assert isinstance(spans.end_ns, SumColumn) == in_stretches[-1]
            every = range(0, len(spans), 50)
            told.append([(spans.label(at), spans.args(at)) for at in every])
            told += [_shown(measure(rank.process)), _shown(measure(rank.process, whole=False))]
        told += [job.facts, repr(why(run))]
    told += [repr(diff(*pair)) for pair in zip(runs, runs[1:], strict=False)]
    return told, all(in_stretches)


def test_stretches_change_nothing(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole, in_stretches = _told(runs)
    assert not in_stretches
    monkeypatch.setattr(long_columns, "ROWS_AT_ONCE", FEW)
    monkeypatch.setattr(set_aside, "AT_HAND_BYTES", 512)
    cut, in_stretches = _told(runs)
    assert in_stretches
    for one, other in zip(whole, cut, strict=True):
        assert one == other


def test_a_span_is_held_in_few_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_columns, "ROWS_AT_ONCE", 1_024)
    monkeypatch.setattr(set_aside, "AT_HAND_BYTES", 8_192, raising=False)
    lines, at = TraceLines(rank=0), 1_000_000
    steps = 8_000
    for step in range(steps):
        lines.span("fetch.iter", "dataloader", at, 30_000, count=step + 1)
        for number, name in enumerate(("forward", "backward", "step")):
            lines.span(name, "compute", at + 50_000 + number * 900_000, 800_000 + step % 7)
        lines.span("fetch.block", "dataloader", at + 40_000, 2_900_000, count=step + 1)
        at += 3_000_000
    path = lines.write(tmp_path / "a-h-100.pfw.gz", 2_000)
    del lines
    _held(path)
    tracemalloc.start()
    (rank,) = _held(path)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rank.process.spans) == 5 * steps
    # Packed in memory they take 13, as they are read 25.
    assert held < 5 * len(rank.process.spans)


def _held(path: Path) -> Any:
    return Job(open_traces([path])).ranks
