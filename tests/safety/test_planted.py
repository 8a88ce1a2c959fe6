"""What somebody plants in a shared directory stops no recovery, and no training looks at it."""

from __future__ import annotations

import json
import os
import platform
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import RunScript, clean_environment
from perfetto.trace_file import read

from dftrace_ai.spools.recovery import adopt_dead
from safety.commands import invoke
from safety.test_markers import make_socket

NEIGHBOUR = 12345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")

UNIT = 64 * 1024
# Of a unit: magic, kind, owner, units, sequence, committed; of the header: units.
UNIT_HEAD = struct.Struct("<IIIIQI")
ARGUMENTS = 4

# The name of its trace stands in its spool, and there is no such file.
UNMADE = """
import os, signal, sys
from pathlib import Path
import dftrace_ai
from dftrace_ai import ai

out = Path(os.environ["DFTRACE_LOG_FILE"]).parent
run = dftrace_ai.initialize(spool_dir="spools", flush_interval_ms=60_000, compression="none")
for step in range(100):
    with ai.compute.forward(step=step):
        pass
{before}
print("0", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
AWAY = """
out.rename("away")
try:
    run.flush()
except FileNotFoundError:
    pass
Path("away").rename(out)
"""


def linked(path: Path) -> None:
    other = path.with_name("somebody's")
    other.touch()
    path.hardlink_to(other)


def given(path: Path) -> None:
    path.touch()
    os.chown(path, NEIGHBOUR, NEIGHBOUR)


@pytest.mark.parametrize(
    "plant",
    [
        os.mkfifo,
        os.mkdir,
        make_socket,
        linked,
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.write_text("precious"),
        pytest.param(given, marks=as_root),
        pytest.param(lambda path: os.mknod(path, 0o20600, os.makedev(1, 3)), marks=as_root),
    ],
    ids=["pipe", "directory", "socket", "hard-link", "link", "file", "another-user", "device"],
)
def test_the_name_of_a_trace_that_was_not_made_yet_is_taken(
    run_script: RunScript, plant: Callable[[Path], None]
) -> None:
    done = run_script(UNMADE.format(before=AWAY), status=-9)
    name = done.folder / f"trace-{platform.node()}-{done.pid}.pfw"
    plant(name)
    before = os.lstat(name)
    found = adopt_dead(done.folder, spool_dir=done.folder.parent / "spools")
    assert (found.failed, len(found.finished)) == ([], 1)
    assert read(Path(found.finished[0])).names == {"forward": 100}
    assert (os.lstat(name).st_ino, os.lstat(name).st_size) == (before.st_ino, before.st_size)
    assert list(done.folder.glob("*.spool-at")) == []


def test_a_spool_of_holes_takes_the_memory_of_what_it_is_on_the_disk(run_script: RunScript) -> None:
    """A unit that says that it holds four gigabytes of arguments takes a page of the disk."""
    done = run_script(UNMADE.format(before=""), status=-9)
    (spool,) = (done.folder.parent / "spools").iterdir()
    content = spool.read_bytes()
    units = len(content) // UNIT
    heads = [content[at * UNIT : at * UNIT + 64] for at in range(1, units)]
    (arguments,) = (head for head in heads if UNIT_HEAD.unpack_from(head)[1] == ARGUMENTS)
    claims = UNIT - 1
    room = struct.pack("<I", claims * UNIT - 64)
    magic, kind, owner, _, _, _ = UNIT_HEAD.unpack_from(arguments)
    with spool.open("r+b") as file:
        for number in range(3):
            forged = UNIT_HEAD.pack(magic, kind, owner, claims, 1000 + number, claims * UNIT - 64)
            forged += arguments[UNIT_HEAD.size :].replace(struct.pack("<I", UNIT - 64), room)
            file.seek((units + number * claims) * UNIT)
            file.write(forged)
        file.truncate((units + 3 * claims) * UNIT)
        at = content.index(struct.pack("<II", units, 0), 64)
        file.seek(at)
        file.write(struct.pack("<I", units + 3 * claims))
    assert spool.stat().st_blocks * 512 < 1 << 20
    source = """
