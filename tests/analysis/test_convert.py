"""`dftrace convert`: what other tools read is what the lines say, and nothing is half there."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import jsonschema
import pytest
from analysis.lines.made_stacks import MadeStacks
from analysis.trace_lines import TIME_BASE_US, TraceLines, small_trace, training
from perfetto import engine
from safety.commands import invoke

from dftrace_ai.analysis.converting import FORMS
from dftrace_ai.analysis.reading import open_traces

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "schemas" / "convert.schema.json").read_text())
DAYS = 20 * 86_400 * 1_000_000


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Two ranks of which one began in another month, a worker, and a part."""
    folder = tmp_path / "job"
    training(0).write(folder / "t-a-100.pfw.gz", 40)
    other = small_trace(300, time_base_us=TIME_BASE_US - DAYS, rank=1, world_size=2)
    other.write(folder / "t-b-300.pfw.zst", 5)
    TraceLines(100, rank=0, world_size=2).write(folder / "t-a-100.part1.pfw.gz")
    worker = TraceLines(301)
    worker.span("item", "data", 11_000_000, 500, note='"ts":1.5,')
    worker.unfinished("item", "data", 12_000_000)
    stacks = MadeStacks(worker, 11_000_000)
    stacks.sample(11_100_000, [("main", "train.py", 41)])
    stacks.end()
    worker.write(folder / "t-a-301.pfw")
    return folder


def converted(job: Path, to: str, out: Path, *more: str, status: int = 0) -> dict[str, Any]:
    done = invoke("convert", job, "--to", to, "--out", out, "--json", *more)
    assert done.status == status, done.err
    report = json.loads(done.out)
    jsonschema.validate(report, SCHEMA)
    base = out if out.is_dir() else out.parent
    assert {file["path"]: file["bytes"] for file in report["files"]} == {
        file["path"]: (base / file["path"]).stat().st_size for file in report["files"]
    }
    assert report["lines"] == sum(file["lines"] for file in report["files"])
    return report


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def same(one: Iterable[Any], other: Iterable[Any]) -> bool:
    return Counter(map(repr, one)) == Counter(map(repr, other))


@pytest.mark.parametrize("to", FORMS)
def test_the_files_are_told_by_paths_that_lead_there(job: Path, tmp_path: Path, to: str) -> None:
    done = invoke("convert", job, "--to", to, "--out", tmp_path / "out")
    told = [Path(line) for line in done.out.splitlines()]
    assert told
    assert all(path.is_file() for path in told), done.out


def test_parquet_holds_every_event_with_all_of_its_digits(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    report = converted(job, "parquet", out)
    found = duckdb.sql(
        "select rank, ph, cat, name, coalesce(id, 0), pid, tid, coalesce(start_ns, -1), "
        "coalesce(dur_ns, -1), coalesce(args::varchar, '') "
        f"from read_parquet('{out}/events/*/*.parquet')"
    ).fetchall()
    traces = open_traces([job])
    columns = ("ph", "cat", "name", "id", "pid", "tid", "start_ns", "dur_ns", "args")
    ranks = [trace.header.rank for trace in traces]
    expected = [
        (ranks[int(batch["file"][0])], *row)
        for batch in traces.batches()
        for row in zip(*(batch[name].tolist() for name in columns))
    ]
    assert same(found, expected)
    assert len(found) == report["lines"]
    assert sorted(path.name for path in (out / "events").iterdir()) == [
        *("no-rank", "rank-0", "rank-1"),
    ]
    processes = duckdb.sql(
        f"select process, rank, pid, len(files) from '{out}/processes.parquet' order by 1"
    ).fetchall()
    assert processes == [(0, 0, 100, 2), (1, 1, 300, 1), (2, None, 301, 1)]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in out.rglob("*") if path.is_file()}
    assert modes == {0o600}


