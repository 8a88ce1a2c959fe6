"""Stacks that a process tells when it is asked by a signal."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from conftest import read_all, trace_files

from dftrace_ai.live import snapshot
from dftrace_ai.spools.recovery import adopt_dead
from live.programs import PREAMBLE, dftrace, program, until


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 has frames of another kind")
@pytest.mark.parametrize("recorder", ["0", "1"])
def test_a_dump_by_signal_tells_where_each_thread_stands(tmp_path: Path, recorder: str) -> None:
    """Of one that holds the interpreter in C, and of one that records nothing; nothing is sampled."""
    source = """
        import itertools
        def waits():
            threading.Event().wait()
        def holds():
            print("in C code ready", flush=True)
            max(itertools.repeat(0))

        dftrace_ai.initialize(dump_signal="SIGUSR2", rank=3, flush_interval_ms=50)
        other = threading.Thread(target=waits, daemon=True)
        other.start()
        # Nobody else goes on once the interpreter is held.
        while sys._current_frames()[other.ident].f_code.co_name != "wait":
            time.sleep(0.001)
        with ai.compute.forward:
            holds()
    """
    line = len(PREAMBLE.split("\n"))
    with program(source, tmp_path, DFTRACE_FLIGHT_RECORDER=recorder) as running:
        assert dftrace("stuck", tmp_path, "--idle", "0", "--stacks").out.count("\n") == 2
        os.kill(running.pid, signal.SIGUSR2)
        said = until(
            lambda: dftrace("stuck", tmp_path, "--idle", "0", "--stacks").out,
            lambda said: "thread" in said,
        )
        begins = f"  rank 3, thread {running.pid} MainThread, dumped "
        # On a busy machine it may be in the line before still.
        at_line = line + 6 if f"holds (<string>:{line + 6})" in said else line + 5
        main = [f"    holds (<string>:{at_line})", f"    <module> (<string>:{line + 15})"]
        lines = said.splitlines()
        (at,) = (number for number, told in enumerate(lines) if told.startswith(begins))
        assert lines[at + 1 : at + 3] == main
        assert f"    waits (<string>:{line + 3})" in lines
        running.kill()
    adopt_dead(tmp_path)
    (trace,) = read_all(trace_files(tmp_path))
    dump = trace.one("dump").user
    assert dump["reason"] == f"signal {int(signal.SIGUSR2)}"
    stacks = {one["thread"]: one["stack"] for one in dump["stacks"]}
    assert [f"    {frame}" for frame in stacks.pop(running.pid)] == main
    assert [stack[-1].partition(" ")[0] for stack in stacks.values()] == ["Thread._bootstrap"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 has frames of another kind")
def test_a_dump_is_told_though_the_process_writes_another_part_by_now(tmp_path: Path) -> None:
    """Of a hung thread, while others go on recording."""
    source = """
        def waits():
            threading.Event().wait()
        def records():
            done()
            for _ in range(2000):
                with ai.data.item(note="x" * 200):
                    pass
            done()

        dftrace_ai.initialize(dump_signal="SIGUSR2", rank=3, flush_interval_ms=50,
                              max_file_bytes=65536, compression="none")
        with ai.compute.forward:
            threading.Thread(target=records, daemon=True).start()
            waits()
    """
    with program(source, tmp_path) as running:
        os.kill(running.pid, signal.SIGUSR2)
        said = until(
            lambda: dftrace("stuck", tmp_path, "--idle", "0", "--stacks").out,
            lambda said: "dumped" in said,
        )

        def newest() -> Path:
            return Path(snapshot([tmp_path]).processes[0].trace)

        at = newest()
        running.go_on()
        running.wait_until_ready()
        until(newest, lambda path: path != at)
        assert at.exists()
        later = dftrace("stuck", tmp_path, "--idle", "0", "--stacks").out
        stacks = [line for line in said.splitlines() if line.startswith("    ")]
        assert any(line.startswith("    waits (") for line in stacks)
        assert [line for line in later.splitlines() if line.startswith("    ")] == stacks


def test_who_asks_for_stacks_of_a_process_without_events_is_told_why_none_come(
    tmp_path: Path,
) -> None:
    source = """
        dftrace_ai.initialize(dump_signal="SIGUSR2", rank=3)
        done()
    """
    with program(source, tmp_path) as running:
        os.kill(running.pid, signal.SIGUSR2)
        told = dftrace("stuck", tmp_path, "--stacks")
        assert told.status == 2
        assert "it answers dump_signal with its first event" in told.err
