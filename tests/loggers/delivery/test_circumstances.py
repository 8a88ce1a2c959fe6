"""Trainings whose files, descriptors, threads or processes are not as they should be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cases import Case, Left, run_all

STEPS = list(range(20))
HALF = STEPS[:10]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Left]]:
    names = [
        "closes_all_descriptors",
        "fills_the_disk",
        "has_no_threads",
        "has_no_processes",
        "has_no_memory_without_a_name",
        "has_no_streams",
        "ignores_its_children",
        "two_at_once",
        "two_programs_at_once",
        "cannot_write",
        "knows_no_other_process",
        "makes_many",
    ]
    cases = [Case(name, name) for name in names]
    cases += [Case(how, "loses_its_directory", {"how": how}) for how in ("renamed", "removed")]
    cases += [Case(f"few-{n}", "has_few_descriptors", {"limit": n}) for n in (64, 128)]
    return run_all(cases, tmp_path_factory.mktemp("circumstances"))


def assert_trained(left: Left) -> None:
    assert left.status == 0, left.stderr
    assert left.stdout == "trained\n"
    assert "Traceback" not in left.stderr


def test_descriptors_closed_behind_our_back(left: dict[str, Left]) -> None:
    found = left["closes_all_descriptors"]
    assert_trained(found)
    # The local log is opened again, by its name; of a pipe there is no other end to be had.
    assert found.steps() == STEPS
    assert found.lost() == [(10, 20)]
    assert "the program has closed its pipe" in found.stderr


def test_directory_is_renamed(left: dict[str, Left]) -> None:
    found = left["renamed"]
    assert_trained(found)
    assert found.steps("moved") == STEPS
    assert found.ends("moved") == ["finished"]


def test_directory_is_removed(left: dict[str, Left]) -> None:
    found = left["removed"]
    assert_trained(found)
    # What was there is gone with it; the rest begins anew, and can be read.
    assert [line["k"] for line in found.lines()][0] == "run"
    assert found.steps() == STEPS[10:]
    assert found.ends() == ["finished"]


def test_disk_is_full_for_a_while(left: dict[str, Left]) -> None:
    found = left["fills_the_disk"]
    assert_trained(found)
    assert found.steps() == HALF + list(range(30, 40))
    assert found.lost("local") == [(20, 40)], found.stderr
    assert "File too large" in found.stderr


def test_no_threads(left: dict[str, Left]) -> None:
    found = left["has_no_threads"]
    assert_trained(found)
    assert found.stderr.count("could not begin") == 4  # at once, and with what was lost
    assert (
        "21 logging calls reached no tracker: 21 as they could not be converted in" in found.stderr
    )


def test_no_processes(left: dict[str, Left]) -> None:
    found = left["has_no_processes"]
    assert_trained(found)
    assert found.steps() == STEPS
    assert found.lost() == [(20, 20)]


def test_no_memory_without_a_name(left: dict[str, Left]) -> None:
    found = left["has_no_memory_without_a_name"]
    assert_trained(found)
    assert found.stderr == ""
    assert len(found.taken()) == len(STEPS) + 1


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


def test_signals_that_the_program_has_set(left: dict[str, Left]) -> None:
    found = left["ignores_its_children"]
    assert_trained(found)
    assert found.steps() == STEPS + [step + 20 for step in STEPS]
    assert found.lost() == [(39, 41)], found.stderr


def test_two_runs_in_one_directory(left: dict[str, Left]) -> None:
    found = left["two_at_once"]
    assert_trained(found)
    # Those that are there at once count alone, and the last goes on from them.
    assert found.steps() == STEPS * 2 + [len(STEPS) + step for step in STEPS]
    assert found.ends() == ["finished"] * 3
    told = "loggers that this program made before still write to the run in "
    assert found.stderr.count(told) == 1, found.stderr
    assert "another run" not in found.stderr


def test_another_program_writes_to_the_directory_of_a_run(left: dict[str, Left]) -> None:
    found = left["two_programs_at_once"]
    assert_trained(found)
    assert found.stderr.count("is written by another run at the same time (1 log)") == 1
    assert "this program" not in found.stderr


def test_directory_that_cannot_be_made(left: dict[str, Left]) -> None:
    found = left["cannot_write"]
    assert found.status == 0
    assert "taken/runs" in found.stdout


def test_class_of_the_program_itself(left: dict[str, Left]) -> None:
    found = left["knows_no_other_process"]
    assert_trained(found)
    told = (found.folder / "own.txt").read_text().split()
    assert told == [word for step in STEPS for word in ("True", str(step))]


def test_run_after_run(left: dict[str, Left]) -> None:
    assert_trained(left["makes_many"])
