"""A run below `dftrace run` ends with its answer, however it ends, and with nothing else changed."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from analysis.trace_lines import TraceLines
from live.programs import until
from safety.commands import invoke

from dftrace_ai.analysis import closing
from dftrace_ai.cli import run_end
from launching import LIMIT_S, RUN, TELLING, environment, ran

PROGRAM = """
import os, signal, subprocess, sys, time
import torch
from dftrace_ai import ai

how, *then = sys.argv[1:]
for step in range(60):
    with ai.pipeline.step:
        ai.update(step=step)
        with ai.dataloader.fetch:
            time.sleep(0.0 if how == "computes" else 0.004)
        with ai.compute.forward:
            time.sleep(0.004 if how == "computes" else 0.0)
if how == "many":
    for _ in range(20_000):
        with ai.compute.forward:
            pass
if then:
    subprocess.run([sys.executable, "-m", "dftrace_ai.cli", "run", *then])
print("out", file=sys.stdout)
if how == "raise":
    raise ValueError("the loss is negative")
if how == "at once":
    sys.stdout.flush()
    os._exit(4)
if how in dir(signal):
    sys.stdout.flush()
    os.kill(os.getpid(), getattr(signal, how))
sys.exit(0 if how == "computes" else 3)
"""
ENDED = {
    "exit": "",
    "raise": "the program by an exception",
    "at once": "the program killed, or by os._exit",
    "SIGINT": "the program by an exception",
    "SIGTERM": "the program killed, or by os._exit",
    "SIGKILL": "the program killed, or by os._exit",
}
LAST = re.compile(r"dftrace: trace in traces/[\w-]+; next: dftrace why, view, ui")


@pytest.mark.parametrize("how", ENDED)
def test_it_says_what_makes_the_run_slow_and_changes_nothing(tmp_path: Path, how: str) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    # Of a run as short as this the lines are known on a busy machine alone.
    env = environment(tmp_path, DFTRACE_AUTO_PARTS="steps", DFTRACE_LINES_HZ="0")
    without, below, quiet = (
        ran((*by, "train.py", how), env, tmp_path) for by in ((sys.executable,), TELLING, RUN)
    )
    ends = [(end.returncode, end.stdout) for end in (without, below, quiet)]
    assert ends == [(without.returncode, "out\n")] * 3
    assert quiet.stderr == without.stderr
    # What the interpreter says of an exception comes first.
    assert below.stderr.startswith(without.stderr)
    first, *rows, last = below.stderr.removeprefix(without.stderr).splitlines()
    # Where the program was let wait for long somewhere else, that share is no longer most of the run.
    severity = "(critical|warning)"
    assert re.match(rf"dftrace: INPUT-BOUND  \({severity}, \w+ confidence\): Steps wait for", first)
    assert LAST.fullmatch(last)
    assert len(rows) < 8
    # On a machine that others keep busy there is more to say.
    kinds = [row.split()[0] for row in rows]
    assert kinds[:2] == (["ended", "step"] if ENDED[how] else ["step", "do"])
    assert ENDED[how] in rows[0]


LOADS = """
import time
import torch
from dftrace_ai import ai

def decode(index):
    time.sleep(0.04)

def load(step):
    with ai.data.item:
        decode(step)

for step in range(60):
    with ai.pipeline.step:
        ai.update(step=step)
        with ai.dataloader.fetch:
            load(step)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 has frames of another kind")
def test_it_names_the_line_that_makes_the_run_slow(tmp_path: Path) -> None:
    """Nothing has to be asked for."""
    (tmp_path / "train.py").write_text(LOADS)
    done = ran((*TELLING, "train.py"), environment(tmp_path), tmp_path)
    # Where it waits long for a processor whenever it has slept, nobody can say that it slept.
    waits = r"(, and waits there \([\d.]+ % CPU\))?"
    assert re.search(
        rf"because   \d+ % of item lies in decode \(train.py:7\){waits},"
        r" called by load \(train.py:11\); \d+ samples",
        done.stderr,
    ), done.stderr


