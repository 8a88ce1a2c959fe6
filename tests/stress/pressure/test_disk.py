"""A disk without room, from the first write to the last: training goes on, and counts are exact.

What is told of a trace that could not be completed is what recovery brings back.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import Outcome, clean_environment, read_all, trace_files
from perfetto.trace_file import Trace
from safety.commands import invoke

import dftrace_ai.spools.recovery
from stress.judge import judge_counts
from stress.pressure.disk import Disk
from stress.pressure.shim import Shim

if TYPE_CHECKING:
    from stress.conftest import FaultRow
    from stress.pressure.program import Pressed

NO_SPACE = os.strerror(errno.ENOSPC)
# A quota that is used up, a disk that fails, a server that forgot the file.
OTHERS = [errno.EDQUOT, errno.EIO, errno.ESTALE]


def complaints(stderr: str, reason: str = NO_SPACE) -> list[str]:
    """The lines about a file that cannot be written."""
    pattern = rf"dftrace: .*\.pfw\S* cannot be written: {re.escape(reason)}\b.*"
    return [line for line in stderr.splitlines() if re.fullmatch(pattern, line)]


def assert_told_once(done: Outcome, reason: str = NO_SPACE) -> None:
    """One line when writing began to fail, one when it worked again, none besides."""
    assert len(complaints(done.stderr, reason)) == 1, done.stderr
    rest = [
        line for line in done.stderr.splitlines() if line not in complaints(done.stderr, reason)
    ]
    assert len(rest) == 1, done.stderr
    assert re.fullmatch(r"dftrace: .*\.pfw\S* is written again", rest[0]), done.stderr


def recovered(disk: Disk, spools: Path) -> list[Trace]:
    """The traces, once a reader has found and completed them."""
    outcome = dftrace_ai.spools.recovery.adopt_dead(disk.path)
    assert outcome.failed == []
    assert list(spools.iterdir()) == []
    return read_all(trace_files(disk.path))


def test_full_in_the_middle_and_room_again(pressed: Pressed, disk: Disk) -> None:
    """Twice. Writing goes on by itself; the spool held everything, and one line said why."""
    done = pressed(
        """
        disk = Disk()
        with dftrace_ai.tracing(flush_interval_ms=5, compression="none") as run:
            spans(50)
            run.flush()
            errors, made = set(), 50
            for _ in range(2):
                disk.fill()
                for _ in range(10):
                    spans(200)
                    errors.add(refused(run))
                disk.make_room()
                made += 2000
                until(lambda: run.stats()["written_spans"] == made)
        say(errors=sorted(errors), stats=run.stats())
        """,
        disk=disk,
    )
    (said,) = done.said
    # The first blocks may still fit between the ballast and the disk's end.
    assert set(said["errors"]) <= {0, errno.ENOSPC}
    assert errno.ENOSPC in said["errors"]
    assert said["stats"]["dropped"] == 0
    trace = done.trace(perfetto=False)
    assert trace.names == {"forward": 4050}
    assert trace.footer["dropped"] == 0
    assert_told_once(done)


@pytest.mark.parametrize("truncate_fails", [0, 1, 3])
def test_half_a_block_fits(
    pressed: Pressed, simulated_disk: Disk, shim: Shim, truncate_fails: int
) -> None:
    """The half is taken back, or written over where not even that is possible."""
    done = pressed(
        f"""
        shim = Shim()
        with dftrace_ai.tracing(flush_interval_ms=5) as run:
            spans(100)
            run.flush()
            for _ in range(3):
                shim.truncate_fails = {truncate_fails}
                shim.trace_room = 100
                spans(1000)
                until(lambda: refused(run))
                shim.trace_room = -1
                until(lambda: not refused(run))
        """,
        disk=simulated_disk,
    )
    trace = done.trace(perfetto=False)
    assert trace.names == {"forward": 3100}


@pytest.mark.parametrize("overflow", ["drop", "wait"])
def test_full_until_the_spool_is_full_as_well(pressed: Pressed, tmpfs: Disk, overflow: str) -> None:
    """Waiting would be for ever, so both drop; what was in the spool by then is in the trace."""
    done = pressed(
        f"""
        disk = Disk()
        made = 501

        def items(n):
            global made
            for _ in ai.dataloader.fetch.iter(range(n)):
                made += 2  # the wait for the item, and its block

        with dftrace_ai.tracing(
            flush_interval_ms=5, spool_bytes=1 << 20, overflow="{overflow}",
            spool_dir=Path.cwd(),
        ) as run:
            spans(1)
            run.flush()
            disk.fill()
            while not refused(run):
                spans(1)
                made += 1
            items(20_000)
            full = run.stats()["dropped"]
            disk.make_room()
            until(lambda: not refused(run))
            spans(500, ai.compute.backward)
        say(made=made, full=full, stats=run.stats())
        """,
        disk=tmpfs,
    )
    (said,) = done.said
    trace = done.trace(perfetto=False)
    assert said["full"] > 0
    assert said["stats"]["dropped"] == trace.footer["dropped"] == said["full"]
    assert said["stats"]["events"] == trace.footer["events"] == said["made"] - said["full"]
    assert trace.names["backward"] == 500
    counts = [e.args["count"] for e in trace.named("fetch.block")]
    assert counts == list(range(1, len(counts) + 1))
    assert len(counts) > 5000


@pytest.mark.parametrize(
    ("begin", "end", "refusal"),
    [
        ("fill()", "make_room()", errno.ENOSPC),
        ("take_all_names()", "give_names_back()", errno.ENOSPC),
        ("set_read_only(True)", "set_read_only(False)", errno.EROFS),
        *((f"refuse({number})", "refuse(0)", number) for number in OTHERS),
    ],
    ids=["no room", "no entry", "read only", *(errno.errorcode[number] for number in OTHERS)],
)
def test_refused_at_the_first_write(
    pressed: Pressed, disk: Disk, begin: str, end: str, refusal: int
) -> None:
    """The file gets its name and all of its events once that works: making it is tried again."""
    done = pressed(
        f"""
        disk = Disk()
        with dftrace_ai.tracing(flush_interval_ms=5) as run:
            disk.{begin}
            spans(100)
            error = refused(run)
            disk.{end}
            until(lambda: run.stats()["written_spans"] == 100)
            spans(10)
        say(error=error)
        """,
        disk=disk,
    )
    assert done.said == [{"error": refusal}]
    trace = done.trace()
    assert trace.names == {"forward": 110}
    assert trace.path.name.endswith(f"-{done.pid}.pfw.gz")
    assert_told_once(done, os.strerror(refusal))


@pytest.mark.parametrize("written_before", [True, False], ids=["footer", "everything"])
def test_full_to_the_end(
    pressed: Pressed, simulated_disk: Disk, spools: Path, written_before: bool
) -> None:
    """The program ends well; what the file could not take waits in the spool for a reader."""
    done = pressed(
        f"""
        disk = Disk()
        run = dftrace_ai.initialize()
        if not {written_before}:
            disk.fill()
        spans(100)
        if {written_before}:
            run.flush()
            disk.fill()
        dftrace_ai.finalize()
        say(stats=run.stats())
        """,
        disk=simulated_disk,
        env={"DFTRACE_SPOOL_DIR": str(spools)},
    )
    stats = done.said[0]["stats"]
    assert NO_SPACE in stats["error"]
    assert stats["events"] + stats["lost_lines"] == 100
    assert "Traceback" not in done.stderr
    assert done.stderr.count(stats["spool_path"]) == 1  # no child's
    (trace,) = recovered(simulated_disk, spools)
    assert trace.names == {"forward": 100}
    ended = {name: trace.footer.get(name) for name in ("ended", "write_error")}
    assert ended == {"ended": "finalize", "write_error": NO_SPACE}
    assert f"finalize, not written: {NO_SPACE}" in invoke("info", trace.path).out


@pytest.mark.parametrize("told_by", ["environment", "argument"])
def test_full_at_a_fork(pressed: Pressed, tmpfs: Disk, spools: Path, told_by: str) -> None:
    """Children that come while the disk is full: one waits for room, one dies before there is any.

    No marker says where the dead one's spool is. Its parent knows, however it was told.
    """
    argument = f"spool_dir='{spools}'," if told_by == "argument" else ""
    done = pressed(
        f"""
        disk = Disk()
        run = dftrace_ai.initialize({argument} flush_interval_ms=5)
        spans(10)
        run.flush()
        disk.fill()
        until(lambda: spans(10) or refused(run))
        children = []
        for dies in (True, False):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                spans(100, ai.data.item)
                if dies:
                    os._exit(3)
                os.read(read, 1)
                spans(100, ai.data.item)
                dftrace_ai.finalize()
                os._exit(0)
            children.append(child)
            if dies:
                os.waitpid(child, 0)
        disk.make_room()
        os.write(write, b"x")
        say(status=os.waitpid(children[1], 0)[1])
        dftrace_ai.finalize()
        """,
        disk=tmpfs,
        env={"DFTRACE_SPOOL_DIR": str(spools)} if told_by == "environment" else {},
    )
    assert done.said == [{"status": 0}]
    _, children = done.split(perfetto=False)
    assert sorted(t.names["item"] for t in children) == [100, 200]
    assert list(spools.iterdir()) == []


def test_the_spools_own_disk_is_full(pressed: Pressed, disk: Disk, traces: Path) -> None:
    """The spool may not grow: no SIGBUS, every lost event is counted, the rest is in the trace."""
    spool_room = (
        "Shim().spool_room = 640 * 1024" if not disk.real else "pass  # the disk is small itself"
    )
    done = pressed(
        f"""
        {spool_room}
        made = 0
        with dftrace_ai.tracing(
            spool_dir=Disk().path, spool_bytes=64 << 20, flush_interval_ms=60_000
        ) as run:
            for wave in range(4):
                for step in range(500):
                    ai.compute.step.update(step=step)  # room for arguments is asked for, too
                    spans(40)
                    with ai.compute.step:
                        pass
                made += 500 * 41
            spool_bytes = run.stats()["spool_bytes"]
        say(made=made, spool_bytes=spool_bytes, stats=run.stats())
        """,
        env={**disk.environment, "DFTRACE_LOG_FILE": str(traces / "trace")},
    )
    (said,) = done.said
    trace = done.trace(perfetto=False)
    assert said["spool_bytes"] <= 1 << 20
    assert said["stats"]["dropped"] == trace.footer["dropped"] > 0
    assert (
        said["stats"]["events"] == trace.footer["events"] == said["made"] - trace.footer["dropped"]
    )
    for event in trace.named("step"):
        assert set(event.user) <= {"step"}


# More than a block, in more than one unit, of every kind; some of it stays open.
WORK = """
import errno
shim = Shim()
def work(n):
    spans(n)
    for step in range(5):
        ai.instant("now", args={"step": step})
        ai.counter("loss", values={"value": step})
    ai.pipeline.train.start()
    ai.pipeline.epoch.start()
    thread = threading.Thread(target=lambda: (spans(2000, ai.data.item), ai.data.item.start()))
    thread.start()
    thread.join()
