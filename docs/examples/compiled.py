"""torch.compile: annotate around what is compiled, not inside of it."""

import sys
from pathlib import Path

import torch

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])

model = torch.compile(torch.nn.Linear(4, 2), backend="eager", fullgraph=True)


@ai.compute.forward
def forward(batch: torch.Tensor) -> torch.Tensor:
    output: torch.Tensor = model(batch)
    return output


with dftrace_ai.tracing(log_file=OUT / "compiled"):
    with ai.compute.init:
        forward(torch.ones(8, 4))  # the first call compiles
    forward(torch.ones(8, 4))
