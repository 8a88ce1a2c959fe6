"""What each of many small traces costs who reads them all, as a job of many ranks leaves them."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from bench.processes import Homes
from bench.series import Bench, Series, Target

from .reading import cost_of, recorded

FILES = 1000
FEW = 100
EVENTS = 1000

COMMANDS = {
    "dftrace summary": ["summary"],
    "dftrace summary --by rank": ["summary", "--by", "rank"],
    "dftrace info": ["info"],
    "dftrace why": ["why"],
}


def write_files(trace: Path, folder: Path, count: int) -> Path:
    """Write a recorded trace again and again, each time as of another process."""
    folder.mkdir()
    text = gzip.decompress(trace.read_bytes())
    (pid,) = {line.split(b'"pid":')[1].split(b",")[0] for line in text.splitlines()[1:2]}
    for number in range(count):
        own = str(100_000 + number).encode()
        lines = text.replace(b'"pid":' + pid + b",", b'"pid":' + own + b",")
        packed = gzip.compress(lines, 1)
        (folder / f"trace-host-{own.decode()}.pfw.gz").write_bytes(packed)
    return folder


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Return milliseconds a file, and how much more memory a thousand files take than a hundred."""
    time = Bench(
        "reading_many",
        f"reading {FILES:,} files of {EVENTS:,} events: processor time a file, beyond the first {FEW}",
        "ms",
        reference="dftrace summary",
    )
    memory = Bench(
        "reading_many_memory",
        f"reading {FILES:,} files: peak of memory, beyond that of {FEW}",
        "MiB",
        targets=[Target("dftrace summary", 16.0)],
        reference="dftrace summary",
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        place = Path(scratch)
        trace = recorded(homes, EVENTS, place)
        few = write_files(trace, place / "few", FEW)
        all_of_them = write_files(trace, place / "all", FILES)
        for label, words in COMMANDS.items():
            per_file, growth = Series(label), Series(label)
            for _ in range(3 * rounds):
                costs = [
                    cost_of([homes.main, "-m", "dftrace_ai.cli", *words, str(folder)], folder)
                    for folder in (few, all_of_them)
                ]
                faults = [cost.fault for cost in costs if cost.fault]
                if faults:
                    per_file.missing = growth.missing = faults[0]
                    break
                seconds = costs[1].cpu_s - costs[0].cpu_s
                per_file.samples.append(1000 * seconds / (FILES - FEW))
                growth.samples.append(costs[1].peak_mib - costs[0].peak_mib)
            time.series.append(per_file)
            memory.series.append(growth)
    return [time, memory]
