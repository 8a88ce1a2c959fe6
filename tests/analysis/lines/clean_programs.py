"""Small trainings of many kinds, none of them slow anywhere: `clean_programs.py NAME SECONDS`."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import queue
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody does
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

Batch = tuple[torch.Tensor, torch.Tensor]
Training = Callable[[Iterator[int]], None]
TRAININGS: dict[str, Training] = {}
RANKS: dict[str, int] = {}


def training(name: str, ranks: int = 1) -> Callable[[Training], Training]:
    """Enters a training under its name."""

    def enter(function: Training) -> Training:
        TRAININGS[name], RANKS[name] = function, ranks
        return function

    return enter


def steps_for(seconds: float) -> Iterator[int]:
    """Numbers of steps, until the time is over and there were some; the same of all ranks."""
    until, step = time.monotonic() + seconds, 0
    while True:
        over = torch.tensor(float(time.monotonic() > until and step > 60))
        if dist.is_initialized() and step % 10 == 0:
            dist.broadcast(over, 0)
        if over and (not dist.is_initialized() or step % 10 == 0):
            return
        yield step
        step += 1


class Rows(Dataset[Batch]):
    """Examples that lie in memory."""

    def __init__(self, *shape: int, classes: int = 10, count: int = 20_000) -> None:
        self.inputs, self.classes, self.count = torch.randn(256, *shape), classes, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Batch:
        return self.inputs[index % 256], torch.tensor(index % self.classes)


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def perceptron(width: int = 1024) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> torch.Tensor:
    inputs, targets = batch
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss


def fit(loader: Iterable[Batch], steps: Iterator[int], model: nn.Module | None = None) -> None:
    model = model or perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _, batch in zip(steps, endless(loader), strict=False):
        learn(model, optimizer, batch)


@training("perceptron")
def plain(steps: Iterator[int]) -> None:
    fit(DataLoader(Rows(256), 64, shuffle=True), steps)


@training("two workers")
def two_workers(steps: Iterator[int]) -> None:
    fit(DataLoader(Rows(256), 64, num_workers=2, persistent_workers=True), steps)


@training("four workers")
def four_workers(steps: Iterator[int]) -> None:
    # As some have it on machines with fewer processors.
    warnings.simplefilter("ignore", UserWarning)
    fit(DataLoader(Rows(256), 64, num_workers=4, prefetch_factor=4), steps)


@training("convolutions")
def convolutions(steps: Iterator[int]) -> None:
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 10))
    fit(DataLoader(Rows(3, 32, 32), 32, shuffle=True), steps, model)


@training("transformer")
def transformer(steps: Iterator[int]) -> None:
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    encoder, words = nn.TransformerEncoder(layer, 4), nn.Embedding(500, 128)
    head = nn.Linear(128, 500)
    parameters = [*encoder.parameters(), *words.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    mask = nn.Transformer.generate_square_subsequent_mask(64)
    for _ in steps:
        text = torch.randint(0, 500, (8, 65))
        hidden = encoder(words(text[:, :-1]), mask=mask)
        loss = F.cross_entropy(head(hidden).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()


@training("recurrent, sequences of many lengths")
def recurrent(steps: Iterator[int]) -> None:
    cell, head = nn.GRU(32, 64, batch_first=True), nn.Linear(64, 2)
    optimizer = torch.optim.RMSprop([*cell.parameters(), *head.parameters()])
    for _ in steps:
        rows = [torch.randn(random.randint(10, 60), 32) for _ in range(16)]
        packed = nn.utils.rnn.pack_sequence(rows, enforce_sorted=False)
        optimizer.zero_grad()
        _, last = cell(packed)
        F.cross_entropy(head(last[0]), torch.randint(0, 2, (16,))).backward()
        optimizer.step()


class Callback:
    """What a trainer calls."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_step_end(self, step: int, loss: torch.Tensor) -> None:
        if step % 10 == 0:
            self.losses.append(float(loss))


