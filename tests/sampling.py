"""What is run of a slow matrix: a sample, the same each time, or all of it in `make matrices`.

A test whose cases are too many for every run of the suite is marked so, with the share that is run:

    @pytest.mark.sampled(0.05)
    @pytest.mark.parametrize("checkpoint", CHECKPOINTS)
    @pytest.mark.parametrize("recipe", RECIPES)

Each parameter is an axis of the matrix, and each of its values is in the sample, however small the
share. So is a case that bears the mark `always`. A loop over cases within a test, which share what is
costly to begin, asks `sample` or `times` itself.
"""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeVar

import pytest

SEED = 11
# Of every matrix; without it each has the share that stands beside it.
SHARE = os.environ.get("MATRIX_SHARE")

Case = TypeVar("Case")
Axes = Mapping[str, Hashable]


def share_of(usual: float) -> float:
    """The part of a matrix that is run."""
    return usual if SHARE is None else float(SHARE)


def times(whole: int, usual: float) -> int:
    """How often something random is tried of which `whole` times are all."""
    return max(1, round(whole * share_of(usual)))


def sample(
    cases: Sequence[Case], axes: Sequence[Axes], usual: float, always: Collection[int] = ()
) -> list[Case]:
    """Some of the cases, in their order, among which each value of each axis is.

    Args:
        cases: all of them.
        axes: what each case is along the axes.
        usual: the share of them that is run where nobody asks for another.
        always: the indices of cases that are in every sample.
    """
    values = [set(one.items()) for one in axes]
    order = list(range(len(cases)))
    random.Random(SEED).shuffle(order)
    taken = [index for index in order if index in always]
    missing = set().union(*values).difference(*(values[index] for index in taken))
    while missing:
        most = max(order, key=lambda index: len(values[index] & missing))
        taken.append(most)
        missing -= values[most]
    left = max(0, round(share_of(usual) * len(cases)) - len(taken))
    taken += [index for index in order if index not in taken][:left]
    return [cases[index] for index in sorted(taken)]


def select(items: list[pytest.Item]) -> list[pytest.Item]:
    """Those of the collected tests that are run."""
    matrices: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sampled"):
            matrices.setdefault(item.nodeid.partition("[")[0], []).append(item)
    dropped: set[pytest.Item] = set()
    for cases in matrices.values():
        (mark,) = cases[0].iter_markers("sampled")
        if not mark.args:
            continue  # it asks itself
        always = [i for i, case in enumerate(cases) if case.get_closest_marker("always")]
        axes = [{name: repr(value) for name, value in one.callspec.params.items()} for one in cases]
        dropped.update(set(cases) - set(sample(cases, axes, *mark.args, always=always)))
    return [item for item in items if item not in dropped]
