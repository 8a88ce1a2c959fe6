"""Files that are made to cost memory, and the limits: every reader tells what they are, and stays small."""

from __future__ import annotations

import gzip
import os
import re
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from analysis.trace_lines import TraceLines, small_trace
from docs.pages import DOCS, section, table

from dftrace_ai import database
from dftrace_ai.analysis import validating, why
from dftrace_ai.analysis.reading import decompression, index_file, reader
from dftrace_ai.analysis.reading.importing import archives
from dftrace_ai.analysis.summary import adding
from dftrace_ai.analysis.summary import table as summary
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.validating import rules
from dftrace_ai.cli import summary as summary_command
from safety.commands import invoke, read_by

MIB = 1 << 20

# Where a reader of honest traces stands: modules, a window of the file, lines of 16 MiB.
MOST_MIB = {"validate": 160, "merge": 130, "summary": 250}

SPACES = gzip.compress(b" " * MIB)
LONG_SPAN = (
    b'{"id":99,"name":"forward","cat":"compute","pid":100,"tid":100,"ts":1.000,"dur":1.000,'
    b'"ph":"X","args":{"hhash":"2a702c695247d487","x":[%s1]}}\n'
)


def zstd_of_spaces(text: bytes, mib: int) -> bytes:
    """One frame: a trace, and then spaces, which take four bytes for 128 KiB."""
    packer = zstandard.ZstdCompressor().compressobj()
    parts = [packer.compress(text), *(packer.compress(b" " * MIB) for _ in range(mib))]
    return b"".join([*parts, packer.flush()])


