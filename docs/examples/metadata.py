"""Metadata mode: a line at the start and one at the end, instead of a span."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai, dftracer

OUT = Path(sys.argv[1])

with dftrace_ai.tracing(log_file=OUT / "metadata"):
    for _epoch in range(2):
        ai.pipeline.epoch.start(metadata=True)
        ai.pipeline.epoch.stop(metadata=True)
    dftracer.get_instance().log_metadata_event("optimizer", "AdamW")
