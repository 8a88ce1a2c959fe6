"""Reads the traces named on the command line by every reader; prints results and memory as JSON.

A program of its own, so that its memory is that of the readers.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

# What is read that is not told: a broken reader shall end, and leave the machine alone.
MOST_ADDRESS_SPACE = 6 << 30


def peak_mib() -> int:
    (line,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line
    ]
    return int(line.split()[1]) >> 10


def validated(path: str) -> list[str]:
    from dftrace_ai.analysis.validating import validate_traces

    found = validate_traces([path], limit=3)
    return [fault.message for file in found.files for fault in file.faults]


def merged(path: str) -> list[object]:
    from dftrace_ai.analysis.merging.merged_trace import MergedTrace
    from dftrace_ai.analysis.reading import open_traces

    trace = MergedTrace(open_traces([path]))
    return [sum(chunk.count(b"\n") for chunk in trace), *trace.notes]


def summed(path: str) -> list[object]:
    from dftrace_ai.analysis.summary.table import summarise

    found = summarise([path])
    return [found.events, *found.warnings()]


READERS = {"validate": validated, "merge": merged, "summary": summed}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_SPACE, MOST_ADDRESS_SPACE))
    # Two GiB take seconds; what matters is that there is an end.
    from dftrace_ai.analysis.reading import reader
    from dftrace_ai.errors import DftraceError

    reader.ENDLESS_BYTES = 104 << 20
    name, *paths = sys.argv[1:]
    found: dict[str, object] = {}
    for path in paths:
        try:
            found[Path(path).name] = READERS[name](path)
        except DftraceError as error:
            found[Path(path).name] = [f"refused: {error}"]
    print(json.dumps({"found": found, "peak_mib": peak_mib()}))


main()
