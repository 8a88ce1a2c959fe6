"""Batches that are fetched ahead of their use, as accelerate and Trainer do, lie in steps and passes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
import torch
from conftest import Traced
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dftrace_ai.integrations.auto import Auto

DATA = TensorDataset(torch.arange(48.0).reshape(24, 2))


def one_ahead(loader: DataLoader) -> Iterator[torch.Tensor]:
    """Each batch but the first is fetched before the one in front of it is used."""
    batches = iter(loader)
    (current,) = next(batches)
    for (following,) in batches:
        yield current
        current = following
    yield current


def four_at_once(loader: DataLoader) -> Iterator[torch.Tensor]:
    """All batches of an optimizer's step are fetched first, and one more."""
    batches = one_ahead(loader)
    while some := list(islice(batches, 4)):
        yield from some


@pytest.mark.parametrize(
    ("batches_of", "accumulated"), [(one_ahead, 1), (one_ahead, 4), (four_at_once, 4)]
)
def test_steps_and_passes_end_with_the_last_batch_that_is_used(
    traced: Traced, auto: Auto, batches_of, accumulated: int
) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    with traced(perfetto=False) as run:
        auto()
        for _ in range(2):
            model.train()
            for number, x in enumerate(batches_of(DataLoader(DATA, batch_size=3)), 1):
                model(x).sum().backward()
                if number % accumulated == 0:
                    optimizer.step()
            model.eval()
            with torch.no_grad():
                for x in batches_of(DataLoader(DATA, batch_size=24)):
                    model(x)
        auto.remove()
    spans = run.trace.spans
    steps = [e for e in spans if (e.cat, e.name) == ("pipeline", "step")]
    assert [e.args["step"] for e in steps] == list(range(16 // accumulated))
    assert {e.args["microbatches"] for e in steps} == {accumulated}
    assert all(one.end_ns <= other.ts_ns for one, other in zip(steps, steps[1:]))

    def within(name: str, outer: list) -> list[int]:
        return [
            sum(o.ts_ns <= e.ts_ns and e.end_ns <= o.end_ns for o in outer)
            for e in spans
            if (e.cat, e.name) in {("compute", name), ("dataloader", name), ("pipeline", name)}
            and e not in outer
        ]

    passes = {n: [e for e in spans if e.name == n] for n in ("epoch", "evaluate")}
    assert [len(found) for found in passes.values()] == [2, 2]
    assert within("forward", steps) == [1] * 16
    assert sorted(within("fetch.iter", steps)) == [0] * 2 + [1] * 16
    assert within("fetch.iter", passes["epoch"] + passes["evaluate"]) == [1] * 18
    assert within("forward.eval", passes["evaluate"]) == [1] * 2
    assert within("forward", passes["epoch"]) == [1] * 16
    ends = [e.args["step"] for e in steps if any(e.end_ns == o.end_ns for o in passes["epoch"])]
    assert ends == [8 // accumulated - 1, 16 // accumulated - 1]
