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
from live.programs import until

from dftrace_ai.analysis import closing
from dftrace_ai.cli import run_end
from launching import LIMIT_S, RUN, TELLING, environment, ran

PROGRAM = """
import os, signal, sys, time
import torch
from dftrace_ai import ai

for step in range(60):
    with ai.pipeline.step:
        ai.update(step=step)
        with ai.dataloader.fetch:
            time.sleep(0.002)
        with ai.compute.forward:
            pass
print("out", file=sys.stdout)
how = sys.argv[1]
if how == "raise":
    raise ValueError("the loss is negative")
if how == "at once":
    sys.stdout.flush()
    os._exit(4)
if how in dir(signal):
    sys.stdout.flush()
    os.kill(os.getpid(), getattr(signal, how))
sys.exit(3)
"""
ENDED = {
    "exit": "",
    "raise": "the program by an exception",
    "at once": "the program killed",
    "SIGINT": "the program by an exception",
    "SIGTERM": "the program killed",
    "SIGKILL": "the program killed",
}
LAST = re.compile(r"dftrace: trace in traces/[\w-]+; next: dftrace why, view, report")


@pytest.mark.parametrize("how", ENDED)
def test_it_says_what_makes_the_run_slow_and_changes_nothing(tmp_path: Path, how: str) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    env = environment(tmp_path, DFTRACE_AUTO_PARTS="steps")
    without, below, quiet = (
        ran((*by, "train.py", how), env, tmp_path) for by in ((sys.executable,), TELLING, RUN)
    )
    ends = [(end.returncode, end.stdout) for end in (without, below, quiet)]
    assert ends == [(without.returncode, "out\n")] * 3
    assert quiet.stderr == without.stderr
    # What the interpreter says of an exception comes first.
    assert below.stderr.startswith(without.stderr)
    first, *rows, last = below.stderr.removeprefix(without.stderr).splitlines()
    assert re.match(r"dftrace: INPUT-BOUND  \(critical, \w+ confidence\): Steps wait for", first)
    assert LAST.fullmatch(last)
    assert len(rows) < 8
    # On a machine that others keep busy there is more to say.
    kinds = [row.split()[0] for row in rows]
    assert kinds[:2] == (["ended", "step"] if ENDED[how] else ["step", "do"])
    assert ENDED[how] in rows[0]


def test_what_is_no_python_is_told_of_as_well(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ("-o", "out", "--", "sh", "-c", f"{sys.executable} train.py exit; kill -KILL $$")
    done = ran((*TELLING, *words), environment(tmp_path), tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert done.stderr.splitlines()[-1] == "dftrace: trace in out; next: dftrace why, view, report"
    # Of an earlier run in the same folder nothing is said, and of none nothing.
    done = ran((*TELLING, "-o", "out", "--", "true"), environment(tmp_path), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    # A folder that stays empty goes, but one that somebody has named.
    (tmp_path / "named").mkdir()
    for words in (TELLING, (*TELLING, "-o", "named"), RUN):
        done = ran((*words, "--", "true"), environment(tmp_path), tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    until(lambda: [*(tmp_path / "traces").iterdir()], lambda left: not left)
    assert (tmp_path / "named").exists()


def test_it_takes_a_second_of_a_processor_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in (
        ("__init__", ""),
        ("wording", "quoted = str"),
        ("analysis/__init__", ""),
        ("spools/__init__", ""),
        ("spools/completing", "def complete_directories(_, deep): pass"),
        (
            "analysis/closing",
            "def print_end(_):\n    print('begun', flush=True)\n    while 1: pass",
        ),
    ):
        path = tmp_path / "dftrace_ai" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "t-host-1.pfw.gz").write_text("")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    gone, prefix = subprocess.Popen(["true"]), tmp_path / "out" / "t"
    gone.wait()
    words = (str(gone.pid), "0", str(prefix), str(tmp_path), json.dumps([str(tmp_path), *sys.path]))
    # Without `site`, by which this package is found wherever it is being worked on.
    done = ran((sys.executable, "-I", "-S", run_end.__file__, *words), {**os.environ}, tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stderr == "begun\ndftrace: trace in out; next: dftrace why, view, report\n"
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0
    # What is too large for that is not begun.
    monkeypatch.setattr(closing, "MOST_BYTES_AT_END", -1)
    assert closing.print_end([str(prefix), "0"]) == 0
    assert capfd.readouterr().out == ""
    assert LIMIT_S > run_end.PATIENCE_S