def test_what_is_no_python_is_told_of_as_well(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    env = environment(tmp_path, DFTRACE_LINES_HZ="0")
    python = f"{sys.executable} train.py"
    ends = f"{python} computes; {python} raise; kill -KILL $$"
    done = ran((*TELLING, "-o", "my out", "--", "sh", "-c", ends), env, tmp_path)
    assert done.returncode == -signal.SIGKILL
    # Of two programs that one is told of which failed, and the commands are typed as they stand.
    # Of a busy machine there is a line more, or one less.
    *lines, last = done.stderr.splitlines()
    rows = lines[next(n for n, line in enumerate(lines) if line.startswith("dftrace: ")) :]
    assert rows[0].startswith("dftrace: INPUT-BOUND")
    assert "  ended     the program by an exception" in rows
    assert any("loader wait" in row for row in rows)
    told = "dftrace: trace in my out, and 1 more run in it (this is one that did not end in order)"
    said, command = last.split("; next: dftrace ")
    assert said == told
    (name,) = re.findall(r"why 'my out' --run ([0-9a-f]{8})$", command)
    assert invoke("info", tmp_path / "my out", "--run", name).status == 0
    # Of an earlier run in the same folder nothing is said, and of none nothing.
    done = ran((*TELLING, "-o", "my out", "--", "true"), env, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    # A folder that stays empty goes, but one that somebody has named.
    (tmp_path / "named").mkdir()
    for words in (TELLING, (*TELLING, "-o", "named"), RUN):
        done = ran((*words, "--", "true"), env, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    until(lambda: (tmp_path / "traces").exists(), lambda there: not there)
    assert (tmp_path / "named").exists()


def test_it_tells_of_its_own_launch_whatever_lies_beside(tmp_path: Path) -> None:
    """A run that calls `dftrace run` itself: that is a run of its own, here in the same folder."""
    (tmp_path / "train.py").write_text(PROGRAM)
    env = environment(tmp_path)
    inner = ("--log-file", "out/a-b", "train.py", "exit")
    innermost = ("train.py", "exit")
    words = ("--log-file", "out/a", "train.py", "computes", *inner, *innermost)
    done = ran((*TELLING, *words), env, tmp_path)
    steps = [line for line in done.stderr.splitlines() if line.startswith("  step")]
    lasts = [line for line in done.stderr.splitlines() if line.startswith("dftrace: trace in")]
    parts = [re.search(r"loader wait|forward", line) for line in steps]
    assert [part and part[0] for part in parts] == ["loader wait", "loader wait", "forward"]
    # The innermost has a folder of its own; behind it the others are not the newest any more.
    assert lasts[0].startswith("dftrace: trace in traces/")
    for last in lasts[1:]:
        assert re.fullmatch(
            r"dftrace: trace in out; next: dftrace why out --run [0-9a-f]{8}", last
        ), last


def test_what_was_lost_is_told(tmp_path: Path) -> None:
    """Where no file may be larger than some hundred events."""
    (tmp_path / "train.py").write_text(PROGRAM)
    options = ("-o", "out", "--compression", "none", "--set", "write-buffer-bytes=65536")
    words = (*TELLING, *options, "train.py", "many")
    limited = ("sh", "-c", 'ulimit -f 1200; exec "$@"', "sh", *words)
    done = ran(limited, environment(tmp_path), tmp_path)
    assert (done.returncode, done.stdout) == (3, "out\n")
    (lost,) = (line for line in done.stderr.splitlines() if line.startswith("  lost "))
    assert re.search(r"[\d,]+ events not yet in the trace, which cannot be written; ", lost), (
        done.stderr
    )
    assert "dftrace recover out adds them" in lost


def test_a_pipe_that_nobody_reads_keeps_nobody(tmp_path: Path) -> None:
    code = (
        "import os\n"
        "from dftrace_ai.cli import run_end\n"
        "its, ours = os.pipe()\n"
        "os.set_blocking(ours, False)\n"
        "for size in (4096, 1):\n"
        "    try:\n"
        "        while True: os.write(ours, bytes(size))\n"
        "    except BlockingIOError: pass\n"
        "os.set_blocking(ours, True)\n"
        "os.dup2(ours, 2)\n"
        "run_end.READ_S = 0.01\n"
        "run_end._say(b'words')\n"
    )
    done = ran((sys.executable, "-c", code), {**os.environ}, tmp_path)
    assert done.returncode == -signal.SIGALRM


@pytest.mark.parametrize("waits", [False, True])
def test_a_tensor_that_is_not_finite_is_told_beside_what_is_slow(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], waits: bool
) -> None:
    trace = TraceLines(launch="ours", rank=0)
    for step in range(60):
        at = step * 10_000_000
        if waits:
            trace.span("fetch", "dataloader", at, 7_000_000, step=step)
            at += 7_000_000
        trace.span("forward", "compute", at, 2_500_000, step=step)
    trace.event("i", "fc:output", "nonfinite", 400_000_000)
    trace.footer()
    trace.write(tmp_path / "out" / "t-host-1.pfw.gz")
    closing.print_end(closing.LaunchEnd(tmp_path / "out", "ours", 0, str(tmp_path)))
    first, second, *rows = capfd.readouterr().out.splitlines()
    assert re.match(
        r"dftrace: NOT FINITE: fc:output is the first tensor that .* in step 40 ", first
    )
    assert re.match("dftrace: INPUT-BOUND .*: Steps wait" if waits else "dftrace: [A-Z-]+", second)
    assert len(rows) <= 7


def test_it_takes_a_second_of_a_processor_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    judging = """
class LaunchEnd:
    def __init__(self, *_): pass
    def files(self): return [0]
    def is_of(self, _): return True
    def place_line(self): return "where it is"
    folder = ""
def print_end(*_):
    print("begun", flush=True)
    while 1: pass
"""
    for name, text in (
        ("__init__", ""),
        ("analysis/__init__", ""),
        ("spools/__init__", ""),
        ("cli/__init__", ""),
        ("cli/run_folder", "def remove_empty(_): pass"),
        (
            "spools/completing",
            "complete_directories = left_by_launch = spools_of_launch = lambda *_, **__: []",
        ),
        ("analysis/closing", judging),
    ):
        path = tmp_path / "dftrace_ai" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    gone = subprocess.Popen(["true"])
    gone.wait()
    paths = json.dumps([str(tmp_path), *sys.path])
    words = (str(gone.pid), "0", str(tmp_path / "out"), "launch", str(tmp_path), paths, "")
    # Without `site`, by which this package is found wherever it is being worked on.
    done = ran((sys.executable, "-I", "-S", run_end.__file__, *words), {**os.environ}, tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stderr == "where it is\n"
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0
    # What is too large for that is not begun.
    (tmp_path / "out").mkdir()
    TraceLines(launch="ours").write(tmp_path / "out" / "t-host-1.pfw.gz")
    monkeypatch.setattr(closing, "MOST_BYTES_AT_END", -1)
    end = closing.LaunchEnd(tmp_path / "out", "ours", 0, str(tmp_path))
    assert closing.print_end(end) == 0
    assert capfd.readouterr().out == "dftrace: trace in out; next: dftrace why, view, ui\n"
    assert closing.print_end(end._replace(launch="another")) == 0
    assert capfd.readouterr().out == ""
    assert LIMIT_S > run_end.PATIENCE_S
