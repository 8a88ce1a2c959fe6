"""A day of samples of ten threads, within minutes: `python -m soak.day KEPT SAMPLES FOLDER`.

So many samples of each thread, 20 in a second of a clock that `fast_clock.c` makes go faster. KEPT: `parts`, of which
so many stay as a bound on bytes allows, or `all` in one file.
"""

from __future__ import annotations

import json
import select
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import dftrace_ai
from dftrace_ai import ai
from soak.runs import LOOKS, Gauges

THREADS, HZ = 10, 20
PART_BYTES, PARTS = 4 << 20, 3
# A part may pass its bound by a block, and one is begun before the oldest goes.
MOST_BYTES = PART_BYTES * (PARTS + 1)
REST_S = 0.001
FUNCTIONS = 40
CALLED = "\n".join(
    f"""
def f{at}(depth, number):
    if depth:
        return f{(at * 7 + 3) % FUNCTIONS}(depth - 1, number) + f{(at * 5 + 1) % FUNCTIONS}(0, number)
    return sum(range(number % 50))
"""
    for at in range(FUNCTIONS)
)


def at_work(seed: int, end: threading.Event) -> None:
    """Call one function after another, in spans, and rest in each."""
    space: dict[str, Any] = {}
    exec(compile(CALLED, "called.py", "exec"), space)
    for number in count(seed):
        if end.is_set():
            return
        with ai.data.item:
            for at in range(8):
                one = (number * 1_103_515_245 + at * 12_345) % 2**31
                space[f"f{one % FUNCTIONS}"](one // FUNCTIONS % 12, one)
            # By the kernel's own clock.
            select.select([], [], [], REST_S)


def bytes_in(folder: Path) -> int:
    """Return the bytes of the trace."""
    return sum(one.stat().st_size for one in folder.glob("*.pfw*"))


def read(folder: Path) -> tuple[int, float, float]:
    """Return how many samples there are, the seconds that they stand for, and those that reading took."""
    from dftrace_ai.analysis.lines.stack_samples import StackReader
    from dftrace_ai.analysis.reading import open_traces

    begun_s = time.process_time()
    found = [*StackReader().read(open_traces([folder]).files)]
    spent_s = time.process_time() - begun_s
    return (
        sum(map(len, found)),
        sum(float(one.period_ns.sum()) for one in found) / 1e9,
        spent_s,
    )


def main() -> None:
    """Have the threads work and look at the process ten times."""
    kept, number, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    parts: dict[str, Any] = {"max_file_bytes": PART_BYTES, "max_files": PARTS}
    run = dftrace_ai.initialize(
        log_file=folder / "t",
        spool_dir=folder,
        spool_bytes=16 << 20,
        lines_hz=HZ,
        **(parts if kept == "parts" else {}),
    )
    gauges, end = Gauges(folder), threading.Event()
    threads = [threading.Thread(target=at_work, args=(at, end)) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    begun_s = time.monotonic()
    for look in range(1, LOOKS + 1):
        while time.monotonic() < begun_s + look * number / LOOKS / HZ:
            select.select([], [], [], 0.01)
        gauges.look(spool_bytes=run.stats()["spool_bytes"], trace_bytes=bytes_in(folder))
    end.set()
    for thread in threads:
        thread.join()
    dftrace_ai.finalize()
    most = MOST_BYTES if kept == "parts" else 1 << 40
    # A part may be about to be begun.
    slack = {"heap": 2048, "resident": 4096, "open": 2, "mappings": 8}
    faults = gauges.growth(**slack, spool_bytes=16 << 20, trace_bytes=1 << 40)
    faults += [f"{size:,} bytes of files" for size in gauges.series["trace_bytes"] if size > most]
    samples, stood_s, spent_s = read(folder)
    wanted_s = THREADS * number / HZ
    if kept == "all" and not 0.9 < stood_s / wanted_s < 1.1:
        faults.append(f"samples stand for {stood_s:,.0f} s of {wanted_s:,.0f}")
    series = {"samples": [samples], "ms to read them": [round(1e3 * spent_s)]}
    print(json.dumps({"series": gauges.series | series, "faults": faults[:10]}))


if __name__ == "__main__":
    main()
