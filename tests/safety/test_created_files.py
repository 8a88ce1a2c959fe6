"""Files that are made are new and their owner's alone; directories that are closed are told in a line."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from analysis.trace_lines import small_trace
from conftest import SCRIPT_LIMIT_S, RunScript, clean_environment
from docs.pages import DOCS, ROOT, plain, section, table
from perfetto.trace_file import read

from dftrace_ai.analysis.reading import open_traces

CREATED = table(section(DOCS / "safety.md", "Files that are made"))

MODES = """
import json, os, pathlib, sys
import dftrace_ai
from dftrace_ai import ai

os.umask(0)
out, spools = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
run = dftrace_ai.initialize(log_file=out / "t", spool_dir=spools)
with ai.compute.forward:
    pass
run.flush()
files = [*out.iterdir(), *spools.iterdir()]
print(json.dumps({path.suffix: [oct(path.stat().st_mode & 0o7777), path.stat().st_nlink] for path in files}))
dftrace_ai.finalize()
print(json.dumps({path.suffix: [oct(path.stat().st_mode & 0o7777), path.stat().st_nlink] for path in out.iterdir()}))
"""

PLANTED = """
import hashlib, os, pathlib, platform, sys
from dftrace_ai import ai
import dftrace_ai

out, spools, precious = map(pathlib.Path, sys.argv[1:4])
stem = f"t-{platform.node()}-{os.getpid()}"
run = hashlib.sha256(f"SLURM_JOB_ID={os.environ['SLURM_JOB_ID']}/".encode()).hexdigest()[:16]
start = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
planted = [out / f"{stem}.pfw.gz", out / f"{stem}-1.pfw.gz", out / f"{stem}.spool-at"]
if sys.argv[4] == "spool":
    planted = [spools / f"dftrace-{run}-{os.getpid()}-{start}-{n}.spool" for n in range(100)]
for path in planted:
    path.symlink_to(precious)
dftrace_ai.initialize(log_file=out / "t", spool_dir=spools)
with ai.compute.forward:
    print("trained")
