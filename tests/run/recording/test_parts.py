"""Traces in several parts: `max_file_bytes` and `max_files`."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from conftest import RunScript, Traced, trace_files

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.analysis.summary.figures import summarise

LIMIT = 64 * 1024


def part_of(path: Path) -> int:
    """The number in a file's name; 0 for the first file of a trace."""
    _, _, number = path.name.partition(".part")
    return int(number.split(".")[0]) if number else 0


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_parts_hold_every_event_once_and_keep_to_the_limit(
    traced: Traced, compression: str
) -> None:
    """Each part is a whole trace by itself: the fixture reads and opens each of them."""
    spans = 12_000
    opens = compression != "zstd"  # Perfetto has no zstd
    with traced(max_file_bytes=LIMIT, compression=compression, perfetto=opens) as rec:

        def work(thread: int) -> None:
            for step in range(spans // 2):
                with (
                    ai.compute.forward(step=step, thread=thread)
                    if step % 50 == 0
                    else (ai.compute.forward)
                ):
                    pass

        threads = [threading.Thread(target=work, args=(i,), name=f"worker {i}") for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    parts = sorted(rec.traces, key=lambda trace: part_of(trace.path))
    assert len(parts) > 1
    assert [part_of(t.path) for t in parts] == list(range(len(parts)))
    assert all(t.path.stat().st_size <= LIMIT for t in parts)
    assert [t.header.get("part", 0) for t in parts] == list(range(len(parts)))
    assert [t.footer["ended"] for t in parts] == ["rotated"] * (len(parts) - 1) + ["finalize"]
    assert [t.footer["part"] for t in parts] == list(range(len(parts)))
    ids = [event.id for t in parts for event in t.named("forward")]
    assert (len(ids), len(set(ids))) == (spans, spans)
    steps = sorted(
        (e.user["thread"], e.user["step"]) for t in parts for e in t.named("forward") if e.user
    )
    assert steps == [(i, step) for i in range(2) for step in range(0, spans // 2, 50)]
    # The track of a thread has its name in every part that shows it.
    for t in parts:
        for event in t.named("forward"):
            assert t.thread_names[event.tid].startswith("worker")


def test_the_oldest_parts_go_when_a_number_is_set(tmp_path: Path) -> None:
    with dftrace_ai.tracing(
        log_file=tmp_path / "t", max_file_bytes=LIMIT, max_files=3, compression="none"
    ) as run:
        for _ in range(20_000):
            with ai.compute.forward:
                pass
    kept = sorted(part_of(path) for path in trace_files(tmp_path))
    last = part_of(Path(run.path or ""))
    assert last > 10
    assert kept == [last - 2, last - 1, last]
    assert run.stats()["events"] == 20_000
    found = summarise([tmp_path])
    assert 0 < found.events < 20_000


def test_losses_are_told_once_among_the_parts(traced: Traced) -> None:
    with traced(max_file_bytes=LIMIT, compression="none") as rec:
        for i in range(3000):
            ai.instant("odd", {"value": float("nan")} if i % 100 == 0 else {})
    assert len(rec.traces) > 2
    assert sum(t.footer["args_sanitised"] for t in rec.traces) == 30


def test_a_killed_process_goes_on_in_its_last_part(run_script: RunScript) -> None:
    done = run_script(
        f"""
        import os, signal
        import dftrace_ai
        from dftrace_ai import ai
        run = dftrace_ai.initialize(max_file_bytes={LIMIT}, compression="none")
        for step in range(5000):
            with ai.compute.forward:
                pass
            if step == 4000:
                run.flush()
        ai.compute.backward.start()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        status=-9,
    )
    before = len(done.files)
    assert before > 1
    from dftrace_ai.spools.recovery import adopt_dead

    assert adopt_dead(done.folder).failed == []
    traces = sorted(done.traces(), key=lambda trace: part_of(trace.path))
    assert sum(len(t.named("forward")) for t in traces) == 5000
    assert traces[-1].footer["ended"] == "died"
    assert [t.footer["ended"] for t in traces[:-1]] == ["rotated"] * (len(traces) - 1)
    assert traces[-1].one("backward").args["unfinished"] is True