class Trainer:
    """A loop in a class, as trainers have it: callbacks, accumulation, a schedule, checkpoints."""

    def __init__(self, model: nn.Module, loader: Iterable[Batch]) -> None:
        self.model, self.loader, self.callbacks = model, loader, [Callback(), Callback()]
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer)

    def training_step(self, batch: Batch) -> torch.Tensor:
        loss = F.cross_entropy(self.model(batch[0]), batch[1]) / 2
        loss.backward()
        return loss.detach()

    def train(self, steps: Iterator[int]) -> None:
        batches = endless(self.loader)
        for step in steps:
            loss = sum(self.training_step(next(batches)) for _ in range(2))
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            for callback in self.callbacks:
                callback.on_step_end(step, torch.as_tensor(loss))


@training("a trainer of one's own")
def own_trainer(steps: Iterator[int]) -> None:
    Trainer(perceptron(), DataLoader(Rows(256), 32, shuffle=True)).train(steps)


@training("Trainer of transformers")
def of_transformers(steps: Iterator[int]) -> None:
    import tempfile

    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        TrainerCallback,
        TrainingArguments,
    )
    from transformers import Trainer as OfTransformers

    class Texts(Dataset[dict[str, torch.Tensor]]):
        def __len__(self) -> int:
            return 100_000

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            return {"input_ids": torch.arange(32) % 90, "labels": torch.tensor(index % 2)}

    class Ends(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if next(steps, None) is None:
                control.should_training_stop = True

    config = BertConfig(
        vocab_size=100,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
    )
    with tempfile.TemporaryDirectory() as folder:
        asked = TrainingArguments(
            folder,
            report_to=[],
            use_cpu=True,
            logging_steps=50,
            save_strategy="no",
            max_steps=10**6,
        )
        model = BertForSequenceClassification(config)
        OfTransformers(model, asked, train_dataset=Texts(), callbacks=[Ends()]).train()


@training("two networks against each other")
def adversarial(steps: Iterator[int]) -> None:
    maker = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256))
    judge = nn.Sequential(nn.Linear(256, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
    makes = torch.optim.Adam(maker.parameters(), lr=2e-4)
    judges = torch.optim.Adam(judge.parameters(), lr=2e-4)
    loader = endless(DataLoader(Rows(256), 64))
    yes, no = torch.ones(64, 1), torch.zeros(64, 1)
    for _ in steps:
        real, _ = next(loader)
        real, right, wrong = real[:64], yes[: len(real)], no[: len(real)]
        made = maker(torch.randn(len(real), 64))
        judges.zero_grad()
        told = F.binary_cross_entropy_with_logits
        (told(judge(real), right) + told(judge(made.detach()), wrong)).backward()
        judges.step()
        makes.zero_grad()
        told(judge(made), right).backward()
        makes.step()


class Pole:
    """A pole on a cart, roughly."""

    def __init__(self) -> None:
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]

    def act(self, right: bool) -> tuple[list[float], float, bool]:
        x, speed, angle, turning = self.state
        turning += 0.02 * (10 * angle - (3 if right else -3))
        speed += 0.02 * (3 if right else -3)
        self.state = [x + 0.02 * speed, speed, angle + 0.02 * turning, turning]
        return self.state, 1.0, abs(self.state[2]) > 0.2 or abs(self.state[0]) > 2.4


@training("reinforcement")
def reinforcement(steps: Iterator[int]) -> None:
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for _ in steps:
        chances, rewards, pole = [], [], Pole()
        state, over = pole.state, False
        while not over and len(rewards) < 100:
            chosen = torch.distributions.Categorical(logits=policy(torch.tensor(state)))
            action = chosen.sample()
            chances.append(chosen.log_prob(action))
            state, reward, over = pole.act(bool(action))
            rewards.append(reward)
        gained = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        loss = -(torch.stack(chances) * (gained - gained.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@training("mixed precision")
def mixed_precision(steps: Iterator[int]) -> None:
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    for _, (inputs, targets) in zip(steps, endless(DataLoader(Rows(256), 64)), strict=False):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@training("accumulation of four")
def accumulation(steps: Iterator[int]) -> None:
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    batches = endless(DataLoader(Rows(256), 32, shuffle=True))
    for _ in steps:
        for _ in range(4):
            inputs, targets = next(batches)
            (F.cross_entropy(model(inputs), targets) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()


@training("evaluation now and then")
def evaluation(steps: Iterator[int]) -> None:
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters())
    batches, tested = endless(DataLoader(Rows(256), 64)), DataLoader(Rows(256, count=640), 64)
    for step in steps:
        learn(model, optimizer, next(batches))
        if step % 100 == 99:
            model.eval()
            with torch.no_grad():
                for inputs, _ in tested:
                    model(inputs).argmax(1)
            model.train()


@training("checkpoints now and then")
def checkpoints(steps: Iterator[int]) -> None:
    import tempfile

    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters())
    batches = endless(DataLoader(Rows(256), 64))
    with tempfile.TemporaryDirectory() as folder:
        for step in steps:
            learn(model, optimizer, next(batches))
            if step % 200 == 199:
                whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(whole, os.path.join(folder, "last.pt"))


@training("a generator as loader")
def generator(steps: Iterator[int]) -> None:
    def batches() -> Iterator[Batch]:
        rows = Rows(256)
        while True:
            at = torch.randint(0, 256, (64,))
            yield rows.inputs[at], at % 10

    fit(batches(), steps)


class Stream(IterableDataset[Batch]):
    """Examples one after another, without end."""

    def __iter__(self) -> Iterator[Batch]:
        rows = Rows(256)
        for index in range(10**9):
            yield rows[index]


@training("a stream, of a worker")
def stream(steps: Iterator[int]) -> None:
    fit(DataLoader(Stream(), 64, num_workers=1), steps)


@training("threads of one's own")
def own_threads(steps: Iterator[int]) -> None:
    ready: queue.Queue[Batch] = queue.Queue(8)
    losses: queue.Queue[torch.Tensor | None] = queue.Queue()
    over = threading.Event()

    def load() -> None:
        rows = Rows(256)
        while not over.is_set():
            at = torch.randint(0, 256, (64,))
            with contextlib.suppress(queue.Full):
                ready.put((rows.inputs[at], at % 10), timeout=0.1)

    def tell() -> None:
        while (loss := losses.get()) is not None:
            float(loss)

    threads = [threading.Thread(target=load), threading.Thread(target=tell)]
    for thread in threads:
        thread.start()
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in steps:
        losses.put(learn(model, optimizer, ready.get()).detach())
    over.set()
    losses.put(None)
    for thread in threads:
        thread.join()


@training("asyncio")
def with_asyncio(steps: Iterator[int]) -> None:
    async def load(into: asyncio.Queue[Batch]) -> None:
        rows = Rows(256)
        while True:
            at = torch.randint(0, 256, (64,))
            await into.put((rows.inputs[at], at % 10))

    async def main() -> None:
        batches: asyncio.Queue[Batch] = asyncio.Queue(4)
        loading = asyncio.create_task(load(batches))
        model = perceptron()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in steps:
            learn(model, optimizer, await batches.get())
        loading.cancel()

    asyncio.run(main())


@training("closures, and an average of weights")
def closures(steps: Iterator[int]) -> None:
    model = perceptron()
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _, (inputs, targets) in zip(steps, endless(DataLoader(Rows(256), 64)), strict=False):

        def closure(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> float:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            return loss  # type: ignore[return-value]

        optimizer.step(closure)
        with torch.no_grad():
            for kept, now in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(now, 0.01)


@training("two ranks, each with a worker", ranks=2)
def two_ranks(steps: Iterator[int]) -> None:
    rows = Rows(256)
    sampler: DistributedSampler[Batch] = DistributedSampler(rows)
    loader = DataLoader(rows, 64, sampler=sampler, num_workers=1, persistent_workers=True)
    fit(loader, steps, nn.parallel.DistributedDataParallel(perceptron()))


def main(name: str, seconds: float) -> None:
    torch.set_num_threads(1)
    if RANKS[name] > 1:
        dist.init_process_group("gloo")
    TRAININGS[name](steps_for(seconds))
    if RANKS[name] > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
