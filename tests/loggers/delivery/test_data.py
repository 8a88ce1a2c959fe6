"""Data of all kinds, from everywhere: what can be logged is, all else is told once."""

from __future__ import annotations

from .cases import Left
from .with_torch import CALLS, THREADS


def test_bad_data(left_with_torch: dict[str, Left]) -> None:
    found = left_with_torch["logs_bad_data"]
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


def test_bad_data_without_names(left_with_torch: dict[str, Left]) -> None:
    found = left_with_torch["logs_everything_bad"]
    assert found.status == 0, found.stderr
    values = [line["v"] for line in found.lines() if line["k"] == "m"]
    assert values == [{"loss": 1.0, "5": 2.0}, {"loss": 1.0, "d": 3.0}]


def test_bad_data_by_name(left_with_torch: dict[str, Left]) -> None:
    found = left_with_torch["logs_bad_by_name"]
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


def test_threads_and_signal_handlers(left_with_torch: dict[str, Left]) -> None:
    found = left_with_torch["logs_from_everywhere"]
    assert found.status == 0, found.stderr
    assert found.lost() == found.lost("local") == []
    losses = found.losses()
    assert losses.count(1.0) == (THREADS + 1) * CALLS
    assert found.told_at_last() == "finished"
    # Each call has a number of its own.
    assert sorted(found.steps()) == list(range(len(losses)))
    assert len(found.taken()) == len(losses) + 1


def test_sync_waits_until_it_is_taken(left_with_torch: dict[str, Left]) -> None:
    found = left_with_torch["sync-None"]
    assert found.status == 0, found.stderr
    hung = left_with_torch["sync-hang"]
    assert hung.status == 0, hung.stderr
    assert hung.steps() == list(range(5))
    assert hung.lost() == [(3, 5)]


def test_flush(left_with_torch: dict[str, Left]) -> None:
    found = left_with_torch["flushes"]
    assert found.status == 0, found.stderr
    assert found.stdout.split() == ["20", "40", "60"]


def test_own_object(left_with_torch: dict[str, Left]) -> None:
    found = left_with_torch["asks_for_the_tracker"]
    assert found.status == 0, found.stderr
    assert found.stdout.splitlines() == [
        "its own object",
        "nasty lives in a process of its own; to ",
        "nasty has not begun, or could not, which",
    ]
