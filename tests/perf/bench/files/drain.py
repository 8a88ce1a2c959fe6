"""How fast the drain turns records into lines, plain and compressed, and how small they get.

`python -m bench.files.drain EVENTS ROUNDS DIR` measures it on one core: by the drain itself, a native module that
`make bench` builds into build/bench, and from the footers of real runs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections import defaultdict
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import dftrace_ai
from bench.processes import PACKAGE_PARENT, Homes, probe
from bench.series import Bench, Target
from dftrace_ai import ai

from .traces import footer

BUILT = PACKAGE_PARENT.parents[1] / "build" / "bench"
PLAIN, GZIP = "formatted to plain lines", "formatted and gzip"
LIBDEFLATE = "formatted and gzip of libdeflate, level 5"
# A level of gzip is one of libdeflate's.
ON_ONE_CORE: dict[str, tuple[Any, ...]] = {
    PLAIN: ("none",),
    GZIP: ("gzip",),
    LIBDEFLATE: ("gzip", 5),
    "formatted and zstd": ("zstd",),
}
IN_RUNS = {"none": "plain, in a real run (footer)", "gzip": "gzip, in a real run (footer)"}


def drain_door() -> Any:
    """Return `drain(events, compression, level=0, index=True)`, or None where it is not built."""
    for suffix in EXTENSION_SUFFIXES:
        path = BUILT / f"_drain_benchmark{suffix}"
        if path.exists():
            spec = importlib.util.spec_from_file_location("_drain_benchmark", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module.drain
    return None


def measure(homes: Homes, events: int, rounds: int) -> list[Bench]:
    """Return the drain's rate, the size of its lines, and what the index adds to both."""
    answer = probe(homes.main, "files.drain", events, rounds)
    missing = answer.get("missing", "no native benchmark in this build")
    rates = answer.get("rates", {})
    plain, packed = (PLAIN, GZIP) if PLAIN in rates else tuple(IN_RUNS.values())
    bench = Bench(
        "drain",
        "drain, events per second of CPU time on one core",
        "events/s",
        targets=[
            Target(plain, 5e6, at_least=True),
            Target(packed, 2e6, at_least=True),
            Target(GZIP, 4.0, LIBDEFLATE, at_least=True),
        ],
        reference=plain,
    )
    bench.fill(rates, [*ON_ONE_CORE, *IN_RUNS.values()], missing)
    if "peak_growth_mib" in answer:
        bench.notes.append(
            f"peak memory grew by {answer['peak_growth_mib']:.0f} MiB over bursts of {events:,} "
            "events, mapped spool included"
        )
    sizes = Bench(
        "drain_size",
        "compressed size per event of the same lines",
        "bytes",
        targets=[Target(GZIP, 0.95, LIBDEFLATE)],
        reference=GZIP,
    )
    sizes.fill(answer.get("sizes", {}), [name for name in ON_ONE_CORE if name != PLAIN], missing)
    benches = [bench, sizes]
    labels = [f"{name}{how}" for name in ("none", "gzip", "zstd") for how in ("", ", no index")]
    for member, title, unit, scale, most in (
        ("time", "drain with index lines and without: CPU time an event", "ns", 1e9, 1.05),
        ("bytes", "a file with index lines and without: bytes an event", "B", 1, 1.01),
    ):
        index = Bench(f"drain_index_{member}", title, unit, reference="gzip, no index")
        index.targets.append(Target("gzip", most, "gzip, no index"))
        benches.append(index.fill(answer.get(member, {}), labels, missing, scale))
    return benches


def through_a_run(events: int, compression: Any, workdir: Path) -> float:
    """Record a burst of spans, and read the drain's CPU time from the footer."""
    node: Any = ai.compute.forward
    with dftrace_ai.tracing(
        log_file=workdir / f"drain-{compression}", compression=compression, spool_bytes=1 << 30
    ) as run:
        for step in range(events // 100):
            ai.update(epoch=1, step=step)
            for _ in range(50):
                with node, node:
                    pass
    path = Path(run.path or "")
    counts = footer(path)
    path.unlink()
    return float(counts["events"] / (counts["drain_cpu_us"] / 1e6))


def main() -> None:
    """Take the compressions in turn, round by round."""
    events, rounds, workdir = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    door = drain_door()
    before_kib = getrusage(RUSAGE_SELF).ru_maxrss
    found: dict[str, dict[str, list[float]]] = {
        name: defaultdict(list) for name in ("rates", "sizes", "time", "bytes")
    }
    for _ in range(rounds):
        for compression, label in IN_RUNS.items():
            found["rates"][label].append(through_a_run(events, compression, workdir))
        if door is None:
            continue
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(everywhere)})
        for label, how in ON_ONE_CORE.items():
            told = door(events, *how)
            found["rates"][label].append(told["events"] / told["seconds_cpu"])
            found["sizes"][label].append(told["bytes_file"] / told["events"])
        for compression in ("none", "gzip", "zstd"):
            # In pairs, of which the second begins where the first has warmed up what both use.
            bare = door(events, compression, 0, False)
            told = door(events, compression)
            for label, one in ((compression, told), (f"{compression}, no index", bare)):
                found["time"][label].append(one["seconds_cpu"] / events)
                found["bytes"][label].append(one["bytes_file"] / events)
        os.sched_setaffinity(0, everywhere)
    grown_kib = getrusage(RUSAGE_SELF).ru_maxrss - before_kib
    print(json.dumps(found | {"peak_growth_mib": grown_kib / 1024}))


if __name__ == "__main__":
    main()
