"""The calls of dftracer's logger, for code that was written for it."""

import sys
from pathlib import Path

from dftrace_ai import ai, dftracer

OUT = Path(sys.argv[1])

logger = dftracer.initialize_log(logfile=OUT / "logger", data_dir="data", process_id=-1)
print(dftracer.get_instance() is logger)  # there is one for the process

with ai.compute.forward:
    pass

start = logger.get_time()
logger.log_event(
    name="validate",
    cat="app",
    start_time=start,
    duration=250,
    int_args={"samples": 64},
    float_args={"accuracy": 0.75},
    string_args={"split": "test"},
)
logger.log_metadata_event("dataset", "digits")
logger.finalize()
