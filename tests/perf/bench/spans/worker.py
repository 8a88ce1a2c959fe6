"""The process that hosts one contestant and times its subjects when told to, over its pipes.

One JSON object a line: `{"subject": NAME}` is answered with the nanoseconds per iteration, and
`{"close": true}` with what the contestant says at its end.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from statistics import median
from time import process_time_ns, sleep
from typing import Any

from .loops import Subject


def settle(contestant: Any) -> None:
    """Wait until the threads behind the contestant are done with what was recorded."""
    contestant.settle()
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
        self.iterations = self._calibrated()

    def _calibrated(self) -> int:
        iterations = 16
        while True:
            took = self.subject.loop(iterations)
            if took >= self.subject.block_ns // 4:
                return max(16, iterations * self.subject.block_ns // took)
            iterations *= 4

    def round(self, contestant: Any) -> dict[str, float]:
        """Time one round.

        Returns:
            `ns`: median over the pairs of (loop - baseline) per iteration, nanoseconds;
            `cpu_ns`: CPU time of the whole process per iteration, background threads included,
            the baseline's taken off.
        """
        subject, n = self.subject, self.iterations
        subject.loop(max(n // 4, 1))
        settle(contestant)
        differences: list[float] = []
        baselines = 0
        used = process_time_ns()
        for _ in range(subject.pairs):
            baseline = subject.baseline(n)
            differences.append((subject.loop(n) - baseline) / n)
            baselines += 2 * baseline
        settle(contestant)
        used = process_time_ns() - used - baselines
        return {"ns": median(differences), "cpu_ns": used / (n * subject.pairs)}


def main() -> None:
    """Answer requests until the pipe closes: `worker MODULE MODE WORKDIR`."""
    module, mode, workdir = sys.argv[1:4]
    # What a contestant prints must not end up among the answers.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")

    try:
        contestant = importlib.import_module(f"bench.contestants.{module}").Contestant(
            mode, workdir
        )
    except ImportError as error:
        answer({"missing": f"{error}"})
        return
    subjects: dict[str, Subject] = contestant.subjects()
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
            stopwatches[name] = Stopwatch(subjects[name])
        answer(stopwatches[name].round(contestant))
        gc.collect()
    channel.flush()
    # Interpreter teardown is not measured here, and torch's takes long.
    os._exit(0)


if __name__ == "__main__":
    main()
