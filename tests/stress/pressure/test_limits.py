"""Quotas and other refusals: an error of any kind while writing costs no event and no exception."""

from __future__ import annotations

import errno
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from dftrace_ai.analysis.summary.table import summarise
from stress.judge import judge_counts
from stress.pressure.test_disk import NO_SPACE, complaints

if TYPE_CHECKING:
    from conftest import RunScript

    from stress.conftest import FaultRow
    from stress.pressure.program import Pressed

LIMIT = "resource.setrlimit(resource.RLIMIT_FSIZE, ({soft}, resource.RLIM_INFINITY))"


def test_the_trace_reaches_the_limit_of_file_sizes(pressed: Pressed) -> None:
    """The spool is a file as well: both are refused more room, and both get it when it is raised."""
    done = pressed(
        f"""
        import resource
        with dftrace_ai.tracing(flush_interval_ms=5, compression="none", spool_dir=".") as run:
            made = 50
            spans(50)
            run.flush()
            {LIMIT.format(soft=400 * 1024)}
            for _ in range(100):
                spans(200)
                refused(run)
            made += 20_000
            dropped = run.stats()["dropped"]
            {LIMIT.format(soft="resource.RLIM_INFINITY")}
            until(lambda: run.stats()["written_spans"] == made - dropped)

            def kept():
                global made
                before = run.stats()["dropped"]
                spans(1)
                made += 1
                return run.stats()["dropped"] == before

            until(kept)
            spans(50, ai.compute.backward)
        say(made=made + 50, dropped=dropped, stats=run.stats())
        """
    )
    (said,) = done.said
    trace = done.trace(perfetto=False)
    assert trace.footer["dropped"] == said["stats"]["dropped"] >= said["dropped"] > 0
    assert trace.footer["events"] == said["made"] - said["stats"]["dropped"]
    assert trace.names["backward"] == 50
    (complaint,) = complaints(done.stderr, os.strerror(errno.EFBIG))
    assert "files of 409600 bytes at most (RLIMIT_FSIZE, ulimit -f)" in complaint
    (told,) = (line for line in summarise(done.files).warnings() if "LOST" in line)
    assert "or the limit of files (ulimit -f)" in told


@pytest.mark.parametrize("soft", [100 * 1024, 400 * 1024], ids=["first-unit", "later"])
@pytest.mark.parametrize("action", ["default", "handler"])
def test_the_signal_of_that_limit_is_not_the_trainings(
    pressed: Pressed, soft: int, action: str
) -> None:
    """SIGXFSZ kills whoever does not expect it, and training that writes no large file does not."""
    done = pressed(
        f"""
        import resource
        heard = []
        signal.signal(
            signal.SIGXFSZ, signal.SIG_DFL if "{action}" == "default" else lambda *_: heard.append(1)
        )
        run = dftrace_ai.initialize(
            flush_interval_ms=5, compression="none", spool_dir=".", overflow="drop"
        )
        {LIMIT.format(soft=soft)}
        for _ in range(100):
            spans(200)
            refused(run)
        dftrace_ai.finalize()
        say(heard=heard)
        """
    )
    assert done.said == [{"heard": []}]
    # Another place would be of no use, nor would more room that was allowed.
    dropped = [line for line in done.stderr.splitlines() if "events were dropped" in line]
    advice = "(RLIMIT_FSIZE, ulimit -f)); raise that limit, which holds in every place"
    assert all(line.endswith(advice) for line in dropped)
    assert len(dropped) == (soft > 200 * 1024)


@pytest.mark.parametrize("action", ["SIG_DFL", "SIG_IGN"])
def test_the_limit_is_reached_by_finalize(pressed: Pressed, action: str) -> None:
    """It writes the rest on the thread that calls it, where the signal would be delivered."""
    done = pressed(
        f"""
        import resource
        signal.signal(signal.SIGXFSZ, signal.{action})
        run = dftrace_ai.initialize(flush_interval_ms=60_000, compression="none")
        spans(600)
        {LIMIT.format(soft=4096)}
        dftrace_ai.finalize()
        say(stats=run.stats())
        """
    )
    stats = done.said[0]["stats"]
    assert os.strerror(errno.EFBIG) in stats["error"]
    assert stats["events"] + stats["lost_lines"] == 600
    subprocess.run(["rm", "-f", stats["spool_path"]], check=True)


