"""What a file is: events in JSON of every layout, several documents in one, none; and patterns."""

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
    "no commas": "[" + "\n".join(map(json.dumps, EVENTS)),
    "an object": json.dumps({"beside": {"traceEvents": 1, "x": [["]}"]]}, "traceEvents": EVENTS}),
    "a long member before": json.dumps({"nodes": ["x" * 99] * 2000, "traceEvents": EVENTS}),
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