dftrace_ai.finalize()
assert all(path.is_symlink() for path in planted)
"""


@pytest.mark.parametrize("umask", ["0", "0o777"], ids=["without", "all"])
def test_their_owner_may_read_them_and_nobody_else_whatever_the_umask(
    run_script: RunScript, tmp_path: Path, umask: str
) -> None:
    (tmp_path / "spools").mkdir()
    (tmp_path / "out").mkdir()
    while_it_runs, afterwards = run_script(
        MODES.replace("os.umask(0)", f"os.umask({umask})"),
        args=[str(tmp_path / "out"), str(tmp_path / "spools")],
    ).said
    assert while_it_runs == {suffix: ["0o600", 1] for suffix in (".gz", ".spool-at", ".spool")}
    assert afterwards == {".gz": ["0o600", 1]}


def test_a_mode_is_that_of_the_trace_alone_and_of_one_that_is_completed(
    run_script: RunScript, tmp_path: Path
) -> None:
    for folder in ("spools", "out"):
        (tmp_path / folder).mkdir()
    arguments = [str(tmp_path / "out"), str(tmp_path / "spools")]
    umask = MODES.replace("os.umask(0)", "os.umask(0o077)")
    env = {"DFTRACE_FILE_MODE": "0664"}
    while_it_runs, afterwards = run_script(umask, args=arguments, env=env).said
    alone = {suffix: ["0o600", 1] for suffix in (".spool-at", ".spool")}
    assert while_it_runs == {".gz": ["0o664", 1], **alone}
    assert afterwards == {".gz": ["0o664", 1]}
    killed = umask.replace("run.flush()", "os.kill(os.getpid(), 9)").replace(
        "spool_dir=spools", "flight_recorder=True"
    )
    run_script(killed, args=arguments, env=env, status=-9)
    from dftrace_ai.spools.recovery import adopt_dead

    before = set((tmp_path / "out").glob("*.pfw.gz"))
    adopt_dead(tmp_path / "out")
    (completed,) = set((tmp_path / "out").glob("*.pfw.gz")) - before
    assert stat.filemode(completed.stat().st_mode) == "-rw-rw-r--"


@pytest.mark.parametrize("what", ["trace", "spool", "nowhere"])
def test_a_link_under_a_name_that_is_known_beforehand_is_not_followed(
    run_script: RunScript, tmp_path: Path, what: str
) -> None:
    out, spools, precious = tmp_path / "shared", tmp_path / "spools", tmp_path / "precious"
    for directory in (out, spools):
        directory.mkdir()
        directory.chmod(0o1777)
    if what != "nowhere":
        precious.write_text("mine")
    done = run_script(
        PLANTED,
        args=[str(out), str(spools), str(precious), what],
        env={"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
    )
    assert done.stdout == "trained\n"
    assert not precious.exists() if what == "nowhere" else precious.read_text() == "mine"
    traces = [path for path in out.glob("*.pfw.gz") if not path.is_symlink()]
    if what != "spool":
        (trace,) = traces
        assert trace.name.endswith("-2.pfw.gz")
        assert read(trace).names == {"forward": 1}
    else:
        # Without a spool nothing is recorded, and the program is told.
        assert (traces, "spool" in done.stderr) == ([], True)


def test_the_weights_of_the_demo_take_the_place_of_a_link(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    from dftrace_ai.demo import Checkpoint, DigitsNet

    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "digits.pt"
    path.symlink_to(precious)
    before = os.umask(0)
    try:
        Checkpoint(tmp_path / "out").capture(DigitsNet())
    finally:
        os.umask(before)
    assert precious.read_text() == "mine"
    assert stat.filemode(path.lstat().st_mode) == "-rw-------"
    assert list((tmp_path / "out").iterdir()) == [path]
    assert len(torch.load(path, weights_only=True)) == 8


def test_the_copies_for_a_query_are_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = os.umask(0)
    try:
        traces = open_traces([small_trace().write(tmp_path / "t.pfw")])
        with traces.relation(["ph"]) as events:
            (spare,) = tmp_path.glob("dftrace-spare-*")
            assert stat.filemode(spare.stat().st_mode) == "drwx------"
            assert len(events.fetchall()) == 15
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == ["t.pfw"]


def test_the_core_makes_files_in_one_way_only() -> None:
    makers, places = [], set()
    for path in sorted((ROOT / "native" / "src").rglob("*.cpp")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\bofstream\b|\bfopen\b|\bcreat\(|\bmkstemp", text), path
        for call in re.findall(r"\bopen(?:at)?\([^;]*O_CREAT[^;]*;", text):
            assert re.search(r"O_EXCL", call), call
            assert re.search(r"O_NOFOLLOW", call), call
            assert re.search(r", 0600\)+;$", call), call
            makers.append(path.name)
        if re.search(r"\.create_new\(", text):
            places.add(path.relative_to(ROOT).as_posix())
        # Without a name there is nothing that could be in its place.
        for call in re.findall(r"\bopen\([^;]*O_TMPFILE[^;]*;", text):
            assert re.search(r", 0600\)+;$", call), call
            makers.append(path.name)
    assert makers == ["held_file.cpp", "held_file.cpp"]
    assert places == {place for place in made_by() if place.startswith("native/")}


def made_by() -> set[str]:
    """The sources in the table of the page."""
    return {place for row in CREATED for place in re.findall(r"`([\w/]+\.(?:py|cpp))`", row[2])}


WRITING = {"mkdir", "makedirs", "mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory"}
WRITING |= {"TemporaryFile", "write_text", "write_bytes", "touch", "symlink_to", "save"}


def writes(call: ast.Call) -> bool:
    """Whether a call makes a file or a directory."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name == "open":
        given = [word.value for word in ast.walk(call) if isinstance(word, ast.Constant)]
        return any(re.fullmatch(r"[wxa]b?\+?|rb?\+", str(word)) for word in given)
    return name in WRITING


