"""Frames: each view is in pandas, polars, pyarrow and DuckDB what `dftrace sql` answers, to the digit."""

from __future__ import annotations

import gc
import inspect
import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pytest
from analysis.lines.made_stacks import MadeStacks
from analysis.trace_lines import TraceLines, small_trace, training
from analysis.why.made_runs import Training
from conftest import SCRIPT_LIMIT_S
from safety.commands import invoke

import dftrace_ai.analysis
from dftrace_ai.analysis import Run, diff, open_traces, summarise, why
from dftrace_ai.analysis.frames import Frame
from dftrace_ai.analysis.sql import QueryError, TraceTables
from dftrace_ai.analysis.summary.report import reported
from dftrace_ai.analysis.views import VIEWS
from dftrace_ai.analysis.why import Finding
from dftrace_ai.errors import DftraceError, TraceError

HOSTILE = (
    "'; drop view spans; --",
    'say "x"\n\t\\',
    "\u202e\U0001f600\x00é",
    "=cmd|' /C calc'!A0",
    "n" * 9000,
)
Rows = list[dict[str, Any]]


def odd_trace(pid: int, **header: Any) -> TraceLines:
    """Hostile names, arguments that are null, and counters that were not finite."""
    trace = TraceLines(pid, **header)
    for at, name in enumerate(HOSTILE):
        trace.span(name, "compute", at * 1000 + 7, 300, note=None, deep={"a": [None, name]})
    trace.add(
        f'{{"name":"\\ud800 alone","ph":"i","cat":"instant","pid":{pid},"tid":1,"ts":9,"args":{{}}}}'
    )
    trace.counter("loss", 9000, train=None, train_str="nan", lr=1e-300, big=2**62 + 1)
    trace.footer()
    return trace


def wide_steps() -> TraceLines:
    trace = TraceLines(7, rank=2**63 - 1)
    for at, step in enumerate((2**62 - 1, 2**62, 2**62 + 1, 2**63 - 2, 2**63 - 1)):
        trace.span("forward", "compute", at * 10_000, 8_000, step=step)
    trace.footer()
    return trace


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    small_trace(100).write(folder / "plain" / "a.pfw.gz")
    wide_steps().write(folder / "63 bits" / "a.pfw")
    TraceLines(1).write(folder / "no events" / "a.pfw.gz")
    for rank in (0, 1):
        training(rank).write(folder / "two ranks" / f"{rank}.pfw.gz", 40)
    odd_trace(3).write(folder / "two ranks" / "odd.pfw.zst")
    trace = TraceLines(700)
    stacks = MadeStacks(trace, 0)
    stacks.sample(5_000_000, [("main", "train.py", 41), ("norm", "torch/_tensor.py", 0, True)])
    stacks.end()
    trace.footer()
    trace.write(folder / "two ranks" / "stacks.pfw.gz")
    Training(item_ms=20, epochs=2, steps=60).write(folder / "slow", 3)
    return {path.name: path for path in folder.iterdir()}


@cache
def asked(path: Path) -> dict[str, Rows]:
    """What `dftrace sql` answers for each view, as values of Python's."""
    with TraceTables(open_traces([path])) as tables:
        answers = {}
        for view in VIEWS:
            answer = tables.query(f"from {view}")
            answers[view] = [dict(zip(answer.columns, row)) for row in answer.rows()]
    return answers


def of_pandas(frame: Any) -> Rows:
    import pandas as pd

    def plain(value: Any) -> Any:
        if isinstance(value, (list, np.ndarray)):
            return [plain(one) for one in value]
        if value is None or value is pd.NA:
            return None
        return value.item() if isinstance(value, np.generic) else value

    return [
        {name: plain(value) for name, value in zip(frame.columns, row)}
        for row in zip(*(frame[name] for name in frame.columns))
    ]


