"""SQL over runs: the same figures as plain Python finds, no file but these tables; exports; Parquet."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import pytest
from conftest import clean_environment
from loggers.local_lines import entry
from loggers.runs.made_logs import BEGUN_S, Log, only_run
from safety.commands import invoke

from dftrace_ai.database import QueryError
from dftrace_ai.loggers import make_loggers
from dftrace_ai.loggers.runs import tables
from dftrace_ai.loggers.runs.reading import read_runs
from dftrace_ai.loggers.runs.tables import TABLES, RunTables


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs with random numbers in them."""
    folder = tmp_path_factory.mktemp("runs")
    chance = random.Random(5)
    for number in range(4):
        for rank in range(2):
            log = Log(folder, f"p/r{number}", rank=rank, world_size=2, tags=[f"t{number % 2}", "x"])
            log.add("p", v={"lr": 10.0**-number, "model": {"width": 8, "deep": number > 1}})
            for step in range(100):
                odd = math.nan if step % 30 == 7 else chance.gauss(0, 10**number)
                log.add("m", s=step, a="i", v={"loss": "NaN" if odd != odd else odd, "step": step})
            log.metrics(0, "e", **{"epoch/loss/mean": 1.5})
            log.add("h", s=3, a="i", name="w", edges=[0, 1, 2], counts=[3, 4])
            log.add("x", s=3, a="i", name="note", text='it\'s "fine"\n')
            log.end("failed" if number == 3 and rank else "finished")
    return folder


