"""Runs steps with and without a tracer in turn: `probe CONTESTANT TRAINING ROUNDS DIR [PACKAGES]`.

Writes to `DIR/CONTESTANT.json` a list with a pair a round: processor seconds of a step in all
threads, without and with. Blocks of steps take turns, and the first of each are not counted: a
tracer that puts its own methods into torch's classes has the interpreter learn anew where those of
all modules are, which is a part of beginning and no part of a step. What a tracer does to begin and
to end is in neither.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time, thread_time
from typing import Any

import torch

from bench.steps.trainings import Named, Nothing, Step, annotated, bare, transformer

STEPS, SETTLE = 20, 10
WARM = 2


@dataclass(frozen=True)
class Tracer:
    """A contestant.

    Args:
        traced: a step as it is traced.
        begin: called before a block of traced steps.
        write: called to have written what is left of many steps.
        end: called behind it.
    """

    traced: Step
    begin: Callable[[], object] = lambda: None
    write: Callable[[], object] = lambda: None
    end: Callable[[], object] = lambda: None


class Contestants:
    """Makes a tracer of each name.

    Args:
        training: `transformer` or `bare`, which nobody has annotated, or `annotated`.
        folder: takes the traces.
    """

    def __init__(self, training: str, folder: Path) -> None:
        self.of_spans = training == "annotated"
        self.folder = folder
        self.model, plain = bare() if training == "bare" else transformer()
        self.plain: Step = annotated(Nothing()) if self.of_spans else plain

    def nobody(self) -> Tracer:
        """Do the same again."""
        return Tracer(self.plain)

    def ours(self) -> Tracer:
        """Trace by dftrace_ai: by annotations, or by `auto`."""
        import dftrace_ai

        run = dftrace_ai.initialize(log_file=self.folder / "ours")
        if self.of_spans:
            return Tracer(annotated(dftrace_ai.ai), write=run.flush)
        return Tracer(self.plain, dftrace_ai.auto, run.flush, dftrace_ai.auto.remove)

    def pydftracer(self) -> Tracer:
        """Trace by pydftracer's annotations."""
        os.environ |= {"DFTRACER_ENABLE": "1", "DFTRACER_INC_METADATA": "1"}
        from dftracer.python import ai, dftracer

        dftracer.initialize_log(str(self.folder / "peer"), None, -1)
        return Tracer(annotated(ai))

    def viztracer(self) -> Tracer:
        """Trace every call of Python."""
        from viztracer import VizTracer

        tracer = VizTracer(verbose=0)
        return Tracer(self.plain, tracer.start, end=lambda: (tracer.stop(), tracer.clear()))

    def torch_profiler(self) -> Tracer:
        """Trace PyTorch's operators, and annotations by `record_function`.

        What it makes of them at the end is not counted.
        """
        running: list[Any] = []

        def begin() -> None:
            made = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            made.__enter__()
            running.append(made)

        step = annotated(Named("ai")) if self.of_spans else self.plain
        return Tracer(step, begin, end=lambda: running.pop().__exit__(None, None, None))

    def traceml(self) -> Tracer:
        """Trace by TraceML, whose own command has started this process."""
        import traceml_ai

        traceml_ai.init(mode="auto")

        def step() -> None:
            with traceml_ai.trace_step(self.model):
                self.plain()

        return Tracer(step)

    def ddtrace(self) -> Tracer:
        """Trace by ddtrace's integration, which begins with the process group.

        What it gathers is handed to a server that is not there.
        """
        import ddtrace
        from ddtrace.contrib.internal.pytorch.patch import unpatch

        ddtrace.patch(pytorch=True)
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        return Tracer(self.plain, lambda: ddtrace.patch(pytorch=True), end=unpatch)


def taken(step: Step, write: Callable[[], object]) -> float:
    """Return the processor time of a step in all threads: the one that makes it, and the others.

    Of the first the median of some steps, for other work on a machine disturbs single ones; of the
    others, and of what is left to be written, a step's share.
    """
    for _ in range(SETTLE):
        step()
    all_s, own_s, single = process_time(), thread_time(), []
    for _ in range(STEPS):
        begun_s = thread_time()
        step()
        single.append(thread_time() - begun_s)
    write()
    others_s = process_time() - all_s - (thread_time() - own_s)
    return median(single) + others_s / STEPS


def main() -> None:
    """Run the rounds; each begins with the other of the two."""
    contestant, training, rounds, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    # Behind everything else: torch's own dependencies must come from its interpreter.
    sys.path += sys.argv[5:]
    torch.set_num_threads(1)
    contestants = Contestants(training, Path(folder))
    tracer: Tracer = getattr(contestants, contestant)()

    def with_it() -> float:
        tracer.begin()
        try:
            return taken(tracer.traced, tracer.write)
        finally:
            tracer.end()

    def without() -> float:
        return taken(contestants.plain, lambda: None)

    def pair() -> tuple[float, float]:
        # Without, with, with, without: what changes slowly is in both.
        first, second, third, fourth = without(), with_it(), with_it(), without()
        return first + fourth, second + third

    pairs = [pair() for _ in range(WARM + rounds)][WARM:]
    (Path(folder) / f"{contestant}.json").write_text(json.dumps(pairs))


if __name__ == "__main__":
    main()
