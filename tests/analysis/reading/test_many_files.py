"""Hundreds of files, each opened once, few at a time, none kept in memory; parts that are deleted while they are read."""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import random
import resource
import struct
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from analysis.trace_lines import TraceLines
from conftest import clean_environment
from safety.commands import invoke

from dftrace_ai.analysis.reading import open_traces, search
from dftrace_ai.analysis.reading.event_columns import event_columns
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.trace_facts import facts_of
from dftrace_ai.errors import TraceError
from dftrace_ai.generating import Job, generate

FILES = 500
SPANS = 20
MOST_OPEN = 40

# Of inotify: reads and closes are looked at, too, for equal events behind each other are told once.
IN_ACCESS, IN_CLOSE, IN_OPEN = 0x1, 0x18, 0x20


def write_files(folder: Path, count: int, seed: int) -> Path:
    """Write them in an order of its own; every tenth is plain."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    for number in order:
        trace = TraceLines(1000 + number, rank=number)
        for span in range(SPANS):
            trace.span(f"n{span % 3}", "compute", span * 2000 + number, 1000 + number, step=span)
        trace.footer()
        suffix = ".pfw.gz" if number % 10 else ".pfw"
        place = folder / f"{number % 7}" / f"t-host-{1000 + number}{suffix}"
        trace.write(place, lines_a_block=8)
    return folder


def read_by(command: str, folder: Path) -> tuple[bytes, int]:
    """What a program says that may open few files; and its peak of memory in bytes."""

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_OPEN, MOST_OPEN))

    process = subprocess.Popen(
        [sys.executable, "-m", "dftrace_ai.cli", *command.split(), str(folder), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
        preexec_fn=few_files,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out = process.stdout.read()
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    process.stderr.close()
    assert (process.returncode, said) == (0, b"")
    return out, used.ru_maxrss * 1024


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("many"), FILES, seed=1)


def test_few_are_open_at_a_time_and_memory_stays(many: Path, tmp_path: Path) -> None:
    out, peak = read_by("summary", many)
    report = json.loads(out)
    assert report["events"] == FILES * SPANS
    assert {row["name"]: row["count"] for row in report["spans"]} == {
        "n0": 7 * FILES,
        "n1": 7 * FILES,
        "n2": 6 * FILES,
    }
    assert len(report["files"]) == FILES
    assert report["warnings"] == []
    few, peak_of_few = read_by("summary", write_files(tmp_path / "few", 50, seed=1))
    assert json.loads(few)["events"] == 50 * SPANS
    # What is said of each file takes some; what is in it does not stay.
    assert peak - peak_of_few < FILES * 16 * 1024


def test_their_order_is_that_of_their_names(many: Path, tmp_path: Path) -> None:
    again = write_files(tmp_path / "again", FILES, seed=2)
    one, other = ([str(trace.path.relative_to(folder)) for trace in open_traces([folder])]
                  for folder in (many, again))  # fmt: skip
    assert one == other == sorted(one)
    open_before = len(os.listdir("/proc/self/fd"))
    most_open = 0
    pids = []
    for batch in open_traces([many]).arrow(["file", "pid"]):
        most_open = max(most_open, len(os.listdir("/proc/self/fd")) - open_before)
        pids.append(int(np.asarray(batch.block.pid)[0]))
    assert most_open <= 2
    first_of_file = list(dict.fromkeys(pids))
    assert first_of_file == [int(name.split("-")[2].split(".")[0]) for name in one]
    text, told = (
        read_by("summary --by rank", folder)[0].replace(str(folder).encode(), b"")
        for folder in (many, again)
    )
    assert text == told


def opens_of(path: Path, *words: object) -> int:
    """How often a command opens a file, by whatever calls."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        added = libc.inotify_add_watch(watch, os.fsencode(path), IN_ACCESS | IN_CLOSE | IN_OPEN)
        assert added > 0, os.strerror(ctypes.get_errno())
        done = invoke(*words)
        assert done.status == 0, done.err
        seen = b""
        with suppress(BlockingIOError):
            while True:
                seen += os.read(watch, 1 << 20)
    finally:
        os.close(watch)
    return sum(mask == IN_OPEN for _, mask, _, _ in struct.iter_unpack("iIII", seen))


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("summary",), 1),
        (("summary", "--by", "step"), 1),
        (("summary", "--where", "rank = 0"), 1),
        (("why",), 1),
        (("report", "--out"), 2),
        (("ranks",), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_each_file_is_opened_once_or_twice(
    tmp_path: Path, words: tuple[str, ...], most: int
) -> None:
    generate(Job(ranks=2, steps=40), tmp_path / "out", jobs=1)
    page = [tmp_path / "page.html"] if "--out" in words else []
    first = min((tmp_path / "out").glob("*.pfw.gz"))
    assert 0 < opens_of(first, *words, *page, tmp_path / "out") <= most


def test_a_file_without_an_index_is_read_once(tmp_path: Path) -> None:
    """When the only run began is asked of nobody, so nothing is read for it."""
    for name, steps in (("short", 2), ("long", 2_000)):
        generate(Job(ranks=1, steps=steps), tmp_path / name, jobs=1)
    (whole,) = (tmp_path / "long").glob("*.pfw.gz")
    lines = gzip.decompress(whole.read_bytes()).splitlines(keepends=True)
    others = [line for line in lines if b'"index"' not in line]
    pieces = [b"".join(others[at : at + 500]) for at in range(0, len(others), 500)]
    whole.write_bytes(b"".join(gzip.compress(piece, compresslevel=0) for piece in pieces))
    read = [read_bytes()]
    for name in ("short", "short", "long"):  # the first reads the command's modules, too
        assert invoke("summary", tmp_path / name).status == 0
        read.append(read_bytes())
    _, besides, of_long = (after - before for before, after in pairwise(read))
    assert (of_long - besides) / whole.stat().st_size < 1.5


def read_bytes() -> int:
    """What this process has read by calls of the system."""
    return int(Path("/proc/self/io").read_text().split()[1])


def used_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_texts_of_few_of_them_are_at_hand(tmp_path: Path) -> None:
    """Who has asked each for arguments holds the columns of all, and the lines of the last."""
    files, spans = 60, 2000
    trace = TraceLines()
    for span in range(spans):
        trace.span("n", "compute", span * 2000, 1000, step=span, note="x" * 200)
    one = trace.write(tmp_path / "0.pfw.gz", lines_a_block=spans + 10)
    for number in range(1, files):
        (tmp_path / f"{number}.pfw.gz").write_bytes(one.read_bytes())
    text_bytes = len(trace.text)
    held = []
    before = used_bytes()
    for columns in event_columns(open_traces([tmp_path])):
        assert columns.args(len(columns) - 1)["step"] == spans - 1
        held.append(columns)
    assert len(held) == files
    assert used_bytes() - before < files * text_bytes / 2
    # Those that have let go of theirs read them again.
    assert [columns.args(10)["step"] for columns in held] == [held[0].args(10)["step"]] * files


PROGRAM = """
import os, select, sys
import dftrace_ai
from dftrace_ai import ai

with dftrace_ai.tracing(log_file="out/t", max_file_bytes=65536, max_files=3, overflow="wait"):
    step, told = 0, False
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(2000):
            ai.update(step=step)
            step += 1
            with ai.dataloader.fetch:
                pass
            with ai.compute.forward:
                pass
        # From now on parts are deleted.
        if not told and any(".part4." in name for name in os.listdir("out")):
            told = True
            print("ready", flush=True)
print(2 * step, flush=True)
"""


def part(folder: Path, number: int, *, ended: str | None, earlier: int) -> Path:
    lines = TraceLines(100)
    lines.span("forward", "compute", 10 + number * 1000, 100)
    lines.span("backward", "compute", 510 + number * 1000, 100)
    if ended:
        lines.footer(ended=ended, part=number, **({"earlier_events": earlier} if earlier else {}))
    return lines.write(folder / f"t-host-100{f'.part{number}' * bool(number)}.pfw.gz")


def test_commands_read_a_job_that_deletes_its_parts(tmp_path: Path) -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        folder = tmp_path / "out"
        made = {
            "sql": ["select count(*) from events"],
            "convert": ["--to", "perfetto", "--out", tmp_path / "all.pfw"],
            "validate": ["--unfinished-ok"],
            "info": [],
            "summary": [],
            "why": [],
        }
        for command, more in made.items():
            done = invoke(command, folder, *more)
            assert done.status == 0, (command, done.out, done.err)
        counted = int(job.communicate("x")[0])
    finally:
        job.kill()
        job.wait()
    # What is gone is told by each, and with what is there it is everything.
    facts = facts_of([folder])
    files = sorted(folder.iterdir())
    told = [note for note in facts.notes if "deleted by max_files" in note]
    gone = int(told[0].partition("with ")[2].partition(" event")[0].replace(",", ""))
    assert (len(files), gone + facts.events) == (3, counted)
    for command in ("summary", "why"):
        value = json.loads(invoke(command, folder, "--json").out)
        notes = value.get("notes", value.get("warnings", value.get("losses")))
        assert [note for note in notes if "deleted" in note] == told, command


def test_what_was_found_can_be_read_though_it_is_deleted(tmp_path: Path) -> None:
    for number in range(1, 4):
        part(tmp_path, number, ended="rotated" if number < 3 else None, earlier=2 * number)
    traces = open_traces([tmp_path])
    for trace in traces:
        trace.path.unlink()
    assert sum(len(batch["ph"]) for batch in traces.batches(["ph"])) == 17
    assert [trace.end.closed for trace in traces] == [True, True, False]
    with pytest.raises(TraceError, match="no trace files"):
        open_traces([tmp_path])


@pytest.mark.parametrize("given", ["a directory", "files"])
def test_parts_that_go_while_they_are_looked_for_are_left_out(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [
        part(tmp_path, number, ended="rotated" if number < 3 else None, earlier=2 * number)
        for number in range(4)
    ]
    held_parts = search.held_parts

    def late(found: list[Path]) -> object:
        # The recorder is faster, once.
        if paths[0].exists():
            paths[0].unlink()
        return held_parts(found)

    monkeypatch.setattr(search, "held_parts", late)
    found = summarise([tmp_path] if given == "a directory" else paths)
    assert [Path(file.path) for file in found.files] == paths[1:]
    assert [note for note in found.warnings() if "deleted" in note] == [
        f"{tmp_path / 't-host-100'}: 1 part of 4, with 2 events, deleted by max_files, or not given"
    ]
    # A shell had found it.
    assert len(summarise(paths).files) == 3
    assert invoke("info", paths[0]).status == 2


def test_a_part_that_has_just_been_begun_is_read_as_what_it_is_named(tmp_path: Path) -> None:
    """It is empty when it is found, and no longer when it is read."""
    part(tmp_path, 1, ended="rotated", earlier=2)
    begun = tmp_path / "t-host-100.part2.pfw.gz"
    begun.touch()
    traces = open_traces([tmp_path])
    begun.write_bytes(part(tmp_path / "other", 2, ended=None, earlier=4).read_bytes())
    assert sum(len(batch["ph"]) for batch in traces.batches(["ph"])) == 11
    assert not [note for note in traces.notes if "without an event" in note]
