"""Made pipelines: how much slower they are than with even work, and why, as an event heap has it."""

from __future__ import annotations

import made_pipelines
import numpy as np
import pytest
from made_pipelines import CAUSES, PLANTS, MadePipeline, Plant

from dftrace_ai.analysis.ranks.clock_offsets import clocks_of
from dftrace_ai.analysis.ranks.model import LIMITS
from dftrace_ai.analysis.whatif import whatif_of
from dftrace_ai.analysis.whatif.model import WhatIf
from dftrace_ai.analysis.whatif.words import in_words, verdict_lines

STEPS = 24
SHAPES = ((4, 4), (1, 4), (2, 2), (8, 2), (2, 8))
SEEDS = range(6)


def _judged(made: MadePipeline, clocks: np.ndarray | None = None) -> WhatIf:
    job = made.job(clocks)
    return whatif_of(job, clocks_of(job)).result


def _wanted(made: MadePipeline, slowdown: float) -> str:
    if slowdown < 1.05:
        return "none"
    if made.plant in ("worker", "stage") and made.dp == 1:
        return "stage or worker"
    return CAUSES[made.plant]


@pytest.mark.sampled(0.04)
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", SEEDS)
def test_slowdown_and_cause_are_those_of_the_heap(
    plant: Plant, shape: tuple[int, int], seed: int
) -> None:
    made = MadePipeline(plant, *shape, STEPS, seed)
    found = _judged(made)
    assert found.steps is not None
    assert found.slowdown is not None
    measured, even = made.even_ns(found.steps.first)
    assert found.form == "operations"
    assert abs(found.replay_error or 0.0) < 0.005
    assert abs(found.slowdown / (measured / even) - 1) < 0.01
    # Nobody is made slower; but the run-in step, which is not counted, may end earlier.
    assert min(figures.without or 1.0 for figures in found.by_rank.values()) > 0.999
    assert found.cause.kind == _wanted(made, measured / even)
    if found.cause.kind == "worker":
        assert found.cause.ranks == (made.rank,)
    if found.cause.kind == "communication" and (made.dp > 1 or plant == "link"):
        assert [str(number) for number in made.linked] == found.cause.kinds[0].split("ranks ")[
            1
        ].split(", ")
    if found.cause.kind == "stage":
        assert found.cause.stages == (made.stage,)


@pytest.mark.parametrize("plant", ["worker", "data"])
def test_clocks_of_hosts_change_neither_cause_nor_slowdown(plant: Plant) -> None:
    made = MadePipeline(plant, 4, 2, 2 * STEPS, 5)
    draw = np.random.default_rng(3)
    apart = np.stack([draw.uniform(-2e9, 2e9, 2), draw.uniform(-20e-6, 20e-6, 2)], 1)
    one, other = _judged(made), _judged(made, apart)
    assert one.slowdown is not None
    assert other.slowdown is not None
    assert other.cause.kind == one.cause.kind
    assert other.cause.ranks == one.cause.ranks
    assert abs(other.slowdown / one.slowdown - 1) < 0.01


def test_of_ranks_that_work_one_after_the_other_who_has_most_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one micro-batch even work takes as long, and less of it does not: one title says both."""
    monkeypatch.setattr(made_pipelines, "MICRO_BATCHES", 1)
    made = next(
        one
        for one in (MadePipeline("worker", 1, 2, STEPS, seed) for seed in range(9))
        if one.size == 1.0
    )
    found = in_words(_judged(made), LIMITS["cost"])
    assert found.slowdown == pytest.approx(1, abs=0.04)
    assert (found.cause.kind, found.cause.ranks) == ("none", (made.rank,))
    title, what, *rest = verdict_lines(found)
    assert title == "ONE RANK HAS MOST OF THE WORK"
    assert f"did rank {made.rank} as little as the others, the run would be 1." in what
    assert any(line.startswith(f"  without   rank {made.rank} 1.") for line in rest)
    even = in_words(_judged(MadePipeline("clean", 1, 2, STEPS, 1)), LIMITS["cost"])
    assert (even.cause.kind, even.cause.ranks) == ("none", ())
    assert verdict_lines(even)[0] == "EVEN WORK GAINS LITTLE"


def test_without_a_slow_rank_a_pipeline_takes_what_it_takes_when_clean() -> None:
    slow = MadePipeline("worker", 4, 2, STEPS, 2)
    clean = MadePipeline("clean", 4, 2, STEPS, 2)
    found = _judged(slow)
    without = found.by_rank[slow.rank].without
    assert without is not None
    assert abs(found.measured_ns / without / _judged(clean).measured_ns - 1) < 0.03
    assert without == max(figures.without or 0 for figures in found.by_rank.values())
