"""Tensors of every awkward kind, and records of them held against each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from dftrace_ai.inspect.numerics.record import FIELDS


def random_bits(count: int, seed: int) -> Tensor:
    """fp32 numbers of every exponent and sign, NaN and infinities among them."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randint(-(2**31), 2**31, (count,), dtype=torch.int64, generator=generator)
        .to(torch.int32)
        .view(torch.float32)
    )


def normal(count: int, seed: int = 0) -> Tensor:
    """Numbers around zero with deviation one."""
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def sparse(count: int) -> Tensor:
    """What a ReLU leaves: half of it zero."""
    return torch.relu(normal(count, 3))


# More than one block of the kernels, and a rest that fills no register.
N = 100_003

TENSORS: dict[str, Callable[[], Tensor]] = {
    "normal": lambda: normal(N),
    "mean 1e4": lambda: normal(N) + 1e4,
    "mean -3, small deviation": lambda: normal(N) * 1e-3 - 3,
    "1e20": lambda: normal(N) * 1e20,
    "1e-22": lambda: normal(N) * 1e-22,
    "subnormal": lambda: normal(N) * 1e-40,
    "largest": lambda: torch.full((N,), 3.4e38) * torch.sign(normal(N)),
    "constant": lambda: torch.full((N,), 0.1),
    "first ones differ": lambda: torch.cat([torch.full((300,), 1e4), normal(N)]),
    "sorted": lambda: normal(N).sort().values,
    "sparse": lambda: sparse(N),
    "zeros": lambda: torch.zeros(N),
    "negative zeros": lambda: -torch.zeros(N),
    "one": lambda: torch.tensor([-2.5]),
    "one zero": lambda: torch.zeros(1),
    "three": lambda: torch.tensor([3.0, -1.0, 0.5]),
    "a register": lambda: normal(16),
    "a register and one": lambda: normal(17),
    "NaN": lambda: torch.cat([normal(N), torch.tensor([float("nan")]), normal(5)]),
    "only NaN": lambda: torch.full((70,), float("nan")),
    "inf": lambda: torch.cat([torch.tensor([float("inf")]), normal(N)]),
    "-inf": lambda: torch.cat([normal(N), torch.tensor([float("-inf")])]),
    "inf and -inf": lambda: torch.cat(
        [normal(40), torch.tensor([1, -1]) * float("inf"), normal(N)]
    ),
    "only inf": lambda: torch.full((33,), float("inf")),
    "inf and NaN": lambda: torch.tensor([float("inf"), float("nan"), 1.0, 0.0]),
    "any bits": lambda: random_bits(N, 4),
    "a third of a million": lambda: normal(333_333) * 3,
}


def assert_alike(found: Sequence[float], wanted: Sequence[float], within: float = 1.0) -> None:
    """Counts and extremes are the same; sums differ by what another order of adding does."""
    assert len(found) == len(wanted)
    for index, field in enumerate(FIELDS):
        if field not in ("mean", "m2", "absolute_sum", "square_error"):
            both_nan = math.isnan(found[index]) and math.isnan(wanted[index])
            assert found[index] == wanted[index] or both_nan, field
    n = max(wanted[0], 1.0)
    # A mean that is next to nothing beside the numbers themselves is known as well as they are.
    size = within * wanted[3] / n
    assert found[1] == pytest.approx(wanted[1], rel=1e-6, abs=1e-8 * size)
    deviation = math.sqrt(wanted[2] / n)
    assert math.sqrt(found[2] / n) == pytest.approx(deviation, rel=1e-5, abs=1e-7 * size)
    assert found[3] == pytest.approx(wanted[3], rel=1e-6)
