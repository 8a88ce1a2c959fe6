"""What it costs to be told of a training, beside tools that analyse traces: each on files it takes."""

from __future__ import annotations

import gzip
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.figures import Bench, Series
from bench.files.reading import Cost, cost_of
from bench.processes import Homes, run_once

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
    """Yield events as torch.profiler writes them: launches on the host, kernels on a stream.

    Args:
        events: about how many.
    """
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
    """Write a file as torch.profiler does for one of two ranks.

    Args:
        events: about how many.
        path: ends in ``.json.gz``.
    """
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as out:
        out.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}],')
        out.write('"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},')
        out.write('"baseTimeNanoseconds": 1700000000000000000, "traceEvents": [\n')
        out.write(",\n".join(map(json.dumps, profile_events(events))))
        out.write("\n]}\n")


class Figures(NamedTuple):
    """What is in a trace, or what somebody says is: events, and the seconds from first to last."""

    events: int
    job_s: float

    def text(self) -> str:
        """Return it for a table's notes."""
        return f"{self.events:,} events in {self.job_s:.3f} s"


def figures_of(folder: Path) -> Figures:
    """Return what converted traces hold, by reading them line by line with nothing of ours."""
    events, begin, end = 0, math.inf, 0.0
    for path in folder.glob("*.pfw.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                if not line.startswith("{"):
                    continue
                event = json.loads(line.rstrip().rstrip(","))
                if event["ph"] == "X":
                    events += 1
                    begin = min(begin, event["ts"])
                    end = max(end, event["ts"] + event["dur"])
    return Figures(events, (end - begin) / 1e6 if events else 0.0)


def told_figures(printed: str) -> Figures | None:
    """Return what dfanalyzer says of a trace, or None where it does not say it."""
    found = {name: value.replace(",", "") for name, value in PRINTED.findall(printed)}
    if len(found) < 2:
        return None
    return Figures(int(found["Trace Count"]), float(found["Job Time"]))


def checked(cost: Cost, printed: str, truth: Figures) -> Cost:
    """Return a cost with a fault where what was found is not what the trace holds.

    Args:
        cost: of the analysis.
        printed: by dfanalyzer.
        truth: what is in the trace.
    """
    if cost.fault:
        return cost
    said = told_figures(printed)
    if said is None:
        return cost._replace(fault="prints neither events nor job time")
    if said.events != truth.events or abs(said.job_s - truth.job_s) > ROUNDED_S:
        return cost._replace(fault=f"tells of {said.text()}; the trace has {truth.text()}")
    return cost


def checked_breakdown(cost: Cost, printed: str, events: int) -> Cost:
    """Return a cost with a fault where the kernels' time is not that of the profile.

    Args:
        cost: of the analysis.
        printed: by HolisticTraceAnalysis.
        events: that the profile was written with.
    """
    if cost.fault:
        return cost
    busy_us = KERNEL_US * sum(one.get("cat") == "kernel" for one in profile_events(events))
    lines = [line for line in printed.splitlines() if line.startswith("[{")]
    if not lines:
        return cost._replace(fault="prints no breakdown")
    (rank,) = json.loads(lines[-1])
    told_us = rank["compute_time(us)"] + rank["non_compute_time(us)"]
    if told_us != busy_us:
        fault = f"tells of {told_us:,.0f} us in kernels; the trace has {busy_us:,}"
        return cost._replace(fault=fault)
    return cost


def measure(homes: Homes, events: int) -> list[Bench]:
    """Have a trace of ours judged, and one of torch.profiler.

    Args:
        homes: the interpreters; the peers' has the analysts beside it.
        events: in each file.
    """
    program = Path(homes.peers or "").parent.parent / "analysts" / "bin"
    there = homes.peers is not None and (program / "python").exists()
    ours: dict[str, Callable[[Path], list[str]]] = {
        SUMMARY: lambda path: [homes.main, "-m", "dftrace_ai.cli", "summary", str(path)],
        WHY: lambda path: [homes.main, "-m", "dftrace_ai.cli", "why", str(path)],
    }
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        place = Path(scratch)
        profile = place / "profile" / "rank-0.pt.trace.json.gz"
        trace = place / "trace"
        for folder in (profile.parent, trace):
            folder.mkdir()
        write_profile(events, profile)
        made = ["-m", "bench.files.reading_trace", str(events), str(trace)]
        run_once(homes.main, made, place)
        converted = place / "converted"
        to = ["convert", str(trace), "--to", "dftracer", "--out", str(converted)]
        told = cost_of([homes.main, "-m", "dftrace_ai.cli", *to], trace)
        if told.fault:
            raise RuntimeError(told.fault)
        analyzer = [str(program / "dfanalyzer"), "analyzer=dftracer", "analyzer/preset=dlio"]
        analyzer += ["cluster=local", f"trace_path={converted}"]
        breakdown = [str(program / "python"), "-c", BREAKDOWN, str(profile.parent)]
        analysed, broken_down, notes = None, None, []
        if there:
            answer = place / "analysed.txt"
            truth = figures_of(converted)
            cost = cost_of(["env", "USER=bench", *analyzer], trace, answer)
            analysed = checked(cost, answer.read_text("utf-8", "replace"), truth)
            if not analysed.fault:
                notes = [f"{DFANALYZER}, finds what the trace holds: {truth.text()}"]
            answer = place / "breakdown.txt"
            cost = cost_of(breakdown, trace, answer)
            broken_down = checked_breakdown(cost, answer.read_text("utf-8", "replace"), events)
        return [
            *_benches(
                "judged",
                f"a trace of {events:,} events of ours",
                {name: cost_of(command(trace), trace) for name, command in ours.items()},
                (DFANALYZER, analysed),
                notes,
            ),
            *_benches(
                "judged_profile",
                f"a trace of {events:,} events of torch.profiler",
                {name: cost_of(command(profile), trace) for name, command in ours.items()},
                (HTA, broken_down),
            ),
        ]


def _benches(
    id: str,
    title: str,
    ours: dict[str, Cost],
    peer: tuple[str, Cost | None],
    notes: Sequence[str] = (),
) -> list[Bench]:
    name, cost = peer
    found: dict[str, Cost | None] = {**ours, name: cost}
    cpu = Bench(id, f"{title}: processor time of all threads and processes", "s", reference=WHY)
    cpu.notes += notes
    memory = Bench(f"{id}_memory", f"{title}: peak of memory of a process", "MiB", reference=WHY)
    for label, one in found.items():
        missing = NOT_INSTALLED if one is None else one.fault
        is_there = one is not None and not missing
        cpu.series.append(Series(label, [one.cpu_s] if one and is_there else [], missing=missing))
        memory.series.append(
            Series(label, [one.peak_mib] if one and is_there else [], missing=missing)
        )
    return [cpu, memory]
