"""The ideal timeline is a set of traces that open beside the measured ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_hosts import MS, MadeHosts
from made_pipelines import MadePipeline

from dftrace_ai.analysis.ranks.clock_offsets import clocks_of
from dftrace_ai.analysis.ranks.job import RanksOfJob
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.validating import validate_traces
from dftrace_ai.analysis.whatif import whatif_of, write_timeline
from dftrace_ai.errors import TraceError


def _slow_hosts() -> RanksOfJob:
    made = MadeHosts(4, 30)
    made.own[3, :, 1:5] += 12 * MS
    return made.job()


@pytest.mark.parametrize("form", ["host", "operations"])
def test_ideal_and_measured_timeline_are_traces_without_faults(form: str, tmp_path: Path) -> None:
    job = _slow_hosts() if form == "host" else MadePipeline("worker", 2, 2, 24, 1).job()
    answer = whatif_of(job, clocks_of(job))
    files = write_timeline(answer, tmp_path / "out")
    assert [file.name for file in files][3:5] == [
        "measured-rank00003.pfw.gz",
        "ideal-rank00000.pfw.gz",
    ]
    traces = open_traces([tmp_path / "out"])
    assert not any(file.fault_count for file in validate_traces(traces).files)
    spans: dict[str, list[tuple[int, int, str, int]]] = {}
    for trace in traces:
        spans[trace.path.name] = sorted(
            (round(event["ts"] * 1000), round(event["dur"] * 1000), event["name"], event["tid"])
            for _, event in trace.events()
            if event["ph"] == "X"
        )
    for rank in range(4):
        measured, ideal = (spans[f"{which}-rank{rank:05d}.pfw.gz"] for which in _WHICH)
        assert sorted(row[2] for row in measured) == sorted(row[2] for row in ideal)
        for rows in (measured, ideal):
            _no_overlaps(rows)
        assert sum(row[1] for row in ideal) < sum(row[1] for row in measured)
    began = [
        np.min(
            [[row[0] for row in rows if row[2] == "step" and row[3] >= 1 << 30] for rows in some], 0
        )
        for some in (
            [spans[f"{which}-rank{rank:05d}.pfw.gz"] for rank in range(4)] for which in _WHICH
        )
    ]
    assert np.abs(began[0] - began[1]).max() < 2 * MS


_WHICH = ("measured", "ideal")


def _no_overlaps(rows: list[tuple[int, int, str, int]]) -> None:
    until: dict[int, int] = {}
    for start, took, name, track in rows:
        assert start >= until.get(track, 0), (name, track)
        until[track] = start + took


def test_where_nothing_is_said_there_is_no_timeline(tmp_path: Path) -> None:
    job = RanksOfJob.of(MadeHosts(2, 30).job().ranks[:1])
    with pytest.raises(TraceError, match="no timeline"):
        write_timeline(whatif_of(job, clocks_of(job)), tmp_path)