WAYS: dict[str, Callable[[Frame], Rows]] = {
    "polars": lambda frame: frame.to_polars().to_dicts(),
    "pyarrow": lambda frame: frame.to_arrow().to_pylist(),
    "a stream": lambda frame: pa.table(frame).to_pylist(),
    "batches": lambda frame: [row for one in frame.batches(7) for row in one.to_pylist()],
    "pandas": lambda frame: of_pandas(frame.to_pandas()),
    "pandas of Arrow": lambda frame: of_pandas(frame.to_pandas("pyarrow")),
}


def same(one: Rows, other: Rows, *, null_is_nan: bool = False, in_order: bool = True) -> bool:
    """To the last digit; `null_is_nan` is of floats in pandas, which have no null."""

    def plain(value: Any) -> str:
        if null_is_nan and isinstance(value, float) and math.isnan(value):
            return "None"
        return repr(value)

    def rows(given: Rows) -> list[str]:
        return [str([(key, plain(value)) for key, value in row.items()]) for row in given]

    return rows(one) == rows(other) if in_order else sorted(rows(one)) == sorted(rows(other))


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_the_same_in_every_library(runs: dict[str, Path], view: str) -> None:
    pytest.importorskip("pandas")
    for name, path in runs.items():
        want = asked(path)[view]
        frame = Run(path).frame(view)
        assert same(WAYS["polars"](frame), want), name
        if name == ("slow" if view == "findings" else "two ranks"):
            assert want
            for way, rows_of in WAYS.items():
                assert same(rows_of(frame), want, null_is_nan=way == "pandas"), way
            rows = duckdb.from_arrow(frame).fetchall()
            assert same([dict(zip(VIEWS[view], row)) for row in rows], want)


def test_findings_and_summary_are_those_of_their_commands(runs: dict[str, Path]) -> None:
    for path in runs.values():
        run, verdict = Run(path), why(path)
        findings = run.frame("findings").to_polars().to_dicts()
        want = [asdict(one) | {"of_some_ranks": False} for one in verdict.findings]
        want += [asdict(one) | {"of_some_ranks": True} for one in verdict.of_some_ranks]
        told = json.loads(json.dumps(want))
        texts = ("evidence", "late_ranks", "lines")
        assert [row | {name: json.loads(row[name]) for name in texts} for row in findings] == told
        summary = run.frame("summary").to_polars().to_dicts()
        rows = [asdict(row) for row in reported(path).spans]
        assert summary == [{name: row[name] for name in VIEWS["summary"]} for row in rows]
    done = invoke("sql", path, "from summary", "--json")
    printed = json.loads(invoke("summary", path, "--json").out)["spans"]
    assert json.loads(done.out) == [{key: row[key] for key in VIEWS["summary"]} for row in printed]
    slow = Run(runs["slow"]).frame("findings").to_arrow()
    assert slow["kind"].to_pylist()[0] == "input-bound"
    assert set(VIEWS["findings"]) == {field.name for field in fields(Finding)} | {"of_some_ranks"}


def test_steps_are_the_columns_of_the_run(runs: dict[str, Path]) -> None:
    run = Run(runs["two ranks"])
    frame = run.frame("steps").to_polars()
    for rank, steps in run.steps.items():
        own = frame.filter(pl.col("rank") == rank)
        assert own["dur_ns"].to_list() == steps.time_ns.tolist()
        assert own["start_ns"].to_list() == steps.start_ns.tolist()
        assert own["wait_ns"].to_list() == steps.parts["wait"].tolist()
    counted = run.frame("select sum(value) as all from counters where series = 'train'")
    (series,) = {one.key: one for one in run.counters if one.process == "rank 0"}.values()
    assert counted.to_polars()["all"][0] >= float(np.sum(series.values))
    wide = Run(runs["63 bits"]).frame("select distinct rank from steps").to_arrow()
    assert wide["rank"].to_pylist() == [2**63 - 1]


def test_a_frame_is_of_the_limits_of_its_run(runs: dict[str, Path]) -> None:
    from dftrace_ai.analysis.why import limits_of

    run = Run(runs["slow"], limits=limits_of(["input=0.9"]))
    kinds = run.frame("findings").to_polars()["kind"].to_list()
    assert kinds == [finding.kind for finding in run.why.findings]
    assert "input-bound" not in kinds


