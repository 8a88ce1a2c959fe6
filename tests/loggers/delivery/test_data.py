"""Data of all kinds, from everywhere: what can be logged is, all else is told once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cases import Case, Left, run_all

THREADS, CALLS = 4, 500


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Left]]:
    names = ["logs_bad_data", "logs_everything_bad", "flushes", "asks_for_the_tracker"]
    cases = [Case(name, name, torch=True) for name in names]
    options = {"threads": THREADS, "calls": CALLS}
    cases.append(Case("logs_from_everywhere", "logs_from_everywhere", options))
    cases += [Case(f"sync-{how}", "waits_for_each", {"how": how}) for how in (None, "hang")]
    return run_all(cases, tmp_path_factory.mktemp("data"))


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


def test_bad_data_without_names(left: dict[str, Left]) -> None:
    found = left["logs_everything_bad"]
    assert found.status == 0, found.stderr
    values = [line["v"] for line in found.lines() if line["k"] == "m"]
    assert values == [{"loss": 1.0, "5": 2.0}, {"loss": 1.0, "d": 3.0}]


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


def test_flush(left: dict[str, Left]) -> None:
    found = left["flushes"]
    assert found.status == 0, found.stderr
    assert found.stdout.split() == ["20", "40", "60"]


def test_own_object(left: dict[str, Left]) -> None:
    found = left["asks_for_the_tracker"]
    assert found.status == 0, found.stderr
    assert found.stdout.splitlines() == [
        "its own object",
        "nasty lives in a process of its own; to ",
        "nasty has not begun, or could not, which",
    ]
