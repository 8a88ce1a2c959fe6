"""Programs that close every number there is, ours among them, and go on: daemons, double closes."""

from __future__ import annotations

import json

import pytest
from conftest import RunScript, trace_files
from perfetto.trace_file import read

from dftrace_ai.spools.recovery import adopt_dead
from stress.conftest import FaultRow
from stress.damage import TRAINED
from stress.judge import judge_counts

# What the programs below begin with.
PREAMBLE = (
    TRAINED
    + """
ALL = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
OURS = b"a hundred bytes of a checkpoint".ljust(100, b".")

def files_of_mine(number):
    files = {}
    for i in range(number):
        path = Path(f"checkpoint{time.monotonic_ns()}").absolute()
        files[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(files[path], OURS)
    return files

def untouched(files):
    return all(
        path.read_bytes() == OURS
        and os.fstat(number).st_ino == path.stat().st_ino
        and os.lseek(number, 0, os.SEEK_CUR) == len(OURS)
        for path, number in files.items()
    )

def usurped():
    # As files that are opened when no other number is free.
    files = {}
    for number in sorted(int(name) for name in os.listdir("/proc/self/fd")):
        if number > 2 and os.path.exists(f"/proc/self/fd/{number}"):
            ((path, own),) = files_of_mine(1).items()
            os.dup2(own, number)
            if own != number:
                os.close(own)
            files[path] = number
    return files
"""
)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_numbers_are_closed_and_go_to_files_of_the_program(
    run_script: RunScript, compression: str, fault_row: FaultRow
) -> None:
    """Nothing of ours reaches them, and nothing is lost: our files are opened again by name."""
    done = run_script(
        PREAMBLE
        + f"""
os.environ["DFTRACE_COMPRESSION"] = "{compression}"
run = dftrace_ai.initialize(log_file="out/trace", spool_dir="spools", flush_interval_ms=60_000)
os.chdir("/tmp")
os.chdir(sys.path[0])
trained(3000)
run.flush()
os.chdir("/")
answers = []
for close in (lambda: os.closerange(3, 256), lambda: os.closerange(3, ALL)):
    close()
    os.chdir(sys.path[0])
    mine = files_of_mine(20)
    os.chdir("/")
    trained(5000)
    run.flush()
    answers.append(untouched(mine))
os.chdir(sys.path[0])
mine = usurped()
trained(9000)
run.flush()
trained(100)
dftrace_ai.finalize()
answers.append(len(mine) > 20 and untouched(mine))
print(json.dumps([answers, run.stats()["error"], run.stats()["dropped"]]))
"""
    )
    assert done.said == [[[True] * 3, "", 0]]
    trace = done.trace(perfetto=False)
    assert trace.names == {"forward": 3000 + 2 * 5000 + 9000 + 100}
    with fault_row(f"all files closed, others get their numbers, compression {compression}") as row:
        row.add(judge_counts([trace], {"forward": 22_100}))
    assert done.stderr == ""
    assert list((done.folder.parent / "spools").iterdir()) == []


def test_a_daemon_closes_all_and_goes_on(run_script: RunScript, fault_row: FaultRow) -> None:
    done = run_script(
        PREAMBLE
        + """
run = dftrace_ai.initialize(log_file="out/trace", flush_interval_ms=5)
trained(2000)
for _ in range(2):
    if os.fork():
        if os.getpid() == os.getsid(0):
            os._exit(0)
        os.wait()
        dftrace_ai.finalize()
        os._exit(0)
    os.setsid() if os.getsid(0) == os.getppid() else None
    trained(1000)
here = Path.cwd()
os.chdir("/")
os.closerange(3, ALL)
os.chdir(here)
mine = files_of_mine(20)
os.chdir("/")
trained(5000)
dftrace_ai.finalize()
(here / "said").write_text(json.dumps(untouched(mine)))
"""
    )
    assert json.loads((done.folder.parent / "said").read_text()) is True
    traces = [read(path) for path in trace_files(done.folder)]
    assert sorted(trace.names["forward"] for trace in traces) == [1000, 2000, 6000]
    with fault_row("a daemon forks twice and closes all files") as row:
        row.add(judge_counts(traces, {"forward": 9000}))