def many_threads() -> bytes:
    trace = TraceLines()
    lines = (
        b'{"id":%d,"name":"n%d","cat":"c","pid":%d,"tid":%d,"ts":%d.000,"dur":1.000,"ph":"X",'
        b'"args":{"hhash":"2a702c695247d487"}}\n' % (n, n, n, n, n)
        for n in range(1, 60_001)
    )
    return trace.text + b"".join(lines)


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bombs")
    text = small_trace().text
    open_text = b"\n".join(text.splitlines()[:-1]) + b"\n"
    files = {
        "spaces.pfw.gz": gzip.compress(text) + SPACES * 130,
        "member.pfw.gz": gzip.compress(text + b" " * (130 * MIB), 6),
        "frame.pfw.zst": zstd_of_spaces(text, 256),
        "line.pfw": text + b'{"name":"' + b"x" * (100 * MIB) + b'"}\n',
        "nulls.pfw": open_text + LONG_SPAN % (b"null," * (300 << 10)),
        "lists.pfw": open_text + LONG_SPAN % (b"[]," * (300 << 10)),
        "members.pfw": open_text + b'{"ph":"X",%s"name":"a"}\n' % (b'"y":1,' * 9000),
        "deep.pfw": text + b"[" * 100_000 + b"\n" + b'{"a":' * 100_000 + b"\n",
        "deeper.pfw": open_text + LONG_SPAN % (b"[" * 9000 + b"]" * 9000 + b","),
        "digits.pfw": text + b'{"name":"a","cat":"b","ph":"X","dur":' + b"9" * 100_000 + b"}\n",
        "zeros.pfw": b"[\n" + bytes(5 * MIB),
        "bytes.pfw": text + b'{"name":"\xff\xfe\x80"}\n\xff\n',
        "threads.pfw": many_threads(),
        "magics.pfw.gz": gzip.compress(text) + b"\x1f\x8b\x08" * MIB,
        "twice.pfw": open_text.replace(b'"cat":"compute"', b'"cat":"data","cat":"compute"'),
        "footer.pfw": open_text + b'{"name":"end","cat":"dftrace","pid":1,"tid":1,"ph":"M","args":'
        b'{"events":"7","dropped":[1],"waits":-1e300,"spans":true,"ended":{}}}\n',
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with (folder / "sparse.pfw").open("wb") as file:
        file.write(text)
        file.truncate(1 << 40)
    return folder


def test_validate_names_each_fault(bombs: Path) -> None:
    found, peak_mib = read_by("validate", bombs)
    expected = {
        "spaces.pfw.gz": "line 17 has no end",
        "member.pfw.gz": "line 17 has no end",
        "frame.pfw.zst": "line 17 has no end",
        "sparse.pfw": "line 17 has no end",
        "line.pfw": "the line has 104,857,611 bytes; readers pass over",
        "nulls.pfw": "args.x: not a value that viewers keep",
        "lists.pfw": "no closing line",
        "members.pfw": "the name 'y' stands twice",
        "deep.pfw": "nested too deeply",
        "deeper.pfw": "nested too deeply",
        "digits.pfw": "a number of thousands of digits",
        "zeros.pfw": "line 2 is cut",
        "bytes.pfw": "invalid unicode",
        "threads.pfw": "no closing line",
        "magics.pfw.gz": "ends inside the gzip block",
        "twice.pfw": "the name 'cat' stands twice",
        "footer.pfw": "args.",
    }
    assert found.keys() == expected.keys()
    for name, part in expected.items():
        assert any(part in message for message in found[name]), (name, found[name])
        assert max(map(len, found[name])) < 500
    assert len(found["lists.pfw"]) == len(found["threads.pfw"]) == 1
    assert peak_mib < MOST_MIB["validate"]


def test_view_sends_what_can_be_read(bombs: Path) -> None:
    found, peak_mib = read_by("merge", bombs)
    lines = small_trace().text.count(b"\n")
    for name in ("spaces.pfw.gz", "line.pfw", "deep.pfw", "digits.pfw", "bytes.pfw", "sparse.pfw"):
        count, *notes = found[name]
        assert (name, count, len(notes)) == (name, lines, 1)
    assert found["threads.pfw"] == [60_004]
    assert peak_mib < MOST_MIB["merge"]


def test_summary_adds_up_what_can_be_read(bombs: Path) -> None:
    found, peak_mib = read_by("summary", bombs)
    for name in ("spaces.pfw.gz", "line.pfw", "deep.pfw", "bytes.pfw", "sparse.pfw", "zeros.pfw"):
        assert found[name][0] == (0 if name == "zeros.pfw" else 10), name
        assert len(found[name]) > 1, name
    assert found["threads.pfw"][0] == 60_000
    assert found["footer.pfw"] == [10]
    assert peak_mib < MOST_MIB["summary"]


@pytest.mark.parametrize("command", ["summary", "validate"])
def test_names_that_lead_to_no_file(tmp_path: Path, command: str) -> None:
    folder = tmp_path / "out"
    small_trace().write(folder / "good.pfw.gz")
    small_trace().write(tmp_path / "elsewhere.pfw.gz")
    os.mkfifo(folder / "pipe.pfw")
    (folder / "device.pfw").symlink_to("/dev/zero")
    (folder / "ring.pfw").symlink_to("ring.pfw")
    (folder / "outside.pfw.gz").symlink_to(tmp_path / "elsewhere.pfw.gz")
    (folder / "within.pfw.gz").symlink_to("good.pfw.gz")
    (folder / "directory.pfw").mkdir()
    (folder / "directory.pfw" / "up").symlink_to("..")
    done = invoke(command, folder)
    assert done.status == 1
    told = [line for line in (done.out + done.err).splitlines() if ".pfw:" in line or "gz:" in line]
    reasons = {line.partition("out/")[2].partition(":")[0]: line for line in told}
    assert len(told) == len(reasons) == 4
    assert "a link that leads out of the directory" in reasons["outside.pfw.gz"]
    assert "a link that leads out of the directory" in reasons["device.pfw"]
    assert "not a regular file" in reasons["pipe.pfw"]
    assert "Too many levels of symbolic links" in reasons["ring.pfw"]
    # Named by hand, each of them is what was asked for.
    for name in ("pipe.pfw", "device.pfw", "ring.pfw", "directory.pfw"):
        done = invoke(command, folder / name)
        assert (name, done.status, done.out, len(done.err.splitlines())) == (name, 2, "", 1)
    assert invoke(command, folder / "outside.pfw.gz").status == 0


def figure_mib() -> int:
    """What native code has for the figures that index lines are held against."""
    header = DOCS.parent / "native" / "include" / "dftrace" / "reading" / "traces" / "checking.hpp"
    found = re.search(r"most_figure_bytes = std::size_t\{(\d+)\} << 20", header.read_text("utf-8"))
    assert found is not None
    return int(found[1])


def test_the_page_tells_the_limits() -> None:
    text = section(DOCS / "safety.md", "Reading")
    rows = dict(row[:2] for row in table(text.partition("Memory does not grow")[2]))
    assert list(rows.values()) == [
        f"{reader.LINE_BYTES // MIB} MiB",
        f"{reader.ENDLESS_BYTES // MIB // 1024} GiB",
        f"{reader.LINE_BYTES // MIB} MiB",
        f"{archives.MOST_TIMES} times its size and {archives.SPARE_BYTES // MIB} MiB",
        f"{archives.MOST_TIMES_KEPT} times its size and {archives.SPARE_BYTES // MIB} MiB",
        f"{archives.MOST_MEMBERS:,}",
        # A block of zstd is at least four bytes and gives 128 KiB at most.
        f"{decompression.ZSTD_CRUMB_BYTES // 4 // 8} MiB",
        str(rules.MOST_DEPTH),
        f"{validating.MOST_SPANS:,}",
        f"{adding.MOST_BYTES // MIB // 1024} GiB",
        f"{figure_mib()} MiB",
        f"{index_file.MOST_BYTES // MIB} MiB",
        database.MEMORY_LIMIT.replace("GiB", " GiB"),
        f"{database.MOST_BYTES / MIB / 1024} GiB",
        f"{summary.MOST_SUMMARY_ROWS:,}",
        f"{summary_command.MOST_ROWS:,}",
    ]


def test_names_beyond_the_limit_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = TraceLines()
    for number in range(20):
        trace.span(f"n{number}", "compute", number * 100, number + 1)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    monkeypatch.setattr(summary, "MOST_SUMMARY_ROWS", 5)
    found = summarise([path])
    # Those that took longest have rows.
    assert [row.name for row in found.spans] == [f"n{number}" for number in range(19, 14, -1)]
    assert (found.events, found.names_left_out) == (20, 15)
    assert found.warnings() == ["15 names without a row: too many names"]
    monkeypatch.setattr(summary, "MOST_SUMMARY_ROWS", 100)
    monkeypatch.setattr(summary, "MOST_NAME_LETTERS", 50)
    assert 0 < len(summarise([path]).spans) < 10
    # Of what has no duration those that came most often have rows, whichever came first.
    trace = TraceLines()
    for number in range(20):
        for at in range(number + 1):
            trace.event("i", f"m{number}", "instant", at)
    trace.footer()
    path = trace.write(tmp_path / "u.pfw.gz", 10)
    monkeypatch.setattr(summary, "MOST_SUMMARY_ROWS", 5)
    found = summarise([path])
    assert {row.name for row in found.others} == {f"m{number}" for number in range(15, 20)}
    assert found.names_left_out == 15


def test_spans_beyond_the_limit_are_not_sorted_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validating, "MOST_SPANS", 3)
    trace = TraceLines()
    for number in range(5):
        trace.span("s", "compute", number * 100, 150)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw")
    (check,) = validating.validate_traces([path]).files
    assert check.fault_count == 1
    assert check.notes == (
        "whether spans nest was checked for the first 3 of them only; 2 spans more",
    )
    done = invoke("validate", path)
    assert done.err.splitlines()[0] == f"dftrace: {path}: {check.notes[0]}"


def test_figures_that_need_too_much_memory_are_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "MOST_BYTES", 30 << 20)
    trace = TraceLines()
    for number in range(400):
        trace.span(f"{number}" * 50_000, "compute", number * 100, 50)
    path = trace.write(tmp_path / "t.pfw.gz")
    done = invoke("summary", path)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("dftrace: the traces cannot be added up in 30 MiB of memory")
    assert len(done.err.splitlines()) == 1


def test_a_file_of_many_processes_takes_memory_for_one_at_a_time(tmp_path: Path) -> None:
    line = '{"name":"x","cat":"c","pid":%d,"tid":%d,"ts":%d,"dur":5,"ph":"X","args":{}}\n'
    path = tmp_path / "t.pfw"
    path.write_text("[\n" + "".join(line % (n, n, n) for n in range(4_000)))
    why([path])  # what is loaded on first use is none of it
    tracemalloc.start()
    try:
        why([path])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A mark for each row and process is 16 MB.
    assert peak < 12 * MIB