def test_the_page_lists_all_that_python_makes() -> None:
    package = ROOT / "dftrace_ai"
    found = {
        str(path.relative_to(ROOT))
        for path in package.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and writes(call)
    }
    assert found == {place for place in made_by() if place.startswith("dftrace_ai/")}
    assert plain(CREATED[0][1]) == "0600"


# Root is kept out of none, so the program becomes nobody where the tests are run by root.
# All is done twice, and before, as whoever runs the tests, for what is imported on the way: the
# interpreter may lie where only root gets to.
PROGRAM = """
import json, os, signal, sys
from pathlib import Path
import dftrace_ai, dftrace_ai.inspect, dftrace_ai.live
from dftrace_ai import ai
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.cli import app
from dftrace_ai.loggers import make_loggers
from dftrace_ai.spools.recovery import adopt_dead
from typer.testing import CliRunner

def raised(call, *given, **more):
    try:
        call(*given, **more)
    except BaseException as error:
        ours = isinstance(error, dftrace_ai.DftraceError)
        return f"{type(error).__name__ if ours else repr(error)}: {error}"

def begin(**settings):
    dftrace_ai.initialize(**settings)
    dftrace_ai.finalize()

def command(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(done.exception, SystemExit | None), done.exception
    return {"status": done.exit_code, "out": done.stdout, "err": done.stderr}

def killed(folder, spools):
    if os.fork() == 0:
        run = dftrace_ai.initialize(log_file=folder / "t", spool_dir=spools)
        for _ in range(50):
            with ai.compute.forward:
                pass
        run.flush()
        for _ in range(50):
            with ai.compute.forward:
                pass
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()

def act(top):
    top.mkdir()
    os.chdir(top)
    MODES = {"readonly": 0o555, "closed": 0, "listed": 0o444}
    for name, mode in MODES.items():
        Path(name).mkdir()
        Path(name, "config.yaml").touch()
        Path(name).chmod(mode)
    said = {}
    for name in (*MODES, "closed/deep", "listed/deep"):
        said[name] = [
            raised(begin, log_file=f"{name}/t"),
            raised(begin, log_file="t", spool_dir=name),
            raised(make_loggers, {"local": {"config": {"log_dir": name, "run_name": "run"}}}),
        ]
    dftrace_ai.inspect.end_debug()
    said["config"] = [raised(dftrace_ai.inspect.initialize, "closed/config.yaml")]
    run = Path("runs/default/run")
    run.mkdir(parents=True)
    run.chmod(0)
    said["run"] = [raised(make_loggers, {"local": {"config": {"log_dir": "runs", "run_name": "run"}}})]

    # A process has died, and its directory may not be written any more.
    dead, spools = Path("dead"), Path("spools")
    killed(dead, spools)
    dead.chmod(0o555)
    said["recover"] = [command("recover", "dead") for _ in range(2)]
    said["spools"] = os.listdir("spools")
    said["dead"] = command("summary", "--json", "dead")
    said["looked"] = raised(dftrace_ai.live.snapshot, ["dead"])

    # Beside a directory that may be read there is one of which only the names are seen.
    with dftrace_ai.tracing(log_file="both/open/t"):
        with ai.compute.forward:
            pass
    Path("both/named").mkdir()
    (name,) = os.listdir("both/open")
    Path("both/named", name).write_bytes(Path("both/open", name).read_bytes())
    Path("both/named").chmod(0o444)
    said["both"] = command("summary", "--json", "both")
    said["named"] = [
        raised(call, ["both/named"]) for call in (open_traces, dftrace_ai.live.snapshot)
    ]
    said["adopted"] = adopt_dead("both/named")
    Path("both/closed").mkdir(mode=0)
    said["beside"] = raised(dftrace_ai.live.snapshot, ["both"])
    said["below"] = [
        raised(call, ["closed/t"]) for call in (open_traces, dftrace_ai.live.snapshot)
    ]
    said["commands"] = [
        command("recover", "closed/deep"), command("inspect", "check", "closed/config.yaml"),
        command("stuck", "closed/t"),
    ]
    return said

here = Path.cwd()
act(here / "warm")
os.chdir(here)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(json.dumps(act(here / "tried")))
"""