def test_a_thread_closes_all_numbers_again_and_again(
    run_script: RunScript, fault_row: FaultRow
) -> None:
    """Also between a look at a number and its use: that is tried again."""
    done = run_script(
        PREAMBLE
        + """
with dftrace_ai.tracing(flush_interval_ms=1, max_file_bytes=200_000) as run:
    over = threading.Event()

    def closing():
        while not over.is_set():
            os.closerange(3, 5000)

    thread = threading.Thread(target=closing)
    thread.start()
    trained(30_000)
    over.set()
    thread.join()
print(json.dumps([run.stats()["error"], run.stats()["dropped"]]))
"""
    )
    assert done.said == [["", 0]]
    traces = [read(path) for path in done.files]
    with fault_row("a thread closes all files again and again") as row:
        row.add(judge_counts(traces, {"forward": 30_000}))


def test_a_trace_that_was_moved_away_is_waited_for(
    run_script: RunScript, fault_row: FaultRow
) -> None:
    """Closed, it can only be found by its name; what is recorded meanwhile is kept."""
    done = run_script(
        PREAMBLE
        + """
def refused():
    try:
        run.flush()
    except OSError as error:
        return error.strerror

run = dftrace_ai.initialize(log_file="out/trace", spool_dir="spools", flush_interval_ms=60_000)
trained(100)
run.flush()
Path("out").rename("moved")
trained(100)
answers = [refused()]  # still open
os.closerange(3, ALL)
trained(100)
answers += [refused(), run.stats()["dropped"]]
Path("moved").rename("out")
trained(100)
answers += [refused()]
os.closerange(3, ALL)
Path("out").rename("moved")
trained(100)
dftrace_ai.finalize()
Path("moved").rename("out")
print(json.dumps([*answers, run.stats()["error"], run.stats()["lost_lines"]]))
"""
    )
    missing = "No such file or directory"
    assert done.said == [[None, missing, 0, None, missing, 100]]
    assert "100 events are kept in" in done.stderr
    found = adopt_dead(done.folder, spool_dir=done.folder.parent / "spools")
    assert (len(found.finished), found.failed) == (1, [])
    trace = done.trace(perfetto=False)
    assert trace.names == {"forward": 500}
    with fault_row("all files closed, and the directory of the trace moved away") as row:
        row.add(judge_counts([trace], {"forward": 500}))


def test_a_flight_recorder_sees_the_open_spans_all_the_same(run_script: RunScript) -> None:
    done = run_script(
        PREAMBLE
        + """
run = dftrace_ai.initialize(log_file="out/trace", flight_recorder=True, dump_signal="SIGUSR2")
with ai.compute.step(step=1):
    trained(10)
    os.closerange(3, ALL)
    mine = files_of_mine(20)
    dftrace_ai.dump("closed")
    print(json.dumps(untouched(mine)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
""",
        status=-9,
    )
    assert done.said == [True]
    assert len(adopt_dead(done.folder).finished) == 1
    trace = done.trace(perfetto=False)
    assert trace.names["forward"] == 10
    (dump,) = trace.named("dump")
    assert "open_spans" not in dump.args
    (step,) = trace.named("step")
    assert step.args["unfinished"] is True


def test_a_thread_takes_a_table_of_numbers_for_itself(run_script: RunScript) -> None:
    """It closes all in it, and the other threads have theirs as before; or all are closed by an exec."""
    done = run_script(
        PREAMBLE
        + """
import ctypes

UNSHARE, CLOEXEC = 2, 4

def close_range(flags):
    CLOSE_RANGE = 436
    numbers = (ctypes.c_uint(3), ctypes.c_uint(~0 & 0xFFFFFFFF), flags)
    if ctypes.CDLL(None, use_errno=True).syscall(CLOSE_RANGE, *numbers):
        raise OSError(ctypes.get_errno())

run = dftrace_ai.initialize(log_file="out/trace", spool_dir="spools", flush_interval_ms=1)
close_range(CLOEXEC)
trained(9000)
close_range(UNSHARE)
mine = files_of_mine(20)
trained(9000)
run.flush()
thread = threading.Thread(target=trained, args=[9000])
thread.start()
thread.join()
for ends in (lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os.execlp("true", "true")):
    if not (child := os.fork()):
        close_range(UNSHARE | CLOEXEC)
        trained(10)
        ends()
    os.waitpid(child, 0)
dftrace_ai.finalize()
numbers = len(os.listdir("/proc/thread-self/fd"))
print(json.dumps([run.stats()["error"], run.stats()["dropped"], untouched(mine), numbers < 40]))
print(json.dumps([os.listdir("spools"), sorted(Path("out").glob("*.spool-at"))]))
"""
    )
    assert done.said == [["", 0, True, True], [[], []]]
    own, children = done.split(perfetto=False)
    assert own.names == {"forward": 27_000}
    assert [child.names for child in children] == [{"forward": 10}] * 2
