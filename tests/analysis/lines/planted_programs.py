"""Small trainings that really run, each slow in one function: `planted_programs.py NAME SECONDS`."""

from __future__ import annotations

import csv
import gc
import hashlib
import io
import json
import math
import os
import pickle
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

Batch = tuple[torch.Tensor, torch.Tensor]


def spent(seconds: float) -> Iterator[int]:
    """Turns for so long of the thread's own processor time."""
    until, number = time.thread_time() + seconds, 0
    while time.thread_time() < until:
        yield (number := number + 1)


# Of items: each is called with its number.


def split_words(index: int) -> None:
    for _ in spent(0.004):
        re.findall(r"\w+|[^\w\s]", "Of items, each is called with its own number; so be it. " * 3)


def inflate(index: int) -> None:
    packed = zlib.compress(bytes(range(256)) * 200)
    for _ in spent(0.004):
        zlib.decompress(packed)


def fetch_remote(index: int) -> None:
    time.sleep(0.006)


def read_table(index: int) -> None:
    for _ in spent(0.004):
        list(csv.reader(io.StringIO("1,2,3,4,5,6\n" * 20)))


def jitter_pixels(index: int) -> None:
    for _ in spent(0.004):
        [min(255, max(0, round(1.1 * pixel))) for pixel in range(100)]


# Of batches.


def pad_rows(rows: list[Any]) -> None:
    for _ in spent(0.03):
        [[0.0] * 20 + [1.0] * 3 for _ in range(10)]


def sort_by_length(rows: list[Any]) -> None:
    for _ in spent(0.03):
        sorted(range(300), key=lambda one: -one % 17)


# Of steps, outside of all that is annotated.


class History:
    """A callback."""

    def on_batch_end(self, step: int) -> None:
        for _ in spent(0.015):
            json.dumps({"step": step, "loss": [1.0] * 50})


def count_confusions(step: int) -> None:
    for _ in spent(0.015):
        [(a, b) for a in range(10) for b in range(10)]


def smooth_weights(step: int) -> None:
    for _ in spent(0.015):
        torch.ones(64).mul_(0.99).add_(torch.ones(64), alpha=0.01)


def draw_bar(step: int) -> None:
    for _ in spent(0.015):
        f"{step:>6} [{'#' * 30:<40}] {math.pi:.3f}".encode()


class HandMade(torch.optim.SGD):
    """An optimizer with a step of its own."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        self.clip_by_hand()
        return super().step(closure)

    def clip_by_hand(self) -> None:
        for _ in spent(0.03):
            sum(float(p.grad.norm()) for p in self.param_groups[0]["params"] if p.grad is not None)


class Factored(torch.optim.SGD):
    """An optimizer that waits for its state."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        self.load_state_page()
        return super().step(closure)

    def load_state_page(self) -> None:
        time.sleep(0.03)


# Of some steps.


def rebuild_index(step: int) -> None:
    if step in {60, 95}:
        for _ in spent(1.2):
            sorted(range(2000), key=lambda one: one % 13)


def collect_all(step: int) -> None:
    if step in {70, 110}:
        for _ in spent(1.0):
            gc.collect()


def dump_pictures(step: int) -> None:
    if step % 20 == 19:
        for _ in spent(0.15):
            zlib.compress(os.urandom(20_000))


def save_state(step: int) -> None:
    if step % 25 == 24:
        for _ in spent(0.2):
            pickle.dumps([list(range(100))] * 50)


# Of one rank.


def blur_more(index: int) -> None:
    if os.environ.get("RANK") == "1":
        for _ in spent(0.0025):
            [pixel * 0.5 for pixel in range(100)]


def check_sums(step: int) -> None:
    if os.environ.get("RANK") == "0":
        for _ in spent(0.02):
            hashlib.sha256(bytes(5000)).hexdigest()


def wait_for_lock(step: int) -> None:
    if os.environ.get("RANK") == "1":
        time.sleep(0.02)


@dataclass(frozen=True)
class Plan:
    """What is planted, and where."""

    item: Callable[[int], None] | None = None
    collate: Callable[[list[Any]], None] | None = None
    step: Callable[[int], None] | None = None
    optimizer: type[torch.optim.Optimizer] = torch.optim.SGD
    workers: int = 0
    ranks: int = 1
    named: str = ""


PLANS = {
    "item": Plan(item=split_words, named="split_words"),
    "item, inflated": Plan(item=inflate, named="inflate"),
    "worker": Plan(item=jitter_pixels, workers=1, named="jitter_pixels"),
    "worker, a table": Plan(item=read_table, workers=1, named="read_table"),
    "worker, a wait": Plan(item=fetch_remote, workers=1, named="fetch_remote"),
    "collate": Plan(collate=pad_rows, named="pad_rows"),
    "collate of a worker": Plan(collate=sort_by_length, workers=1, named="sort_by_length"),
    "callback": Plan(step=History().on_batch_end, named="History.on_batch_end"),
    "callback, a metric": Plan(step=count_confusions, named="count_confusions"),
    "callback, an average": Plan(step=smooth_weights, named="smooth_weights"),
    "callback, a bar": Plan(step=draw_bar, named="draw_bar"),
    "optimizer": Plan(optimizer=HandMade, named="HandMade.clip_by_hand"),
    "optimizer, a wait": Plan(optimizer=Factored, named="Factored.load_state_page"),
    "slow steps": Plan(step=rebuild_index, named="rebuild_index"),
    "slow steps, garbage": Plan(step=collect_all, named="collect_all"),
    "rhythm": Plan(step=dump_pictures, named="dump_pictures"),
    "rhythm, a checkpoint": Plan(step=save_state, named="save_state"),
    "one rank, items": Plan(item=blur_more, ranks=2, named="blur_more"),
    "one rank, work": Plan(step=check_sums, ranks=2, named="check_sums"),
    "one rank, a wait": Plan(step=wait_for_lock, ranks=2, named="wait_for_lock"),
}


class Numbers(Dataset[Batch]):
    """Examples that cost what is planted."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> Batch:
        if self.plan.item is not None:
            self.plan.item(index)
        return torch.full((256,), index / 100_000), torch.tensor(index % 2)


def together(rows: list[Batch]) -> Batch:
    if plan.collate is not None:
        plan.collate(rows)
    inputs, targets = zip(*rows, strict=True)
    return torch.stack(inputs), torch.stack(targets)


def main(seconds: float) -> None:
    torch.set_num_threads(1)
    model: nn.Module = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 2))
    if plan.ranks > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = plan.optimizer(model.parameters(), lr=1e-3)
    loader = DataLoader(Numbers(plan), 8, collate_fn=together, num_workers=plan.workers)
    until = time.monotonic() + seconds
    for step, (inputs, targets) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs.repeat(8, 1)), targets.repeat(8))
        loss.backward()
        optimizer.step()
        if plan.step is not None:
            plan.step(step)
        # All ranks end with the same step.
        over = torch.tensor(float(time.monotonic() > until and step > 120))
        if plan.ranks > 1 and step % 10 == 9:
            dist.broadcast(over, 0)
        if over and (plan.ranks == 1 or step % 10 == 9):
            break


plan = Plan()

if __name__ == "__main__":
    plan = PLANS[sys.argv[1]]
    main(float(sys.argv[2]))
