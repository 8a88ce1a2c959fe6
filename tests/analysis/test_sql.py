"""`dftrace sql`: the views hold what the lines say, and a query can do nothing but read them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from analysis.trace_lines import OWN, TraceLines, small_trace, training
from safety.commands import answer, invoke

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.sql import QueryError, TraceTables
from dftrace_ai.analysis.steps import Job, measure
from dftrace_ai.analysis.views import VIEWS


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks in parts and codecs of different kinds, and a file of another writer."""
    folder = tmp_path_factory.mktemp("job")
    training(1).write(folder / "b-host-101.pfw.gz", 50)
    training(0).write(folder / "c-host-100.pfw.zst", 30)
    foreign = [
        "[",
        '{"name":"read","cat":"POSIX","pid":7,"tid":8,"ts":5,"dur":2,"ph":1,"args":{"epoch":"1"}}',
    ]
    foreign.append('{"name":"read","cat":"POSIX","pid":9,"tid":8,"ts":7,"dur":2,"ph":1}')
    (folder / "a.pfw").write_text("\n".join(foreign) + "\n")
    return folder


def asked(paths: Path | list[Path], *queries: str) -> list[list[tuple[Any, ...]]]:
    with TraceTables(open_traces([paths] if isinstance(paths, Path) else paths)) as tables:
        return [list(tables.query(query).rows()) for query in queries]


def same(one: Iterable[Any], other: Iterable[Any]) -> bool:
    return Counter(map(repr, one)) == Counter(map(repr, other))


def events_of(folder: Path, phases: str) -> list[tuple[Any, dict[str, Any]]]:
    found = []
    for trace in open_traces([folder]):
        base_ns = ((trace.header and trace.header.time_base_us) or 0) * 1000
        rank = trace.header and trace.header.rank
        for _, event in trace.events():
            event["ph"] = {1: "X"}.get(event["ph"], event["ph"])
            event["start_ns"] = round(event["ts"] * 1000) + base_ns if "ts" in event else None
            if event["ph"] in phases:
                found.append((rank, event))
    return found


def test_the_views_hold_what_the_lines_say(job: Path) -> None:
    spans, instants, counters, statistics, everything = asked(
        job,
        "select rank, pid, tid, id, parent_id, cat, name, start_ns, dur_ns, end_ns, args from spans",
        "select rank, cat, name, at_ns, args->>'iteration' from instants",
        "select rank, name, series, at_ns, value from counters",
        "select rank, at_ns, iteration, layer, tensor, feature, statistic, value from tensor_stats",
        "select ph, name, start_ns from events",
    )
    lines = events_of(job, "X")
    told = [(*row[:-1], row[-1] and json.loads(row[-1])) for row in spans]
    assert same(
        told,
        (
            (
                rank,
                *(event[key] for key in ("pid", "tid")),
                event.get("id"),
                None,
                *(event[key] for key in ("cat", "name", "start_ns")),
                round(event["dur"] * 1000),
                event["start_ns"] + round(event["dur"] * 1000),
                event.get("args"),
            )
            for rank, event in lines
        ),
    )
    assert len(told) == 2 * 40 * 5 + 2
    moments = events_of(job, "i")
    assert same(
        instants,
        (
            (rank, e["cat"], e["name"], e["start_ns"], str(e["args"]["iteration"]))
            for rank, e in moments
        ),
    )
    assert same(
        counters,
        (
            (rank, "loss", "train", event["start_ns"], event["args"]["train"])
            for rank, event in events_of(job, "C")
        ),
    )
    assert same(
        statistics,
        (
            (rank, e["start_ns"], e["args"]["iteration"], "block.0:weight", "grad", "stats", *pair)
            for rank, e in moments
            for pair in (("l2", float(e["args"]["l2"])), ("amax", math.inf), ("n", 64.0))
        ),
    )
    assert same(
        everything, ((e["ph"], e["name"], e["start_ns"]) for _, e in events_of(job, "XiCM"))
    )


