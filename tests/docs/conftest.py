"""Fixtures that run the programs of the documentation and read their traces back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import LEAN, SCRIPT_LIMIT_S, clean_environment, trace_files
from perfetto.agreement import agree
from perfetto.trace_file import Trace, read

from docs.pages import EXAMPLES


@dataclass(frozen=True)
class ExampleRun:
    """What an example printed and recorded."""

    folder: Path
    traces: list[Trace]
    stdout: str
    stderr: str

    @property
    def trace(self) -> Trace:
        """The only trace."""
        assert len(self.traces) == 1, [trace.path.name for trace in self.traces]
        return self.traces[0]


RunExample = Callable[[str], ExampleRun]


def run_program(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a Python program in a folder, with an environment that says nothing of tracing."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={
            **clean_environment(),
            **LEAN,
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=SCRIPT_LIMIT_S,
        check=False,
    )


@pytest.fixture(scope="session")
def run_example(tmp_path_factory: pytest.TempPathFactory) -> RunExample:
    """Runs an example file once; its traces are checked line by line, and in Perfetto."""
    done: dict[str, ExampleRun] = {}

    def run(name: str) -> ExampleRun:
        if name not in done:
            source = EXAMPLES / name
            if "import torch" in source.read_text(encoding="utf-8"):
                pytest.importorskip("torch")
            folder = tmp_path_factory.mktemp(source.stem)
            ended = run_program([str(source), "out"], folder)
            assert ended.returncode == 0, f"{name}: {ended.stderr[-4000:]}"
            traces = [read(path) for path in trace_files(folder / "out")]
            bases = {trace.header["time_base_us"] for trace in traces}
            for base in bases:
                agree([trace for trace in traces if trace.header["time_base_us"] == base])
            done[name] = ExampleRun(folder, traces, ended.stdout, ended.stderr)
        return done[name]

    return run