import json, sys
from dftrace_ai.spools.recovery import adopt_dead
found = adopt_dead(sys.argv[1], spool_dir=sys.argv[2])
# Not of getrusage, which counts the memory of whoever started the program.
(peak,) = [int(line.split()[1]) for line in open("/proc/self/status") if "VmHWM" in line]
print(json.dumps([found.finished, found.failed, found.damaged, peak]))
"""
    recovered = subprocess.run(
        [sys.executable, "-c", source, str(done.folder), str(spool.parent)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    finished, failed, damaged, peak_kib = json.loads(recovered.stdout)
    assert (failed, len(finished)) == ([], 1)
    assert damaged == [f"{spool}: 3 units of names or arguments with holes"]
    assert peak_kib < 200 * 1024
    assert read(Path(finished[0])).names == {"forward": 100}


@as_root
def test_a_training_opens_no_marker_of_a_neighbour(run_script: RunScript) -> None:
    """What it names may lie where looking waits for ever."""
    done = run_script(
        f"""
import json, os, sys
from pathlib import Path
import dftrace_ai
from dftrace_ai import ai

out = Path(os.environ["DFTRACE_LOG_FILE"]).parent
dftrace_ai.initialize()
with ai.compute.forward:
    pass
planted = out / "planted-{platform.node()}-1.spool-at"
planted.write_text("/slow/server/dftrace-1.spool\\n")
os.chown(planted, {NEIGHBOUR}, {NEIGHBOUR})
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
dftrace_ai.finalize()
print(json.dumps([planted.name in map(os.path.basename, opened), len(opened) > 0]))
"""
    )
    assert done.said == [[False, True]]
    # Who is asked to look at the directory does.
    assert adopt_dead(done.folder).failed != []


def test_numbers_are_closed_and_taken_while_children_are_completed(run_script: RunScript) -> None:
    """No directory or file of the program's is used, or closed, in place of ours."""
    done = run_script(
        """
import json, os, signal, sys, threading
from pathlib import Path
import dftrace_ai
from dftrace_ai import ai
import dftrace_ai.spools.recovery

run = dftrace_ai.initialize(spool_dir="spools", flush_interval_ms=60_000)
for child in range(3):
    if os.fork() == 0:
        for step in range(1000):
            with ai.compute.forward(step=step):
                pass
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
Path("mine").mkdir()
mine = {}
adopt = dftrace_ai.spools.recovery._adopt

def taken(*arguments, **more):
    # A daemon thread, which gets our numbers for its own directory, and its files.
    if not mine:
        os.closerange(3, 1 << 16)
        for number in range(20):
            opened = os.open("mine", os.O_RDONLY | os.O_DIRECTORY)
            mine[opened] = os.fstat(opened).st_ino
            high = os.open(f"mine{number}", os.O_RDWR | os.O_CREAT)
            mine[os.dup2(high, 3072 + number)] = os.fstat(high).st_ino
    return adopt(*arguments, **more)

dftrace_ai.spools.recovery._adopt = taken
dftrace_ai.finalize()
print(json.dumps([
    all(os.fstat(number).st_ino == file for number, file in mine.items()),
    len(mine), os.listdir("mine"), sum(Path(f"mine{n}").stat().st_size for n in range(20)),
]))
"""
    )
    assert done.said == [[True, 40, [], 0]]
    assert done.stderr == ""
    assert [read(path).names for path in done.files] == [{"forward": 1000}] * 3


def test_a_name_that_is_too_long_for_the_files_is_told_at_once(run_script: RunScript) -> None:
    done = run_script(
        """
import os
import dftrace_ai
for length in (200, 250):
    try:
        dftrace_ai.initialize(log_file="out/" + "n" * length)
    except dftrace_ai.DftraceError as error:
        print(f'"{type(error).__name__} {error.errno} {error.strerror}"')
    dftrace_ai.finalize()
"""
    )
    (told,) = done.said
    assert told.startswith("LogDirectoryError 36 the names of the trace's files would have")
    assert "bytes shorter" in told


def test_what_is_kept_is_counted_where_the_spool_cannot_be_opened(run_script: RunScript) -> None:
    """And where nothing beside the trace tells of it, how to add it is said."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = run_script(
        f"""
import os, resource
import dftrace_ai
from dftrace_ai import ai
import dftrace_ai.spools.recovery

def exhausted():
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return taken

resource.setrlimit(resource.RLIMIT_NOFILE, (64, {limit}))
dftrace_ai.initialize(spool_dir="spools")
os.close(exhausted()[0])
for step in range(5000):
    with ai.compute.forward(step=step):
        pass
dftrace_ai.finalize()
"""
    )
    assert "5000 events are kept in" in done.stderr
    spools = done.folder.parent / "spools"
    assert f"DFTRACE_SPOOL_DIR={spools} dftrace recover DIR adds them" in done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DFTRACE_SPOOL_DIR", str(spools))
        assert invoke("recover", done.folder).status == 0
    assert done.trace(perfetto=False).names == {"forward": 5000}
