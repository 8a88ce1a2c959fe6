"""Trainings on the digits that really run, slow in one way that is known or in none: `python real_runs.py OUT`."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

EXAMPLES = 384
BATCH = 16


@dataclass
class Plan:
    """What a training does beside its work; times are slept, in milliseconds."""

    epochs: int = 3
    # Of the batch that is loaded: eight of them take some ten milliseconds.
    copies: int = 8
    workers: int = 0
    persistent: bool = True
    start_worker_ms: float = 0.0
    item_ms: float = 0.0
    read_ms: float = 0.0
    rare_ms: float = 0.0
    rare: int = 200
    collate_ms: float = 0.0
    pieces: int = 0
    transfer_ms: float = 0.0
    forward_ms: float = 0.0
    optimizer_ms: float = 0.0
    comm_ms: float = 0.0
    log_ms: float = 0.0
    log_every: int = 1
    log_told: bool = False
    evaluate: int = 0
    evaluate_every: int = 0
    save_every: int = 0
    save_ms: float = 0.0
    save_mb: int = 0
    leak_mb: float = 0.0
    slow: dict[int, float] = field(default_factory=dict)
    warm: int = 0
    warm_ms: float = 0.0
    start_ms: float = 0.0
    grow_ms: float = 0.0
    since: int = 0
    since_ms: float = 0.0
    first: int = 0
    first_ms: float = 0.0
    sampler_ms: float = 0.0
    between_ms: float = 0.0
    other_kind_ms: float = 0.0
    where: str = "forward"
    steps_told: str = "loop"
    accumulate: int = 1


P = Plan
LEAK = "memory-creep/memory bytes, process"
PLANTED: dict[str, tuple[str, Plan]] = {
    "slow items, inline": ("input-bound/inline", P(item_ms=2)),
    "slow items, inline, mild": ("input-bound/inline", P(item_ms=0.4)),
    "slow items, inline, steps marked": ("input-bound/inline", P(item_ms=2, steps_told="marks")),
    "one worker": ("input-bound/workers", P(workers=1, item_ms=3)),
    "one worker, mild": ("input-bound/workers", P(workers=1, item_ms=1.8)),
    "two workers": ("input-bound/workers", P(workers=2, item_ms=6)),
    "slow collate": ("input-bound/collate", P(workers=1, collate_ms=60)),
    "slow collate, mild": ("input-bound/collate", P(workers=1, collate_ms=35)),
    "slow collate, inline": ("input-bound/collate", P(collate_ms=20)),
    "slow disk": ("input-bound/disk", P(workers=1, read_ms=4)),
    "slow disk, two workers": ("input-bound/disk", P(workers=2, read_ms=8)),
    "slow disk, inline": ("input-bound/disk", P(read_ms=2)),
    "a few slow items": ("input-bound/slow-item", P(workers=1, rare_ms=900, epochs=6)),
    "a few slow items, inline": ("input-bound/slow-item", P(rare_ms=700, epochs=6)),
    "workers that start": (
        "input-bound/start-up",
        P(workers=1, persistent=False, start_worker_ms=500, epochs=8),
    ),
    "many small tensors": ("input-bound/idle-workers", P(workers=2, pieces=250, epochs=2)),
    "slow copies": ("transfer-bound/", P(transfer_ms=12)),
    "slow copies, mild": ("transfer-bound/", P(transfer_ms=5)),
    "slow communication": ("communication-bound/", P(comm_ms=15)),
    "slow communication, mild": ("communication-bound/", P(comm_ms=6)),
    "slow optimizer": ("optimizer-heavy/", P(optimizer_ms=90)),
    "slow optimizer, accumulating": (
        "optimizer-heavy/",
        P(optimizer_ms=250, accumulate=3, epochs=6),
    ),
    "slow forward": ("compute-bound/", P(forward_ms=40)),
    "large checkpoints": ("checkpoint-bound/", P(save_every=8, save_mb=48)),
    "slow checkpoints": ("checkpoint-bound/", P(save_every=12, save_ms=250)),
    "slow checkpoints, rare": ("checkpoint-bound/", P(save_every=24, save_ms=400)),
    "evaluation too often": ("evaluation-heavy/", P(evaluate=12, evaluate_every=4)),
    "evaluation too long": ("evaluation-heavy/", P(evaluate=120)),
    "a slow logger": ("other-heavy/", P(log_ms=20, log_told=True)),
    "a slow logger, mild": ("other-heavy/", P(log_ms=8, log_told=True)),
    "a slow logger, not annotated": ("not-annotated/", P(log_ms=20)),
    "a slow logger, now and then": (
        "periodic/other",
        P(log_ms=150, log_every=9, log_told=True, epochs=6),
    ),
    "a slow logger, now and then, not annotated": (
        "periodic/none",
        P(log_ms=150, log_every=9, epochs=6),
    ),
    "a leak": (LEAK, P(leak_mb=4, epochs=10)),
    # Long enough for the looks at the memory on a fast machine, too.
    "a leak, slow": (LEAK, P(leak_mb=1, epochs=10, forward_ms=5)),
    "one slow step": ("slow-step/forward", P(slow={53: 2500})),
    "one slow step, loading": ("slow-step/wait", P(slow={53: 2500}, where="wait")),
    "one slow step, optimizer": ("slow-step/optimizer", P(slow={41: 2500}, where="optimizer")),
    "slow warm-up": ("slow-warm-up/forward", P(warm=6, warm_ms=400)),
    "slow warm-up, optimizer": (
        "slow-warm-up/optimizer",
        P(warm=9, warm_ms=250, where="optimizer"),
    ),
    "a sampler that prepares each epoch": (
        "input-bound/start-up",
        P(sampler_ms=500, epochs=8),
    ),
    "each epoch begins slowly": ("slow-loop-start/forward", P(first=3, first_ms=150, epochs=6)),
    "each epoch begins slowly, optimizer": (
        "slow-loop-start/optimizer",
        P(first=1, first_ms=500, epochs=6, where="optimizer"),
    ),
    "between epochs": ("between-steps/loops", P(between_ms=600, epochs=6)),
    "two kinds of steps": ("two-kinds/forward", P(other_kind_ms=150, epochs=6)),
    "slower and slower": ("slower-and-slower/forward", P(grow_ms=0.8, epochs=5)),
    "slower and slower, optimizer": (
        "slower-and-slower/optimizer",
        P(grow_ms=0.25, epochs=5, where="optimizer"),
    ),
    "slower since": ("slower-since/forward", P(since=70, since_ms=60, epochs=5)),
}

CLEAN: dict[str, Plan] = {
    "plain": P(),
    "one worker": P(workers=1, copies=48),
    "two workers": P(workers=2, copies=48),
    "workers that start again": P(workers=1, persistent=False, copies=48),
    "steps marked": P(steps_told="marks"),
    "step numbers": P(steps_told="numbers"),
    "optimizer alone": P(steps_told="optimizer"),
    "accumulation": P(accumulate=3, epochs=6),
    "evaluation": P(evaluate=3),
    "a checkpoint an epoch": P(save_every=144, save_mb=1, epochs=12),
    "short": P(epochs=1),
    "a slow start": P(start_ms=4000),
    "a short gap between epochs": P(between_ms=30, epochs=6),
    "long": P(epochs=12),
}


def wanted(name: str) -> str:
    """What is to be said of a training: kind and cause, empty for nothing."""
    return "" if name.startswith("clean: ") else PLANTED[name][0]


def told(folder: Path, label: str) -> list[str]:
    """What is said of a training; that nothing is in the way of computation, where it was planted."""
    from analysis.why.verdicts import found
    from analysis.why.verdicts import label as label_of

    from dftrace_ai.analysis.why import why

    verdict = why([folder])
    return [label_of(one) for one in verdict.findings if label_of(one) == label] + [
        one for one in found(verdict) if one != label
    ]


def train(plan: Plan, folder: Path) -> None:
    """Runs a training that is traced into a folder."""
    import torch
    from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

    import dftrace_ai
    from dftrace_ai import ai
    from dftrace_ai.demo import Trainer

    chance = random.Random(1)

    class Digits(Dataset[Any]):
        """The digits; items take as long as they are told to."""

        def __init__(self) -> None:
            from sklearn.datasets import load_digits

            images, labels = load_digits(return_X_y=True)
            self.images = torch.tensor(images).float().reshape(-1, 1, 8, 8) / 16
            self.labels = torch.tensor(labels)

        def __len__(self) -> int:
            return EXAMPLES

        def __getitem__(self, index: int) -> Any:
            with ai.data.item(index=index):
                if plan.read_ms:
                    with ai.data.io.read:
                        time.sleep(plan.read_ms / 1e3)
                rare = plan.rare_ms if plan.rare_ms and index % plan.rare == 77 else 0.0
                if plan.item_ms or rare:
                    time.sleep((plan.item_ms + rare) / 1e3)
                return self.images[index], self.labels[index]

    def collate(items: list[Any]) -> Any:
        with ai.data.preprocess.derive(name="collate"):
            if plan.collate_ms:
                time.sleep(plan.collate_ms / 1e3)
            images, labels = default_collate(items)
            return images, labels, [torch.zeros(4) for _ in range(plan.pieces)]

    def extra(where: str, step: int) -> None:
        if where != plan.where:
            return
        in_epoch = step % (EXAMPLES // BATCH)
        ms = plan.first_ms if in_epoch < plan.first else 0.0
        ms += plan.other_kind_ms if chance.random() < 0.5 else 0.0
        ms += plan.slow.get(step, 0.0) + (plan.warm_ms if step < plan.warm else 0.0)
        ms += plan.grow_ms * step + (plan.since_ms if plan.since and step >= plan.since else 0.0)
        if ms:
            time.sleep(ms / 1e3)

    class Order(Sampler[int]):
        """Which items come, which takes its time once an epoch."""

        def __iter__(self) -> Iterator[int]:
            time.sleep(plan.sampler_ms / 1e3)
            return iter(range(EXAMPLES))

        def __len__(self) -> int:
            return EXAMPLES

    def epoch_of(batches: Any, done: list[int]) -> Iterator[Any]:
        # What delays a batch is the loader's.
        for batch in batches:
            extra("wait", done[0])
            yield batch

    # Without them nobody can know what other programs do meanwhile.
    with dftrace_ai.tracing(log_file=folder / "t", system_counters_s=0.05):
        with ai.data.preprocess:
            digits = Digits()
            time.sleep(plan.start_ms / 1e3)
        batches = DataLoader(
            digits,
            batch_size=BATCH,
            sampler=Order() if plan.sampler_ms else None,
            num_workers=plan.workers,
            collate_fn=collate,
            persistent_workers=plan.persistent and plan.workers > 0,
            multiprocessing_context="fork" if plan.workers else None,
            worker_init_fn=partial(_start_worker, plan.start_worker_ms) if plan.workers else None,
        )
        trainer = Trainer(torch.device("cpu"))
        held: list[Any] = []
        done = [0]

        def work(step: int, images: Any, labels: Any, pieces: list[Any]) -> None:
            with ai.device.transfer:
                images, labels = images.repeat(plan.copies, 1, 1, 1), labels.repeat(plan.copies)
                if plan.transfer_ms:
                    time.sleep(plan.transfer_ms / 1e3)
            with ai.compute.forward:
                loss = torch.nn.functional.cross_entropy(trainer.model(images), labels)
                extra("forward", step)
                if plan.leak_mb:
                    held.append(torch.ones(int(plan.leak_mb * 250_000)))
                if plan.forward_ms:
                    time.sleep(plan.forward_ms / 1e3)
            with ai.compute.backward:
                loss.backward()
            if plan.comm_ms:
                with ai.comm.all_reduce:
                    time.sleep(plan.comm_ms / 1e3)
            if (step + 1) % plan.accumulate == 0:
                with ai.compute.step:
                    trainer.optimizer.step()
                    trainer.optimizer.zero_grad()
                    extra("optimizer", step)
                    if plan.optimizer_ms:
                        time.sleep(plan.optimizer_ms / 1e3)
            if plan.log_ms and step % plan.log_every == plan.log_every - 1:
                with ai.other.log if plan.log_told else nullcontext():
                    time.sleep(plan.log_ms / 1e3)
            if plan.save_every and (step + 1) % plan.save_every == 0:
                with ai.checkpoint.capture:
                    _save(trainer.model, plan, folder)

        def evaluate() -> None:
            with ai.pipeline.evaluate, torch.inference_mode():
                for at in range(plan.evaluate):
                    with ai.compute.forward:
                        trainer.model(digits.images[at : at + 128])

        in_loop = plan.steps_told in ("loop", "marks")
        for epoch in range(plan.epochs):
            turns = epoch_of(batches, done)
            for batch in ai.dataloader.fetch.iter(turns) if in_loop else turns:
                if plan.steps_told != "optimizer":
                    ai.update(epoch=epoch, step=done[0])
                with ai.pipeline.step if plan.steps_told == "marks" else nullcontext():
                    work(done[0], *batch)
                done[0] += 1
                if plan.evaluate_every and done[0] % plan.evaluate_every == 0:
                    evaluate()
            if plan.evaluate and not plan.evaluate_every:
                evaluate()
            time.sleep(plan.between_ms / 1e3)


def _start_worker(ms: float, _: int) -> None:
    time.sleep(ms / 1e3)


def _save(model: Any, plan: Plan, folder: Path) -> None:
    import os

    import torch

    path = folder / "checkpoint.bin"
    with path.open("wb") as file:
        torch.save([model.state_dict(), torch.zeros(plan.save_mb * 250_000)], file)
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    time.sleep(plan.save_ms / 1e3)


def run(plans: dict[str, Plan], out: Path, told: Callable[[str], None] = print) -> None:
    """Runs trainings one after the other, each traced into a folder of its name."""
    import torch
    from sklearn.datasets import load_digits

    from dftrace_ai.demo import Trainer

    torch.set_num_threads(1)
    # What is loaded and set up for the first time is no start of any of them.
    load_digits()
    first = Trainer(torch.device("cpu"))
    first.backward(first.forward(torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64)))
    first.step()
    for name, plan in plans.items():
        (out / name).mkdir(parents=True)
        train(plan, out / name)
        told(name)


def plans_of(names: list[str]) -> dict[str, Plan]:
    """The plans of some trainings, of all where none is named; those of clean ones are `clean: ...`."""
    plans = {name: plan for name, (_, plan) in PLANTED.items()}
    plans |= {f"clean: {name}": plan for name, plan in CLEAN.items()}
    return {name: plans[name] for name in names or plans}


if __name__ == "__main__":
    run(plans_of(sys.argv[2:]), Path(sys.argv[1]), partial(print, flush=True))