def test_processes_are_numbered_by_rank_and_each_row_knows_its_own(job: Path) -> None:
    processes, counts = asked(
        job,
        "select process, rank, world_size, pid, host, state, ended, dropped, len(files) from processes",
        "select process, any_value(pid), count(*) from spans group by 1 order by 1",
    )
    assert processes == [
        (0, 0, 2, 100, "host", "complete", "finalize", 0, 1),
        (1, 1, 2, 101, "host", "complete", "finalize", 1, 1),
        (2, None, None, 7, None, "cut off", None, None, 1),
        (3, None, None, 9, None, "cut off", None, None, 1),
    ]
    assert counts == [(0, 100, 200), (1, 101, 200), (2, 7, 1), (3, 9, 1)]


def test_numbers_of_63_bits_are_ranks_and_steps(tmp_path: Path) -> None:
    numbers = [2**62 - 1, 2**62, 2**62 + 1, 2**63 - 2, 2**63 - 1, "9223372036854775806", -5]
    for rank in (2**31, 2**63 - 1):
        trace = TraceLines(rank % 1000, rank=rank)
        for at, step in enumerate(numbers):
            trace.span("forward", "compute", at * 10_000, 8_000, step=step)
        trace.footer()
        trace.write(tmp_path / f"{rank}-host-{rank % 1000}.pfw")
    ranks, steps = asked(
        tmp_path,
        "SELECT DISTINCT rank FROM spans ORDER BY rank",
        "SELECT rank, count(*), min(found_by) FROM steps GROUP BY rank ORDER BY rank",
    )
    assert ranks == [(2**31,), (2**63 - 1,)]
    count = len(numbers)
    assert steps == [(2**31, count, "step numbers"), (2**63 - 1, count, "step numbers")]


def test_steps_are_those_that_why_finds(job: Path) -> None:
    (rows,) = asked(
        job,
        "select rank, step, start_ns, end_ns, dur_ns, first, found_by, wait_ns, forward_ns, none_ns "
        "from steps join processes using (process, rank) order by rank, step",
    )
    expected = []
    for rank in Job(open_traces([job])).ranks:
        steps = measure(rank.process)
        assert steps is not None
        columns = (steps.start_ns, steps.end_ns, steps.time_ns, steps.first)
        parts = [steps.parts[part] for part in ("wait", "forward", "none")]
        for at in range(len(steps)):
            one = [values[at].item() for values in columns]
            expected.append(
                (rank.process.number, at, *one, steps.found_by, *(int(part[at]) for part in parts))
            )
    assert rows == expected
    assert len(rows) == 80


def test_findings_are_those_that_why_tells_of_a_rank_that_was_late_once_too(tmp_path: Path) -> None:
    made = tmp_path / "made"
    options = ["--ranks", "4", "--steps", "80", "--cause", "sequence:40"]
    invoke("generate", made, *options)
    told = answer("why", made)["findings"]
    assert "once" in [one["cause"] for one in told]
    (rows,) = asked(made, "select kind, cause, cost from findings where not of_some_ranks")
    assert rows == [(one["kind"], one["cause"], one["cost"]) for one in told]


def test_columns_have_the_types_that_are_told(job: Path) -> None:
    names = list(VIEWS)
    for name, found in zip(names, asked(job, *(f"describe {name}" for name in names))):
        assert {row[0]: row[1] for row in found} == VIEWS[name]
    (tables,) = asked(job, "show tables")
    assert sorted(row[0] for row in tables) == sorted(names)


def test_what_a_query_does_not_name_is_found_all_the_same(job: Path) -> None:
    whole, by_name, count, mixed = asked(
        job,
        "select s from spans s where rank = 1 order by id limit 1",
        "from query_table('sp' || 'ans')",
        "select count(*) from SPANS",
        "with a as (select process from spans) select count(*) from a semi join steps using (process)",
    )
    assert json.loads(whole[0][0]["args"])["count"] == 1
    assert len(by_name) == count[0][0] == 402
    assert mixed == [(400,)]


