"""Every event says the epoch and the step that it belongs to, and what lies between steps says none."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from cli.launching import LIMIT_S, RUN
from conftest import LEAN_ENDS, Traced, clean_environment
from perfetto.trace_file import Event
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from dftrace_ai.analysis import Run
from dftrace_ai.analysis.summary.report import reported
from dftrace_ai.integrations.auto import Auto

TRAIN, JUDGE = TensorDataset(torch.ones(12, 4)), TensorDataset(torch.ones(4, 4))
NET, TEACHER = nn.Linear(4, 2), nn.Linear(4, 2).eval()
OPTIMIZER = torch.optim.SGD(NET.parameters(), 0.01)


def update(x: torch.Tensor) -> None:
    OPTIMIZER.zero_grad()
    NET(x).square().mean().backward()
    OPTIMIZER.step()


def judge(batches: Iterable[tuple[torch.Tensor]]) -> None:
    NET.eval()
    with torch.no_grad():
        for (x,) in batches:
            NET(x)
    NET.train()


def loaders(**options: object) -> tuple[DataLoader, DataLoader]:
    return DataLoader(TRAIN, batch_size=4, **options), DataLoader(JUDGE, batch_size=2)


def plain() -> None:
    for _ in range(2):
        for (x,) in loaders()[0]:
            update(x)


def judged_behind_each() -> None:
    train, other = loaders(shuffle=True)
    for _ in range(2):
        for (x,) in train:
            update(x)
        judge(other)
        torch.save({}, "/dev/null")


def judged_within() -> None:
    train, other = loaders()
    for _ in range(2):
        for i, (x,) in enumerate(train):
            update(x)
            if i:
                judge(other)
            if i == 2:
                torch.save({}, "/dev/null")


def judged_on_the_same() -> None:
    train, _ = loaders()
    for _ in range(2):
        for (x,) in train:
            update(x)
        judge(train)


def into_training_mode_at_each_step() -> None:
    train, other = loaders()
    for _ in range(2):
        for (x,) in train:
            NET.train()
            update(x)
        NET.eval()
        with torch.no_grad():
            for (x,) in other:
                NET(x)


def gathered_gradients() -> None:
    train, _ = loaders()
    for _ in range(2):
        OPTIMIZER.zero_grad()
        for i, (x,) in enumerate(train):
            NET(x).square().mean().backward()
            if i != 1:
                OPTIMIZER.step()
                OPTIMIZER.zero_grad()


def taught() -> None:
    train, _ = loaders()
    for _ in range(2):
        for (x,) in train:
            with torch.no_grad():
                wanted = TEACHER(x)
            OPTIMIZER.zero_grad()
            (NET(x) - wanted).square().mean().backward()
            OPTIMIZER.step()


def fetched_ahead() -> None:
    for _ in range(2):
        batches = iter(loaders()[0])
        now = next(batches)
        while now:
            ahead = next(batches, None)
            update(now[0])
            now = ahead


def of_two_loaders() -> None:
    for _ in range(2):
        for (x,), (y,) in zip(DataLoader(JUDGE, batch_size=2), loaders()[0]):
            update(torch.cat([x, y]))


def told_by_a_sampler() -> None:
    sampler = DistributedSampler(TRAIN, num_replicas=1, rank=0)
    train, other = loaders(sampler=sampler)
    for epoch in (5, 6):
        sampler.set_epoch(epoch)
        for (x,) in train:
            update(x)
        judge(other)


class Endless(IterableDataset):
    def __iter__(self) -> Iterable[torch.Tensor]:
        return iter([torch.ones(4)] * 12)


def data_made_anew() -> None:
    for data in (Endless(), Endless()):
        for x in DataLoader(data, batch_size=4):
            update(x)
        judge(DataLoader(TensorDataset(torch.ones(4, 4)), batch_size=2))


TRAININGS: dict[Callable[[], None], dict[int, int]] = {
    plain: {0: 3, 1: 3},
    judged_behind_each: {0: 3, 1: 3},
    judged_within: {0: 3, 1: 3},
    judged_on_the_same: {0: 3, 1: 3},
    into_training_mode_at_each_step: {0: 3, 1: 3},
    gathered_gradients: {0: 2, 1: 2},
    taught: {0: 3, 1: 3},
    fetched_ahead: {0: 3, 1: 3},
    of_two_loaders: {0: 2, 1: 2},
    told_by_a_sampler: {5: 3, 6: 3},
    data_made_anew: {0: 3, 1: 3},
}

UNKNOWN: dict[Callable[[], None], int] = {
    # The first forward of all is a teacher's, and might be an evaluation's.
    taught: 1,
    # The first time that a loader is gone through which has trained before.
    judged_on_the_same: 1,
    # The first wait of each pass over one is in front of the step, which begins with the other's.
    of_two_loaders: 2,
}


def numbers(event: Event) -> tuple[object, object]:
    return event.args.get("epoch"), event.args.get("step")


@pytest.mark.parametrize("train", TRAININGS, ids=lambda one: one.__name__)
def test_every_event_says_the_epoch_and_the_step_that_it_belongs_to(
    train: Callable[[], None], traced: Traced, auto: Auto
) -> None:
    NET.train()
    with traced(perfetto=False) as run:
        auto()
        train()
        auto.remove()
    apart = {"epoch", "evaluate"}
    spans = [e for e in run.trace.spans if e.cat != "data" and e.name not in apart]
    steps = [e for e in spans if (e.cat, e.name) == ("pipeline", "step")]
    assert Counter(e.args["epoch"] for e in steps) == TRAININGS[train]
    wrong = []
    for event in spans:
        around = [s for s in steps if s.ts_ns <= event.ts_ns and event.end_ns <= s.end_ns]
        epoch, step = numbers(event)
        if around:
            if (epoch, step) != numbers(around[0]):
                wrong.append(event)
        elif step is not None:
            wrong.append(event)
        if event.name == "forward.eval" and not around:
            before = [s.args["epoch"] for s in steps if s.end_ns <= event.ts_ns]
            assert epoch == max(before, default=None)
    assert len(wrong) <= UNKNOWN.get(train, 0), [(e.name, e.args) for e in wrong]


PROGRAM = """
import torch
from torch.optim.optimizer import _global_optimizer_pre_hooks
from torch.utils.data import DataLoader, TensorDataset
train, judge = (DataLoader(TensorDataset(torch.ones(n, 4)), batch_size=4) for n in (40, 8))
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    model.train()
    for (x,) in train:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for (x,) in judge:
            model(x)
