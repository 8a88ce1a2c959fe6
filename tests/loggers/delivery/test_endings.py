"""However a program ends: trackers are told how, and nobody else sees a difference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dftrace_ai.loggers.runs.reading import read_runs

from .cases import Case, Left, run_all

STEPS = list(range(20))

# By program: the status it ends with, and what the trackers are told. None is what a local log does
# not say: whoever reads it finds that its process is gone.
ENDINGS = {
    "returns": (0, "finished", "finished"),
    # Which status a program ends with cannot be known before.
    "exits": (3, "finished", "finished"),
    "raises": (1, "failed", "failed"),
    "is_interrupted": (-2, "killed", "killed"),
    "is_terminated": (-15, "killed", "killed"),
    "is_terminated_with_a_handler": (5, "finished", "finished"),
    "is_terminated_with_a_later_handler": (0, "finished", "finished"),
    "is_killed": (-9, None, "killed"),
    "leaves_at_once": (4, None, "killed"),
    "recovers": (0, "finished", "finished"),
    "trains_in_a_thread": (0, "finished", "finished"),
    "logs_at_exit": (0, "finished", "finished"),
    "ends_twice": (0, "finished", "finished"),
    "ends_in_a_handler": (0, "killed", "killed"),
    "ends_within_its_end": (0, "finished", "finished"),
    "ends_in_a_daemon": (0, "finished", "finished"),
    "ends_in_threads": (0, "finished", "finished"),
    "ends_at_exit": (0, "finished", "finished"),
    "drops_them": (1, "finished", "finished"),
    "unpacks_them": (0, "finished", "finished"),
    "waits_for_any_child": (0, "finished", "finished"),
}
WITH_OPTIONS = {
    "with_block-return": (0, "finished", "finished"),
    "with_block-raise": (1, "failed", "failed"),
    "with_block-exit well": (0, "finished", "finished"),
    "with_block-exit ill": (6, "failed", "failed"),
    "hook_replaced-before": (1, "failed", "failed"),
    "hook_replaced-after": (1, "failed", "failed"),
    "fails_in_a_child-fork": (1, "failed", "failed"),
    "ends_in_a_finalizer-converting": (0, "failed", "failed"),
    "ends_in_a_finalizer-delivering": (0, "failed", "failed"),
}
ALL = ENDINGS | WITH_OPTIONS
WAITS = ("end_log", "flush")
TOLD_BY = ("dropped", "daemon")


def case(name: str, *, with_loggers: bool) -> Case:
    program, _, value = name.partition("-")
    options = {"with_loggers": with_loggers}
    key = {"hook_replaced": "when"}.get(program, "how")
    if value:
        options[key] = value
    return Case(f"{name}{'' if with_loggers else '-alone'}", program, options)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Left]]:
    cases = [case(name, with_loggers=there) for name in ALL for there in (True, False)]
    cases += [Case(f"told-{how}", "ends_while_a_loss_is_told", {"how": how}) for how in TOLD_BY]
    cases += [Case(f"again-{what}", "is_called_again_and_again", {"what": what}) for what in WAITS]
    cases += [Case(name, name) for name in ("is_terminated_again_and_again", "is_killed_unsaid")]
    return run_all(cases, tmp_path_factory.mktemp("endings"))


def shown(left: Left) -> str:
    """What the program has printed for people."""
    # It ends the run while it logs, and is told that this one came too late.
    return left.stderr.replace(
        "something was logged after the run had ended, and is not kept\n", ""
    )


@pytest.mark.parametrize("name", ALL)
def test_ending(left: dict[str, Left], name: str) -> None:
    status, local, told = ALL[name]
    found, alone = left[name], left[f"{name}-alone"]
    assert found.status == alone.status == status, found.stderr
    assert found.stdout == alone.stdout
    assert shown(found) == alone.stderr
    assert found.ends() == ([] if local is None else [local])
    assert found.steps() == STEPS
    assert found.told_at_last() == told
    (run,) = read_runs(found.folder / "runs")
    assert run.status == (local or "killed")


def test_of_a_kill_that_nobody_expects_a_second_is_lost_at_most(left: dict[str, Left]) -> None:
    found = left["is_killed_unsaid"]
    assert found.status == -9
    # Each step took a hundredth of a second at least.
    assert found.steps() == list(range(len(found.steps())))
    assert len(found.steps()) >= 150 - 100


@pytest.mark.parametrize("how", TOLD_BY)
def test_program_ends_while_another_thread_tells_of_a_loss(left: dict[str, Left], how: str) -> None:
    found = left[f"told-{how}"]
    assert found.status == 0, found.stderr
    assert found.lost() == [(len(STEPS), len(STEPS))], found.stderr
    assert found.ends() == ["finished"]


@pytest.mark.parametrize("what", WAITS)
def test_handler_that_is_called_again_while_it_waits(left: dict[str, Left], what: str) -> None:
    found = left[f"again-{what}"]
    assert found.status == 0, found.stderr
    assert found.stdout == "trained\n"
    assert found.lost() == [(0 if what == "end_log" else len(STEPS) - 2, len(STEPS))]
    assert found.ends() == ["finished"]


def test_program_is_terminated_again_while_it_obeys(left: dict[str, Left]) -> None:
    found = left["is_terminated_again_and_again"]
    assert found.status == -15, found.stderr
    assert found.stderr == ""
    assert found.steps() == STEPS
    assert found.ends() == ["killed"]
    assert found.told_at_last() == "killed"
