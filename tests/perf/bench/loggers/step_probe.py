"""Adds up what a step of a training pays for its metrics: `step_probe BLOCKS DIR`.

Prints by contestant a list with a figure a block of steps, each of them microseconds a step: on the
thread that calls, of all other threads of the process, and of the processes of the tracker.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import dftrace_ai
from dftrace_ai.loggers import Loggers

from .calls_probe import made, metrics_of, training_step
from .step import FAULTY, METRICS, NOTHING, STEPS, TRACKERS

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PARTS = ("call", "threads", "processes")


def of_processes(folder: str) -> float:
    """Return the processor time of the processes whose command names a folder, in seconds."""
    found = 0.0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (
                int(path.name) == os.getpid()
                or folder.encode() not in (path / "cmdline").read_bytes()
            ):
                continue
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        found += (int(fields[11]) + int(fields[12])) * TICK_S
    return found


def block(loggers: Loggers | None, folder: str, step: Any, data: dict[str, float]) -> list[float]:
    """Return what a step pays, by part, in microseconds."""
    calls: list[float] = []
    before = time.process_time_ns() - time.thread_time_ns(), of_processes(folder)
    for _ in range(STEPS):
        step()
        begun_ns = time.perf_counter_ns()
        if loggers is not None:
            loggers.log_iter(data)
        calls.append((time.perf_counter_ns() - begun_ns) / 1e3)
    others_us = (time.process_time_ns() - time.thread_time_ns() - before[0]) / 1e3
    return [
        median(calls),
        others_us / STEPS,
        (of_processes(folder) - before[1]) * 1e6 / STEPS,
    ]


def main() -> None:
    """Have everyone log in steps, one after the other."""
    blocks, scratch = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dftrace_ai.initialize(log_file=f"{scratch}/trace")
    step = training_step()
    data = metrics_of(METRICS)
    plans: list[tuple[str, tuple[str, ...], dict[str, str]]] = [
        *((label, trackers, {}) for label, trackers in TRACKERS.items()),
        *((label, ("faulty",), options) for label, options in FAULTY.items()),
    ]
    answer: dict[str, dict[str, list[float]]] = {}
    for number, (label, trackers, options) in enumerate(plans):
        folder = f"{scratch}/plan{number}/"
        how = {"options": options, "limit_s": 1.0, "run_name": "run"}
        loggers = None if label == NOTHING else made(folder, *trackers, **how)
        # The beginning of a tracker, with what it imports, is no step's.
        for _ in range(3):
            block(loggers, folder, step, data)
        found = answer[label] = {part: [] for part in PARTS}
        for _ in range(blocks):
            for part, figure in zip(PARTS, block(loggers, folder, step, data), strict=True):
                found[part].append(figure)
        if loggers is not None:
            loggers.end_log()
    dftrace_ai.finalize()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
