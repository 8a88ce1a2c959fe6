"""Instants, counters and flow arrows."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])

with dftrace_ai.tracing(log_file=OUT / "marks"):
    for step in range(2):
        with ai.dataloader.fetch:
            ai.dataloader.fetch.flow_out(f"batch-{step}")
        with ai.compute.forward:
            ai.compute.forward.flow_in(f"batch-{step}")
            ai.counter("loss", values={"train": 1.0 / (step + 1), "smooth": 0.9})
    ai.instant("best model", args={"accuracy": 0.97})
