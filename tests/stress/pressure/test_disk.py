"""A disk without room, from the first write to the last: training goes on, and counts are exact."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import Outcome
from perfetto.trace_file import Trace
from safety.commands import invoke

import dftrace_ai.spools.recovery
from stress.pressure.disk import Disk
from stress.pressure.shim import Shim

if TYPE_CHECKING:
    from stress.pressure.program import Pressed

pytest_plugins = ["stress.pressure.program"]

NO_SPACE = os.strerror(errno.ENOSPC)


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
    from conftest import read_all, trace_files

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


def test_full_at_the_first_write(pressed: Pressed, disk: Disk) -> None:
    """The file gets its name and all of its events once there is room."""
    done = pressed(
        """
        disk = Disk()
        with dftrace_ai.tracing(flush_interval_ms=5) as run:
            disk.fill()
            spans(100)
            error = refused(run)
            disk.make_room()
            until(lambda: run.stats()["written_spans"] == 100)
        say(error=error)
        """,
        disk=disk,
    )
    assert done.said == [{"error": errno.ENOSPC}]
    trace = done.trace()
    assert trace.names == {"forward": 100}
    assert trace.path.name.endswith(f"-{done.pid}.pfw.gz")
    assert_told_once(done)


def test_not_even_a_name_left_for_the_file(pressed: Pressed, disk: Disk) -> None:
    """The disk has bytes, but no entry for one more file: making it is tried again."""
    done = pressed(
        """
        disk = Disk()
        with dftrace_ai.tracing(flush_interval_ms=5) as run:
            disk.take_all_names()
            spans(100)
            error = refused(run)
            disk.give_names_back()
            until(lambda: run.stats()["written_spans"] == 100)
        say(error=error)
        """,
        disk=disk,
    )
    assert done.said == [{"error": errno.ENOSPC}]
    assert done.trace().names == {"forward": 100}
    assert_told_once(done)


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


@pytest.mark.parametrize("end", ["dftrace_ai.finalize()", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_no_room_for_anything_from_the_first_event_on(
    pressed: Pressed, tmpfs: Disk, spools: Path, end: str
) -> None:
    """Not even for the line that names the spool. Once there is room, a reader finds everything."""
    pressed(
        f"""
        run = dftrace_ai.initialize(flush_interval_ms=5)
        Disk().fill()
        spans(100)
        assert refused(run)
        Disk().make_room()
        until(lambda: run.stats()["written_spans"])
        Disk().fill()
        spans(100)
        {end}
        """,
        disk=tmpfs,
        env={"DFTRACE_SPOOL_DIR": str(spools)},
        status=None,
    )
    if tmpfs.real:
        tmpfs.make_room()
    (trace,) = recovered(tmpfs, spools)
    assert trace.names == {"forward": 200}
    assert trace.footer["ended"] == ("died" if "SIGKILL" in end else "finalize")


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
