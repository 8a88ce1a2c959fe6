"""A program below `dftrace run` that nothing is recorded of says so when it ends, and that alone."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dftrace_ai.integrations.registry import GROUPS
from launching import PARTS, RUN, environment, ran

START = Path(__file__).parents[3] / "native" / "packaging" / "start" / "_dftrace_start.py"

FINDERS = """
import importlib.machinery, sys

class Loader:
    __slots__ = ("loader",)

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        spec.loader = Loader(spec.loader)
        return spec

class Comparing:
    def find_spec(self, *_):
        return None

    def __eq__(self, other):
        raise RuntimeError("finders are not compared")

finders = [type(finder).__name__ for finder in sys.meta_path]
behind = finders.index("Waiting") + 1 if "Waiting" in finders else 0
"""
NO_FRAMEWORK = (
    "dftrace run: nothing was recorded: the program has imported none of torch, tensorflow, keras; "
    "annotate it, and call dftrace_ai.initialize()\n"
)
PASSED_BY = (
    "dftrace run: nothing was recorded: torch was imported past what waits for it, by a finder of "
    "the program's own; call dftrace_ai.auto() in the program\n"
)
BY_HAND = "import dftrace_ai\nwith dftrace_ai.tracing(), dftrace_ai.ai.compute: pass\n"
A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BY_HAND!r}])"
CASES = {
    "nothing is imported": ("", NO_FRAMEWORK),
    "it ends by itself": ("import sys; print('out'); sys.exit(3)", NO_FRAMEWORK),
    "it has closed its streams": ("import sys; sys.stderr.close(); sys.exit(3)", ""),
    "a finder comes first": (
        f"{FINDERS}sys.meta_path.insert(0, Finder())\nimport torch",
        PASSED_BY,
    ),
    "the finders are others": (
        "import sys; sys.meta_path = [f for f in sys.meta_path if type(f) is type]; import torch",
        PASSED_BY,
    ),
    "a loader with slots": (f"{FINDERS}sys.meta_path.insert(behind, Finder())\nimport torch", ""),
    "a finder that compares": (
        f"{FINDERS}sys.meta_path.insert(0, Comparing()); import torch",
        "",
    ),
    "torch is there": ("import torch", ""),
    "by hand": (BY_HAND, ""),
    "a child": (A_CHILD, ""),
    "a fork": ("import os, sys\nif not os.fork(): sys.exit()\nos.wait()", NO_FRAMEWORK),
}


def below(code: str, folder: Path, *, launched: bool) -> subprocess.CompletedProcess[str]:
    """A program, as `dftrace run` becomes it, or as it is without."""
    settings = {
        "DFTRACE_LOG_FILE": str(folder / "out" / "t"),
        "DFTRACE_AUTO_PARTS": PARTS,
    }
    line = shlex.join([sys.executable, "-c", code])
    launch = "DFTRACE_LAUNCH=name.$$ " if launched else ""
    return ran(("sh", "-c", f"{launch}exec {line}"), environment(folder, **settings), folder)


@pytest.mark.parametrize("case", CASES)
def test_it_is_told_at_the_end(tmp_path: Path, case: str) -> None:
    code, said = CASES[case]
    (tmp_path / "out").mkdir()
    without = below(code, tmp_path, launched=False)
    for one in (tmp_path / "out").iterdir():
        one.unlink()
    with_it = below(code, tmp_path, launched=True)
    assert (with_it.returncode, with_it.stdout) == (without.returncode, without.stdout)
    assert with_it.stderr == without.stderr + said


def test_the_program_alone_tells_and_the_launcher_has_it_do_so(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''])"
    done = ran((*RUN, "-o", "out/t", "-c", code), environment(tmp_path), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", NO_FRAMEWORK)


def test_what_is_waited_for_is_one_list() -> None:
    """The file that lies beside the package imports nothing of it."""
    line = next(line for line in START.read_text().splitlines() if line.startswith("FRAMEWORKS"))
    assert line == f"FRAMEWORKS = {tuple(GROUPS)!r}".replace("'", '"')
