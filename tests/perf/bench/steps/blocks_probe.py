"""Runs blocks of bare steps under one tracer: `blocks_probe CONTESTANT BLOCKS DIR NUMBER [PACKAGES]`.

Writes to `DIR/NUMBER.json` the processor seconds of a step in all threads, a number a block,
with what is left to be written. What a tracer does to begin and to end is not in them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import process_time

import torch

from bench.steps.probe import Contestants, Tracer

WARM, STEPS = 50, 250


def main() -> None:
    """Run the blocks."""
    contestant, blocks, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    # Behind everything else: torch's own dependencies must come from its interpreter.
    sys.path += sys.argv[5:]
    torch.set_num_threads(1)
    tracer: Tracer = getattr(Contestants("bare", folder), contestant)()

    def steps(count: int) -> None:
        for _ in range(count):
            tracer.traced()
        tracer.write()

    def block() -> float:
        tracer.begin()
        try:
            steps(WARM)
            begun_s = process_time()
            steps(STEPS)
            return (process_time() - begun_s) / STEPS
        finally:
            tracer.end()

    (folder / f"{sys.argv[4]}.json").write_text(json.dumps([block() for _ in range(blocks)]))


if __name__ == "__main__":
    main()
