"""Trackers that raise, hang, end their process or spoil it: the training does not feel it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cases import Case, Left, run_all

STEPS = 20
GIVEN = STEPS + 1  # and what the epoch comes to
PHASES = {"begin": GIVEN, "log": GIVEN - 2, "end": 0}
EVERYWHERE = ("raise_", "hang", "black_hole", "exit")

# In a process of its own, while it logs: how many it loses.
APART = {
    "keep_the_lock": GIVEN - 2,
    "os_exit": GIVEN - 2,
    "segfault": GIVEN - 2,
    "kill_its_group": GIVEN - 2,
    "hang_at_exit": None,
    "hang_in_a_pool": None,
    "leave_a_thread": None,
    "print_a_lot": None,
    "fork": None,
    "start_a_program": None,
    "start_a_session": None,
    "read_stdin": None,
    "change_directory": None,
    "close_descriptors": None,
    "reset_signals": None,
}
# Longer than the limit, and none of it without progress: none that a busy machine gives no processor meanwhile.
PATIENCE_S = 2.0
PATIENCE = {"begin-compute-apart": False, "log-slow_down-apart": False, "log-slow_down-here": True}
HUNG = ("hang", "keep_the_lock", "black_hole")


def case(phase: str, how: str, *, in_process: bool, limit_s: float = 1.0) -> Case:
    misbehaves = {"phase": phase, "how": how}
    options = {"options": misbehaves, "in_process": in_process, "limit_s": limit_s}
    where = "here" if in_process else "apart"
    return Case(f"{phase}-{how}-{where}", "misbehave", options)


def lost_there(phase: str, how: str) -> int:
    """How many are lost: what raises in one call takes the next."""
    return 1 if phase == "log" and how in ("raise_", "exit") else PHASES[phase]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Left]]:
    cases = [
        case(phase, how, in_process=in_process)
        for phase in PHASES
        for how in EVERYWHERE
        for in_process in (False, True)
    ]
    # Of these most take all records first, for which a busy machine needs its time.
    cases += [case("log", how, in_process=False, limit_s=4.0) for how in APART]
    cases += [
        case(*name.split("-")[:2], in_process=in_process, limit_s=PATIENCE_S)
        for name, in_process in PATIENCE.items()
    ]
    cases.append(case("log", "close_all_descriptors", in_process=False))
    cases += [Case(f"killed-{how}", "is_killed_beside", {"how": how}) for how in HUNG]
    return run_all(cases, tmp_path_factory.mktemp("misbehaving"))


def assert_unhurt(left: Left) -> None:
    assert left.status == 0, left.stderr
    assert left.stdout == "trained\n"
    assert left.steps() == list(range(STEPS))
    assert left.ends() == ["finished"]


@pytest.mark.parametrize("where", ["apart", "here"])
@pytest.mark.parametrize("how", EVERYWHERE)
@pytest.mark.parametrize("phase", PHASES)
def test_tracker_fails_or_hangs(left: dict[str, Left], phase: str, how: str, where: str) -> None:
    found = left[f"{phase}-{how}-{where}"]
    assert_unhurt(found)
    assert found.lost() == [(lost_there(phase, how), GIVEN)], found.stderr
    assert len([step for step in found.taken() if step.isdigit()]) == GIVEN - found.lost()[0][0]
    if how in {"hang", "black_hole"}:
        assert "limit_s" in found.stderr


@pytest.mark.parametrize("name", PATIENCE)
def test_who_gets_on_is_waited_for(left: dict[str, Left], name: str) -> None:
    found = left[name]
    assert_unhurt(found)
    assert found.lost() == [], found.stderr
    assert found.taken()[-1] == "finished"


@pytest.mark.parametrize("how", APART)
def test_tracker_spoils_its_process(left: dict[str, Left], how: str) -> None:
    found = left[f"log-{how}-apart"]
    assert_unhurt(found)
    lost = APART[how]
    assert found.lost() == ([] if lost is None else [(lost, GIVEN)]), found.stderr
    if lost is None:
        assert found.taken()[-1] == "finished"
    if how == "read_stdin":
        assert "''" in found.taken()
    if how == "print_a_lot":
        kept = found.folder / "runs" / "default" / "run" / "output.log"
        assert 1 << 20 <= kept.stat().st_size < (1 << 20) + 100
        assert kept.read_text().endswith("is not kept)\n")


@pytest.mark.parametrize("how", HUNG)
def test_training_is_killed_beside_a_tracker_that_hangs(left: dict[str, Left], how: str) -> None:
    found = left[f"killed-{how}"]
    assert found.status == -9
    assert found.processes_at_last() == []


@pytest.mark.parametrize(
    "how", ["fork", "start_a_program", "start_a_session", "keep_the_lock", "leave_a_thread"]
)
def test_nothing_of_a_tracker_stays(left: dict[str, Left], how: str) -> None:
    assert left[f"log-{how}-apart"].processes_at_last() == []


def test_tracker_closes_its_pipe(left: dict[str, Left]) -> None:
    found = left["log-close_all_descriptors-apart"]
    assert_unhurt(found)
    ((lost, given),) = found.lost()
    assert given == GIVEN
    assert len([step for step in found.taken() if step.isdigit()]) == given - lost
    assert "it has closed the pipe that its records come by" in found.stderr
