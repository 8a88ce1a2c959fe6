"""Context managers with arguments: they belong to this one block."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])

with dftrace_ai.tracing(log_file=OUT / "context_manager_arguments"):
    for step in range(2):
        with ai.compute.forward(epoch=0, step=step, args={"micro_batch": step + 1}):
            pass
        with ai.comm.send(peer=1, tensor_bytes=4096) as send:
            send.update(tag="gradients")  # more of them, while the block runs
