"""Runs: turning recording on and off, and what can be asked of a run."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])

with ai.compute.forward:  # no run is on: nothing happens
    pass

run = dftrace_ai.initialize(log_file=OUT / "first", compression="none")
with ai.compute.forward:
    pass
run.flush()  # all of it is in the file now
print(run.path, run.stats()["written_spans"])
dftrace_ai.finalize()
print(run.stats()["events"], "events, dropped:", run.stats()["dropped"])

config = dftrace_ai.Config(log_file=OUT / "second", timestamps="epoch_us", args=False)
with dftrace_ai.tracing(config):
    ai.compute.update(step=1)
    with ai.compute.step:
        pass

with dftrace_ai.tracing(log_file=OUT / "third"):
    pass  # nothing recorded: no file
