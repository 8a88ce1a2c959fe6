"""Whether threads that share one node lose a record or get one wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.figures import Bench, Series, Target
from bench.processes import Homes, run_once

from .lineup import WORKERS

THREADS = 8


def measure(homes: Homes, spans: int, rounds: int) -> list[Bench]:
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
        "dftrace_ai": (homes.main, "ours", {}),
        "pydftracer": (homes.peers, "peer", WORKERS["pydftracer"].env),
    }
    for label, (python, who, extra) in runs.items():
        series = Series(label), Series(label)
        lost.series.append(series[0])
        wrong.series.append(series[1])
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
                arguments = [
                    "-m",
                    "bench.spans.thread_probe",
                    who,
                    str(THREADS),
                    str(spans),
                    scratch,
                ]
                answer = run_once(python, arguments, Path(scratch), extra)
            if "missing" in answer:
                series[0].missing = series[1].missing = answer["missing"]
            else:
                series[0].samples.append(float(answer["lost"]))
                series[1].samples.append(float(answer["wrong"]))
    return [lost, wrong]
