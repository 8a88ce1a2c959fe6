"""How many events a second running processes record."""

from __future__ import annotations

from pathlib import Path

import pytest

from dftrace_ai import _native
from dftrace_ai.live import Observer, snapshot
from dftrace_ai.live.observer import rank_status
from live.programs import program


def test_two_looks_give_an_exact_rate(tmp_path: Path) -> None:
    source = """
        dftrace_ai.initialize()
        for _ in range(3):
            spans, end = 0, time.monotonic() + 0.05
            while time.monotonic() < end:
                with ai.compute.forward:
                    spans += 1
            done(spans)
    """
    with program(source, tmp_path) as running:
        observer = Observer([tmp_path])
        first = observer.look().processes[0]
        running.go_on()
        spans = int(running.wait_until_ready())
        second = observer.look().processes[0]
        seconds = (second.seen_ns - first.seen_ns) / 1e9
        assert second.threads[0].records - first.threads[0].records == spans
        assert second.events_per_s == pytest.approx(spans / seconds)


def test_no_rate_leaves_out_a_thread_that_is_too_fast_to_be_seen(tmp_path: Path) -> None:
    source = """
        recorded = threading.Event()
        def slow():
            with ai.compute.forward:
                time.sleep(0.05)
            recorded.set()
            threading.Event().wait()
        dftrace_ai.initialize()
        with ai.compute.backward:
            pass
        threading.Thread(target=slow, daemon=True).start()
        recorded.wait()
        done()
    """
    with program(source, tmp_path) as running:
        (process,) = snapshot([tmp_path]).processes
        spool = process.spool
        look = _native.look_into(spool, 1.0)
        assert rank_status(look, spool).events_per_s is not None
        main = next(thread for thread in look["threads"] if thread["tid"] == running.pid)
        main["covered_ns"] = 0  # as where it fills units faster than they can be copied
        main["events"] = 0
        assert rank_status(look, spool).events_per_s is None
        main["ended"] = True
        assert rank_status(look, spool).events_per_s is not None
