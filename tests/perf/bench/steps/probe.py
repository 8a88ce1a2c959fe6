"""Runs steps with and without a tracer: `probe CONTESTANT TRAINING ROUNDS DIR TWIN [PACKAGES]`.

Two such processes, the twins 0 and 1, take turns, a step each; in a half of a round one of them is
traced, in the other half the other one. Each writes to `DIR/TWIN.json` a list with a half each:
the processor seconds of its steps, and those of a step in all other threads. The first steps of a
half are not counted: a tracer that puts its own methods into torch's classes has the interpreter
learn anew where those of all modules are, which is a part of beginning and no part of a step. What
a tracer does to begin and to end is in neither.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time, thread_time
from typing import Any

import torch

from bench.steps.trainings import Named, Nothing, Step, annotated, transformer
from bench.steps.twin import Half, Twin

# So many that what is written out behind them is written as often as a program does it, once in a second.
STEPS, SETTLE = 120, 10
WARM = 1


@dataclass(frozen=True)
class Tracer:
    """A contestant."""

    traced: Step  # a step as it is traced
    begin: Callable[[], object] = lambda: None  # called before a block of traced steps
    write: Callable[[], object] = lambda: None  # called to have written what is left of many steps
    end: Callable[[], object] = lambda: None  # called behind it


class Contestants:
    """Makes a tracer of each name, for `transformer`, which nobody has annotated, or `annotated`."""

    def __init__(self, training: str, folder: Path) -> None:
        self.of_spans = training == "annotated"
        self.folder = folder
        self.model, plain = transformer()
        self.plain: Step = annotated(Nothing()) if self.of_spans else plain

    def nobody(self) -> Tracer:
        return Tracer(self.plain)

    def ours(self) -> Tracer:
        import dftrace_ai

        run = dftrace_ai.initialize(log_file=self.folder / "ours")
        if self.of_spans:
            return Tracer(annotated(dftrace_ai.ai), write=run.flush)
        return Tracer(self.plain, dftrace_ai.auto, run.flush, dftrace_ai.auto.remove)

    def pydftracer(self) -> Tracer:
        os.environ |= {"DFTRACER_ENABLE": "1", "DFTRACER_INC_METADATA": "1"}
        from dftracer.python import ai, dftracer

        dftracer.initialize_log(str(self.folder / "peer"), None, -1)
        return Tracer(annotated(ai))

    def viztracer(self) -> Tracer:
        from viztracer import VizTracer

        tracer = VizTracer(verbose=0)
        return Tracer(self.plain, tracer.start, end=lambda: (tracer.stop(), tracer.clear()))

    def torch_profiler(self) -> Tracer:
        # Annotations are spans by `record_function`. What it makes of them at the end is not counted.
        running: list[Any] = []

        def begin() -> None:
            made = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            made.__enter__()
            running.append(made)

        step = annotated(Named("ai")) if self.of_spans else self.plain
        return Tracer(step, begin, end=lambda: running.pop().__exit__(None, None, None))

    def traceml(self) -> Tracer:
        # Its own command has started this process.
        import traceml_ai

        traceml_ai.init(mode="auto")

        def step() -> None:
            with traceml_ai.trace_step(self.model):
                self.plain()

        return Tracer(step)

    def ddtrace(self) -> Tracer:
        # It begins with the process group, and hands what it gathers to a server that is not there.
        import ddtrace
        from ddtrace.contrib.internal.pytorch.patch import unpatch

        ddtrace.patch(pytorch=True)
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        return Tracer(self.plain, lambda: ddtrace.patch(pytorch=True), end=unpatch)


def taken(step: Step, write: Callable[[], object], twin: Twin) -> Half:
    """Take turns with the other process, and return what the steps took.

    Of the other threads, and of what is left to be written, a step's share.
    """
    for _ in range(SETTLE):
        twin.wait()
        step()
        twin.give()
    all_s, own_s, single = process_time(), thread_time(), []
    for _ in range(STEPS):
        twin.wait()
        begun_s = thread_time()
        step()
        single.append(thread_time() - begun_s)
        twin.give()
    write()
    return single, (process_time() - all_s - (thread_time() - own_s)) / STEPS


def main() -> None:
    """Run the rounds; in the first half of each the twin 0 is traced."""
    contestant, training, rounds, folder, number = sys.argv[1:6]
    # Behind everything else: torch's own dependencies must come from its interpreter.
    sys.path += sys.argv[6:]
    torch.set_num_threads(1)
    home = Path(folder)
    (home / number).mkdir()
    contestants = Contestants(training, home / number)
    tracer: Tracer = getattr(contestants, contestant)()
    twin = Twin.joined(int(number), home)

    def half(*, traced: bool) -> Half:
        if not traced:
            return taken(contestants.plain, lambda: None, twin)
        tracer.begin()
        try:
            return taken(tracer.traced, tracer.write, twin)
        finally:
            tracer.end()

    halves = [half(traced=at % 2 == twin.number) for at in range(2 * (WARM + int(rounds)))]
    (home / f"{number}.json").write_text(json.dumps(halves[2 * WARM :]))


if __name__ == "__main__":
    main()