def test_perfetto_shows_in_the_one_file_what_the_lines_of_all_say(
    job: Path, tmp_path: Path
) -> None:
    # The earliest base is that of all, in whatever month a rank began.
    base_ns = (TIME_BASE_US - DAYS) * 1000
    lines, counters = [], 0
    for batch in open_traces([job]).batches():
        rows = zip(
            *(batch[key].tolist() for key in ("ph", "name", "pid", "tid", "start_ns", "dur_ns"))
        )
        for ph, name, pid, tid, start_ns, dur_ns in rows:
            if ph in ("X", "B", "i"):
                lasted_ns = 0 if ph == "i" else dur_ns
                lines.append((name, pid, tid, start_ns - base_ns, lasted_ns))
            counters += ph == "C"
    for name in ("all.pfw.gz", "all.json"):
        report = converted(job, "perfetto", tmp_path / name)
        shown = engine.view([tmp_path / name])
        assert shown.answer.load_ok, shown.answer.load_error
        assert not shown.answer.stats
        assert same(
            ((s.name, s.pid, s.tid, s.ts_ns, s.dur_ns) for s in shown.slices),
            lines,
        )
        # With the lines that only order the tracks of a viewer.
        (written,) = open_traces([tmp_path / name])
        assert report["lines"] == len(list(written.events()))
        assert report["lines"] >= sum(len(list(trace.events())) for trace in open_traces([job]))
    assert len(shown.counters) >= counters > 40


def test_what_cannot_be_read_is_told_and_the_rest_is_converted(tmp_path: Path) -> None:
    job = tmp_path / "job"
    broken = training(0, steps=5)
    broken.add('{"name":"torn"')
    path = broken.write(job / "broken.pfw.gz", 7)
    path.write_bytes(path.read_bytes()[:-6])
    (job / "bare.pfw").write_text("[\n")
    (job / "no.pfw").write_bytes(b"nothing")
    (job / "foreign.pfw").write_text(
        '[\n{"name":"open","cat":"POSIX","pid":1,"tid":1,"ts":1800000000000001.5,"dur":2.5,"ph":1}\n'
    )
    for form in FORMS:
        done = invoke("convert", job, "--to", form, "--out", tmp_path / form, "--json")
        assert done.status == 1
        report = json.loads(done.out)
        # One file has a head. Lines of the last block are gone with its end; samples of stacks are in none.
        events = form not in ("speedscope", "pprof")
        # Spans alone are for OpenTelemetry.
        least = 20 if form == "otlp" else 30
        assert least * events <= report["lines"] <= (5 * 7 + 6) * events
        assert any("torn" in note for note in report["notes"]), form
        assert "skipped" in done.err
        assert "Traceback" not in done.err
    (span,) = [
        e for _, e in open_traces([tmp_path / "dftracer" / "foreign.pfw.gz"]).files[0].events()
    ]
    assert (span["ph"], span["ts"], span["dur"]) == ("X", 1800000000000001, 3)


def test_files_are_named_for_dftracer(tmp_path: Path) -> None:
    """By lines of their own, the first time that each is told of."""
    trace = TraceLines(1)
    trace.lines += [
        f'{{"name":"data.io.{name}","cat":"data","pid":1,"tid":2,"id":{number},"ph":"X","ts":1,'
        f'"dur":1,"args":{{"hhash":"aa",{args}}}}}'
        for number, (name, args) in enumerate(
            [
                ("open", '"path":"/d/\\u00e9","fhash":"01"'),
                ("read", '"bytes":1,"fhash":"01"'),
                ("open", '"path":"/d/\\u00e9","fhash":"01"'),
                ("open", '"path":"/d/b","fhash":"02"'),
            ]
        )
    ]
    path = trace.write(tmp_path / "t.pfw")
    assert invoke("convert", path, "--to", "dftracer", "--out", tmp_path / "out").status == 0
    (made,) = open_traces([tmp_path / "out"]).files
    found = [event for _, event in made.events() if event["name"] == "FH"]
    assert [event["args"] for event in found if event["tid"] == 2] == [
        {"hhash": "aa", "name": "/d/\u00e9", "value": "01"},
        {"hhash": "aa", "name": "/d/b", "value": "02"},
    ]


def test_numbers_that_are_texts_become_numbers_for_dftracer(tmp_path: Path) -> None:
    path = tmp_path / "t.pfw"
    head = '"name":"open64","cat":"POSIX","pid":"2315","tid":"46"'
    path.write_text(
        f'[\n{{"id":"7",{head},"ph":"M","args":{{"name":"12"}}}}\n'
        f'{{"id":"8",{head},"ts":"1698975745976947.7","dur":"2.6","ph":"X","args":{{"ret":"3"}}}}\n'
        f'{{"id":"0x9",{head},"ts":"1698975745976949","dur":"12 us","ph":"X"}}\n'
    )
    assert invoke("convert", path, "--to", "dftracer", "--out", tmp_path / "out").status == 0
    (made,) = open_traces([tmp_path / "out"]).files
    named, span, odd = (event for _, event in made.events())
    begin = 1_698_975_745_976_947
    head_of = {"name": "open64", "cat": "POSIX", "pid": 2315, "tid": 46}
    assert named == {"id": 7, **head_of, "ph": "M", "args": {"name": "12"}}
    assert span == {"id": 8, **head_of, "ts": begin, "dur": 3, "ph": "X", "args": {"ret": "3"}}
    assert odd == {"id": "0x9", **head_of, "ts": begin + 2, "dur": "12 us", "ph": "X"}