def test_types_do_not_depend_on_values(runs: dict[str, Path]) -> None:
    pytest.importorskip("pandas")
    full, empty = Run(runs["plain"]), Run(runs["no events"])
    for view in VIEWS:
        of_both = [run.frame(view).to_pandas().dtypes.map(str).tolist() for run in (full, empty)]
        assert of_both[0] == of_both[1]


def test_what_could_not_be_read_is_told(runs: dict[str, Path]) -> None:
    run = Run(runs["two ranks"])
    for view in ("events", "summary", "findings", "steps"):
        frame = run.frame(view)
        assert frame.notes == ()
        frame.to_polars()
        assert [note.partition(": ")[2] for note in frame.notes] == ["1 line without an event"]


def test_a_stream_outlives_its_frame(runs: dict[str, Path]) -> None:
    reader = pa.RecordBatchReader.from_stream(Run(runs["two ranks"]).frame("events"))
    gc.collect()
    assert sum(batch.num_rows for batch in reader) == len(asked(runs["two ranks"])["events"])
    batches = Run(runs["two ranks"]).frame("events").batches(10)
    assert next(batches).num_rows <= 10
    batches.close()


def test_what_is_wrong_is_said(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(runs["two ranks"])
    with pytest.raises(ValueError, match="no view is called stepz; there are: spans, instants"):
        run.frame("stepz")
    for bad in (
        "select * from nowhere",
        "drop view spans",
        "select 1; select 2",
        "copy spans to 'x'",
    ):
        with pytest.raises(QueryError):
            run.frame(bad).to_polars()
    with pytest.raises(ValueError, match="no backend is called numpy; there are: numpy_nullable"):
        run.frame("steps").to_pandas("numpy")
    with pytest.raises(ValueError, match="0 rows in a batch"):
        run.frame("steps").batches(0)
    path = small_trace(1).write(tmp_path / "a.pfw.gz")
    torn = Run(tmp_path).frame("events")
    path.write_bytes(path.read_bytes()[:-9])
    assert len(torn.to_polars()) > 3
    assert any("torn" in note for note in torn.notes)
    gone = Run(tmp_path)
    assert gone.traces
    path.unlink()
    for way in ("polars", "pyarrow", "batches"):
        with pytest.raises(TraceError, match="cannot be read"):
            WAYS[way](gone.frame("spans"))
    for name, method in (("pandas", "to_pandas"), ("polars", "to_polars"), ("pyarrow", "to_arrow")):
        monkeypatch.setitem(sys.modules, name, None)
        message = f"{method} needs {name}; install it with: pip install {name}"
        with pytest.raises(DftraceError, match=message):
            getattr(run.frame("steps"), method)()


HOLDING_THE_GIL = """
import ctypes, sys
from dftrace_ai.analysis import Run

class Stream(ctypes.Structure):
    pass

class Array(ctypes.Structure):
    _fields_ = [("length", ctypes.c_int64), ("rest", ctypes.c_int64 * 4), ("places", ctypes.c_void_p * 3),
                ("release", ctypes.c_void_p), ("private", ctypes.c_void_p)]

# What is called by such a prototype is called with the GIL held.
call = ctypes.PYFUNCTYPE
Stream._fields_ = [("schema", ctypes.c_void_p), ("next", call(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)),
                   ("error", ctypes.c_void_p), ("release", call(None, ctypes.c_void_p))]
place = ctypes.pythonapi.PyCapsule_GetPointer
place.restype, place.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
for most in (10**9, 1):
    capsule = Run(sys.argv[1]).frame("events").__arrow_c_stream__()
    at = place(capsule, b"arrow_array_stream")
    stream, rows = Stream.from_address(at), 0
    while rows < most:
        array = Array()
        assert stream.next(at, ctypes.addressof(array)) == 0
        if not array.release:
            break
        rows += array.length
        call(None, ctypes.c_void_p)(array.release)(ctypes.addressof(array))
    stream.release(at)
    print(rows)
"""


def test_who_holds_the_gil_while_a_stream_is_read_waits_for_nobody(runs: dict[str, Path]) -> None:
    """As polars 1.31 does; DuckDB 1.5 then waited for ever for lines, which other threads read."""
    done = subprocess.run(
        [sys.executable, "-c", HOLDING_THE_GIL, str(runs["slow"])],
        capture_output=True,
        text=True,
        check=False,
        timeout=SCRIPT_LIMIT_S,
    )
    assert done.stderr == ""
    whole, some = map(int, done.stdout.split())
    assert whole == len(asked(runs["slow"])["events"]) >= some > 0


WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
import polars, pandas
from dftrace_ai.analysis import Run
frame = Run(sys.argv[1]).frame("spans")
print(len(polars.DataFrame(frame)), len(frame.to_polars()), len(frame.to_pandas()))
"""


def test_pyarrow_is_needed_for_its_own_tables_alone(runs: dict[str, Path]) -> None:
    pytest.importorskip("pandas")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYARROW, str(runs["plain"])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["4"] * 3, "")


def test_parquet_is_read_alike(runs: dict[str, Path], tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    mixed = tmp_path / "mixed"
    training(0).write(mixed / "a.pfw.gz", 40)
    small_trace(300).write(mixed / "b.pfw.gz")
    for name, path in (*runs.items(), ("mixed", mixed)):
        out = tmp_path / f"{name} as tables"
        done = invoke("convert", path, "--to", "parquet", "-o", out)
        assert done.status == (name == "two ranks"), done.err  # it has a name that is no text
        for view, place, files in (
            ("events", out / "events", f"{out}/events/*/*.parquet"),
            ("processes", out / "processes.parquet", f"{out}/processes.parquet"),
        ):
            found = [
                pds.dataset(place).to_table().to_pylist(),
                pds.dataset(place, partitioning="hive").to_table().to_pylist(),
                pl.read_parquet(place).to_dicts(),
                of_pandas(pandas.read_parquet(place, dtype_backend="pyarrow")),
            ]
            if view == "events":
                nullable = pandas.read_parquet(place, dtype_backend="numpy_nullable")
                found.append(of_pandas(nullable))
            for how in ("", ", hive_partitioning = true"):
                rows = duckdb.sql(f"from read_parquet('{files}'{how})")
                assert rows.columns == list(VIEWS[view])
                found.append([dict(zip(rows.columns, row)) for row in rows.fetchall()])
            want = asked(path)[view]
            assert [same(rows, want, in_order=False) for rows in found] == [True] * len(found), name


def test_names_of_the_room_are_what_is_called(runs: dict[str, Path]) -> None:
    path = runs["slow"]
    assert why(path).verdict == why([path]).verdict == Run(path).why.verdict
    assert diff(path, path).verdict
    assert summarise(str(path)).events == summarise([path]).events
    assert list(inspect.signature(why).parameters) == ["paths", "limits", "spread"]
    assert all(getattr(dftrace_ai.analysis, name) for name in dftrace_ai.analysis.__all__)


def test_of_several_runs_the_newest_is_read(tmp_path: Path) -> None:
    for at, steps in enumerate((10, 20)):
        trace = TraceLines(
            5, run=f"{at}{at}ff", rank=0, time_base_us=1_762_560_000_000_000 + at * 10**9
        )
        for step in range(steps):
            trace.span("forward", "compute", step * 1_000_000, 900_000, step=step)
        trace.footer()
        trace.write(tmp_path / str(at) / "a.pfw.gz")
    run = Run(tmp_path)
    assert len(run.frame("steps").to_polars()) == 20
    assert f"one of 2 runs in {tmp_path}" in run.figures.title
    assert len(Run(tmp_path, run="00ff").steps[0]) == 10
    assert len(Run(tmp_path, run="all").traces) == 2
