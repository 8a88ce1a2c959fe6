"""A program below `dftrace run` sees and ends as without; one that nothing is recorded of says so."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import WITHOUT_COLLECTIONS

from dftrace_ai.integrations.registry import GROUPS
from launching import LIMIT_S, PARTS, RUN, environment, launched, ran

PROGRAM = Path(__file__).with_name("seen_by_a_program.py")
# Of the modules that a program has before its first line: ours, and what the finder of an editable
# installation loads to look for it.
OURS = {"_dftrace_start", "atexit", "importlib._abc", "importlib.util", "importlib.machinery"}


def told(words: tuple[str, ...], folder: Path, *, by: tuple[str, ...]) -> tuple[Any, str]:
    done = ran((*by, *words), environment(folder), folder)
    assert done.returncode == 3, done.stderr
    (modules, seen), then, children = json.loads(done.stdout)
    were = {one.pop("recorded") for one in children.values() if isinstance(one, dict)}
    assert were == {by != (sys.executable,)}
    return [set(modules), seen, then, children], done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("seen.py", "tell", "fork", "spawn", "forkserver", "exec"),
        ("-m", "packed.seen", "tell", "spawn"),
    ],
    ids=["script", "module"],
)
def test_what_a_program_and_its_children_see(tmp_path: Path, words: tuple[str, ...]) -> None:
    shutil.copy(PROGRAM, tmp_path / "seen.py")
    (tmp_path / "packed").mkdir()
    shutil.copy(PROGRAM, tmp_path / "packed" / "seen.py")
    without, _ = told(words, tmp_path, by=(sys.executable,))
    below, said = told(words, tmp_path, by=(*RUN, "-o", "out", "--parts", "steps"))
    assert said == UNUSED
    assert below[0] - without[0] <= OURS
    customized = below[1]["customized"]
    assert customized[0] == "sitecustomize"
    assert len(customized) == len(set(customized))
    # What the recorder leaves in every program that uses it: it waits for torch's compiler and
    # for frameworks on top of torch.
    finders = below[2]["finders"]
    assert "_Waiting" in finders
    below[2]["finders"] = [finder for finder in finders if finder != "_Waiting"]
    assert below[1:] == without[1:]
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


ENDS = ("raise", "text", "at once", "abort", "hook", "no words")
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGABRT")


def test_how_a_program_ends(tmp_path: Path) -> None:
    environments = environment(tmp_path), launched(tmp_path)
    for how in ENDS:
        ends = [ran((sys.executable, PROGRAM, how), env, tmp_path) for env in environments]
        without, below = ((end.returncode, end.stdout, end.stderr) for end in ends)
        assert below == without, how
    for name in SIGNALS:
        number = signal.Signals[name]
        without, below = (signalled(number, env, tmp_path) for env in environments)
        assert below == without, name
        assert below[0] == -number


def signalled(number: int, env: dict[str, str], folder: Path) -> tuple[int, str, list[str]]:
    with subprocess.Popen(
        [sys.executable, PROGRAM, "wait"],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            out, err = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    # It is hit in `pause` or just before: the lines between differ.
    return process.returncode, out, err.splitlines()[-1:]


def test_what_the_import_of_torch_raises_is_told_alike(tmp_path: Path) -> None:
    env = launched(tmp_path)
    (tmp_path / "packages" / "torch" / "__init__.py").write_text("raise ValueError('not today')\n")
    without, below = (
        ran((sys.executable, "-c", "import torch"), one, tmp_path).stderr
        for one in (environment(tmp_path), env)
    )
    assert "ValueError: not today" in without
    assert below == without


def test_what_is_no_python_gets_what_the_launcher_got(tmp_path: Path) -> None:
    look = "grep Sig[BI] /proc/self/status; env; ls -l /proc/self/fd | wc -l; echo $PPID $$"
    words = ("sh", "-c", f"{look}; exec <&-; kill -TERM $$")
    env = environment(tmp_path, DFTRACE_RUN="of-0", DFTRACE_RUN_SETTINGS="another run")
    without, below = (ran((*by, *words), env, tmp_path) for by in ((), (*RUN, "--")))
    lines = [
        [
            line
            for line in done.stdout.splitlines()
            if not line.startswith(("DFTRACE_", "_=", str(os.getpid())))
        ]
        for done in (without, below)
    ]
    assert lines[1] == lines[0]
    assert (below.returncode, below.stderr) == (without.returncode, "") == (-signal.SIGTERM, "")
    ours = {line.partition("=")[0] for line in below.stdout.splitlines() if "DFTRACE_" in line}
    assert ours - {*WITHOUT_COLLECTIONS} == {
        "DFTRACE_LAUNCH",
        "DFTRACE_LINES_HZ",
        "DFTRACE_LOG_FILE",
        "DFTRACE_SYSTEM_COUNTERS_S",
    }


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
UNUSED = (
    "dftrace run: nothing was recorded: no model, optimizer, loader or collective of torch was "
    "used\n"
)
NOT_DUMPED = (
    "dftrace run: no trace was written: a flight recorder writes when it is dumped, by dump_signal "
    "or dftrace_ai.dump()\n"
)
BY_HAND = "import dftrace_ai\nwith dftrace_ai.tracing(), dftrace_ai.ai.compute: pass\n"
FLIGHT = "import os; os.environ['DFTRACE_FLIGHT_RECORDER'] = '1'\n"
WORK = "import dftrace_ai\nwith dftrace_ai.ai.compute: pass\n"
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
    "a loader with slots": (
        f"{FINDERS}sys.meta_path.insert(behind, Finder())\nimport torch",
        UNUSED,
    ),
    "a finder that compares": (
        f"{FINDERS}sys.meta_path.insert(0, Comparing()); import torch",
        UNUSED,
    ),
    "torch is there": ("import torch", UNUSED),
    "a flight recorder is not dumped": (f"{FLIGHT}import torch\n{WORK}", NOT_DUMPED),
    "it is annotated": (f"import torch\n{BY_HAND}", ""),
    "it is off": ("import os; os.environ['DFTRACE_ENABLE'] = '0'; import torch", ""),
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
    done = ran((*RUN, "-o", "out", "-c", code), environment(tmp_path), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", NO_FRAMEWORK)


def test_what_is_waited_for_is_one_list() -> None:
    """The file that lies beside the package imports nothing of it."""
    line = next(line for line in START.read_text().splitlines() if line.startswith("FRAMEWORKS"))
    assert line == f"FRAMEWORKS = {tuple(GROUPS)!r}".replace("'", '"')
