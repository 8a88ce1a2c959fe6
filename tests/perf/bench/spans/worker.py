"""The process that hosts one contestant, over its pipes: `worker CONTESTANT MODE DIR`.

One JSON object a line: `{"subject": NAME}` is answered with the nanoseconds per iteration, and
`{"close": true}` with what the contestant says at its end.

`worker CONTESTANT MODE DIR SUBJECT PART N` runs one loop, or its baseline, for an instruction counter.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from statistics import median
from time import process_time_ns, sleep
from typing import Any

from . import contestants
from .loops import Subject


def settle() -> None:
    """Wait until the threads behind the contestant are done with what was recorded."""
    used = process_time_ns()
    for _ in range(400):
        sleep(0.005)
        now = process_time_ns()
        if now - used < 500_000:
            return
        used = now


class Stopwatch:
    """Times one subject; remembers how many iterations fill a block."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        iterations = 16
        while (took := subject.loop(iterations)) < subject.block_ns // 4:
            iterations *= 4
        self.iterations = max(16, iterations * subject.block_ns // took)

    def round(self) -> dict[str, float]:
        """The median over the pairs of (loop - baseline) per iteration, and the CPU time of the whole process
        per iteration, background threads included, the baseline's taken off; in nanoseconds."""
        subject, n = self.subject, self.iterations
        subject.loop(max(n // 4, 1))
        settle()
        differences: list[float] = []
        baselines = 0
        used = process_time_ns()
        for _ in range(subject.pairs):
            baseline = subject.baseline(n)
            differences.append((subject.loop(n) - baseline) / n)
            baselines += 2 * baseline
        settle()
        used = process_time_ns() - used - baselines
        return {"ns": median(differences), "cpu_ns": used / (n * subject.pairs)}


def main() -> None:
    name, mode, workdir, *counted = sys.argv[1:]
    make = getattr(contestants, name)
    if counted:
        subject, part, n = counted
        chosen = make(mode, workdir).subjects[subject]
        gc.disable()
        (chosen.loop if part == "loop" else chosen.baseline)(int(n))
        # Not closed: what ends a trace would be counted as if it were part of the spans.
        os._exit(0)
    # What a contestant prints must not end up among the answers.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")

    try:
        contestant = make(mode, workdir)
    except ImportError as error:
        answer({"missing": f"{error}"})
        return
    answer({"version": contestant.version, "python": sys.version.split()[0]})
    stopwatches: dict[str, Stopwatch] = {}
    # The collector's pauses would land on whichever contestant is being timed.
    gc.collect()
    gc.freeze()
    gc.disable()
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("close"):
            answer(contestant.close())
            break
        name = request["subject"]
        if name not in stopwatches:
            stopwatches[name] = Stopwatch(contestant.subjects[name])
        answer(stopwatches[name].round())
        gc.collect()
    channel.flush()
    # Interpreter teardown is not measured here, and torch's takes long.
    os._exit(0)


if __name__ == "__main__":
    main()
