"""start() and stop(): for hooks, where begin and end are two functions."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


class TracingHook:
    def begin(self) -> None:
        ai.pipeline.train.start()

    def before_step(self, step: int) -> None:
        ai.update(step=step)
        ai.compute.start()

    def after_step(self) -> None:
        ai.compute.stop()

    def end(self) -> None:
        ai.pipeline.train.stop()


def train(hook: TracingHook) -> None:
    hook.begin()
    for step in range(3):
        hook.before_step(step)
        hook.after_step()
    hook.end()


with dftrace_ai.tracing(log_file=OUT / "hooks"):
    train(TracingHook())
    ai.comm.barrier.stop()  # never started: ignored, told once, counted in the last line
