"""What a program may do that hardly any does: it runs as without `auto`, and is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import Traced
from torch import nn
from torch.utils.data import DataLoader

from dftrace_ai.integrations.auto import Auto


class Unhashable(nn.Module):
    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)  # type: ignore[no-any-return]


class WithoutMode(Unhashable):
    __hash__ = object.__hash__

    @property
    def training(self) -> bool:  # type: ignore[override]
        raise RuntimeError("neither is asked for here")

    @training.setter
    def training(self, mode: bool) -> None:
        pass


@pytest.mark.parametrize("kind", [Unhashable, WithoutMode])
def test_a_model_that_cannot_be_asked_is_recorded(
    traced: Traced, auto: Auto, kind: type[nn.Module]
) -> None:
    model, x = kind(), torch.ones(2)
    expected = model(x)
    with traced(perfetto=False) as run:
        auto(parts="forward")
        assert torch.equal(model(x), expected)
        auto.remove()
    assert [span.name for span in run.trace.spans] == ["forward"]


class Interrupted(WithoutMode):
    @property
    def training(self) -> bool:  # type: ignore[override]
        raise KeyboardInterrupt

    @training.setter
    def training(self, mode: bool) -> None:
        pass


def test_an_interrupt_meanwhile_is_not_lost(traced: Traced, auto: Auto) -> None:
    model = Interrupted()
    with traced(perfetto=False):
        auto(parts="forward")
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(2))
        auto.remove()


def of_loader(yielded: Any) -> Any:
    batches = iter(DataLoader([torch.zeros(1)] * 3))
    batches._num_yielded = yielded
    try:
        return next(batches).tolist(), batches._num_yielded
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("yielded", [2**70, 2**63 - 1, -5, 0.5, None])
def test_a_loader_counts_as_it_likes(traced: Traced, auto: Auto, yielded: Any) -> None:
    expected = of_loader(yielded)
    with traced(perfetto=False) as run:
        auto(parts="data")
        assert of_loader(yielded) == expected
        auto.remove()
    assert "fetch.iter" in {span.name for span in run.trace.spans}


CALLS: list[Callable[[torch.optim.Optimizer], object]] = [
    lambda optimizer: torch.optim.Optimizer.zero_grad(self=optimizer),
    lambda optimizer: torch.optim.SGD.zero_grad(optimizer, set_to_none=False),
    lambda _: torch.optim.SGD.zero_grad(),  # type: ignore[call-arg]
]


@pytest.mark.parametrize("call", CALLS)
def test_a_method_takes_its_arguments_by_their_names(
    traced: Traced, auto: Auto, call: Callable[[torch.optim.Optimizer], object]
) -> None:
    def called() -> object:
        try:
            return call(torch.optim.SGD(nn.Linear(1, 1).parameters()))
        except TypeError as error:
            return str(error)

    expected = called()
    with traced(perfetto=False) as run:
        auto(parts="optimizer")
        assert called() == expected
        auto.remove()
    spans = [span.name for trace in run.traces for span in trace.spans]
    assert spans == ["step.zero_grad"] * (expected is None)


def test_a_step_of_an_optimizer_that_is_not_meant_was_not_left_out(
    traced: Traced, auto: Auto
) -> None:
    model = nn.Linear(1, 1)
    meant, other = (torch.optim.SGD(model.parameters()) for _ in range(2))
    scaler = torch.amp.GradScaler("cpu")
    with traced(perfetto=False) as run:
        auto(optimizer=meant)
        scaler.scale(model(torch.ones(1)).sum()).backward()
        for optimizer in (meant, other):
            scaler.step(optimizer)
        auto.remove()
    assert [event.name for event in run.trace.events if event.ph == "i"] == []
