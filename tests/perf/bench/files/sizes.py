"""How many bytes an event takes on disk, beside dftracer's for the same content."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.figures import Bench, Series, Target
from bench.processes import Homes, run_once
from bench.spans.lineup import WORKERS

SAME = "dftrace_ai, same content"
FULL = "dftrace_ai, ns, ids, parents"
LIBDEFLATE = "dftrace_ai, by libdeflate"
PEER = "pydftracer"


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Run the workload under each contestant in turn; return compressed and plain bytes."""
    env = WORKERS["pydftracer"].env
    runs = {
        SAME: (homes.main, "ours", "same-content", {}),
        FULL: (homes.main, "ours", "full", {}),
        LIBDEFLATE: (homes.main, "ours", "libdeflate", {}),
        PEER: (homes.peers, "peer", "on", env),
    }
    packed = Bench(
        "size",
        "compressed size per event, nested training loop",
        "bytes",
        targets=[
            Target(SAME, 1.0, PEER),
            Target(SAME, 0.9, PEER),
            Target(FULL, 1.8, PEER),
            Target(FULL, 0.95, LIBDEFLATE),
        ],
        reference=FULL,
        notes=[
            "Same content: integer epoch microseconds, no p_idx and no level, as dftracer's.",
            "By libdeflate: level 5, lines as in the row above it.",
        ],
    )
    plain = Bench("size_plain", "plain size per event, the same runs", "bytes", reference=FULL)
    for label in runs:
        packed.series.append(Series(label))
        plain.series.append(Series(label))
    for _ in range(rounds):
        for label, (python, who, mode, extra) in runs.items():
            with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
                arguments = ["-m", "bench.files.workload", who, mode, scratch]
                answer = run_once(python, arguments, Path(scratch), extra)
            if "missing" in answer:
                packed.find(label).missing = plain.find(label).missing = answer["missing"]
                continue
            packed.find(label).samples.append(answer["file_bytes_per_event"])
            plain.find(label).samples.append(answer["plain_bytes_per_event"])
    return [packed, plain]
