"""Trains in a fresh fork for each request: `training_probe EPOCHS DIR [PEER_PACKAGES]`.

The parent imports torch and reads the digits once. Each child imports its tracer and warms up
untraced, then times set-up of the tracer, training and the end of the tracer together, so that
nothing but the import, which has a bench of its own, is left out.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

import torch
import torch._dynamo  # loaded by the first optimizer step; here, no child pays for it

from .training_model import Digits, annotated_digits, train_annotated, train_plain


@dataclass(frozen=True)
class Tracing:
    """A contestant's run in three parts: the tracer's beginning, the training, the tracer's end."""

    train: Callable[[], float]
    begin: Callable[[], object] = lambda: None
    end: Callable[[], object] = lambda: None


class Bed:
    """What every child inherits."""

    def __init__(self, epochs: int, workdir: Path) -> None:
        self.epochs = epochs
        self.workdir = workdir
        self.data = Digits(training=True)
        self.held_out = Digits(training=False)

    def annotated(self, ai: Any) -> Callable[[], float]:
        """Return the training with every phase annotated."""
        data = annotated_digits(ai)(training=True)
        return lambda: train_annotated(ai, data, self.held_out, self.epochs)

    def untraced(self) -> Tracing:
        return Tracing(lambda: train_plain(self.data, self.held_out, self.epochs))

    def ours(self) -> Tracing:
        import dftrace_ai
        import dftrace_ai.config.sources
        import dftrace_ai.run.core_settings

        log_file = self.workdir / f"ours-{os.getpid()}"
        return Tracing(
            self.annotated(dftrace_ai.ai),
            lambda: dftrace_ai.initialize(log_file=log_file),
            dftrace_ai.finalize,
        )

    def ours_inert(self) -> Tracing:
        import dftrace_ai

        return Tracing(self.annotated(dftrace_ai.ai))

    def pydftracer(self) -> Tracing:
        os.environ |= {"DFTRACER_ENABLE": "1", "DFTRACER_INC_METADATA": "1"}
        from dftracer.python import ai, dftracer

        log_file = str(self.workdir / f"peer-{os.getpid()}")
        return Tracing(
            self.annotated(ai),
            lambda: dftracer.initialize_log(log_file, None, -1),
            lambda: dftracer.get_instance().finalize(),
        )

    def torch_profiler(self) -> Tracing:
        """Train under torch.profiler on the CPU, its trace exported."""
        from torch.profiler import ProfilerActivity, profile

        profiler = profile(activities=[ProfilerActivity.CPU])

        def end() -> None:
            profiler.stop()
            profiler.export_chrome_trace(str(self.workdir / f"profile-{os.getpid()}.json"))

        return Tracing(self.untraced().train, profiler.start, end)


def child(bed: Bed, contestant: str) -> dict[str, Any]:
    """Set up, warm up, and time one training."""
    try:
        tracing: Tracing = getattr(bed, contestant)()
    except ImportError as error:
        return {"missing": str(error)}
    train_plain(bed.data, bed.held_out, 1)
    gc.collect()
    used, start = process_time_ns(), perf_counter_ns()
    tracing.begin()
    begun = perf_counter_ns()
    accuracy = tracing.train()
    trained = perf_counter_ns()
    tracing.end()
    ended = perf_counter_ns()
    return {
        "s": (ended - start) / 1e9,
        "cpu_s": (process_time_ns() - used) / 1e9,
        "ends_ms": (begun - start + ended - trained) / 1e6,
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
    epochs, workdir = int(sys.argv[1]), Path(sys.argv[2])
    # Behind everything else: torch's own dependencies must come from its interpreter.
    sys.path += sys.argv[3:]
    torch.set_num_threads(1)
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    bed = Bed(epochs, workdir)
    channel.write(json.dumps({"version": str(torch.__version__)}) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("close"):
            channel.write("{}\n")
            break
        channel.write(json.dumps(in_a_fork(bed, request["contestant"])) + "\n")


if __name__ == "__main__":
    main()
