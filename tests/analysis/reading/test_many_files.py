"""A thousand files, as a job of many ranks leaves them: few are open at a time, none is kept in memory."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from analysis.trace_lines import TraceLines
from conftest import clean_environment

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.event_columns import event_columns

FILES = 1000
SPANS = 20
MOST_OPEN = 40


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
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("thousand"), FILES, seed=1)


def test_few_are_open_at_a_time_and_memory_stays(thousand: Path, tmp_path: Path) -> None:
    out, peak = read_by("summary", thousand)
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


def test_their_order_is_that_of_their_names(thousand: Path, tmp_path: Path) -> None:
    again = write_files(tmp_path / "again", FILES, seed=2)
    one, other = ([str(trace.path.relative_to(folder)) for trace in open_traces([folder])]
                  for folder in (thousand, again))  # fmt: skip
    assert one == other == sorted(one)
    open_before = len(os.listdir("/proc/self/fd"))
    most_open = 0
    pids = []
    for batch in open_traces([thousand]).arrow(["file", "pid"]):
        most_open = max(most_open, len(os.listdir("/proc/self/fd")) - open_before)
        pids.append(int(np.asarray(batch.block.pid)[0]))
    assert most_open <= 2
    first_of_file = list(dict.fromkeys(pids))
    assert first_of_file == [int(name.split("-")[2].split(".")[0]) for name in one]
    text, told = (
        read_by("summary --by rank", folder)[0].replace(str(folder).encode(), b"")
        for folder in (thousand, again)
    )
    assert text == told


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
