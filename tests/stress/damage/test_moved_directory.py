"""The directory of a trace is renamed while its process runs, or before what it left is recovered."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import RunScript, trace_files
from perfetto.trace_file import read
from safety.commands import invoke

from dftrace_ai.spools.recovery import Recovery, adopt_dead
from stress.damage import TRAINED

BEGUN = (
    TRAINED
    + """
def begun(name, spools="spools", **settings):
    out = Path(name).absolute()
    log_file = out / "trace"
    run = dftrace_ai.initialize(
        log_file=log_file, spool_dir=spools or out, flush_interval_ms=60_000, **settings
    )
    trained(100)
    return out, run

def moved(out):
    return out.rename(out.with_name(f"moved-{out.name}"))
"""
)


def left_in(folder: Path) -> list[str]:
    """The names of what runs leave behind, but for traces."""
    return [path.name for path in folder.rglob("*") if path.suffix in {".spool", ".spool-at"}]


def test_nothing_is_left_there_that_tells_of_a_loss(run_script: RunScript) -> None:
    """Of runs that write their first block afterwards, or none: no trace tells where they are."""
    done = run_script(
        BEGUN
        + """
def never_dumped(out):
    moved(out)

def another_in_its_place(out):
    moved(out)
    out.mkdir()

def a_link_in_its_place(out):
    os.symlink(moved(out), out)

def moved_twice(out):
    moved(moved(out))

def numbers_closed(out):
    os.closerange(3, 65536)

def numbers_closed_first(out):
    numbers_closed(out)
    another_in_its_place(out)

def numbers_closed_last(out):
    another_in_its_place(out)
    numbers_closed(out)

def numbers_given_away(out):
    moved(out)
    for number in os.listdir("/proc/self/fd"):
        if int(number) > 2 and os.path.exists(f"/proc/self/fd/{number}"):
            os.dup2(0, int(number))

def moved_among_odd_names(out):
    numbers_closed(out)
    out.rename(out.with_name(f"moved-{out.name} (deleted)\\n"))

said = []

def ended(run):
    trained(5000)  # for which the spool has to grow
    dftrace_ai.finalize()
    said.append([run.stats()[key] for key in ("error", "lost_lines", "dropped")])

for place in ("spools", ""):
    for change in (
        never_dumped, another_in_its_place, a_link_in_its_place, moved_twice, numbers_closed,
        numbers_closed_first, numbers_closed_last, numbers_given_away, moved_among_odd_names,
    ):
        name = f"{change.__name__}-{place}"
        out, run = begun(name, place, flight_recorder=True)
        change(out)
        ended(run)
    # Its trace is made where `log_file` names a directory again.
    for change in another_in_its_place, numbers_closed_first, numbers_closed_last:
        out, run = begun(f"streamed-{change.__name__}-{place}", place)
        change(out)
        ended(run)
print(json.dumps(said))
"""
    )
    folder = done.folder.parent
    assert done.stderr == ""
    assert done.said == [[["", 0, 0]] * 24]
    assert left_in(folder) == []
    streamed = [trace_files(path) for path in folder.glob("streamed-*")]
    assert [[read(path).names for path in paths] for paths in streamed] == [[{"forward": 5100}]] * 6
    for path in folder.iterdir():
        if path.name.startswith("moved-"):
            assert adopt_dead(path) == Recovery.nothing()


def test_a_killed_run_is_completed_where_its_directory_is(run_script: RunScript) -> None:
    """Also where the spool lies in that directory, and the marker names the path that it had."""
    done = run_script(
        BEGUN
        + """
for place in ("spools", ""):
    for how in ("flight", "stream", "dead"):
        if os.fork() == 0:
            out, run = begun(f"{how}-{place}", place, flight_recorder=how == "flight")
            if how != "dead":
                moved(out)
                out.mkdir()
            trained(100)
            os.kill(os.getpid(), signal.SIGKILL)
        os.wait()
        if how == "dead":
            moved(out := Path(f"{how}-{place}").absolute())
"""
    )
    folder = done.folder.parent
    directories = sorted(folder.glob("moved-*"))
    assert len(directories) == 6
    for path in directories:
        recovered = invoke("recover", path, "--json")
        assert (recovered.status, recovered.err) == (0, "")
        (trace,) = json.loads(recovered.out)["finished"]
        assert Path(trace).parent == path
        assert read(Path(trace)).names == {"forward": 200}
        assert invoke("recover", path).out == "nothing to recover\n"
    assert left_in(folder) == []


def test_a_running_process_is_seen_there(run_script: RunScript) -> None:
    done = run_script(
        BEGUN
        + """
import sys
from dftrace_ai.live import snapshot
from dftrace_ai.spools.recovery import adopt_dead
for place in ("spools", ""):
    out, run = begun(f"out-{place}", place)
    away = moved(out)
    (process,) = snapshot([away]).processes
    print(json.dumps([process.pid == os.getpid(), len(adopt_dead(away).alive)]))
    away.rename(out)
    dftrace_ai.finalize()
"""
    )
    assert done.said == [[True, 1]] * 2
    assert done.stderr == ""
    assert left_in(done.folder.parent) == []


def test_a_forked_child_holds_nothing_of_its_parent(run_script: RunScript) -> None:
    """No directory, trace or spool stays in use for as long as a child lives."""
    done = run_script(
        BEGUN
        + """
def held():
    paths = []
    for number in os.listdir("/proc/self/fd"):
        try:
            paths.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            pass  # of the listing itself
    return [path for path in paths if path.startswith(os.getcwd() + "/")]

out, run = begun("traced")
run.flush()
print(json.dumps(len(held()) >= 3), flush=True)
if os.fork() == 0:
    print(json.dumps([held(), len(list(out.glob("*.spool-at")))]), flush=True)
    os._exit(0)
os.wait()
if os.fork() == 0:
    trained(50)
    dftrace_ai.finalize()
    print(json.dumps([held(), len(list(out.glob("*.spool-at")))]), flush=True)
    os._exit(0)
os.wait()
trained(100)
dftrace_ai.finalize()
"""
    )
    assert done.said == [True, [[], 1], [[], 1]]
    folder = done.folder.parent
    assert left_in(folder) == []
    traces = [read(path) for path in trace_files(folder / "traced")]
    assert sorted(trace.names["forward"] for trace in traces) == [50, 200]
