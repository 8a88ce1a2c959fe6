"""Weights on a device: those that are due are looked at together, and each as its layer has it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from inspect_sessions import Values, main_log, session, statistics_of
from late_rings import through_rings
from torch import Tensor, nn

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.numerics import plain
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.plain import values_of_row
from dftrace_ai.inspect.numerics.record import final_values

STATS = ["min", "max", "mean", "l2_norm"]


class Launches:
    """Writes rows as torch does, and keeps how many each call has written."""

    def __init__(self) -> None:
        self.alone = 0
        self.together: list[int] = []

    def write_row(self, tensor: Tensor, row: Tensor, **limits) -> None:
        self.alone += 1
        row.copy_(plain.row_of(tensor, **limits))

    def write_rows(self, tensors: list[Tensor], rows: Tensor) -> None:
        self.together.append(len(tensors))
        for tensor, row in zip(tensors, rows, strict=True):
            row.copy_(plain.row_of(tensor))

    def values_of(self, row: Tensor, stats: list[str]) -> dict[str, Tensor]:
        return values_of_row(row, stats)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8),
        nn.LayerNorm(8),
        nn.Linear(8, 8),
        nn.Unflatten(0, (1, -1)),
        nn.MultiheadAttention(8, 2, batch_first=True),
    )


def run(model: nn.Sequential, x: Tensor) -> Tensor:
    hidden = model[:4](x)
    return model[4](hidden, hidden, hidden)[0]


def check(values: Values, layer: str, iteration: int, weight: Tensor) -> None:
    record = collect(weight)
    assert record is not None
    for stat, value in final_values(record, STATS).items():
        found = values[f"{layer}_weight_{stat}", iteration]
        assert found == pytest.approx(value, rel=1e-5, abs=1e-7)


WEIGHTS = {
    "model.0": lambda model: model[0].weight,
    "model.1": lambda model: model[1].weight,
    "model.2": lambda model: model[2].weight,
    "model.4.in_proj": lambda model: model[4].in_proj_weight,
    "model.4.out_proj": lambda model: model[4].out_proj.weight,
}


@pytest.mark.parametrize("slots", [256, 2])
def test_all_weights_that_are_due_are_looked_at_together(tmp_path: Path, slots: int) -> None:
    with session(statistics_of(STATS, ["weight"], freq=2), tmp_path) as values:
        launches = Launches()
        through_rings(0, writer=launches, slots=slots)
        model = network()
        debug_api.attach(model)
        seen = []
        for _ in range(4):
            seen.append({name: find(model).detach().clone() for name, find in WEIGHTS.items()})
            for _ in range(2):
                run(model, torch.randn(3, 6)).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(parameter.grad)
            debug_api.step()
    assert launches.alone == 0
    assert launches.together == ([5, 5] if slots == 256 else [2, 2, 1] * 2)
    for iteration in (0, 2):
        for name, weight in seen[iteration].items():
            check(values, name, iteration, weight)
    assert not values.iterations("model.0_weight_min")[2:]


def test_a_weight_is_seen_as_it_is_when_its_layer_runs(tmp_path: Path) -> None:
    """Changed where it lies, replaced, gone for a time, or not used at all."""
    with session(statistics_of(STATS, ["weight"]), tmp_path) as values:
        launches = Launches()
        through_rings(0, writer=launches)
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(7)))
        first, changed, replaced, freed, left_out, kept, unused = model
        debug_api.attach(model)
        bytes_of = freed.weight.untyped_storage().nbytes()
        for step in range(3):
            numbers = freed.weight.detach().clone()
            freed.weight.untyped_storage().resize_(0)
            y = first(torch.randn(2, 4))
            with torch.no_grad():
                changed.weight.mul_(2)
                replaced.weight.data = torch.randn(4, 4)
                freed.weight.untyped_storage().resize_(bytes_of)
                freed.weight.copy_(numbers)
            used = [changed, replaced, freed, kept, *([] if step == 1 else [left_out])]
            for layer in used:
                y = layer(y)
            weights = {f"model.{index}": model[index].weight.clone() for index in range(6)}
            debug_api.step()
            for name in weights if step != 1 else weights.keys() - {"model.4"}:
                check(values, name, step, weights[name])
        assert values.iterations("model.4_weight_min") == [0, 2]
        assert not values.iterations("model.6_weight_min")
    assert not [line for line in main_log(tmp_path) if line.startswith("ERROR")]
    # In the first step two are looked at in vain; then those that do not stay are left alone.
    assert launches.together[0] == 6
    assert launches.together[1:] == [4, 4]
