"""Loops: the wait for each item is one event, the body of the loop another."""

import sys
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])
LOADER = [[1.0], [2.0], [3.0]]

with dftrace_ai.tracing(log_file=OUT / "iterate"):
    for epoch in ai.pipeline.epoch.iter(range(2), include_iter=False):
        ai.update(epoch=epoch)
        for step, _batch in enumerate(ai.dataloader.fetch.iter(LOADER)):
            with ai.compute.forward(step=step):
                pass

    loop = ai.data.item.iter(LOADER, iter_name="item.wait", include_block=False)
    print("items to come:", len(loop))
    for _item in loop:
        break  # the event of the first item is there all the same
