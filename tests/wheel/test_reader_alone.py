"""A wheel without the recorder, as other systems have it: annotated code runs, traces are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import clean_environment
from docs.pages import ROOT

from .machines import TRY, Machine, built

LACKING = "dftrace_ai was built without its recorder here: it reads traces, and records nothing"

OTHER_SYSTEM = str(Path(__file__).with_name("other_system.py"))
SYSTEMS = {"darwin": "macOS", "win32": "Windows"}

# Public names of the package, the tree and what its forms give, with signatures.
NAMES = """
import inspect, json
import dftrace_ai
from dftrace_ai import ai

def shown(value):
    try:
        return str(inspect.signature(value))
    except (TypeError, ValueError):
        return type(value).__name__

def names(thing):
    return {name: shown(getattr(thing, name)) for name in dir(thing) if not name.startswith("_")}

def nodes(node, way="ai"):
    yield way, node
    for key, child in node._named.items():
        yield from nodes(child, f"{way}.{key}")

tree = dict(nodes(ai))
told = {way: names(node) for way, node in tree.items()}
told["package"] = {name: shown(getattr(dftrace_ai, name)) for name in dftrace_ai.__all__}
told["loop"] = sorted(names(ai.dataloader.fetch.iter([1])))
print(json.dumps(told))
"""

FORMS = """
import asyncio, copy, functools, json, pickle, sys
import dftrace_ai
from dftrace_ai import ai, auto, dft_fn, dftracer, initialize, finalize, tracing
from dftrace_ai.compat.dftracer import dftracer as old

def plain(a, b=2, *, c=3):
    "Adds."
    return a + b + c

added = ai.compute.forward(plain)
assert added is plain and ai.compute(epoch=1)(plain) is plain, "nothing is wrapped"

class Loader:
    dataset = "digits"
    def __init__(self): self.epoch = 0
    def __len__(self): return 3
    def __iter__(self): return iter("abc")

class Data:
    @ai.data.item.init
    def __init__(self): self.x = 1
    @ai.data.item
    @staticmethod
    def static(a): return a
    @classmethod
    @ai.data.item
    def by_class(cls, a): return cls.__name__, a
    @ai.data.item
    @property
    def number(self): return 7
    @ai.data.preprocess.derive(name="collate")
    def items(self):
        got = yield 1
        return got

@ai.compute
class Model:
    def __new__(cls, *given): return super().__new__(cls)
    def __init__(self, *given): self.given = given

def run():
    ai.update(epoch=1, step=2, loss=0.5)
    data, seen = Data(), []
    with ai.compute.forward as node, ai.comm.all_reduce(args={"a": 1}), ai.compute(device=True):
        seen.append(node.name)
    loop = ai.dataloader.fetch.iter(Loader())
    loop.epoch = 4
    seen += [len(loop), loop.dataset, loop.epoch, list(loop), list(loop), next(loop), next(loop)]
    for batch in ai.pipeline.epoch.iter(range(3), include_block=False):
        ai.compute.start(step=batch); ai.compute.stop()
    seen += [data.static(1), data.by_class(2), data.number, list(data.items()), Model(3).given]
    ai.compute.disable(); seen.append(ai.compute.forward.enabled); ai.compute.enable()
    ai.instant("best", args={"a": 1}); ai.counter("loss", 0.3)
    ai.compute.start(metadata=True); ai.compute.stop(metadata=True)
    ai.compute.forward.flow_out("k"); ai.compute.forward.flow_in("k")
    seen.append(pickle.loads(pickle.dumps(ai.compute.forward)) is ai.compute.forward)
    seen.append(repr(copy.deepcopy(ai.compute.derive("x"))))
    async def wait():
        async def source():
            yield 1
        async with ai.compute.forward:
            return [one async for one in ai.dataloader.fetch.aiter(source())]
    seen.append(asyncio.run(wait()))
    log = dft_fn("io")
    @log.log
    def logged(a): return a
    with dft_fn("io", name="b") as region: region.update(step=1)
    seen.append(logged(4))
    try:
        ai.compute.iter(3)
    except TypeError as error:
        seen.append(str(error))
    try:
        ai.compute(3)
    except TypeError as error:
        seen.append(str(error))
    try:
        with ai.compute: raise ValueError("mine")
    except ValueError as error:
        seen.append(str(error))
    return seen

before = run()
with tracing(log_file="out/one") as on:
    during = run()
initialize(log_file="out/two"); auto(); finalize(); auto.remove()
@tracing(log_file="out/three")
def main(): return run()
assert main() == during == before, (before, during)
print(json.dumps(before))
"""

COMMANDS = """
import contextlib, io, json, sys
from dftrace_ai.cli.commands import app_for

told = {}
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            app_for(words)(words, standalone_mode=False)
        except SystemExit as end:
            out.write(f"[{end.code}]")
    told[" ".join(words)] = out.getvalue()
print(json.dumps(told))
"""

READING = [
    ["summary", "../made", "--json"],
    ["summary", "../made", "--by", "step", "--csv"],
    ["why", "../made", "--json"],
    ["ranks", "../made", "--json"],
    ["diff", "../made", "../other", "--json"],
    ["validate", "../made"],
    ["sql", "../made", "select count(*) from events", "--json"],
    ["convert", "../made", "--to", "speedscope", "-o", "speed"],
    ["convert", "../made", "--to", "parquet", "-o", "tables"],
    ["convert", "../made", "--to", "perfetto", "-o", "perfetto"],
    ["report", "../made", "-o", "report.html"],
    ["merge", "../made", "-o", "merged.json"],
]


@pytest.fixture(scope="module")
def reader_alone(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("reader") / "venv", built("reader"))


def in_this(code: str, folder: Path, *arguments: str) -> str:
    """What a program prints beside this installation, which has the recorder."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_the_tree_has_the_same_public_names(reader_alone: Machine, tmp_path: Path) -> None:
    here = json.loads(in_this(NAMES, tmp_path))
    there = json.loads(reader_alone.run(["python", "-c", NAMES], tmp_path))
    assert len(here) > 40
    assert there == here


