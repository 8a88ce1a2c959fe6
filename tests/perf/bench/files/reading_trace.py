"""Records a trace of nested spans on four threads: `reading_trace EVENTS DIR`."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

THREADS = 4
EVENTS_A_STEP = 10


def train(steps: int) -> None:
    """Ten spans a step, up to four deep."""
    with ai.pipeline.train:
        for step in range(steps):
            ai.update(step=step)
            with ai.dataloader.fetch:
                pass
            with ai.pipeline.epoch:
                with ai.compute.forward:
                    for _ in range(3):
                        with ai.data.item:
                            pass
                with ai.compute.backward, ai.comm.all_reduce:
                    pass
                with ai.compute.step:
                    pass
                with ai.data.preprocess:
                    pass


def main() -> None:
    """Record and print where the trace is."""
    events, folder = int(sys.argv[1]), Path(sys.argv[2])
    with dftrace_ai.tracing(log_file=folder / "trace", overflow="wait", spool_bytes=1 << 30) as run:
        steps = events // THREADS // EVENTS_A_STEP
        threads = [threading.Thread(target=train, args=(steps,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(json.dumps({"path": run.path}))


if __name__ == "__main__":
    main()
