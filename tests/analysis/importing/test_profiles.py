"""Traces of torch.profiler: read as any other, with the counts that a plain reading gives."""

from __future__ import annotations

import gc
import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from analysis.trace_lines import small_trace
from conftest import clean_environment
from perfetto import engine
from safety.commands import invoke

from dftrace_ai._reader import Documents
from dftrace_ai.analysis.merging.merged_trace import MergedTrace
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.event_columns import event_columns
from dftrace_ai.analysis.reading.importing import copies
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.trace_facts import facts_of
from dftrace_ai.analysis.why import why

BASE_NS = 1_700_000_000_000_000_000

PROGRAM = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.profiler import tensorboard_trace_handler
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = TensorDataset(torch.randn(104, 16), torch.randint(0, 4, (104,)))
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=0, warmup=1, active=11, repeat=1),
    record_shapes=True,
) as profiler:
    for images, labels in DataLoader(data, batch_size=8):
        with record_function("forward"):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
profiler.export_chrome_trace(sys.argv[1])
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=3, repeat=4),
    on_trace_ready=tensorboard_trace_handler(sys.argv[2]),
) as profiler:
    for _ in range(22):
        optimizer.zero_grad()
        model(images).sum().backward()
        optimizer.step()
        profiler.step()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("profile") / "rank0.pt.trace.json"
    environment = {**clean_environment(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(path), str(path.parent / "windows")]
    subprocess.run(command, check=True, env=environment, timeout=240, capture_output=True)
    return path


def span(name: str, start_us: float, dur_us: float, **more: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": 7}
    return {**event, "ts": start_us, "dur": dur_us, **more}


def profile(events: list[Any], **members: Any) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": events, **members})


def written(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    (trace,) = open_traces([path])
    return [event for _, event in trace.events()]


def test_gradients_that_are_set_to_zero_end_no_step(tmp_path: Path) -> None:
    names = ("Optimizer.zero_grad#SGD.zero_grad", "aten::linear", "Optimizer.step#SGD.step")
    spans = [
        span(name, 1000 * step + 300 * at, 200)
        for step in range(30)
        for at, name in enumerate(names)
    ]
    verdict = why([written(tmp_path / "rank0.pt.trace.json", profile(spans))])
    assert verdict.steps is not None
    assert (verdict.steps.found_by, verdict.steps.count) == ("optimizer ends", 29)


def test_a_real_profile_has_the_counts_of_a_plain_reading(recorded: Path) -> None:
    events = json.loads(recorded.read_text("utf-8"))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    durations: Counter[tuple[str, str]] = Counter()
    for event in spans:
        durations[event["cat"], event["name"]] += round(event["dur"] * 1000)
    packed = recorded.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(recorded.read_bytes()))
    for path, codec in ((recorded, "plain"), (packed, "gzip")):
        facts = facts_of([path]).files[0]
        assert (facts.codec, facts.bytes) == (codec, path.stat().st_size)
        found = summarise([path])
        counts = {(row.cat, row.name): row.count for row in found.spans}
        assert counts == Counter((event["cat"], event["name"]) for event in spans)
        assert {(row.cat, row.name): round(row.total_us * 1000) for row in found.spans} == durations
        assert found.warnings() == []
        verdict = why([path])
        assert verdict.steps is not None
        assert verdict.steps.found_by == "step spans"
        steps = [event for event in spans if event["name"].startswith("ProfilerStep#")]
        assert verdict.steps.count == len(steps) == 11
        told = {part for part, time in verdict.parts.items() if time.share > 0}
        assert told >= {"wait", "forward", "backward", "optimizer"}
    assert invoke("summary", recorded).status == invoke("why", recorded).status == 0


def test_a_real_profile_shows_in_perfetto_as_it_was(recorded: Path, tmp_path: Path) -> None:
    events = json.loads(recorded.read_text("utf-8"))["traceEvents"]
    merged = tmp_path / "merged.json"
    merged.write_bytes(b"".join(MergedTrace(open_traces([recorded]))))
    plain, ours = engine.view(recorded), engine.view(merged)
    assert ours.answer.clean

    def shown(view: engine.View) -> Counter[Any]:
        return Counter((one.name, one.cat, one.ts_ns, one.dur_ns, one.depth) for one in view.slices)

    assert len(ours.slices) == len(plain.slices) >= len([e for e in events if e["ph"] == "X"])
    assert shown(ours) == shown(plain)
    assert len(ours.flows) == len(plain.flows)


def test_times_count_from_the_base_and_the_rank_is_known(tmp_path: Path) -> None:
    events = [span(f"ProfilerStep#{n}", 4e12 + n + 0.125, 0.5) for n in range(5)]
    for event in events:
        event["cat"] = "user_annotation"
    members = {"baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": 3, "world_size": 8}}
    before = json.dumps({**members, "traceEvents": events}, indent=1)
    behind = json.dumps({"traceEvents": events, **members}, separators=(",", ":"))
    for text in (before, behind):
        path = written(tmp_path / "t.json", text)
        (trace,) = open_traces([path])
        assert trace.header is not None
        assert (trace.header.rank, trace.header.world_size) == (3, 8)
        assert trace.end.state == "complete"
        (columns,) = event_columns(open_traces([path]))
        assert columns.start_ns.tolist() == [
            BASE_NS + 4_000_000_000_000_125 + n * 1000 for n in range(5)
        ]
        batches = list(open_traces([path]).batches(["name", "start_ns", "dur_ns"]))
        assert batches[0]["start_ns"].tolist() == columns.start_ns.tolist()
        assert why([path]).rank == 3


def test_numbers_keep_their_digits_and_texts_get_numbers(tmp_path: Path) -> None:
    text = """{"traceEvents": [
      {"ph": "X", "name": "a", "pid": 1, "tid": 2, "ts": 1700000000123456.789, "dur": 0.001},
      {"ph": "X", "name": "b", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 1.250, "dur": 2},
      {"ph": "i", "name": "c", "pid": "Spans", "tid": "", "ts": 2, "s": "g",
       "args": {"nan": NaN, "big": 123456789012345678901234567890, "x": [1e400, -Infinity]}}
    ]}"""
    path = written(tmp_path / "t.json", text)
    (trace,) = open_traces([path])
    lines = [line for _, line in trace.lines()]
    assert lines[0] == b"["
    assert b'"ts":1700000000123456.789,"dur":0.001,' in lines[1]
    first, name, second, third = (event for _, event in trace.events())
    assert (first["pid"], first["tid"]) == (1, 2)
    assert (name["ph"], name["args"]) == ("M", {"name": "Spans"})
    assert name["pid"] == second["pid"] == third["pid"] > 1 << 22
    assert b'"ts":1.250,' in lines[3]
    assert third["args"]["nan"] == "NaN"
    (columns,) = event_columns(open_traces([path]))
    assert columns.start_ns[0] == 1_700_000_000_123_456_789
    assert len(columns) == 4


def taken(pieces: Iterable[bytes], most_bytes: int = 1 << 24) -> tuple[list[str], Documents]:
    """The names of the events of a document, and what has read it."""
    documents, lines, chunks = Documents(True, most_bytes), b"", iter(pieces)
    while not documents.over:
        lines += documents.add(next(chunks, b""))
    return [json.loads(line)["name"] for line in lines.splitlines()], documents


@pytest.mark.parametrize("newline", ["", "\n "])
def test_a_file_that_is_cut_gives_what_comes_before(tmp_path: Path, newline: str) -> None:
    events = [span(f'n{n} "é" \\', n, 1, args={"x": [1, {"y": "]}"}]}) for n in range(3)]
    text = f',{newline}"traceEvents":{newline}[' + f",{newline}".join(map(json.dumps, events))
    whole = f'{{"schemaVersion":1{text}{newline}]{newline},"traceName":"t"}}'.encode()
    full = [event["name"] for event in events]
    for cut in range(len(whole)):
        pieces = [whole[at : min(at + 7, cut)] for at in range(0, cut, 7)]
        names, read_text = taken(pieces)
        ends = [whole.find(json.dumps(event).encode()) + len(json.dumps(event)) for event in events]
        assert names == full[: sum(end <= cut for end in ends)], cut
        assert read_text.tear is not None
        assert not read_text.tear[2], (cut, read_text.tear)
    names, done = taken([whole])
    assert (names, done.tear) == (full, None)
    path = written(tmp_path / "t.json", whole[: whole.rfind(b"n2")])
    (trace,) = open_traces([path])
    assert trace.end.state == "cut off"
    (warning,) = summarise([path]).warnings()
    assert f"{path}: torn: the file ends within what begins at byte " in warning
    packed = gzip.compress(os.urandom(10_000).hex().encode())
    bad = written(tmp_path / "t.json.gz", gzip.compress(whole[:60]) + packed[:-3000])
    (warning,) = summarise([bad]).warnings()
    assert "gzip block" in warning


def test_what_is_broken_or_hostile_is_told(tmp_path: Path) -> None:
    good = json.dumps(span("good", 1, 1))
    start = '{"schemaVersion":1,"traceEvents":[' + good + ","
    deep = "[" * 200_000
    cases = {
        start + "oops, and more]}": "broken JSON at byte",
        start + "{'quoted': 1, 'so': 2}]}": "broken JSON at byte",
        start + good + good + "]}": "broken JSON at byte",
        start + '{"args":' + deep: "nested too deeply",
        start + '{"ts":' + "9" * 10_000 + "}]}": "too many digits",
    }
    for number, (text, expected) in enumerate(cases.items()):
        path = written(tmp_path / f"{number}.json", text)
        found = summarise([path])
        assert [row.name for row in found.spans][:1] == ["good"], text[:99]
        (warning,) = found.warnings()
        assert expected in warning, (expected, warning)
        if "digits" not in expected:
            (trace,) = open_traces([path])
            assert trace.end.state == "damaged"
    endless = [start.encode(), *[b'{"name":"'], *[b"x" * 99] * 10_000]
    names, documents = taken(endless, 40_000)
    assert (names, documents.tear) == (["good"], (len(start), "broken JSON", True))
    path = written(tmp_path / "odd.json", start + '1,null,"x",{"name":"\ud800\x01\\ud800"},[],{}]}')
    assert "6 lines without an event" in summarise([path]).warnings()[0]
    for text in ('{"traceEvents":[]}', '{"schemaVersion":1,'):
        path = written(tmp_path / "none.json", text)
        assert read(path) == []


def test_what_is_no_profile_is_refused_as_before(tmp_path: Path) -> None:
    others = {"cat": "mine", "args": {"schemaVersion": 1, "traceEvents": []}}
    line = json.dumps({**span("a", 1, 1), **others})
    path = written(tmp_path / "lines.json", line + "\n" + line + "\n")
    assert len(read(path)) == 2
    (trace,) = open_traces([path])
    assert trace.file.copy is None


def test_a_directory_is_searched_for_profiles_where_nothing_else_is(tmp_path: Path) -> None:
    for rank in range(2):
        members = {"distributedInfo": {"rank": rank, "world_size": 2}}
        written(
            tmp_path / "log" / f"host_{rank}.pt.trace.json", profile([span("a", 1, 1)], **members)
        )
    written(tmp_path / "log" / "other.json", "{}")
    assert [trace.header and trace.header.rank for trace in open_traces([tmp_path])] == [0, 1]
    small_trace().write(tmp_path / "log" / "t.pfw")
    assert [trace.path.name for trace in open_traces([tmp_path])] == ["t.pfw"]


def test_of_a_profile_is_checked_what_a_viewer_needs(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", profile([span("a", 1, 1)]))
    done = invoke("validate", path)
    assert (done.status, done.out) == (0, "no faults in 1 file, 1 line, 1 event\n")
    assert done.err == (
        f"dftrace: {path}: a trace of others: of its events was checked whether they can be read, "
        "and spans nest\n"
    )
    path = written(tmp_path / "t.json", profile(CROSSING)[:-9])
    done = invoke("validate", path)
    assert done.status == 1
    first, *_, last = done.out.splitlines()
    assert first == (
        f"{path}:2: on pid 7 tid 7 the span overlaps the one of event 1 in part: neither holds the "
        "other"
    )
    assert "torn: the file ends within what begins at byte" in last


def test_spans_in_disorder_are_checked_as_well(tmp_path: Path) -> None:
    events = [span("late", 50, 10), span("b", 5, 3), span("a", 3, 3), span("early", 1, 1)]
    done = invoke("validate", written(tmp_path / "t.json", profile(events)))
    assert (done.status, len(done.out.splitlines())) == (1, 1)
    assert "t.json:2: on pid 7 tid 7 the span overlaps the one of event 3 in part" in done.out
    assert "1 fault in 1 file, 4 lines, 4 events" in done.err


# Of the first two one begins in the other and ends after it; the arrow is the later one's.
CROSSING = [
    span("a", 3, 3.776),
    span("b", 5, 2),
    span("in both", 5.5, 1),
    span("in b", 6.9, 0.1),
    span("in neither", 6.95, 0.1),
    span("of a thread without a number of Linux", 5, 2, tid=-19_360_192),
    span("of the main thread", 3, 3, tid=0),
    span("of a process without one", 4, 3, pid=1 << 40),
    {"ph": "M", "name": "thread_name", "pid": 7, "tid": 7, "args": {"name": "main"}},
    {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 7, "tid": 7, "ts": 5},
    {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 7, "tid": 7, "ts": 9, "bp": "e"},
    span("end", 9, 1),
]


def test_spans_that_cross_are_all_shown_in_perfetto(tmp_path: Path) -> None:
    since_1970 = [
        {**one, "ts": one["ts"] + BASE_NS // 1000} if "ts" in one else one for one in CROSSING
    ]
    lines = "[\n" + ",\n".join(map(json.dumps, since_1970)) + "\n]\n"
    for name, text in (("whole.json", profile(CROSSING)), ("lines.json", lines)):
        path, shown = written(tmp_path / name, text), tmp_path / "shown.json"
        assert invoke("convert", path, "--to", "perfetto", "--out", shown, "--force").status == 0
        view = engine.view(shown)
        assert view.answer.clean
        spans = [one["name"] for one in CROSSING if one["ph"] == "X"]
        assert sorted(one.name for one in view.slices) == sorted(spans)
        of_name = {one.name: one for one in view.slices}
        assert of_name["a"].tid == 7 != of_name["b"].tid
        (arrow,) = view.flows
        assert (arrow.slice_out, arrow.slice_in) == (of_name["b"].id, of_name["end"].id)
    assert "main · overlapping" in shown.read_text("utf-8")
    # What is no view of tracks stays on the threads that the file has.
    (columns,) = event_columns(open_traces([tmp_path / "whole.json"]))
    assert columns.tid[:2].tolist() == [7, 7]


def test_copies_are_gone_with_their_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    path = written(tmp_path / "t.json", profile([span("a", 1, 1)]))
    gc.collect()  # what other tests have left open
    before = {*os.listdir("/proc/self/fd")}
    traces = open_traces([path])
    assert len(list(traces.files[0].events())) == 1
    assert list(place.iterdir()) == []  # what is small is held in memory
    del traces
    assert {*os.listdir("/proc/self/fd")} <= before
    monkeypatch.setattr(copies, "MOST_MEMORY_BYTES", 0)
    traces = open_traces([path])
    assert len(list(place.iterdir())) == 1
    assert len(list(traces.files[0].events())) == 1
    del traces
    assert list(place.iterdir()) == []
    assert invoke("summary", path).status == invoke("why", path).status == 0
    assert list(place.iterdir()) == []
    place.rmdir()
    done = invoke("summary", path)
    assert (done.status, done.out) == (2, "")
    assert "choose another place with TMPDIR" in done.err


def test_the_files_of_a_worker_are_one_process(recorded: Path) -> None:
    """Its steps have the numbers that torch.profiler gave them; what lies between is not known."""
    folder = recorded.parent / "windows"
    assert len(list(folder.iterdir())) == 4
    rows = json.loads(invoke("sql", folder, "select process, step from steps", "--json").out)
    numbers = [2, 3, 4, 7, 8, 9, 12, 13, 14, 17, 18, 19]
    assert [(row["process"], row["step"]) for row in rows] == [(0, number) for number in numbers]
    (process,) = json.loads(invoke("sql", folder, "from processes", "--json").out)
    assert len(process["files"]) == 4
    assert next(folder.iterdir()).name.startswith(f"{process['host']}_{process['pid']}.")
    verdict = json.loads(invoke("why", folder, "--json").out)
    assert (verdict["ranks"], verdict["steps"]["count"], verdict["notes"]) == (1, 12, [])
    assert {step["step"] for step in verdict["slowest"]} < set(numbers)
    by_step = json.loads(invoke("summary", folder, "--by", "step", "--json").out)
    assert {row["group"] for row in by_step["spans"]} - {"-"} == set(map(str, numbers))
    by_process = json.loads(invoke("summary", folder, "--by", "process", "--json").out)
    label = f"{process['host']}:{process['pid']}"
    assert {row["group"] for row in by_process["spans"]} == {label}


def window(first: int, at_us: float, pid: int = 7, **members: Any) -> str:
    """What a profiler has recorded of four steps."""
    events = []
    for step in range(4):
        begin = at_us + step * 10_000
        name = f"ProfilerStep#{first + step}"
        events.append(span(name, begin, 9_990, cat="user_annotation"))
        events.append(span("forward", begin + 10, 9_900, cat="user_annotation"))
    return profile([{**event, "pid": pid} for event in events], **members)


RANK = {"distributedInfo": {"rank": 0, "world_size": 1}}

WINDOWS = {
    "a rank's, by any name": (("a", "b", "c"), (7, 7, 7), RANK, 30, 1, 12),
    "a worker's": (("h_7.1", "h_7.2", "h_7.3"), (7, 7, 7), {}, 30, 1, 12),
    "of another start": (("h_7.1", "h_7.2", "h_8.3"), (7, 7, 8), RANK, 30, 2, 4),
    "at one time": (("h_7.1", "h_7.2", "h_7.3"), (7, 7, 7), {}, 0, 3, 4),
    "nobody knows whose": (("a", "b", "c"), (7, 7, 7), {}, 30, 3, 4),
}


@pytest.mark.parametrize("way", WINDOWS)
def test_whose_the_files_of_a_profiler_are(way: str, tmp_path: Path) -> None:
    names, pids, members, apart_s, processes, judged = WINDOWS[way]
    for at, (name, pid) in enumerate(zip(names, pids, strict=True)):
        text = window(10 * at, 1e6 * (1 + at * apart_s), pid, **members)
        written(tmp_path / f"{name}.pt.trace.json", text)
    asked = "select count(*) as steps, count(distinct process) as processes from steps"
    found = json.loads(invoke("sql", tmp_path, asked, "--json").out)
    assert found == [{"steps": 12, "processes": processes}]
    verdict = why([tmp_path])
    assert verdict.steps is not None
    assert verdict.steps.count == judged
    # Between the files of one process is no time of its training.
    assert not [note for note in verdict.notes if "lies between" in note]
    assert verdict.ranks == (3 if way == "at one time" else 1)
