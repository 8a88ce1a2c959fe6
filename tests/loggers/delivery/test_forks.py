"""Children of a training, forked or otherwise: they hold nothing of a tracker's, and hang by none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cases import Case, Left, run_all

EPOCHS = 25
BATCHES = 4


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Left]]:
    # Two hundred epochs differ from these in nothing but the time.
    cases = [
        Case("loads_data", "loads_data", {"epochs": EPOCHS}, torch=True),
        Case("is_killed_beside_workers", "is_killed_beside_workers"),
        Case("forks_in_all_ways", "forks_in_all_ways"),
    ]
    return run_all(cases, tmp_path_factory.mktemp("forks"))


def test_loader_with_forked_workers(left: dict[str, Left]) -> None:
    found = left["loads_data"]
    assert found.status == 0, found.stderr
    assert found.stdout == "trained\n"
    assert found.steps() == list(range(EPOCHS * BATCHES))
    # What the workers have logged by mistake is in none of the trackers.
    assert -1.0 not in found.losses()
    assert found.lost() == []
    assert found.told_at_last() == "finished"
    assert len(found.taken()) == EPOCHS * BATCHES + 1


def test_killed_while_a_worker_lives_on(left: dict[str, Left]) -> None:
    found = left["is_killed_beside_workers"]
    assert found.status == -9
    assert found.told_at_last() == "killed"


def test_children_of_all_kinds(left: dict[str, Left]) -> None:
    found = left["forks_in_all_ways"]
    assert found.status == 0, found.stderr
    for run in ("run", "child-fork", "child-spawn", "child-forkserver"):
        assert found.steps(run) == list(range(20)), run
        assert found.ends(run) == ["finished"], run
        assert found.told_at_last(run) == "finished"
