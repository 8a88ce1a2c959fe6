"""Children of a training, forked or otherwise: they hold nothing of a tracker's, and hang by none."""

from __future__ import annotations

import pytest

from .cases import Left
from .with_torch import BATCHES, EPOCHS


@pytest.mark.sampled
def test_loader_with_forked_workers(left_with_torch: dict[str, Left]) -> None:
    found = left_with_torch["loads_data"]
    assert found.status == 0, found.stderr
    assert found.stdout == "trained\n"
    assert found.steps() == list(range(EPOCHS * BATCHES))
    # What the workers have logged by mistake is in none of the trackers.
    assert -1.0 not in found.losses()
    assert found.lost() == []
    assert found.told_at_last() == "finished"
    assert len(found.taken()) == EPOCHS * BATCHES + 1


def test_killed_while_a_worker_lives_on(left_with_torch: dict[str, Left]) -> None:
    found = left_with_torch["is_killed_beside_workers"]
    assert found.status == -9
    assert found.told_at_last() == "killed"


def test_children_of_all_kinds(left_with_torch: dict[str, Left]) -> None:
    found = left_with_torch["forks_in_all_ways"]
    assert found.status == 0, found.stderr
    for run in ("run", "child-fork", "child-spawn", "child-forkserver"):
        assert found.steps(run) == list(range(20)), run
        assert found.ends(run) == ["finished"], run
        assert found.told_at_last(run) == "finished"


def test_a_fork_waits_for_the_call_of_a_tracker_in_this_process(
    left_with_torch: dict[str, Left],
) -> None:
    """Else the child has the tracker's lock for ever, and a worker of a loader never begins."""
    found = left_with_torch["forks_within_a_call"]
    assert found.status == 0, found.stderr
    assert found.lost("locking") == []


def test_a_fork_waits_but_once_for_a_call_that_does_not_end(
    left_with_torch: dict[str, Left],
) -> None:
    found = left_with_torch["forks_beside_a_hung_call"]
    assert found.status == 0, found.stderr
    assert found.lost("hanging") == [(1, 1)]
