"""torch.compile: what is annotated is compiled as one graph, with one span around each call."""

import sys
from pathlib import Path

import torch

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])

layer = torch.nn.Linear(4, 2)


@ai.data.preprocess
def normalised(batch: torch.Tensor) -> torch.Tensor:
    return batch / batch.norm()


@torch.compile(backend="eager", fullgraph=True)
@ai.compute.forward
def forward(batch: torch.Tensor) -> torch.Tensor:
    batch = normalised(batch)  # in the graph: not recorded
    with ai.compute.derive("layer"):  # nor is this
        output: torch.Tensor = layer(batch)
    return output


with dftrace_ai.tracing(log_file=OUT / "compiled"):
    with ai.compute.init:
        forward(torch.ones(8, 4))  # the first call compiles
    forward(torch.ones(8, 4))