def lines_of(root: Path) -> list[tuple[str, dict]]:
    return [
        (str(path.parent.relative_to(root)), json.loads(line))
        for path in sorted(root.rglob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def asked(root: Path, sql: str) -> list[dict]:
    done = invoke("runs", root, "--json", "--sql", sql)
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_figures_are_those_that_plain_python_finds(root: Path) -> None:
    values: dict[str, list[float]] = {}
    for run, line in lines_of(root):
        if line["k"] == "m" and "loss" in line["v"]:
            values.setdefault(run, []).append(float(line["v"]["loss"]))
    found = asked(
        root,
        "select run, count(*) as n, sum(value) filter (isfinite(value)) as total, "
        "min(value) as least, max(value) filter (isfinite(value)) as most, "
        "count(*) filter (isnan(value)) as nan from metrics where name = 'loss' "
        "group by run order by run",
    )
    assert [row["run"] for row in found] == sorted(values)
    for row in found:
        finite = [value for value in values[row["run"]] if math.isfinite(value)]
        assert (row["n"], row["nan"]) == (200, 200 - len(finite))
        assert (row["least"], row["most"]) == (min(finite), max(finite))
        assert row["total"] == pytest.approx(math.fsum(finite), rel=1e-9)
    for run in read_runs(root):
        finite = [value for value in values[run.key] if math.isfinite(value)]
        figures = run.metrics["loss"]
        assert figures.mean == pytest.approx(math.fsum(finite) / len(finite), rel=1e-14)
        assert (figures.min, figures.max, figures.count) == (min(finite), max(finite), len(finite))


def test_tables_hold_what_the_lines_say(root: Path) -> None:
    found = asked(root, "select * from params where run = 'p/r2' order by name")
    assert [(row["name"], row["value"], row["number"]) for row in found] == [
        ("lr", "0.01", 0.01),
        ("model/deep", "true", None),
        ("model/width", "8", 8.0),
    ]
    found = asked(root, "select * from runs order by run")
    assert [row["status"] for row in found] == ["finished", "finished", "finished", "failed"]
    assert [row["tags"] for row in found] == [["t0", "x"], ["t1", "x"], ["t0", "x"], ["t1", "x"]]
    assert {row["processes"] for row in found} == {2}
    assert {(row["started_s"], row["step"], row["rows"]) for row in found} == {(BEGUN_S, 99, 202)}
    found = asked(root, "select kind, name, rank, facts from media where run = 'p/r1' order by all")
    assert [(row["kind"], row["name"], row["rank"]) for row in found] == [
        *[("histogram", "w", 0), ("histogram", "w", 1), ("text", "note", 0), ("text", "note", 1)]
    ]
    assert json.loads(found[0]["facts"]) == {"edges": [0, 1, 2], "counts": [3, 4]}
    assert json.loads(found[2]["facts"]) == {"text": 'it\'s "fine"\n'}
    ((axis, rank, process),) = [
        (row["axis"], row["rank"], row["process"])
        for row in asked(
            root,
            "select distinct axis, rank, process from metrics "
            "where name = 'epoch/loss/mean' and rank = 1",
        )
    ]
    assert (axis, rank, process > 0) == ("epoch", 1, True)


def test_columns_have_the_types_that_are_told(root: Path) -> None:
    for table, columns in TABLES.items():
        found = asked(root, f"describe {table}")
        assert {row["column_name"]: row["column_type"] for row in found} == columns


def test_a_filter_holds_for_queries_as_well(root: Path) -> None:
    done = invoke(
        "runs", root, "--where", "lr < 0.5", "--json", "--sql", "select count(*) n from runs"
    )
    assert json.loads(done.out) == [{"n": 3}]


FORBIDDEN = (
    "select * from read_text('/etc/passwd')",
    "select * from read_csv('{root}/secret.csv')",
    "select * from '{root}/secret.csv'",
    "select * from glob('{root}/*')",
    "copy runs to '{root}/stolen.csv'",
    "copy (select 1) to '{root}/stolen.csv'",
    "attach '{root}/stolen.db'",
    "export database '{root}/stolen'",
    "create table t as select 1",
    "insert into runs (run) values ('x')",
    "drop table runs",
    "set enable_external_access = true",
    "install httpfs",
    "load httpfs",
    "select 1; select 2",
    "call pragma_version()",
    "explain analyze copy runs to '{root}/stolen.csv'",
    "",
    "selec",
)


def test_a_query_reads_the_tables_and_nothing_else(root: Path) -> None:
    (root / "secret.csv").write_text("a\n1\n")
    before = sorted(root.iterdir())
    with RunTables(run.folder for run in read_runs(root)) as tables:
        for sql in FORBIDDEN:
            with pytest.raises(QueryError, match="the query is not accepted"):
                tables.query(sql.format(root=root))
        for sql in ("from runs", "with a as (select 1 as x) select x from a", "describe metrics"):
            assert tables.query(sql).rows
    assert sorted(root.iterdir()) == before
    done = invoke("runs", root, "--sql", FORBIDDEN[0])
    assert (done.status, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_an_export_is_read_back(root: Path, tmp_path: Path, form: str) -> None:
    done = invoke("runs", root, "--to", form, "--out", tmp_path / "it's out")
    assert done.status == 0, done.err
    assert [Path(line).name for line in done.out.splitlines()] == [
        f"{name}.{form}" for name in TABLES
    ]
    kept = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "it's out").iterdir()}
    assert kept == {f"{name}.{form}": 0o600 for name in TABLES}
    with RunTables(run.folder for run in read_runs(root)) as tables:
        for table in TABLES:
            path = str(tmp_path / "it's out" / f"{table}.{form}").replace("'", "''")
            # In CSV a list is a text, and nothing is told from an empty text.
            columns = [n for n, kind in TABLES[table].items() if not kind.endswith("[]")]
            query = "select {} from {} order by all"
            kept = duckdb.sql(query.format(", ".join(columns), f"'{path}'")).fetchall()
            want = tables.query(query.format(", ".join(columns), table)).rows
            assert [same(row) for row in kept] == [same(row) for row in want]
    done = invoke("runs", root, "--to", form, "--out", root / "secret.csv")
    assert (done.status, "cannot be made" in done.err) == (2, True)


@pytest.mark.parametrize("form", ["html", "csv", "parquet"])
def test_what_is_there_is_replaced_by_force_alone(root: Path, tmp_path: Path, form: str) -> None:
    mine = tmp_path / ("page.html" if form == "html" else f"media.{form}")
    mine.write_text("mine")
    words = ["--to", form, "--out", mine if form == "html" else tmp_path]
    done = invoke("runs", root, *words)
    assert (done.status, done.out, mine.read_text()) == (2, "", "mine")
    assert f"{mine.name}: is there already; --force replaces it" in done.err
    assert list(tmp_path.iterdir()) == [mine]
    assert invoke("runs", root, *words, "--force").status == 0
    assert mine.read_bytes() != b"mine"


def test_nothing_is_replaced_where_nothing_is_written(root: Path) -> None:
    done = invoke("runs", root, "--force")
    assert (done.status, "--force replaces what --to writes" in done.err) == (2, True)


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
from dftrace_ai.cli import main
main()
"""


@pytest.mark.parametrize(
    "words",
    [["--to", "csv", "--out", "."], ["--to", "html", "--out", "p.html"], ["--sql", "from runs"]],
)
def test_a_full_disk_is_told_and_nothing_is_named(
    root: Path, tmp_path: Path, words: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, "runs", str(root), *words],
        cwd=tmp_path,
        env={**clean_environment(), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"dftrace: .*cannot be written: File too large.*\n", done.stderr)
    assert list(tmp_path.iterdir()) == []


def same(row: tuple) -> tuple:
    """A row in which NaN is NaN, and no text is an empty one."""
    return tuple("nan" if value != value else None if value == "" else value for value in row)


def test_a_long_log_is_parquet_at_its_end_and_the_lines_stay_the_truth(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(tables, "WORTHWHILE_BYTES", 0)
    (tmp_path / "spare").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spare"))
    root = tmp_path / "runs"
    with make_loggers({"local": entry(root, limit_s=100)}) as loggers:
        for step in range(50):
            loggers.log_iter({"loss": math.nan if step == 7 else step / 8, "lr": 0.5})
    (parquet,) = root.rglob("*.parquet")
    log = parquet.with_suffix(".jsonl")
    assert parquet.stat().st_mode == log.stat().st_mode
    assert list((tmp_path / "spare").iterdir()) == []
    rows = duckdb.sql(f"select step, value from '{parquet}' where name = 'loss' order by step")
    kept = rows.fetchall()
    assert repr(kept) == repr([(s, math.nan if s == 7 else s / 8) for s in range(50)])
    assert only_run(root).rows == 50
    # Out of time, or without room: there is none, and nothing is left behind.
    parquet.unlink()
    assert tables.compact(log, 0.001) is None
    monkeypatch.setattr(tables, "LEAST_S", 0.0)
    assert tables.compact(log, 0.001) is None
    assert tables.compact(tmp_path / "nowhere", 100) is None
    assert caplog.text.count("could not be written as Parquet") == 1
    parquet.mkdir()
    assert tables.compact(log, 100) is None
    assert sorted(path.name for path in log.parent.iterdir()) == sorted([log.name, parquet.name])
    assert "could not be written as Parquet; the log itself is whole" in caplog.text


def test_a_killed_or_short_run_is_left_as_it_is(tmp_path: Path, monkeypatch) -> None:
    with make_loggers({"local": entry(tmp_path)}) as loggers:
        loggers.log_iter({"loss": 1.0})
    monkeypatch.setattr(tables, "WORTHWHILE_BYTES", 0)
    loggers = make_loggers({"local": entry(tmp_path, run_name="killed")})
    loggers.log_iter({"loss": 1.0})
    loggers.end_log("killed")
    assert list(tmp_path.rglob("*.parquet")) == []


WITHOUT = """
import sys
import tempfile

class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "numpy", "_duckdb", "duckdb") or name == "dftrace_ai._native":
            raise ImportError("blocked")

sys.meta_path.insert(0, Blocked())
from dftrace_ai.cli import main
sys.argv[1:] = ["runs", *sys.argv[1:]]
main()
"""


def test_runs_are_read_without_the_recorder_torch_and_duckdb(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(root), "--compare"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "p/r3" in done.stdout
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(root), "--sql", "from runs"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "this needs DuckDB; install it with: pip install 'dftrace-ai[analysis]'" in done.stderr
