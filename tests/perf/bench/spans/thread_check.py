"""Whether threads that share one node lose a record or get one wrong.

`python -m bench.spans.thread_check WHO THREADS SPANS DIR` counts and checks: every thread keeps clock brackets
around its spans; the trace must hold each span once, on the right thread, in order, no longer than its
bracket, and nested spans with the right parents.
"""

from __future__ import annotations

import json
import sys
import threading
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

from bench.files.traces import events, is_span
from bench.processes import Homes, probe
from bench.series import Bench, Series, Target

from .lineup import DFTRACER_ENV

THREADS = 8

# The clocks of span and bracket are read through different calls, and the trace follows the wall
# clock, which may be slewed.
SLACK_NS = 2_000
DRIFT_NS = 1_000_000


def measure(homes: Homes, spans: int) -> list[Bench]:
    """Have eight threads record on one node, and check the trace against what they did."""
    lost = Bench(
        "threads_lost",
        f"{THREADS} threads on one node: records lost, of {THREADS * spans * 3:,}",
        "records",
        targets=[Target("dftrace_ai", 0.0)],
        notes=["Flat spans, then spans nested in themselves; every one is looked for."],
    )
    wrong = Bench(
        "threads_wrong",
        f"{THREADS} threads on one node: records wrong (thread, id, parent, level, time)",
        "records",
        targets=[Target("dftrace_ai", 0.0)],
        notes=[
            "pydftracer: ids given twice, and spans longer than what they were recorded around."
        ],
    )
    runs = {
        "dftrace_ai": probe(homes.main, "spans.thread_check", "ours", THREADS, spans),
        "pydftracer": probe(
            homes.peers, "spans.thread_check", "peer", THREADS, spans, extra=DFTRACER_ENV
        ),
    }
    for label, answer in runs.items():
        for bench, key in ((lost, "lost"), (wrong, "wrong")):
            bench.series.append(Series(label))
            bench.take(label, answer, key)
    return [lost, wrong]


@dataclass
class Crew:
    """Threads that record flat spans first and then nested ones, all on one node."""

    node: Any
    spans: int
    brackets: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def work(self, barrier: threading.Barrier) -> None:
        """Record this thread's spans: half of them flat, then as many outer and inner ones."""
        node, kept = self.node, []
        barrier.wait()
        for _ in range(self.spans):
            before = perf_counter_ns()
            with node:
                pass
            kept.append((before, perf_counter_ns()))
        for _ in range(self.spans):
            before = perf_counter_ns()
            with node, node:
                pass
            kept.append((before, perf_counter_ns()))
        self.brackets[threading.get_native_id()] = kept

    def run(self, threads: int) -> None:
        """Run all threads to their end; a short switch interval has them interleave often."""
        sys.setswitchinterval(0.0005)
        barrier = threading.Barrier(threads)
        # Kept alive together, or the kernel gives a finished thread's id to the next.
        crew = [threading.Thread(target=self.work, args=(barrier,)) for _ in range(threads)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()


def wrong_in_thread(spans: list[dict[str, Any]], brackets: list[tuple[int, int]], n: int) -> int:
    """Count the spans of one thread that differ from what was done: n flat ones, then n nested pairs.

    Brackets are nanoseconds before and after each flat span, then each outer one.
    """
    spans = sorted(spans, key=lambda event: (event["ts"], event["args"]["level"]))
    flat, nested = spans[:n], spans[n:]
    outer, inner = nested[0::2], nested[1::2]
    wrong = 0
    starts_ns = [round(event["ts"] * 1000) for event in [*flat, *outer]]
    offset = median(start - before for start, (before, _) in zip(starts_ns, brackets, strict=True))
    for event, start, (before, after) in zip([*flat, *outer], starts_ns, brackets, strict=True):
        dur_ns = round(event["dur"] * 1000)
        right = (
            0 <= dur_ns <= after - before + SLACK_NS
            and before - DRIFT_NS <= start - offset <= after + DRIFT_NS
            and event["args"]["p_idx"] == 0
            and event["args"]["level"] == 1
        )
        wrong += not right
    for parent, event in zip(outer, inner, strict=True):
        right = (
            event["args"]["p_idx"] == parent["id"]
            and event["args"]["level"] == 2
            and parent["ts"] <= event["ts"]
            and round((event["ts"] + event["dur"]) * 1000)
            <= round((parent["ts"] + parent["dur"]) * 1000)
        )
        wrong += not right
    return wrong


def too_long_in_thread(spans: list[dict[str, Any]], brackets: list[tuple[int, int]]) -> int:
    """Count the spans of one thread that last longer than any bracket they may belong to.

    For a peer whose lost records leave nothing to match one by one.
    """
    if not spans:
        return 0
    offset = min(event["ts"] for event in spans) * 1000 - brackets[0][0]
    starts = [before for before, _ in brackets]
    wrong = 0
    for event in spans:
        at = bisect_right(starts, event["ts"] * 1000 - offset)
        near = brackets[max(0, at - 3) : at + 3]
        longest = max(after - before for before, after in near)
        wrong += event["dur"] * 1000 > longest + SLACK_NS
    return wrong


def recorded_by_us(crew: Crew, threads: int, workdir: Path) -> Path:
    import dftrace_ai

    with dftrace_ai.tracing(log_file=workdir / "ours", spool_bytes=1 << 30) as run:
        crew.node = dftrace_ai.ai.compute.forward
        crew.run(threads)
    return Path(run.path or "")


def recorded_by_pydftracer(crew: Crew, threads: int, workdir: Path) -> Path:
    from dftracer.python import ai, dftracer

    log = dftracer.initialize_log(str(workdir / "peer"), None, -1)
    crew.node = ai.compute.forward
    crew.run(threads)
    log.finalize()
    return next(workdir.glob("peer*.pfw.gz"))


def main() -> None:
    """Print how many spans were expected, how many are lost, and how many are wrong."""
    who, threads, spans, workdir = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    crew = Crew(None, spans)
    record = recorded_by_us if who == "ours" else recorded_by_pydftracer
    path = record(crew, threads, Path(workdir))
    by_thread: dict[int, list[dict[str, Any]]] = defaultdict(list)
    ids: set[int] = set()
    for event in events(path):
        if is_span(event):
            by_thread[event["tid"]].append(event)
            ids.add(event["id"])
    expected = threads * spans * 3
    found = sum(len(found) for found in by_thread.values())
    lost, wrong = 0, found - len(ids)
    for tid, brackets in crew.brackets.items():
        mine = by_thread.pop(tid, [])
        lost += max(0, 3 * spans - len(mine))
        if who != "ours":
            wrong += too_long_in_thread(mine, brackets)
        elif len(mine) == 3 * spans:
            wrong += wrong_in_thread(mine, brackets, spans)
    wrong += sum(len(strays) for strays in by_thread.values())
    print(json.dumps({"expected": expected, "found": found, "lost": lost, "wrong": wrong}))


if __name__ == "__main__":
    main()
