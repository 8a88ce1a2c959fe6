"""The same training twice; in the second run somebody has made the augmentation slower."""

import sys
import time
from pathlib import Path

import dftrace_ai
from dftrace_ai import ai

OUT = Path(sys.argv[1])


def batches(augment_s: float):
    for number in range(60):
        with ai.data.preprocess.derive(name="augment"):
            time.sleep(augment_s)
        yield number


def train(augment_s: float) -> None:
    for step in ai.dataloader.fetch.iter(batches(augment_s)):
        ai.update(step=step)
        with ai.compute.forward:
            time.sleep(0.004)
        with ai.compute.backward:
            time.sleep(0.006)


if __name__ == "__main__":
    with dftrace_ai.tracing(log_file=OUT / "before" / "t"):
        train(augment_s=0.002)
    with dftrace_ai.tracing(log_file=OUT / "after" / "t"):
        train(augment_s=0.040)
