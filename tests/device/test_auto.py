"""`auto(device=True)`: a training that traces itself, with the times of its stream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import Traced

import dftrace_ai
from device.stand_in import StandIn
from device.test_intervals import on_device
from dftrace_ai.integrations.auto import Auto

torch = pytest.importorskip("torch")


@pytest.fixture
def auto() -> Iterator[Auto]:
    """`dftrace_ai.auto`, which is off before and after."""
    dftrace_ai.auto.remove()
    yield dftrace_ai.auto
    dftrace_ai.auto.remove()


def test_computing_has_intervals_with_the_step_that_it_belongs_to(
    traced: Traced, gpu: StandIn, auto: Auto
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.ones(1, 2)

    def train() -> None:
        for _ in range(2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    with traced(perfetto=False) as run:
        auto(device=True, depth=2)
        train()
        auto.remove()
        auto()
        train()
    told = [(e.name, e.args["step"]) for e in on_device(run.trace)]
    names = ("step.zero_grad", "forward", "forward.0", "backward", "step")
    assert sorted(told) == sorted((name, step) for step in (0, 1) for name in names)
    # Without it there are the spans of the host alone.
    assert len(run.trace.named("backward", "compute")) == 4