@pytest.mark.parametrize("base_us", [0, 2**62])
def test_times_beyond_all_years_stay_as_they_are(tmp_path: Path, base_us: int) -> None:
    odd = [
        f'{{"name":"a","cat":"b","pid":1,"tid":1,"id":{number},"ph":"X","ts":{ts},"dur":{dur}}}'
        for number, (ts, dur) in enumerate(
            [("1e300", 1), (1, "1e300"), (2**80, 1), (1.5, 2**80), (f"-{2**70}.5", 1), ("1e999", 1)]
        )
    ]
    trace = TraceLines(1, time_base_us=base_us)
    trace.lines += odd
    path = trace.write(tmp_path / "t.pfw")
    read = len(list(open_traces([path]).files[0].events()))
    for form in FORMS:
        done = invoke("convert", path, "--to", form, "--out", tmp_path / form, "--json")
        assert done.status in (0, 1), done.err
        assert json.loads(done.out)["files"]
    (made,) = open_traces([tmp_path / "dftracer"]).files
    assert len(list(made.events())) == read


def test_a_path_that_is_not_utf_8_is_converted_and_asked(job: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"odd\xff")
    job.rename(odd)
    for form in FORMS:
        assert invoke("convert", odd, "--to", form, "--out", tmp_path / form).status == 0
    # Its manifest lets it be replaced.
    out = tmp_path / os.fsdecode(b"out\xff")
    for more in ([], ["--force"]):
        done = invoke("convert", odd, "--to", "dftracer", "--out", out, "--json", *more)
        assert (done.status, json.loads(done.out)["out"]) == (0, str(out))
    done = invoke("sql", odd / "t-b-300.pfw.zst", FILES, "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out) == [{"files": [f"{tmp_path}/odd\\xff/t-b-300.pfw.zst"]}]


FILES = "select files from processes"


def test_what_is_there_stays_unless_a_conversion_made_it(job: Path, tmp_path: Path) -> None:
    inputs = {path: path.read_bytes() for path in job.iterdir()}
    for form in FORMS:
        out = tmp_path / f"{form}.out"
        converted(job, form, out)
        before = {path: path.stat().st_ino for path in [out, *out.rglob("*")]}
        refused = invoke("convert", job, "--to", form, "--out", out)
        assert refused.status == 2
        assert f"{out}: is there already; --force replaces it" in refused.err
        assert {path: path.stat().st_ino for path in [out, *out.rglob("*")]} == before
        converted(job, form, out, "--force")
        assert out.stat().st_ino != before[out]
    # By force also what one has written in another form.
    other = tmp_path / "other.out"
    for form in (*FORMS, "dftracer"):
        converted(job, form, other, "--force")
        assert other.is_dir() == (form in ("parquet", "dftracer"))
    # Nor by force what somebody else has put there, or what is converted itself.
    (tmp_path / "parquet.out" / "notes.txt").write_text("mine")
    for out, why in (
        (tmp_path / "parquet.out", "holds what no conversion has written"),
        (job, "holds what is converted"),
        (tmp_path, "holds what is converted"),
    ):
        done = invoke("convert", job, "--to", "dftracer", "--out", out, "--force")
        assert (done.status, done.out) == (2, "")
        assert why in done.err
    input_file = job / "t-a-301.pfw"
    done = invoke("convert", job, "--to", "perfetto", "--out", input_file, "--force")
    assert done.status == 2
    assert "holds what is converted" in done.err
    assert {path: path.read_bytes() for path in job.iterdir()} == inputs
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    for form in FORMS:
        done = invoke("convert", job, "--to", form, "--out", notes, "--force")
        assert "holds what no conversion has written" in done.err
    assert notes.read_text() == "mine"
    notes.unlink()
    shutil.rmtree(other)
    assert names(tmp_path) == sorted(["job", *(f"{form}.out" for form in FORMS)])
