"""A program that trains and knows nothing of tracing: `program TRAINING STEPS DIR TWIN`.

What `dftrace run` starts, or Python alone. Two of them, the twins 0 and 1, take turns, a step each, and then
steps for a second at a stretch, while the other one waits. Each writes to `DIR/TWIN.json` what its steps have
taken, once all is warm: processor seconds of each of the first ones in the thread that trains, those of one
step of the others in all other threads and in workers, and the whole of both.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, process_time, thread_time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from bench.steps.trainings import LENGTH, LETTERS, Step, small_transformer
from bench.steps.twin import Twin

SETTLE, STRETCH_S = 20, 1.0
IMAGES, SIDE, KINDS, IMAGE_BATCH = 4096, 32, 10, 32
TEXTS, TEXT_BATCH, ACCUMULATED = 4096, 4, 2
TOLD_EVERY, JUDGED_EVERY, JUDGED_BATCHES = 10, 50, 4


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Pictures that are cropped, flipped and brought to the same scale, one by one."""

    def __init__(self) -> None:
        self.pixels = torch.randint(0, 256, (IMAGES, 3, SIDE + 4, SIDE + 4), dtype=torch.uint8)
        self.kinds = torch.randint(0, KINDS, (IMAGES,))

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        top, left, turned = torch.randint(0, 4, (3,)).tolist()
        image = self.pixels[index, :, top : top + SIDE, left : left + SIDE]
        image = image.flip(2) if turned > 1 else image
        return image.float().div_(255).sub_(0.45).div_(0.22), self.kinds[index]


def convolutions(workers: int) -> Step:
    """Return a step of a small network of convolutions, its batches loaded by so many workers."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1024, KINDS),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(
        Images(), IMAGE_BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    coming = _again_and_again(loader)

    def step() -> None:
        images, kinds = next(coming)
        optimizer.zero_grad()
        F.cross_entropy(model(images), kinds).backward()
        optimizer.step()

    return step


def trainer() -> Step:
    """Return a step as trainers of frameworks make it: accumulated, clipped, scheduled, and judged."""
    model = small_transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: min(1.0, at / 100))
    texts: Any = torch.randint(0, LETTERS, (TEXTS, LENGTH + 1))
    coming = _again_and_again(DataLoader(texts, TEXT_BATCH, shuffle=True))
    judging = DataLoader(texts[: TEXT_BATCH * JUDGED_BATCHES], TEXT_BATCH)
    told: list[float] = []

    def loss_of(batch: Tensor) -> Tensor:
        return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    def step() -> None:
        for _ in range(ACCUMULATED):
            loss = loss_of(next(coming).to("cpu")) / ACCUMULATED
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if schedule.last_epoch % TOLD_EVERY == 0:
            told.append(loss.item())
        if schedule.last_epoch % JUDGED_EVERY == 0:
            model.eval()
            with torch.no_grad():
                told.append(sum(loss_of(batch).item() for batch in judging))
            model.train()

    return step


def _again_and_again(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


TRAININGS: dict[str, Callable[[], Step]] = {
    "convolutions": lambda: convolutions(0),
    "workers": lambda: convolutions(2),
    "trainer": trainer,
}


def all_s() -> float:
    """Return the processor seconds of this process and of those that it has begun."""
    # What Linux makes of a process id for the clock of that process, in all its threads.
    pids = [one.pid for one in multiprocessing.active_children()]
    return process_time() + sum(time.clock_gettime((~pid << 3) | 2) for pid in pids if pid)


def main() -> None:
    """Train, in turn with the other one."""
    training, steps, folder, number = sys.argv[1:5]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = TRAININGS[training]()
    twin = Twin.joined(int(number), Path(folder))
    first_s, single = all_s(), []
    for _ in range(SETTLE + int(steps)):
        twin.wait()
        step_s = thread_time()
        step()
        single.append(thread_time() - step_s)
        twin.give()
    # What is paid by the second is paid by all steps of that second: none of them may wait meanwhile.
    twin.wait()
    begun_s, own_s, end_s, stretch = all_s(), thread_time(), monotonic() + STRETCH_S, 0
    while monotonic() < end_s:
        step()
        stretch += 1
    others_s = all_s() - begun_s - (thread_time() - own_s)
    twin.give()
    found = [single[SETTLE:], others_s / stretch, all_s() - first_s]
    Path(folder, f"{number}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
