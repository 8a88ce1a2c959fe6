"""Everything that was logged to a tracker is told by the tracker's own reader, without a network."""

from __future__ import annotations

from types import ModuleType

import pytest

from trackers.programs import shuffled_steps, six_kinds
from trackers.readers import IN_PROCESS, READERS, local, mlflow, swanlab, tensorboard
from trackers.tracker_runs import TrackerRuns, logged_and_read, python_with

# Values of one step that come in no order; runs that are not called as the loggers call them.
UNORDERED, UNNAMED = (mlflow, tensorboard), (local, tensorboard)
KEPT = {
    "each value": shuffled_steps.all_values,
    "the first": shuffled_steps.first_values,
    "the later": shuffled_steps.later_values,
}


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrackerRuns]:
    there = [module for module in READERS if python_with(module.PACKAGE)]
    return logged_and_read(there, tmp_path_factory.mktemp("trackers"))


@pytest.fixture(params=READERS, ids=lambda module: module.NAME)
def module(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


@pytest.fixture
def runs(module: ModuleType, all_runs: dict[str, TrackerRuns]) -> TrackerRuns:
    if module.NAME not in all_runs:
        pytest.skip(f"{module.PACKAGE} is not installed: `make .venv-trackers/made`")
    return all_runs[module.NAME]


@pytest.mark.parametrize("kind", six_kinds.KINDS)
def test_each_kind_is_read_back_as_it_was_logged(
    module: ModuleType, runs: TrackerRuns, kind: str
) -> None:
    expected = six_kinds.expected()
    if hasattr(module, "as_kept"):
        module.as_kept(expected)

    assert runs.kinds[kind] == expected[kind]


@pytest.mark.sampled
def test_shuffled_steps_of_two_ranks_and_a_restart_keep_what_is_stated(
    module: ModuleType, runs: TrackerRuns
) -> None:
    kept = [KEPT[module.STATED[0]](rank) for rank in (0, 1)]
    losses = [found["metrics"]["loss"] for found in runs.steps]
    if hasattr(module, "FURTHER"):
        ids = [found["id"] for found in runs.steps]
        assert ids[0] == ids[1] != ids[2]
        again = losses.pop(1)
        if module is swanlab:
            assert again == list(map(list, shuffled_steps.again()))
        else:
            losses[0] = six_kinds.by_step(losses[0] + again)
    if module in UNORDERED:
        losses, kept = [sorted(loss) for loss in losses], [sorted(loss) for loss in kept]
    assert losses == kept


def test_each_rank_has_a_run_and_is_told_how_it_ended(
    module: ModuleType, runs: TrackerRuns
) -> None:
    names, ends = ["steps-rank0", "steps-rank1"], ["finished", "killed"]
    if hasattr(module, "FURTHER"):
        names, ends = ["steps-rank0", *names], ["failed", *ends]
    if module in IN_PROCESS:
        ends[-1] = None
    assert [found["run"]["status"] for found in runs.steps] == ends
    if module not in UNNAMED:
        assert [found["run"]["name"] for found in runs.steps] == names


def test_what_a_tracker_has_in_its_own_way_stands_there_as_well(
    module: ModuleType, runs: TrackerRuns
) -> None:
    if hasattr(module, "check_own"):
        module.check_own(runs)


def test_nobody_asks_for_the_network_and_nothing_is_lost(runs: TrackerRuns) -> None:
    assert runs.attempts == []
    assert runs.lost == 0
