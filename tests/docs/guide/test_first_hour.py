"""The page of what a stranger types first, against what is answered."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from cli.launching import environment, ran
from safety.commands import Done, invoke

from docs.pages import DOCS, section, table

PAGE = DOCS / "guide" / "first-hour.md"

TRAIN = """
import time
import torch
from dftrace_ai import ai
for step in range(60):
    with ai.pipeline.step:
        ai.update(step=step)
        with ai.dataloader.fetch:
            time.sleep(0.002)
"""
PROFILE = {
    "deviceProperties": [],
    "traceEvents": [
        {"ph": "X", "name": "aten::mm", "cat": "cpu_op", "ts": 1, "dur": 5, "pid": 1, "tid": 1}
    ],
}


def answered(line: str, folder: Path) -> Done:
    """In this process, but for programs, which take its place."""
    first, *words = shlex.split(line)
    if first != "python" and words[:1] != ["run"]:
        return invoke(*words)
    called = words if first == "python" else ["-m", "dftrace_ai", *words]
    done = ran((sys.executable, *called), environment(folder, DFTRACE_AUTO_PARTS="steps"), folder)
    return Done(done.returncode, done.stdout, done.stderr)


def test_each_call_is_answered_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    environment(tmp_path)
    for name in ("empty", "pkg"):
        (tmp_path / name).mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "notes.txt").write_text("what I meant to do\n")
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "__main__.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "prof.json").write_text(json.dumps(PROFILE))
    for heading in ("Where nothing was recorded yet", "Behind a first run"):
        for typed, answer, status in table(section(PAGE, heading)):
            line = typed.strip("`")
            done = answered(line, tmp_path)
            said = " ".join(f"{done.err} {done.out}".split())
            wanted = ".*".join(re.escape(part) for part in re.findall(r"`([^`]+)`", answer))
            assert re.search(wanted, said), (line, said)
            assert done.status == int(status), (line, said)