@pytest.fixture(scope="module")
def said() -> Iterator[Any]:
    # Not in pytest's own directory, which is closed to others.
    folder = Path(tempfile.mkdtemp(prefix="dftrace-closed-"))
    folder.chmod(0o777)
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=SCRIPT_LIMIT_S,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        yield json.loads(done.stdout.splitlines()[-1])
    finally:
        for place, _, _ in os.walk(folder):
            for name in os.listdir(place):
                if Path(place, name).is_dir():
                    Path(place, name).chmod(0o700)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["readonly", "closed", "listed", "closed/deep", "listed/deep"])
def test_nothing_can_be_written_there(said: Any, name: str) -> None:
    """Neither a trace nor a spool nor the log of a run; the message says what to change."""
    trace, spool, log = said[name]
    assert trace.startswith("LogDirectoryError: ")
    assert "the trace cannot be written: Permission denied" in trace
    assert "log_file or DFTRACE_LOG_FILE" in trace
    assert spool.startswith("LogDirectoryError: ")
    assert "spool_dir or DFTRACE_SPOOL_DIR" in spool
    assert log.startswith("LogDirectoryError: ")
    assert name in log
    assert log.endswith("Permission denied; choose another place with log_dir")


def test_a_run_of_the_name_that_may_not_be_read(said: Any) -> None:
    (log,) = said["run"]
    assert log.startswith("LogDirectoryError: ")
    assert "runs/default/run: cannot be read: Permission denied" in log


def test_a_config_that_may_not_be_read(said: Any) -> None:
    """It is no missing one, which would be no config."""
    (told,) = said["config"]
    assert told.startswith("InspectValueError: closed/config.yaml: ")
    assert "Permission denied" in told


def test_a_dead_process_in_a_directory_that_is_only_read(said: Any) -> None:
    """Its trace, a file of the user's, is completed; that its marker stays is told once."""
    first, second = said["recover"]
    assert first["status"] == 1
    assert "1 trace recovered" in first["out"]
    assert "its trace is complete, and it cannot be removed: Permission denied" in first["err"]
    assert (second["status"], second["err"]) == (0, "")
    assert "nothing to recover" in second["out"]
    assert said["spools"] == []
    assert (said["dead"]["status"], said["dead"]["err"]) == (0, "")
    assert [row["count"] for row in json.loads(said["dead"]["out"])["spans"]] == [100]
    # Nothing runs there, on no host.
    assert (
        said["looked"]
        == "TraceError: dead: nothing runs here: 1 trace, which `dftrace summary` reads"
    )


def test_one_closed_directory_does_not_hide_the_others(said: Any) -> None:
    assert said["both"]["status"] == 1
    assert "/named/" in said["both"]["err"]
    assert "Permission denied" in said["both"]["err"]
    assert json.loads(said["both"]["out"])["events"] == 1
    assert not any(said["adopted"])
    for told in said["named"]:
        assert told.startswith("TraceError: ")
    assert said["beside"] == "TraceError: both/closed: cannot be listed: Permission denied"


def test_what_lies_in_a_closed_directory(said: Any) -> None:
    assert said["below"] == ["TraceError: closed/t: cannot be read: Permission denied"] * 2
    recover, check, stuck = said["commands"]
    assert (recover["status"], check["status"], stuck["status"]) == (2, 2, 2)
    for told, name in (
        (recover, "closed/deep"),
        (check, "closed/config.yaml"),
        (stuck, "closed/t"),
    ):
        assert told["err"] == f"dftrace: {name}: cannot be read: Permission denied\n"