def test_it_does_what_a_release_asks_of_its_wheels(reader_alone: Machine, tmp_path: Path) -> None:
    reader_alone.run(["python", TRY, "--reader"], tmp_path)
    # For Linux a release has the recorder.
    failed = reader_alone.finished(["python", TRY], tmp_path)
    assert LACKING in failed.stderr.splitlines()[-1]


def test_every_form_does_what_it_does_and_records_nothing(
    reader_alone: Machine, tmp_path: Path
) -> None:
    (tmp_path / "forms.py").write_text(FORMS)
    done = reader_alone.finished(["python", "forms.py"], tmp_path)
    assert (done.returncode, done.stderr) == (0, LACKING + "\n")
    assert [path.name for path in tmp_path.iterdir()] == ["forms.py"]
    # Where it is recorded, what the program sees is the same, wrapped or not.
    recorded = FORMS.replace("assert added is plain", "assert True or added is plain")
    assert json.loads(in_this(recorded, tmp_path)) == json.loads(done.stdout)
    assert len(list(tmp_path.glob("out/*.pfw*"))) == 2


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_annotated_program_runs_where_a_system_lacks_much(
    reader_alone: Machine, tmp_path: Path, system: str
) -> None:
    (tmp_path / "forms.py").write_text(FORMS)
    done = reader_alone.finished(["python", OTHER_SYSTEM, system, "forms.py"], tmp_path)
    name = SYSTEMS[system]
    line = f"recording is for Linux: on {name} dftrace_ai reads traces, and records nothing\n"
    assert (done.returncode, done.stderr) == (0, line)
    main = "import sys; from dftrace_ai.cli import main; sys.argv[0] = 'dftrace'; main()"
    (tmp_path / "main.py").write_text(main)
    command = ["python", OTHER_SYSTEM, system, "main.py", "run", "forms.py"]
    done = reader_alone.finished(command, tmp_path)
    assert (done.returncode, done.stderr) == (2, f"dftrace: {line}")


def test_commands_tell_the_same_of_traces(reader_alone: Machine, tmp_path: Path) -> None:
    for name, seed in (("made", 1), ("other", 2)):
        words = ["generate", name, "--ranks", "3", "--steps", "40", "--seed", str(seed)]
        in_this(COMMANDS, tmp_path, json.dumps([words]))
    for beside in ("here", "there"):
        (tmp_path / beside).mkdir()
    here = json.loads(in_this(COMMANDS, tmp_path / "here", json.dumps(READING)))
    command = ["python", "-c", COMMANDS, json.dumps(READING)]
    there = json.loads(reader_alone.run(command, tmp_path / "there"))
    assert there == here
    # With a Python that lacks what those of other systems lack.
    (tmp_path / "commands.py").write_text(COMMANDS)
    for system in SYSTEMS:
        (tmp_path / system).mkdir()
        command = ["python", OTHER_SYSTEM, system, "../commands.py", json.dumps(READING)]
        assert json.loads(reader_alone.run(command, tmp_path / system)) == here, system
    assert all(there[" ".join(words)].strip() for words in READING)


def test_what_records_says_in_a_line_that_it_cannot(reader_alone: Machine, tmp_path: Path) -> None:
    for words in (["run", "--set", "x=1", "a.py", "-v"], ["top", "."], ["stuck"], ["demo"]):
        done = reader_alone.finished(["dftrace", *words], tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"dftrace: {LACKING}\n")
    help_of_run = reader_alone.run(["dftrace", "run", "--help"], tmp_path)
    assert "the recorder is for Linux" in help_of_run
    info = reader_alone.finished(["dftrace", "info", "--json"], tmp_path)
    assert json.loads(info.stdout)["native core"] == {"error": LACKING}


def test_events_that_wait_for_a_recorder_are_told_of(reader_alone: Machine, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "t-host-7.pfw").write_text(
        '[\n{"name":"a","cat":"c","ph":"X","ts":1,"dur":2,"pid":7,"tid":7,"args":{}}\n'
    )
    (tmp_path / "made" / "t-host-7.spool-at").write_text("/dev/shm/dftrace-0-7.spool\n")
    told = reader_alone.finished(["dftrace", "summary", "made"], tmp_path)
    assert "1 event in 1 file" in told.stdout
    assert "made: events of processes that run or died are not read here" in told.stderr


def test_tests_of_the_reader_pass_without_it(reader_alone: Machine, tmp_path: Path) -> None:
    tests = ["reading/test_reader.py", "test_where.py", "test_validate_native.py"]
    program = "import sys, pytest; sys.path.remove(''); sys.exit(pytest.main(sys.argv[1:]))"
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={ROOT}",
        f"--config-file={ROOT}/pyproject.toml",
    ]
    paths = [str(ROOT / "tests" / "analysis" / one) for one in tests]
    command = ["python", "-c", program, *options, f"--basetemp={tmp_path}/base", *paths]
    told = reader_alone.run(command, tmp_path)
    assert " passed" in told.splitlines()[-1]
    assert "failed" not in told
    assert "error" not in told.splitlines()[-1]