"""
# Beside the spans `forward`.
ALSO = {"item": 2001, "train": 1, "epoch": 1}
# What is in the way, how many spans `forward` are made, and how.
CASES = {
    "the disk is full from the first event on": (
        33_000,
        """
run = dftrace_ai.initialize(flush_interval_ms=5)
shim.write_errno = errno.ENOSPC
work(30_000)
refused(run)
spans(3000)
""",
    ),
    "writing fails after some was written": (
        13_000,
        """
run = dftrace_ai.initialize(flush_interval_ms=60_000, write_buffer_bytes=65536)
spans(3000)
run.flush()
shim.write_errno = errno.EIO
work(10_000)
""",
    ),
    "writing hangs after some was written": (
        13_000,
        """
run = dftrace_ai.initialize(flush_interval_ms=60_000, finalize_timeout_s=0.1)
spans(3000)
run.flush()
shim.writes_hang = 1
work(10_000)
""",
    ),
    "the disk is full when a flight recorder is dumped": (
        1000,
        """
run = dftrace_ai.initialize(flight_recorder=True, spool_bytes=1 << 20)
spans(20_000, ai.compute.backward)
shim.write_errno = errno.ENOSPC
work(1000)
try:
    dftrace_ai.dump("asked")
except OSError:
    pass
