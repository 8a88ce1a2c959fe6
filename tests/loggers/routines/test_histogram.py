"""Histograms against NumPy's, whole and added up."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from loggers.local_lines import Kept, entry

from dftrace_ai.loggers import make_loggers


def logged(folder, *values, **settings):
    with make_loggers(
        {"local": entry(folder, "hist", tracked_variables={"hist": ["h"]}, **settings)}
    ) as log:
        for value in values:
            log.log_iter({"h": value})
        log.log_epoch()
    return Kept(folder).of("h")


def counted(numbers, edges):
    """Counts where an edge belongs to the bin on the side away from zero, as records have it."""
    edges = np.array(edges)
    below = np.searchsorted(edges, numbers, side="left") - 1
    above = np.searchsorted(edges, numbers, side="right") - 1
    places = np.where(np.signbit(numbers), below, above).clip(0, len(edges) - 2)
    return np.bincount(places, minlength=len(edges) - 1).tolist()


CASES = {
    "normal": lambda: torch.randn(100_003),
    "bf16": lambda: torch.randn(5000).to(torch.bfloat16),
    "half, transposed": lambda: torch.randn(64, 33).half().T,
    "fp64 array": lambda: np.random.default_rng(1).lognormal(0, 8, 20_000),
    "whole numbers": lambda: torch.arange(-500, 1500),
    "booleans": lambda: torch.rand(1000) > 0.3,
    "one value": lambda: torch.full((77,), 0.1),
    "zeros": lambda: torch.zeros(10),
    "with others": lambda: torch.tensor([1.0, -2.0, math.nan, math.inf, -math.inf, 3.0]),
    "list": lambda: [1, 2, 2.5, -7],
    "needs a gradient": lambda: torch.randn(10, requires_grad=True),
}


@pytest.mark.parametrize("case", CASES)
def test_counts_are_those_between_the_edges(case, tmp_path):
    torch.manual_seed(5)
    value = CASES[case]()
    line, _ = logged(tmp_path, value)
    tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value))
    numbers = tensor.detach().to(torch.float32).double().numpy().reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    assert line["counts"] == counted(finite, line["edges"])
    assert sum(line["counts"]) == finite.size
    assert line["non_finite"] == numbers.size - finite.size
    assert (line["minimum"], line["maximum"]) == (finite.min(), finite.max())
    assert line["total"] == pytest.approx(finite.sum(), rel=1e-6, abs=1e-6)
    assert line["total_squares"] == pytest.approx((finite**2).sum(), rel=1e-5)
    assert len(line["counts"]) <= 64
    assert all(low < high for low, high in zip(line["edges"], line["edges"][1:], strict=False))


def test_quantiles_are_as_exact_as_the_fine_bins(tmp_path):
    torch.manual_seed(6)
    value = torch.randn(1_000_000).exp()
    line, _ = logged(tmp_path, value)
    for share, found in line["quantiles"].items():
        assert found == pytest.approx(float(np.quantile(value.numpy(), float(share))), rel=0.03)


def test_an_epoch_is_the_sum_of_its_iterations(tmp_path):
    torch.manual_seed(7)
    parts = [torch.randn(1000) * 10**power for power in range(-3, 4)]
    lines = logged(tmp_path, *parts)
    whole = lines[-1]
    everything = torch.cat(parts).double().numpy()
    assert whole["name"] == "epoch/h"
    assert whole["counts"] == counted(everything, whole["edges"])
    assert [line["s"] for line in lines] == [*range(len(parts)), 0]


def test_a_model_gives_weights_and_gradients(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    model(torch.ones(5, 3)).sum().backward()
    wanted = {n: p.detach().clone() for n, p in model.named_parameters()}
    lines = logged(tmp_path, model, bins=8)
    found = {line["name"]: line for line in lines}
    for name, parameter in wanted.items():
        assert sum(found[f"h/{name}"]["counts"]) == parameter.numel()
        assert found[f"h/{name}.grad"]["maximum"] >= found[f"h/{name}.grad"]["minimum"]
        assert found[f"h/{name}"]["maximum"] == float(parameter.max())


def test_nothing_and_what_has_no_numbers(tmp_path, caplog):
    lines = logged(tmp_path, torch.zeros(0), torch.tensor([math.nan]), torch.tensor([1j]))
    assert [(line["counts"], line["non_finite"]) for line in lines] == [
        ([0], 0),
        ([0], 1),
        ([0], 1),
    ]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "complex" in said