def test_a_limit_below_what_a_run_needs_is_named_at_its_beginning(pressed: Pressed) -> None:
    """Another place would not help. Python ignores the signal; a program may have it end itself."""
    done = pressed(
        f"""
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        {LIMIT.format(soft=1000)}
        try:
            dftrace_ai.initialize()
        except dftrace_ai.LogDirectoryError as error:
            say(errno=error.errno, reason=error.strerror)
        {LIMIT.format(soft="resource.RLIM_INFINITY")}
        os.mkdir("spools")
        dftrace_ai.initialize(spool_dir="spools")
        {LIMIT.format(soft=65536)}
        spans(1)
        say(left=os.listdir("spools"))
        dftrace_ai.finalize()
        """
    )
    refused, later = done.said
    assert refused["errno"] == errno.EFBIG
    assert "RLIMIT_FSIZE, ulimit -f" in refused["reason"]
    assert "another place" not in refused["reason"]
    # Set when the run is on, it is told at the first event, not as a full disk, and leaves nothing.
    assert later == {"left": []}
    assert done.stderr.count("nothing is recorded") == done.stderr.count("RLIMIT_FSIZE") == 1
    assert "65536 bytes" in done.stderr
    assert NO_SPACE not in done.stderr


def test_a_limit_on_addresses_below_the_spool_is_named(pressed: Pressed) -> None:
    """The program goes on unrecorded, and knows which limit and which setting it was."""
    done = pressed(
        """
        import resource
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), resource.RLIM_INFINITY))
        dftrace_ai.initialize(spool_bytes=1 << 30)
        spans(10)
        dftrace_ai.finalize()
        say(used=used)
        """
    )
    (line,) = done.stderr.splitlines()
    may_have = done.said[0]["used"] + (1 << 29)
    assert "nothing is recorded" in line
    assert line.endswith(
        f"; it takes {1 << 30} bytes of addresses, and this process may have {may_have} in all "
        "(RLIMIT_AS, ulimit -v): lower spool_bytes, or raise the limit"
    )


def test_no_thread_may_be_started(pressed: Pressed, fault_row: FaultRow) -> None:
    """A child that can have none is told so, once, and goes on unrecorded; its parent loses nothing."""
    done = pressed(
        """
        import resource
        with dftrace_ai.tracing():
            spans(500)
            child = os.fork()
            if child == 0:
                resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
                if os.geteuid() == 0:  # root may always
                    os.setgid(65534)
                    os.setuid(65534)
                before = len(os.listdir("/proc/self/fd"))
                spans(500, ai.data.item)
                left = [str(path) for path in Path("/dev/shm").glob(f"dftrace-*-{os.getpid()}-*")]
                blocked = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])]
                say(files=len(os.listdir("/proc/self/fd")) - before, left=left, blocked=blocked)
                os._exit(0)
            os.waitpid(child, 0)
            spans(500)
        """
    )
    assert done.said == [{"files": 0, "left": [], "blocked": []}]
    assert done.stderr.count("the thread that writes the trace cannot be started") == 1
    assert "RLIMIT_NPROC" in done.stderr
    trace = done.trace(perfetto=False)
    assert trace.names == {"forward": 1000}
    assert list(done.folder.glob("*.spool-at")) == []
    with fault_row(
        "no thread may be started in a child, which is told that it is unrecorded"
    ) as row:
        row.add(judge_counts([trace], {"forward": 1000}))


def test_a_container_forbids_to_reserve_space(run_script: RunScript) -> None:
    """Its rules say so in one of these ways; the room is taken by writing there."""
    done = run_script(
        """
        import ctypes, errno, os, platform, struct
        import dftrace_ai
        from dftrace_ai import ai

        def forbid(call, refusal):
            rules = [(0x20, 0, 0, 0), (0x15, 0, 1, call), (6, 0, 0, 0x50000 | refusal), (6, 0, 0, 0x7FFF0000)]
            program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
            told = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(program)))
            libc = ctypes.CDLL(None, use_errno=True)
            return libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, told, 0, 0) == 0

        fallocate = {"x86_64": 285, "aarch64": 47}[platform.machine()]
        for refusal in (errno.EPERM, errno.ENOSYS):
            child = os.fork()
            if not child:
                if not forbid(fallocate, refusal):
                    print("no rules can be made here")
                    os._exit(0)
                try:
                    os.posix_fallocate(os.memfd_create("x"), 0, 4096)
                except OSError as error:
                    print(error.errno)
                with dftrace_ai.tracing(spool_bytes=2 << 20, overflow="wait"):
                    for step in range(5000):
                        with ai.compute.forward(step=step):
                            pass
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        """
    )
    if "no rules" in done.stdout:
        pytest.skip("the kernel takes no rules for calls")
    assert done.stdout.split() == [str(errno.EPERM), str(errno.ENOSYS)]
    assert [trace.names for trace in done.traces(perfetto=False)] == [{"forward": 5000}] * 2
