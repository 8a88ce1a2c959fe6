"""Two runs that differ in their learning rate, logged to files."""

import sys

from dftrace_ai.loggers import make_loggers

OUT = sys.argv[1]

for lr in (0.1, 0.01):
    config = {"log_dir": f"{OUT}/runs", "project": "digits", "run_name": f"lr-{lr}"}
    with make_loggers({"local": {"config": {**config, "tags": ["sweep"]}}}) as loggers:
        loggers.log_hyperparams({"lr": lr, "optimizer": "sgd"})
        for step in range(100):
            loggers.log_iter({"loss": (1 - lr) ** step})
