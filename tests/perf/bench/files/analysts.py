"""What it costs to be told of a training, beside tools that analyse traces: each on files it takes."""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.files.reading import Cost, cost_of, recorded
from bench.files.traces import events as events_of
from bench.processes import Homes
from bench.series import Bench, Series

WHY, SUMMARY = "dftrace why", "dftrace summary"
DFANALYZER = "dfanalyzer, preset dlio"
HTA = "HolisticTraceAnalysis, temporal breakdown"
NOT_INSTALLED = "not installed"

STEP_US, KERNELS, KERNEL_US = 10_000, 100, 60

# Rows of its table, and how far a time with three digits is off, in seconds.
PRINTED = re.compile(r"│\s*(Job Time|Trace Count)\s*│\s*\w+\s*│\s*([\d.,]+)\s*│")
ROUNDED_S = 0.00051

BREAKDOWN = (
    "import sys; from hta.trace_analysis import TraceAnalysis; "
    # By itself it leaves the last step out.
    "found = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True); "
    "print(found.get_temporal_breakdown(visualize=False).to_json(orient='records'))"
)


def profile_events(events: int) -> Iterator[dict[str, object]]:
    """Yield about so many events as torch.profiler writes them: launches on the host, kernels on a stream."""
    yield {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}}
    for step in range(events // (2 * KERNELS + 1)):
        begin = 1_000_000 + step * STEP_US
        host = {"ph": "X", "pid": 7, "tid": 7}
        yield host | {
            "cat": "user_annotation",
            "name": f"ProfilerStep#{step}",
            "ts": begin,
            "dur": STEP_US - 1,
            "args": {"External id": step},
        }
        for number in range(KERNELS):
            at, launch = begin + 90 * number, step * KERNELS + number + 1
            yield host | {
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "ts": at,
                "dur": 5,
                "args": {"correlation": launch, "cbid": 211},
            }
            yield {
                "ph": "X",
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce_Sum"
                if number % 20 == 19
                else f"gemm_{number % 7}",
                "pid": 0,
                "tid": 7,
                "ts": at + 10,
                "dur": KERNEL_US,
                "args": {"device": 0, "stream": 7, "correlation": launch},
            }


def write_profile(events: int, path: Path) -> None:
    """Write a file as torch.profiler does for one of two ranks."""
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as out:
        out.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}],')
        out.write('"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},')
        out.write('"baseTimeNanoseconds": 1700000000000000000, "traceEvents": [\n')
        out.write(",\n".join(map(json.dumps, profile_events(events))))
        out.write("\n]}\n")


def figures_of(folder: Path) -> tuple[int, float]:
    """Return how many spans converted traces hold, and the seconds from first to last."""
    spans = [
        event for path in folder.glob("*.pfw.gz") for event in events_of(path) if event["ph"] == "X"
    ]
    begin = min((span["ts"] for span in spans), default=0)
    end = max((span["ts"] + span["dur"] for span in spans), default=0)
    return len(spans), (end - begin) / 1e6


def fault_of_dfanalyzer(printed: str, truth: tuple[int, float]) -> str:
    """Say what of its table is not what the trace holds."""
    found = {name: float(value.replace(",", "")) for name, value in PRINTED.findall(printed)}
    if len(found) < 2:
        return "prints neither events nor job time"
    if found["Trace Count"] != truth[0] or abs(found["Job Time"] - truth[1]) > ROUNDED_S:
        return f"tells of {found}; the trace has {truth}"
    return ""


def fault_of_breakdown(printed: str, events: int) -> str:
    """Say whether the kernels' time is not that of the profile."""
    busy_us = KERNEL_US * sum(one.get("cat") == "kernel" for one in profile_events(events))
    lines = [line for line in printed.splitlines() if line.startswith("[{")]
    if not lines:
        return "prints no breakdown"
    (rank,) = json.loads(lines[-1])
    told_us = rank["compute_time(us)"] + rank["non_compute_time(us)"]
    return "" if told_us == busy_us else f"tells of {told_us:,.0f} us; the trace has {busy_us:,}"


def analysed(command: list[str], trace: Path, fault_of: Callable[[str], str]) -> Cost:
    """Return what an analysis cost, with a fault where it does not find what the trace holds."""
    answer = trace.parent / "answer.txt"
    cost = cost_of(command, trace, answer)
    return cost._replace(
        fault=cost.fault or fault_of(answer.read_text(encoding="utf-8", errors="replace"))
    )


def measure(homes: Homes, events: int) -> list[Bench]:
    """Have a trace of ours judged, and one of torch.profiler, by us and by the analysts beside the peers."""
    program = Path(homes.peers or "").parent.parent / "analysts" / "bin"
    there = homes.peers is not None and (program / "python").exists()

    def ours(command: str, *words: object) -> list[str]:
        return [homes.main, "-m", "dftrace_ai.cli", command, *map(str, words)]

    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        place = Path(scratch)
        profile = place / "profile" / "rank-0.pt.trace.json.gz"
        trace, converted = place / "trace", place / "converted"
        for folder in (profile.parent, trace):
            folder.mkdir()
        write_profile(events, profile)
        recorded(homes, events, trace)
        told = cost_of(ours("convert", trace, "--to", "dftracer", "--out", converted), trace)
        if told.fault:
            raise RuntimeError(told.fault)
        peers: dict[str, Cost] = {}
        notes = []
        if there:
            truth = figures_of(converted)
            analyzer = ["env", "USER=bench", str(program / "dfanalyzer"), "analyzer=dftracer"]
            analyzer += ["analyzer/preset=dlio", "cluster=local", f"trace_path={converted}"]
            peers[DFANALYZER] = analysed(
                analyzer, trace, lambda said: fault_of_dfanalyzer(said, truth)
            )
            if not peers[DFANALYZER].fault:
                text = f"{truth[0]:,} events in {truth[1]:.3f} s"
                notes = [f"{DFANALYZER}, finds what the trace holds: {text}"]
            breakdown = [str(program / "python"), "-c", BREAKDOWN, str(profile.parent)]
            peers[HTA] = analysed(breakdown, trace, lambda said: fault_of_breakdown(said, events))
        benches = []
        for id, what, path, peer in (
            ("judged", "ours", trace, DFANALYZER),
            ("judged_profile", "torch.profiler", profile, HTA),
        ):
            costs = {
                SUMMARY: cost_of(ours("summary", path), trace),
                WHY: cost_of(ours("why", path), trace),
                peer: peers.get(peer, Cost(0, 0, NOT_INSTALLED)),
            }
            title = f"a trace of {events:,} events of {what}"
            cpu = f"{title}: processor time of all threads and processes"
            memory = f"{title}: peak of memory of a process"
            benches += [
                Bench(id, cpu, "s", reference=WHY, notes=notes if peer == DFANALYZER else []),
                Bench(f"{id}_memory", memory, "MiB", reference=WHY),
            ]
            for bench, figure in zip(benches[-2:], ("cpu_s", "peak_mib"), strict=True):
                for label, cost in costs.items():
                    samples = [] if cost.fault else [getattr(cost, figure)]
                    bench.series.append(Series(label, samples, missing=cost.fault))
    return benches
