"""Trains in a fresh fork for each request: `training_probe EPOCHS DIR [PEER_PACKAGES]`.

The parent imports torch and reads the digits once. Each child warms up untraced, then times set-up
of the tracer, training and the end of the tracer together, so that nothing is done for free.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

import torch
import torch._dynamo  # loaded by the first optimizer step; here, no child pays for it

from .training_model import Digits, annotated_digits, train_annotated, train_plain

Tracing = Callable[[], float]


class Bed:
    """What every child inherits.

    Args:
        epochs: how many each run trains.
        workdir: takes the traces.
    """

    def __init__(self, epochs: int, workdir: Path) -> None:
        self.epochs = epochs
        self.workdir = workdir
        self.data = Digits(training=True)
        self.held_out = Digits(training=False)

    def untraced(self) -> Tracing:
        """Train and nothing else."""
        return lambda: train_plain(self.data, self.held_out, self.epochs)

    def ours(self) -> Tracing:
        """Train under dftrace_ai, from initialize to finalize."""
        import dftrace_ai

        data = annotated_digits(dftrace_ai.ai)(training=True)

        def run() -> float:
            with dftrace_ai.tracing(log_file=self.workdir / f"ours-{os.getpid()}"):
                return train_annotated(dftrace_ai.ai, data, self.held_out, self.epochs)

        return run

    def ours_disabled(self) -> Tracing:
        """Train with the annotations in place and tracing never begun."""
        import dftrace_ai

        data = annotated_digits(dftrace_ai.ai)(training=True)
        return lambda: train_annotated(dftrace_ai.ai, data, self.held_out, self.epochs)

    def pydftracer(self) -> Tracing:
        """Train under pydftracer, from initialize_log to finalize."""
        os.environ |= {"DFTRACER_ENABLE": "1", "DFTRACER_INC_METADATA": "1"}
        from dftracer.python import ai, dftracer

        data = annotated_digits(ai)(training=True)

        def run() -> float:
            log = dftracer.initialize_log(str(self.workdir / f"peer-{os.getpid()}"), None, -1)
            accuracy = train_annotated(ai, data, self.held_out, self.epochs)
            log.finalize()
            return accuracy

        return run

    def torch_profiler(self) -> Tracing:
        """Train under torch.profiler on the CPU, its trace exported."""
        from torch.profiler import ProfilerActivity, profile

        def run() -> float:
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                accuracy = train_plain(self.data, self.held_out, self.epochs)
            profiler.export_chrome_trace(str(self.workdir / f"profile-{os.getpid()}.json"))
            return accuracy

        return run


def child(bed: Bed, contestant: str) -> dict[str, Any]:
    """Set up, warm up, and time one training."""
    try:
        tracing: Tracing = getattr(bed, contestant)()
    except ImportError as error:
        return {"missing": str(error)}
    train_plain(bed.data, bed.held_out, 1)
    gc.collect()
    used, start = process_time_ns(), perf_counter_ns()
    accuracy = tracing()
    return {
        "s": (perf_counter_ns() - start) / 1e9,
        "cpu_s": (process_time_ns() - used) / 1e9,
        "accuracy": accuracy,
    }


def in_a_fork(bed: Bed, contestant: str) -> dict[str, Any]:
    """Run one child and return what it found."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as channel:
                json.dump(child(bed, contestant), channel)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as channel:
        text = channel.read()
    _, status = os.waitpid(pid, 0)
    for leftover in bed.workdir.glob("*-*"):
        leftover.unlink()
    if not text:
        return {"missing": f"the training process ended with status {status}"}
    answer: dict[str, Any] = json.loads(text)
    return answer


def main() -> None:
    """Answer one contestant name a line with one JSON object a line."""
    epochs, workdir = int(sys.argv[1]), Path(sys.argv[2])
    # Behind everything else: torch's own dependencies must come from its interpreter.
    sys.path += sys.argv[3:]
    torch.set_num_threads(1)
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    bed = Bed(epochs, workdir)
    channel.write(json.dumps({"torch": str(torch.__version__)}) + "\n")
    for line in sys.stdin:
        channel.write(json.dumps(in_a_fork(bed, line.strip())) + "\n")


if __name__ == "__main__":
    main()