# Behind `auto` no step of an optimizer pays for hooks that hear of those which came before it.
assert not _global_optimizer_pre_hooks
"""


def test_all_readers_find_as_many_steps_in_each_epoch(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    command = [*RUN, "-o", str(tmp_path / "out"), str(script)]
    subprocess.run(command, check=True, env=clean_environment() | LEAN_ENDS, timeout=LIMIT_S)
    by_name: dict[str, Counter[object]] = {}
    for row in reported([tmp_path / "out"], by="step").spans:
        epoch = None if row.group == "-" else row.group.partition("/")[0]
        by_name.setdefault(f"{row.cat}.{row.name}", Counter())[epoch] += row.count
    per_step = ("dataloader.fetch.iter", "compute.forward", "compute.backward", "compute.step")
    for name in (*per_step, "compute.step.zero_grad", "pipeline.step"):
        waits = {None: 4} if "fetch" in name else {}
        assert by_name[name] == {"0": 10, "1": 10, **waits}, name
    assert by_name["compute.forward.eval"] == {None: 4}
    run = Run(tmp_path / "out")
    assert (run.why.steps.count, len(run.steps[0])) == (20, 20)
    epochs = run.figures.steps.epochs
    assert {one.label: one.steps for one in epochs} == {"epoch 0": 10, "epoch 1": 10}