""",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_as_many_as_told_are_recovered(
    pressed: Pressed, shim: Shim, spools: Path, traces: Path, case: str, fault_row: FaultRow
) -> None:
    forward, source = CASES[case]
    done = pressed(
        WORK + source + "dftrace_ai.finalize()\nsay(stats=run.stats())\nos._exit(0)\n",
        env={"DFTRACE_SPOOL_DIR": str(spools)},
    )
    shim.write_errno = shim.writes_hang = 0
    stats = done.said[0]["stats"]
    assert f"; {stats['lost_lines']} events are kept in {stats['spool_path']}" in done.stderr
    command = [sys.executable, "-m", "dftrace_ai.cli", "recover", str(traces)]
    environment = clean_environment() | {"DFTRACE_SPOOL_DIR": str(spools)}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    (trace,) = read_all(trace_files(traces))
    assert trace.footer["events"] - stats["events"] == stats["lost_lines"] > 1000
    assert trace.footer["unfinished"] == 3
    assert "written again" not in done.stderr
    with fault_row(f"{case}, recovered afterwards") as row:
        row.add(judge_counts([trace], {"forward": forward} | ALSO))


def test_nothing_is_written_again_before_it_is(pressed: Pressed) -> None:
    """Full units wake the writer, which then has nothing to write out and cannot fail."""
    done = pressed(
        WORK
        + """
run = dftrace_ai.initialize(flush_interval_ms=60_000)
shim.write_errno = errno.ENOSPC
spans(100)
assert refused(run) == errno.ENOSPC
for _ in range(20):
    spans(2000)
    threading.Thread(target=spans, args=(1,)).start()
    assert refused(run) == errno.ENOSPC
print("full", file=sys.stderr, flush=True)
shim.write_errno = 0
run.flush()
"""
    )
    before, _, after = done.stderr.partition("full\n")
    assert before.count("cannot be written") == 1
    assert "written again" not in before
    assert after.count("is written again") == 1
