"""Trains in windows with and without samples of lines: `sampled_probe ROUNDS HZ DIR`.

Prints, of each round of four windows, what a step took more with samples, and which share of a core the thread
that takes them used; both in percent. With 0 for HZ nothing is ever sampled, which shows what is noise.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import dftrace_ai
from bench.steps.trainings import Step
from dftrace_ai import ai

WINDOW_S = 0.5
WARM = 1


class Window(NamedTuple):
    """A step's processor seconds, in the thread that trains, and the sampler's share of a core."""

    step_s: float
    sampler: float


def small_training() -> Step:
    """Return a step of small modules and of many small calls, about a millisecond and a half."""
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)))
    optimizer = torch.optim.Adam(model.parameters())

    def shifted(x: Tensor) -> Tensor:
        return x + 0.0

    def step() -> None:
        optimizer.zero_grad()
        found = model(torch.ones(8, 64))
        for _ in range(40):
            found = shifted(found)
        found.sum().backward()
        optimizer.step()

    return step


def sampler_s() -> float:
    """Return for how long the thread that samples has run."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text("ascii").strip() == "dftrace-lines":
            return int((task / "schedstat").read_text("ascii").split()[0]) / 1e9
    return 0.0


def window(step: Step, folder: Path, hz: int) -> Window:
    """Train for a while."""
    with dftrace_ai.tracing(log_file=folder / "t", lines_hz=hz):
        with ai.pipeline.step(step=0):
            step()
        begun_s, own_s, others_s = time.monotonic(), time.thread_time(), sampler_s()
        steps, spent_s = 0, 0.0
        while spent_s < WINDOW_S:
            steps += 1
            with ai.pipeline.step(step=steps):
                step()
            spent_s = time.thread_time() - own_s
        share = (sampler_s() - others_s) / (time.monotonic() - begun_s)
    for written in folder.iterdir():
        written.unlink()
    return Window(spent_s / steps, share)


def main() -> None:
    """Run the rounds."""
    rounds, hz, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    step = small_training()
    found: dict[str, list[float]] = {"step": [], "core": []}
    for number in range(WARM + rounds):
        bare, *sampled, bare_again = (window(step, folder, rate) for rate in (0, hz, hz, 0))
        if number < WARM:
            continue
        with_s = sum(one.step_s for one in sampled)
        found["step"].append(100 * (with_s / (bare.step_s + bare_again.step_s) - 1))
        found["core"].append(50 * sum(one.sampler for one in sampled))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
