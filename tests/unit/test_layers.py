"""Layers point one way: held by reading the imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from layers import upward

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dftrace_ai"

HEAVY = {
    "torch",
    "pydantic",
    "duckdb",
    "psutil",
    "yaml",
    "orjson",
    "rich",
    "typer",
    "zstandard",
    "numpy",
}

READ_WITHOUT_THE_CORE = """
import sys

class Blocked:
    def find_spec(self, name, *_):
        if name == "dftrace_ai._native":
            raise ImportError("blocked")

sys.meta_path.insert(0, Blocked())
import os
os.environ["DFTRACE_RUN"] = "0-0"
import dftrace_ai.analysis.reading.reader
import dftrace_ai.analysis.validating.validate
from dftrace_ai.analysis.summary import summarise
assert "torch" not in sys.modules and "dftrace_ai.run" not in sys.modules
try:
    import dftrace_ai.run
except ImportError as error:
    print(error)
"""


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_each_room_imports_only_what_lies_below_it() -> None:
    assert upward(PACKAGE) == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert (
        run(f"import sys, dftrace_ai.annotation; print(sorted(set(sys.modules) & {HEAVY!r}))")
        == "[]"
    )


def test_traces_are_read_where_the_recorder_cannot_be_loaded() -> None:
    assert run(READ_WITHOUT_THE_CORE) == "blocked"


def test_a_config_of_inspection_is_read_without_torch_and_without_a_run() -> None:
    names = "{'torch', 'dftrace_ai.run', 'dftrace_ai._native'}"
    assert (
        run(f"import sys, dftrace_ai.inspect.config; print(set(sys.modules) & {names})") == "set()"
    )


def test_only_the_bindings_include_python() -> None:
    files = [p for p in (ROOT / "native").rglob("*.[ch]pp") if "bindings" not in p.parts]
    assert len(files) > 20
    for path in files:
        assert "Python.h" not in path.read_text(encoding="utf-8"), path
