"""Trainings whose files, descriptors, threads or processes are not as they should be."""

from __future__ import annotations

import pytest

from .cases import Case, Left, run_all

STEPS = list(range(20))
HALF = STEPS[:10]

# By program what it leaves: steps in its local log, that log's ends, what each tracker lost, and words.
LEAVES = {
    # The local log is opened again, by its name; of a pipe there is no other end to be had.
    "closes_all_descriptors": {
        "steps": STEPS,
        "nasty": [(10, 20)],
        # At once as well, where the run has not ended by then.
        "told": {"has not taken 10 of 20 records: the program has closed its pipe": 1},
    },
    # What was there is gone with it; the rest begins anew, and can be read.
    "removed": {"steps": STEPS[10:], "ends": ["finished"]},
    "fills_the_disk": {
        "steps": HALF + list(range(30, 40)),
        "local": [(20, 40)],
        "told": {"File too large": 1},
    },
    # At once, and with what was lost.
    "has_no_threads": {
        "told": {
            "could not begin": 4,
            "21 logging calls reached no tracker: 21 as they could not be converted in": 1,
        },
    },
    "has_no_processes": {"steps": STEPS, "nasty": [(20, 20)]},
    "has_no_memory_without_a_name": {"taken": len(STEPS) + 1, "told": {"\n": 0}},
    "ignores_its_children": {
        "steps": STEPS + [step + 20 for step in STEPS],
        "nasty": [(39, 41)],
    },
    # Those that are there at once count alone, and the last goes on from them.
    "two_at_once": {
        "steps": STEPS * 2 + [len(STEPS) + step for step in STEPS],
        "ends": ["finished"] * 3,
        "told": {
            "loggers that this program made before still write to the run in ": 1,
            "another run": 0,
        },
    },
    "two_programs_at_once": {
        "told": {"is written by another run at the same time (1 log)": 1, "this program": 0},
    },
    "makes_many": {},
}


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Left]:
    names = {*LEAVES, "has_no_streams"} - {"removed"}
    cases = [Case(name, name) for name in sorted(names)]
    cases += [Case(how, "loses_its_directory", {"how": how}) for how in ("renamed", "removed")]
    cases += [Case(f"few-{n}", "has_few_descriptors", {"limit": n}) for n in (64, 128)]
    return run_all(cases, tmp_path_factory.mktemp("circumstances"))


def assert_trained(left: Left) -> None:
    assert left.status == 0, left.stderr
    assert left.stdout == "trained\n"
    assert "Traceback" not in left.stderr


@pytest.mark.parametrize("name", LEAVES)
def test_a_training_in_trouble_goes_on(left: dict[str, Left], name: str) -> None:
    found, leaves = left[name], LEAVES[name]
    assert_trained(found)
    if "steps" in leaves:
        assert found.steps() == leaves["steps"]
    if "ends" in leaves:
        assert found.ends() == leaves["ends"]
    if "taken" in leaves:
        assert len(found.taken()) == leaves["taken"]
    for tracker in leaves.keys() & {"local", "nasty"}:
        assert found.lost(tracker) == leaves[tracker], found.stderr
    for words, times in leaves.get("told", {}).items():
        assert found.stderr.count(words) == times, found.stderr


def test_directory_is_renamed(left: dict[str, Left]) -> None:
    assert_trained(left["renamed"])
    assert left["renamed"].steps("moved") == STEPS
    assert left["renamed"].ends("moved") == ["finished"]


@pytest.mark.parametrize("limit", [64, 128])
def test_few_descriptors(left: dict[str, Left], limit: int) -> None:
    found = left[f"few-{limit}"]
    assert_trained(found)
    # Whether there are enough or not: what is not there was told.
    for name, got in (("local", len(found.steps())), ("nasty", max(0, len(found.taken()) - 1))):
        told = found.lost(name)
        assert got == 20 - (told[0][0] if told else 0), found.stderr


def test_no_standard_streams(left: dict[str, Left]) -> None:
    found = left["has_no_streams"]
    assert found.status == 0
    assert found.steps() == STEPS
    assert found.taken()[-1] == "finished"
