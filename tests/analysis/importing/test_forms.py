"""What a file is: events in JSON of every layout, documents, patterns; and times in traces of others that cannot be."""

from __future__ import annotations

import gzip
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from analysis.trace_lines import small_trace
from safety.commands import invoke

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.why import why
from dftrace_ai.errors import TraceError

EVENTS: list[dict[str, Any]] = [
    {"ph": "X", "cat": "a", "name": f"n{n % 3} ]}}", "pid": 1, "tid": 1, "ts": 9 * n + 1, "dur": 5}
    for n in range(50)
]

LINE = json.dumps(EVENTS)
LAYOUTS = {
    "one line": LINE,
    "indented": json.dumps(EVENTS, indent=2),
    "no end": LINE[:-1],
    "a comma at its end": LINE[:-1] + " ,\n",
    "a comma before its end": LINE[:-1] + ",]",
    "first in the line of the bracket": "[" + ",\n".join(map(json.dumps, EVENTS)) + "]",
    "an event each line": "[\n" + ",\n".join(map(json.dumps, EVENTS)) + "\n]\n",
    "all on the second line": "[\n" + LINE[1:],
    "objects over lines": "[\n" + ",\n".join(json.dumps(one, indent=1) for one in EVENTS),
    "objects over lines without a list": "\n".join(json.dumps(one, indent=1) for one in EVENTS),
    "no commas": "[" + "\n".join(map(json.dumps, EVENTS)),
    "an object": json.dumps({"beside": {"traceEvents": 1, "x": [["]}"]]}, "traceEvents": EVENTS}),
    "a long member before": json.dumps({"nodes": ["x" * 99] * 2000, "traceEvents": EVENTS}),
    "an object with a phase, indented": json.dumps({"traceEvents": EVENTS, "ph": 1}, indent=2),
    "a phase before events, indented": json.dumps({"ph": "X", "traceEvents": EVENTS}, indent=2),
    "an object, indented": json.dumps({"traceEvents": EVENTS, "behind": [{}]}, indent=1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_events_are_read_in_every_layout(tmp_path: Path, layout: str) -> None:
    text = LAYOUTS[layout].encode()
    # So few bytes begin a line only; and a line that is longer than what is looked at first.
    wide = text.replace(b'"dur": 5', b'"dur": 5, "args": {"x": "%s"}' % (b"y" * 3000))
    for number, content in enumerate(
        (text, wide, gzip.compress(text), zstandard.compress(text), b"\n \n" + text)
    ):
        path = tmp_path / f"{number}.json"
        path.write_bytes(content)
        found = summarise([path])
        assert (found.events, found.unreadable_lines) == (len(EVENTS), 0), number
        assert sorted((row.name, row.count) for row in found.spans) == [
            ("n0 ]}", 17),
            ("n1 ]}", 17),
            ("n2 ]}", 16),
        ]
        assert not any("torn" in warning for warning in found.warnings())


NOT_TRACES = {
    '{"schema": "1.1.1", "pid": 1, "nodes": [%s]}' % ",".join(['{"id": 1}'] * 9999): (
        "an execution trace of PyTorch"
    ),
    '{"rocprofiler-sdk-tool": [{"metadata": {}}]}': "results of rocprofv3",
    '{"a": 1, "b": [1, 2]}': "an object in JSON without traceEvents; it has a, b",
    '{"traceEvents": null, "b": []}': "an object in JSON whose traceEvents is no list of events",
    '{\n "a": {\n  "b": []\n }\n}\n': "an object in JSON without traceEvents; it has a",
    '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n': "without traceEvents; it has step, loss",
    "[1, 2, 3]": "a list in JSON of which nothing is an event",
    "[\n 1,\n 2\n]": "a list in JSON of which nothing is an event",
    '[{"name": "a"}, {"b": 1}]': "a list in JSON of which nothing is an event",
    "[section]\nkey = value\n": "broken JSON at byte 1, before any event",
    "{ int main() {} }\n": "broken JSON at byte 2, before any event",
    '{"traceEvents": [{"a": 1}, 2]}': "with traceEvents of which nothing is an event",
    "%PDF-1.7": "a document, PDF",
    "\1\2\3": "binary data",
    '"a text"': "text that is no JSON",
    "key: value\n": "text that is no JSON",
    "\ufeff" + LINE: "text behind a byte order mark",
    "SQLite format 3\0": "a database of SQLite",
    "\1\0\2": "binary data",
}


def test_what_is_no_trace_is_called_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    for text, expected in NOT_TRACES.items():
        for content in (text.encode(), gzip.compress(text.encode())):
            path.write_bytes(content)
            with pytest.raises(TraceError) as raised:
                open_traces([path])
            assert str(raised.value).startswith(f"{path}: not a trace file: ")
            assert expected in str(raised.value)
    out = tmp_path / "out"
    for words in (
        *(["summary"], ["why"], ["validate"], ["info"], ["sql", "from spans"], ["view"]),
        *(["convert", "--to", form, "--out", out] for form in ("perfetto", "parquet")),
        *(["report", "-o", out], ["diff", path]),
    ):
        done = invoke(words[0], path, *words[1:])
        assert (done.status, "not a trace file: binary data" in done.err) == (2, True), words
    whole = tmp_path / "t.pfw"
    small_trace().write(whole)
    found = open_traces([tmp_path])
    assert [trace.path for trace in found] == [whole]
    path.rename(tmp_path / "none.pfw")
    (skipped,) = open_traces([tmp_path]).skipped
    assert skipped.reason == "not a trace file: binary data"


def test_documents_behind_the_first_are_traces_of_their_own(tmp_path: Path) -> None:
    first = json.dumps({"traceEvents": EVENTS[:30], "distributedInfo": {"rank": 0}}).encode()
    second = json.dumps({"traceEvents": EVENTS[30:], "distributedInfo": {"rank": 1}}).encode()
    both = {
        "plain": first + second,
        "lines between": first + b"\n\n" + second + b"\n" + b"\0" * 512,
        "gzip": gzip.compress(first) + gzip.compress(second),
        "zstd": zstandard.compress(first) + zstandard.compress(second),
    }
    for name, content in both.items():
        path = tmp_path / name
        path.write_bytes(content)
        found = open_traces([path])
        assert [trace.header and trace.header.rank for trace in found] == [0, 1], name
        assert [str(trace) for trace in found] == [str(path), str(path / "2")]
        assert summarise([path]).events == len(EVENTS)
        assert invoke("summary", path).status == 0
    packed = tmp_path / "t.zip"
    with zipfile.ZipFile(packed, "w") as members:
        members.write(tmp_path / "gzip", "both.pt.trace.json.gz")
    assert summarise([packed]).events == len(EVENTS)


def test_what_else_stands_behind_is_told(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": EVENTS}).encode()
    member = tmp_path / "m.pt.trace.json"
    member.write_bytes(text)
    other = tmp_path / "o.pt.trace.json"
    other.write_bytes(LINE.encode())
    with tarfile.open(tmp_path / "t.tar", "w") as members:
        members.add(member)
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as zipped:
        zipped.write(member)
    with zipfile.ZipFile(tmp_path / "o.zip", "w") as zipped:
        zipped.write(other)
    tar, archive = (tmp_path / "t.tar").read_bytes(), (tmp_path / "t.zip").read_bytes()
    first = f"what stands behind the first document, at byte {len(text) + 1}, is no trace"
    cases = {
        "text": (text + b"\nand more", f"{first}: broken JSON at byte {len(text) + 1}"),
        "object": (text + b'\n{"a": 1}', f"{first}: an object in JSON without traceEvents"),
        "gz and more": (gzip.compress(text) + b"and more", "the last document is not read: broken"),
        "tars": (tar + tar, "what stands behind the end of the archive is not read"),
        "zip and more": (archive + b"and more", "8 bytes behind the archive are not read"),
        "zips": (archive + (tmp_path / "o.zip").read_bytes(), f"{len(archive):,} bytes before the"),
    }
    for name, (content, expected) in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        found = summarise([path])
        assert found.events == len(EVENTS), name
        (warning,) = [one for one in found.warnings() if one.startswith("skipped: ")]
        assert expected in warning
        assert invoke("summary", path).status == 1


def test_a_pattern_stands_for_the_files_that_match(tmp_path: Path) -> None:
    for name in ("a-1.pfw", "a-2.pfw.gz", "b-1.pfw", "deep/er/a-3.pfw", "odd/[x]*.pfw"):
        small_trace().write(tmp_path / name)

    def opened(*patterns: str) -> list[str]:
        traces = open_traces([tmp_path / pattern for pattern in patterns])
        assert all(trace.file.asked_for for trace in traces)
        return [str(trace.path.relative_to(tmp_path)) for trace in traces]

    assert opened("a-*.pfw*") == ["a-1.pfw", "a-2.pfw.gz"]
    assert opened("?-1.pfw", "a-[12].*") == ["a-1.pfw", "a-2.pfw.gz", "b-1.pfw"]
    assert opened("**/a-*") == ["a-1.pfw", "a-2.pfw.gz", "deep/er/a-3.pfw"]
    # What exists is meant by its name.
    assert opened("odd/[x]*.pfw") == ["odd/[x]*.pfw"]
    with pytest.raises(TraceError, match="no file matches this pattern"):
        opened("c-*.pfw")


def test_what_matches_is_held_to_what_is_given(tmp_path: Path) -> None:
    small_trace().write(tmp_path / "a.pfw")
    (tmp_path / "b.pfw").write_text("no trace")
    done = invoke("summary", tmp_path / "*.pfw")
    assert done.status == 2
    assert "b.pfw: not a trace file" in done.err


STEP_US = 10_000
FAR_US = 4_600_000_000_000
BASE = {"baseTimeNanoseconds": 1_759_104_000_000_000_000}
DAYS_US = 30 * 86_400e6

Events = list[dict[str, Any]]


def steps(count: int = 30, start_us: int = 1_000_000) -> Events:
    """Steps as torch.profiler writes them, of 10 ms each, of which ten kernels take 8 ms."""
    events = []
    for step in range(count):
        at = start_us + step * STEP_US
        host = {"ph": "X", "pid": 1, "tid": 1}
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        optimizer = "Optimizer.step#SGD.step"
        events += [
            {**host, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at},
            {**host, "cat": "cpu_op", "name": name, "ts": at + 10, "dur": 100},
            {**host, "cat": "cpu_op", "name": "aten::mm", "ts": at + 150, "dur": 200},
            {**host, "cat": "user_annotation", "name": optimizer, "ts": at + 9500, "dur": 300},
        ]
        events[-4]["dur"] = STEP_US
        events += [kernel(at + 500 + number * 900, 800) for number in range(10)]
    return events


def kernel(ts: float, dur: float, **more: Any) -> dict[str, Any]:
    args = {"device": 0, "stream": 7}
    event = {"ph": "X", "cat": "kernel", "name": "fmha_bwd", "pid": 0, "tid": 7}
    return {**event, "ts": ts, "dur": dur, "args": args, **more}


def kernels(events: Events) -> Events:
    return [event for event in events if event["cat"] == "kernel"]


def written(path: Path, events: Events, **members: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **members}))
    return path


def figures(path: Path) -> tuple[str, float | None, int]:
    """The verdict, the length of the run in ms, and what a kernel takes on the mean."""
    found = summarise([path])
    length_ns = found.reach.length_ns if found.reach else None
    (row,) = [row for row in found.spans if row.name == "fmha_bwd"]
    return why([path]).verdict, length_ns and length_ns / 1e6, round(row.mean_us)


@pytest.mark.parametrize(("at", "dur_us"), [(55, 60_000), (55, DAYS_US), (-1, 1_600_000)])
def test_a_duration_that_runs_over_its_stream_is_cut(
    tmp_path: Path, at: int, dur_us: float
) -> None:
    events = steps()
    kernels(events)[at]["dur"] = dur_us
    verdict, length_ms, mean_us = figures(written(tmp_path / "b.json", events))
    assert (verdict, length_ms) == ("host-bound", pytest.approx(300, abs=1))
    assert mean_us in (800, 802)


def test_one_of_the_host_is_cut_where_it_would_be_all_of_the_run(tmp_path: Path) -> None:
    events = steps()
    path = written(tmp_path / "t.json", events)
    before = why([path])
    operation = next(one for one in events if one["name"] == "aten::mm")
    operation["dur"] = DAYS_US
    for text in (
        json.dumps({"schemaVersion": 1, "traceEvents": events}),
        "\n".join(map(json.dumps, events)) + "\n",
    ):
        path.write_text(text)
        after = why([path])
        assert (after.verdict, after.length_ns) == (before.verdict, before.length_ns)
        assert any("1 duration that cannot be" in note for note in after.notes)


def test_what_may_overlap_on_a_gpu_stays_as_it_is(tmp_path: Path) -> None:
    events = steps(3)
    start = events[-1]["ts"] + 1000
    kept = [
        # A dependent launch begins while the one before it ends.
        kernel(start, 100),
        kernel(start + 90, 50),
        # Two streams on one thread; and ranges, which hold what lies in them.
        kernel(start + 200, 700, args={"stream": 8}),
        kernel(start + 250, 100, args={"stream": 9}),
        kernel(start + 140, 900, cat="gpu_user_annotation", name="outer"),
        kernel(start + 150, 90, cat="gpu_user_annotation", name="inner"),
        # Branches of a graph are launched at once.
        kernel(start + 1000, 400, args={"stream": 7, "correlation": 5}),
        kernel(start + 1100, 100, args={"stream": 7, "correlation": 5}),
        # Twice the same.
        kernel(start + 2000, 100),
        kernel(start + 2000, 100),
    ]
    path = written(tmp_path / "t.json", [*events, *kept])
    (trace,) = open_traces([path])
    assert trace.file.notes == ()
    assert [event["dur"] for _, event in trace.events()][-10:] == [one["dur"] for one in kept]
    cut = [
        kernel(start, 1500.5, cat="gpu_memcpy", name="Memcpy HtoD"),
        kernel(start + 100, 50, cat="gpu_memset", name="Memset"),
        kernel(start + 10, 400, cat="kernel", args={"stream": 12, "device": 1}),
        kernel(start + 200, 9, cat="kernel", args={"stream": 12, "device": 1}),
        kernel(start + 50, 1500.5 - 50, cat="gpu_user_annotation", name="of both"),
    ]
    path = written(tmp_path / "t.json", [*events, *cut])
    (trace,) = open_traces([path])
    assert [event["dur"] for _, event in trace.events()][-5:] == [100, 50, 190, 9, 50]
    (note,) = trace.file.notes
    assert note.startswith(f"{path}: 3 durations that cannot be, cut where")


@pytest.mark.parametrize(("start_us", "members"), [(1_000_000, {}), (FAR_US, BASE), (FAR_US, {})])
def test_events_at_times_far_from_all_others_are_left_out(
    tmp_path: Path, members: dict[str, Any], start_us: int
) -> None:
    events = steps(30, start_us)
    odd = [0, -5.25, -9e12, 4.6e15, start_us + 2 * 3_600e6]
    for event, ts in zip(kernels(events)[50:], odd, strict=False):
        event["ts"] = ts
    path = written(tmp_path / "t.json", events, **members)
    assert figures(path) == ("host-bound", 300, 800)
    assert summarise([path]).events == len(events) - len(odd)
    told = f"{path}: 5 events at times that cannot be, far from all others, left out"
    assert told in why([path]).notes


def test_every_command_tells_what_was_put_right(tmp_path: Path) -> None:
    events = steps()
    kernels(events)[50]["ts"] = 0
    kernels(events)[55]["dur"] = DAYS_US
    path = written(tmp_path / "t.json", events)
    query = "select count(*) from spans where name = 'fmha_bwd'"
    for command in (
        ("summary", path),
        ("why", path),
        ("info", path),
        ("sql", path, query),
        ("report", path, "-o", tmp_path / "r.html", "--force"),
        ("diff", path, path),
        ("convert", path, "--to", "perfetto", "--out", tmp_path / "p.json", "--force"),
        ("convert", path, "--to", "parquet", "--out", tmp_path / "parquet", "--force"),
        ("convert", path, "--to", "dftracer", "--out", tmp_path / "dftracer", "--force"),
    ):
        done = invoke(*command)
        words = " ".join((done.out + done.err).split())
        assert "1 event at times that cannot be" in words, command
        assert "1 duration that cannot be" in words, command
    bracket, head, *lines = (tmp_path / "p.json").read_text("utf-8").splitlines()
    assert (bracket, json.loads(head)["name"]) == ("[", "merged")
    assert len(lines) == len(events) - 1


def test_ghosts_of_no_length_halve_no_mean(tmp_path: Path) -> None:
    events = steps(60, FAR_US)
    for event in events[len(events) // 2 :]:
        event.update(ts=0.0, dur=0.0)
    path = written(tmp_path / "t.json", events, **BASE)
    assert figures(path) == ("host-bound", 300, 800)
    assert summarise([path]).events == len(events) // 2


def test_who_counts_from_its_own_beginning_may_begin_there(tmp_path: Path) -> None:
    for events in (
        steps(30, 0),
        [*steps(30, -3 * STEP_US), kernel(0, 0)],
        [{**one, "cat": "mine"} for one in (kernel(0, 5), kernel(40 * 3_600e6, 5))],
    ):
        (trace,) = open_traces([written(tmp_path / "t.json", events)])
        assert trace.file.notes == ()
        assert len(list(trace.events())) == len(events)
