"""Every command where the packages of the extra `analysis` are not there: it works, or one line says why."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines
from conftest import clean_environment
from loggers.local_lines import entry
from loggers.runs.made_logs import Log

from dftrace_ai.loggers import make_loggers
from dftrace_ai.loggers.runs import tables

ROOT = Path(__file__).parents[2]
MS = 1_000_000

# Many commands in one interpreter. What is None there cannot be imported.
PROGRAM = """
import json, logging, sys
missing, commands = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(missing))
from typer.testing import CliRunner
from dftrace_ai import ai, tracing
from dftrace_ai.cli import app
with tracing(log_file="live/t"), ai.compute.forward:
    for words in commands:
        done = CliRunner().invoke(app, words)
        fault = "" if isinstance(done.exception, SystemExit | None) else repr(done.exception)
        print(json.dumps([done.exit_code, done.stdout, done.stderr, fault]))
assert "_duckdb" not in sys.modules
"""

# All but `view` and `demo`: what serves or trains until it is ended asks nothing of tables.
WORKS = {
    "list": ["runs", "logged"],
    "chosen": ["runs", "logged", "--where", "lr > 0.15", "--sort", "loss", "--json"],
    "side by side": ["runs", "logged", "--compare"],
    "page": ["runs", "logged", "--to", "html", "-o", "page.html"],
    "csv": ["runs", "logged", "--to", "csv", "--out", "tables"],
    "perfetto": ["convert", "out", "--to", "perfetto", "--out", "all.pfw.gz"],
    "dftracer": ["convert", "out", "--to", "dftracer", "--out", "dftracer"],
    "summary": ["summary", "out"],
    "validate": ["validate", "out"],
    "info": ["info", "--json"],
    "top": ["top", "live", "--json"],
    "stuck": ["stuck", "live", "--json", "--idle", "1000"],
    "recover": ["recover", "out"],
    "check": ["inspect", "check", "inspect.yaml", "--json"],
}
WITH_NUMPY = {
    "tree": ["summary", "out", "--by", "tree"],
    "where": ["summary", "out", "--where", "rank = 0"],
    "why": ["why", "out"],
    "report": ["report", "out", "-o", "report.html"],
    "diff": ["diff", "out", "out"],
}
WITH_DUCKDB = {
    "query of runs": ["runs", "logged", "--sql", "from runs"],
    "runs as parquet": ["runs", "logged", "--to", "parquet", "--out", "parquet"],
    "query": ["sql", "out", "from spans"],
    "parquet": ["convert", "out", "--to", "parquet", "--out", "parquet"],
}
LACKS = "dftrace: this needs {}; install it with: pip install 'dftrace-ai[analysis]'\n"


def tried(folder: Path, missing: list[str], commands: list[list[str]]) -> list[list]:
    given = json.dumps([missing, commands])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Traces, logged runs, and a config of inspection."""
    trace = TraceLines()
    for step in range(30):
        trace.span("forward", "compute", step * 10 * MS, 4 * MS)
        trace.span("step", "pipeline", step * 10 * MS, 10 * MS)
    trace.footer()
    trace.write(tmp_path / "out" / "t.pfw.gz")
    for number in range(3):
        log = Log(tmp_path / "logged", f"p/r{number}").add("p", v={"lr": number / 10})
        for step in range(5):
            log.metrics(step, loss=number + 1 / (step + 1), odd="NaN" if step == 3 else 1e300)
        log.add("h", s=3, a="i", name="w", edges=[0, 1, 2], counts=[3, 4]).end()
    (tmp_path / "inspect.yaml").write_text(
        "statistics:\n  enabled: true\n  layers: {layer_types: [fc]}\n"
        "  transformer_engine:\n    LogTensorStats: {enabled: true, tensors: [weight], stats: [max]}\n"
    )
    return tmp_path


@pytest.mark.parametrize("missing", [["duckdb"], ["duckdb", "numpy"]], ids=["duckdb", "numpy too"])
def test_a_command_works_or_says_in_a_line_what_it_needs(folder: Path, missing: list[str]) -> None:
    commands = WORKS | WITH_NUMPY | WITH_DUCKDB
    answers = dict(zip(commands, tried(folder, missing, [*commands.values()]), strict=True))
    for name, (status, out, err, fault) in answers.items():
        assert fault == "", name
        lacking = "DuckDB" if name in WITH_DUCKDB else ""
        if "numpy" in missing and name in {*WITH_NUMPY, "query", "parquet"}:
            lacking = "NumPy"
        if lacking:
            assert (status, out, err) == (2, "", LACKS.format(lacking)), name
        else:
            assert status == 0, (name, err)
    assert {run["name"] for run in json.loads(answers["chosen"][1])["runs"]} == {"r2"}
    # What was refused has left nothing.
    assert not (folder / "parquet").exists()
    assert "<svg" in (folder / "page.html").read_text()
    rows = (folder / "tables" / "metrics.csv").read_text().splitlines()
    assert rows[0] == "run,name,axis,step,value,time_s,rank,process"
    assert len(rows) == 1 + 3 * 5 * 2
    assert sum(row.split(",")[4] == "nan" for row in rows) == 3


API = """
import sys
sys.modules["duckdb"] = None
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.errors import DftraceError
from dftrace_ai.loggers.runs.tables import RunTables
for ask in (lambda: open_traces(["out"]).relation().__enter__(), lambda: RunTables([])):
    try:
        ask()
    except DftraceError as error:
        print("dftrace:", error)
"""


def test_the_same_line_is_raised_from_python(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", API], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == 2 * LACKS.format("DuckDB")


def test_a_log_stays_as_it_is_where_it_cannot_become_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tables, "WORTHWHILE_BYTES", 0)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with make_loggers({"local": entry(tmp_path / "logged")}) as loggers:
        for step in range(50):
            loggers.log_iter({"loss": step / 8})
    assert [path.suffix for path in (tmp_path / "logged").rglob("rank*")] == [".jsonl"]
    assert caplog.text == ""
    ((status, _, err, fault),) = tried(
        tmp_path, ["duckdb"], [["runs", "logged", "--to", "csv", "--out", "tables"]]
    )
    assert (status, err, fault) == (0, "", "")
    rows = (tmp_path / "tables" / "metrics.csv").read_text().splitlines()[1:]
    fields = [row.split(",") for row in rows]
    assert [float(value) for _, name, _, _, value, *_ in fields if name == "loss"] == [
        step / 8 for step in range(50)
    ]


def test_the_base_install_has_neither_duckdb_nor_numpy() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (base,) = re.findall(r"^dependencies = \[\n(.*?)^\]$", text, re.S | re.M)
    assert set(re.findall(r'"([\w-]+)', base)) == {
        *("orjson", "psutil", "pydantic", "pyyaml", "rich", "tomli", "typer"),
        *("typing-extensions", "zstandard"),
    }
    (extra,) = re.findall(r"^analysis = \[(.*)\]$", text, re.M)
    assert set(re.findall(r'"([\w-]+)', extra)) == {"duckdb", "numpy"}
