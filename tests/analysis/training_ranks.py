"""Ranks that train, as lines of traces with counters and statistics of tensors."""

from __future__ import annotations

import random

from analysis.trace_lines import HOST_HASH, TraceLines

OWN = {"hhash": HOST_HASH, "p_idx": 0, "level": 1}


def training(rank: int, steps: int = 40) -> TraceLines:
    """A rank that trains, with counters and statistics of tensors."""
    noise = random.Random(rank)
    trace = TraceLines(100 + rank, rank=rank, world_size=2)
    at = 10_000_000
    for step in range(steps):
        trace.span("fetch.iter", "dataloader", at, 1000, count=step + 1)
        begin = at = at + 1000
        for name in ("forward", "backward", "optimizer.step"):
            took = noise.randrange(20_000, 90_000)
            trace.span(name, "compute", at, took, step=step, epoch=step // 10)
            at += took + 100
        trace.counter("loss", at, train=1 / (step + 1))
        trace.event(
            "i",
            "block.0:weight:grad",
            "tensor_stats",
            at,
            more=',"s":"t"',
            **OWN,
            iteration=step,
            rank=rank,
            feature="stats",
            l2=0.5 * step,
            amax=None,
            amax_str="inf",
            n=64,
        )
        at += 500
        trace.span("fetch.block", "dataloader", begin, at - begin, count=step + 1)
    trace.footer(dropped=rank)
    return trace