def test_a_query_opens_no_file_and_changes_nothing(job: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    database = tmp_path / "there.db"
    refused = (
        *(
            f"select * from {way}('{secret}')"
            for way in ("read_csv", "read_text", "read_blob", "glob")
        ),
        f"from '{secret}'",
        f"select * from read_parquet('{secret}')",
        "select * from read_text('/proc/self/environ')",
        "select * from read_csv('https://example.invalid/x.csv')",
        f"copy (select 1) to '{tmp_path}/written'",
        f"copy spans to '{tmp_path}/written'",
        f"attach '{database}'",
        f"export database '{tmp_path}/written'",
        "create table mine as select 1",
        "drop view spans",
        "delete from read.spans",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "pragma database_list",
        "call pragma_version()",
        "select 1; select 2",
        "explain select 1",
        "",
        "nonsense",
        "select nothing from spans",
        "from nowhere",
        "from my_python_variable",
        "select error('x')",
    )
    with TraceTables(open_traces([job])) as tables:
        for query in refused:
            with pytest.raises(QueryError, match="the query is not accepted") as caught:
                print(query, list(tables.query(query).rows()))
            assert "\n" not in str(caught.value), query
        assert list(tables.query("select count(*) from spans").rows()) == [(402,)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.csv"]


def test_an_error_of_a_query_is_a_line_and_status_2(job: Path) -> None:
    for query in ("selec", "from nowhere", "select 1; select 2", "from read_csv('/etc/passwd')"):
        done = invoke("sql", job, query)
        assert (done.status, done.out) == (2, "")
        (line,) = done.err.splitlines()
        assert line.startswith("dftrace: the query is not accepted")
    assert '"dur_ns"' in invoke("sql", job, "select dur_us from spans").err
    assert "spans, instants" in invoke("sql", job, "select * from span").err
    assert invoke("sql", job, "select 1", "--json", "--csv").status == 2
    missing = invoke("sql", job / "nowhere", "select 1")
    assert missing.status == 2
    assert "no such file" in missing.err


def test_answers_as_table_json_and_csv(job: Path) -> None:
    query = "select name, count(*) as n, sum(dur_ns) as total_ns from spans group by 1 order by 1"
    table = invoke("sql", job, query)
    assert table.status == 0, table.err
    rows = json.loads(invoke("sql", job, query, "--json").out)
    assert [row["name"] for row in rows] == [
        *("backward", "fetch.block", "fetch.iter", "forward", "optimizer.step", "read"),
    ]
    assert [row["n"] for row in rows] == [80, 80, 80, 80, 80, 2]
    for row in rows:
        assert f"{row['total_ns']}" in table.out
    assert "6 rows" in table.out
    listed = list(csv.DictReader(io.StringIO(invoke("sql", job, query, "--csv").out)))
    assert [{key: str(value) for key, value in row.items()} for row in rows] == listed
    short = invoke("sql", job, query, "--top", "2")
    assert "the first 2 rows of more" in short.out
    assert len(json.loads(invoke("sql", job, query, "--top", "2", "--json").out)) == 2
    assert len(invoke("sql", job, query, "--top", "2", "--csv").out.splitlines()) == 3
    empty = "select name from spans where false"
    assert json.loads(invoke("sql", job, empty, "--json").out) == []
    assert invoke("sql", job, empty, "--csv").out == "name\n"
    assert "0 rows" in invoke("sql", job, empty).out


def test_values_that_json_lacks_and_columns_of_one_name(job: Path) -> None:
    query = (
        "select 'nan'::double as x, '-inf'::double as x, 1.50 as \"x_1\", args, [1, null] as list, "
        "to_timestamp(at_ns / 1e9) as t, 2::hugeint ** 100 as big, true as yes, e'\\x1b[2J' as esc "
        "from instants order by at_ns limit 1"
    )
    ((row),) = json.loads(invoke("sql", job, query, "--json").out)
    assert (row["x"], row["x_1"], row["x_1_1"]) == ("NaN", "-Infinity", 1.5)
    assert row["args"]["amax_str"] == "inf"
    assert row["list"] == [1, None]
    assert row["t"].startswith("20")
    assert row["yes"] is True
    shown = invoke("sql", job, query)
    assert shown.status == 0
    assert "\x1b" not in shown.out + invoke("sql", job, query, "--csv").out


def test_what_cannot_be_read_is_told_and_the_rest_is_used(tmp_path: Path) -> None:
    trace = small_trace(1)
    trace.add('{"name":"torn","ph":"X"')
    trace.add("[1]")
    broken = trace.write(tmp_path / "broken.pfw.gz")
    running = training(0)
    running.lines.pop()
    text = running.write(tmp_path / "running.pfw.gz", 20).read_bytes()
    (tmp_path / "running.pfw.gz").write_bytes(text[:-10])
    (tmp_path / "no.pfw").write_bytes(b"no trace")
    (tmp_path / "empty.pfw").touch()
    bare = TraceLines(77)
    bare.write(tmp_path / "bare.pfw")
    done = invoke(
        "sql",
        tmp_path,
        "select pid, state, (select count(*) from spans s where s.process = p.process) as n "
        "from processes p order by pid",
        "--json",
    )
    assert done.status == 1
    rows = {row["pid"]: (row["state"], row["n"]) for row in json.loads(done.out)}
    assert rows[1] == ("cut off", 4)
    assert rows[77] == ("cut off", 0)
    assert rows[100][0] == "cut off"
    assert 150 < rows[100][1] < 200
    assert f"{broken}: 2 lines without an event" in done.err
    assert "running.pfw.gz: torn: " in done.err
    assert "skipped: " in done.err
    assert "no.pfw" in done.err
    assert "Traceback" not in done.err


def test_arguments_of_any_kind_come_through(tmp_path: Path) -> None:
    trace = TraceLines()
    odd = {"a\"b.c'": "ü\u2028", "nested": {"x": [1, {"y": None}]}, "huge": 2**63, "empty": ""}
    trace.span("s", "c", 5, 5, **odd)
    trace.add(
        f'{{"id":9,"name":"e","cat":"c","pid":100,"tid":1,"ts":1.000,"dur":1.000,"ph":"X","args":'
        f'{{"big":1e400,"deep":{"[" * 150}{"]" * 150}}}}}'
    )
    (rows,) = asked(
        trace.write(tmp_path / "t.pfw"),
        "select name, args, args->'nested'->'x'->>0, args->>'huge' from spans order by name desc",
    )
    assert json.loads(rows[0][1]) == {**OWN, **odd}
    assert rows[0][2:] == ("1", str(2**63))
    assert rows[1][0] == "e"


def test_what_a_query_leaves_unread_is_told_if_it_cannot_be_read(tmp_path: Path) -> None:
    path = training(0).write(tmp_path / "t.pfw.gz", 20)
    path.write_bytes(path.read_bytes()[:-10])
    done = invoke("sql", path, "select name from spans limit 1", "--json")
    assert (done.status, len(json.loads(done.out))) == (1, 1)
    assert "t.pfw.gz: torn: " in done.err


def test_spans_without_a_duration_have_no_end(tmp_path: Path) -> None:
    trace = TraceLines()
    for times in ('"ts":5,', '"ts":5,"dur":-7,', '"dur":7,'):
        trace.add(f'{{"name":"a","cat":"b","pid":100,"tid":100,{times}"ph":"X"}}')
    (rows,) = asked(
        trace.write(tmp_path / "t.pfw"),
        "select start_ns - min(start_ns) over (), dur_ns, end_ns from spans order by all",
    )
    assert rows == [(0, None, None), (0, None, None), (None, 7000, None)]
