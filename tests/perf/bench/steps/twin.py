"""Two processes that take turns, step by step: what slows a machine down slows both."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias

Half: TypeAlias = tuple[list[float], float]
"""Processor seconds of each step in the thread that makes it, and of one step in all others."""


def make_batons(folder: Path) -> None:
    """Make what a pair of twins hands each other, in a folder of theirs."""
    for number in range(2):
        os.mkfifo(folder / f"baton-{number}")


@dataclass(frozen=True)
class Twin:
    """One of two processes that do the same, on one processor."""

    number: int  # 0 or 1
    inward: int  # descriptor by which the turn comes
    outward: int  # that by which it goes

    @classmethod
    def joined(cls, number: int, folder: Path) -> Twin:
        """Wait for the other one, who has the other number, and join it."""
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        ways = (os.O_WRONLY, os.O_RDONLY) if number == 0 else (os.O_RDONLY, os.O_WRONLY)
        # Both in the same order: opening waits for the other one.
        ends = [os.open(folder / f"baton-{at}", way) for at, way in enumerate(ways)]
        outward, inward = ends if number == 0 else reversed(ends)
        if number == 1:
            os.write(outward, b"!")
        return cls(number, inward, outward)

    def wait(self) -> None:
        """Wait for the turn, or find that the other one has gone."""
        if not os.read(self.inward, 1):
            raise EOFError("the other process has ended")

    def give(self) -> None:
        """Give it to the other one, if that has not ended behind its last one."""
        try:
            os.write(self.outward, b"!")
        except BrokenPipeError:
            return


def percents(one: list[Half], other: list[Half]) -> list[float]:
    """Return what tracing adds to a step, in percent: a figure a round.

    A round is two halves. In the first of them the first twin is traced and the other one is not,
    in the second one it is the other way round: what one process is slower than the other, by
    where its memory happens to lie, is in both. Steps are compared with those behind them.
    """
    found = []
    for at in range(0, len(one), 2):
        traced, bare = (one[at], other[at + 1]), (other[at], one[at + 1])
        own = [median(a - b for a, b in zip(t[0], n[0], strict=True)) for t, n in zip(traced, bare)]
        others = sum(half[1] for half in traced) - sum(half[1] for half in bare)
        step = median([*bare[0][0], *bare[1][0]]) + (bare[0][1] + bare[1][1]) / 2
        found.append(100 * (sum(own) + others) / 2 / step)
    return found
