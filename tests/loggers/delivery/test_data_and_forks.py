"""Data of all kinds, from everywhere, and forks meanwhile: what can be logged is, all else is told once."""

from __future__ import annotations

import pytest
from sampling import times

from .cases import Case, Left, run_all

# Two hundred epochs differ from twelve in nothing but the time.
EPOCHS, BATCHES = times(200, 0.06), 4
THREADS, CALLS = 4, 500

NAMES = (
    *("logs_bad_data", "logs_bad_by_name", "asks_for_the_tracker"),
    *("forks_within_a_call", "forks_beside_a_hung_call"),
)
CASES = [
    Case("loads_data", "loads_data", {"epochs": EPOCHS}, torch=True),
    Case("is_killed_beside_workers", "is_killed_beside_workers"),
    Case("forks_in_all_ways", "forks_in_all_ways"),
    *(Case(name, name) for name in NAMES),
    Case("logs_from_everywhere", "logs_from_everywhere", {"threads": THREADS, "calls": CALLS}),
    *(Case(f"sync-{how}", "waits_for_each", {"how": how}) for how in (None, "hang")),
]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Left]:
    return run_all(CASES, tmp_path_factory.mktemp("with-torch"))


def test_bad_data(left: dict[str, Left]) -> None:
    found = left["logs_bad_data"]
    assert found.status == 0, found.stderr
    assert found.stdout == "trained\n"
    metrics = [line for line in found.lines() if line["k"] == "m" and line["a"] == "i"]
    by_step = {line["s"]: line["v"] for line in metrics if line["s"] < 50}
    odd = [by_step.get(step, {}).get("odd", "none") for step in range(19)]
    assert odd[:7] == [1.0, "none", 1.0, 1.0, "none", "none", 1.0]
    assert odd[7:12] == ["NaN", "Infinity", "Infinity", "-Infinity", 1.0]
    assert odd[12:17] == ["none"] * 5
    # The last but one has logged at a step of its own, after which it is counted on.
    assert all(by_step[step]["loss"] == step for step in range(18))
    told = found.stderr
    assert told.count("metric odd cannot be logged") == 1
    assert told.count("log_iter was given a ") == 5
    assert told.count("a step has to be a whole number") == 1
    assert told.count("variable missing (metric) was in no data so far; did you mean mising?") == 1
    last = [line["v"]["loss"] for line in metrics if "loss" in line["v"]]
    assert last[-7:] == [50.0, 60.0, 61.0, 5.0, 0.0, 1.0, 2.0]


def test_bad_data_by_name(left: dict[str, Left]) -> None:
    found = left["logs_bad_by_name"]
    assert found.status == 0, found.stderr
    assert found.stdout == "trained finished\n"
    values = [line["v"] for line in found.lines() if line["k"] == "m"]
    assert values == [
        {"none": 0.0},
        {"loss": 1.0, "('a', 1)": 2.0, "a Untold": 3.0},
        {"none": 1.0},
        {"main/a": 1.0},
    ]
    assert found.ends() == ["finished"]
    told = found.stderr.splitlines()
    for key in ("image", "video", "mesh", "hist"):
        (line,) = (line for line in told if line.startswith(f"{key} freed cannot be logged: "))
        assert "the memory of this tensor has been freed" in line
    for name in ("odd", "meta", "nested", "main/b"):
        assert sum(line.startswith(f"metric {name} cannot be logged: ") for line in told) == 1
    for method in ("metrics", "text", "artifact"):
        (line,) = (line for line in told if line.startswith(f"log_{method}: what it was given"))
    for words in ("the level 'critical' is taken for warning", "the status 'done' is taken for"):
        assert sum(words in line for line in told) == 1
    assert max(map(len, told)) < 1000


def test_threads_and_signal_handlers(left: dict[str, Left]) -> None:
    found = left["logs_from_everywhere"]
    assert found.status == 0, found.stderr
    assert found.lost() == found.lost("local") == []
    losses = found.losses()
    assert losses.count(1.0) == (THREADS + 1) * CALLS
    assert found.told_at_last() == "finished"
    # Each call has a number of its own.
    assert sorted(found.steps()) == list(range(len(losses)))
    assert len(found.taken()) == len(losses) + 1


def test_sync_waits_until_it_is_taken(left: dict[str, Left]) -> None:
    found = left["sync-None"]
    assert found.status == 0, found.stderr
    hung = left["sync-hang"]
    assert hung.status == 0, hung.stderr
    assert hung.steps() == list(range(5))
    assert hung.lost() == [(3, 5)]


def test_own_object(left: dict[str, Left]) -> None:
    found = left["asks_for_the_tracker"]
    assert found.status == 0, found.stderr
    assert found.stdout.splitlines() == [
        "its own object",
        "nasty lives in a process of its own; to ",
        "nasty has not begun, or could not, which",
    ]


@pytest.mark.sampled
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


def test_a_fork_waits_for_the_call_of_a_tracker_in_this_process(
    left: dict[str, Left],
) -> None:
    """Else the child has the tracker's lock for ever, and a worker of a loader never begins."""
    found = left["forks_within_a_call"]
    assert found.status == 0, found.stderr
    assert found.lost("locking") == []


def test_a_fork_waits_but_once_for_a_call_that_does_not_end(
    left: dict[str, Left],
) -> None:
    found = left["forks_beside_a_hung_call"]
    assert found.status == 0, found.stderr
    assert found.lost("hanging") == [(1, 1)]
