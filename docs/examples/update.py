"""update: arguments for the events of a node and of all below it."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


@ai.compute.forward
def forward() -> None:
    ai.compute.forward.update(loss=0.5)  # in time: arguments are taken at the end of the span


with dftrace_ai.tracing(log_file=OUT / "update"):
    ai.update(epoch=1, run_name="baseline")
    ai.compute.update(step=7, args={"lr": 0.001, "shapes": {"x": [8, 4], "y": [8]}})
    forward()
    with ai.data.item:
        pass
    ai.compute.reset()
    with ai.compute.backward:
        pass
