"""A thousand threads: in waves, and all alive at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stress.pressure.program import Pressed

pytest_plugins = ["stress.pressure.program"]

RSS = """
def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
"""
MIB = 1 << 20


def test_a_thousand_threads_come_and_go(pressed: Pressed) -> None:
    """Their units are used again: neither the spool nor the process grows with their number."""
    done = pressed(
        RSS
        + """
with dftrace_ai.tracing(flush_interval_ms=5) as run:
    for wave in range(25):
        threads = [
            threading.Thread(target=spans, args=(5,), name=f"wave {wave} of {n}") for n in range(40)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run.flush()
        say(rss=resident_bytes(), spool=run.stats()["spool_bytes"])
"""
    )
    waves = done.said
    # 64 KiB for each of forty; twice as many while the ones before are still being written.
    assert max(wave["spool"] for wave in waves) <= 6 * MIB
    assert waves[-1]["rss"] - waves[4]["rss"] < 4 * MIB
    trace = done.trace(perfetto=False)
    assert trace.names == {"forward": 5000}
    assert trace.footer["dropped"] == 0
    by_track = Counter(e.tid for e in trace.spans)
    assert set(trace.thread_names.values()) >= {
        f"wave {w} of {n}" for w in range(25) for n in range(40)
    }
    assert all(count % 5 == 0 for count in by_track.values())


def test_a_thousand_threads_alive_at_once(pressed: Pressed) -> None:
    """Each is inside a span while all the others are."""
    done = pressed(
        """
        threading.stack_size(256 << 10)
        inside, all_inside = threading.Barrier(1001), threading.Barrier(1001)

        def work():
            with ai.pipeline.train:
                inside.wait()
                spans(5)
                all_inside.wait()

        with dftrace_ai.tracing(flush_interval_ms=5) as run:
            threads = [threading.Thread(target=work) for _ in range(1000)]
            for thread in threads:
                thread.start()
            inside.wait()
            all_inside.wait()
            for thread in threads:
                thread.join()
            spool = run.stats()["spool_bytes"]
        say(spool=spool)
        """
    )
    assert done.said[0]["spool"] <= 80 * MIB
    trace = done.trace(perfetto=False)
    assert trace.names == {"train": 1000, "forward": 5000}
    assert trace.footer["dropped"] == 0
    assert len({e.tid for e in trace.spans}) == 1000
    for train in trace.named("train"):
        assert [(c.name, c.tid) for c in trace.children(train)] == 5 * [("forward", train.tid)]
    # Not before the last of them was in did the first leave.
    trains = trace.named("train")
    assert max(e.ts_ns or 0 for e in trains) < min(e.end_ns for e in trains)
