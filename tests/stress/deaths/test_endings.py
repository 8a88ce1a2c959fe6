"""Programs that end, fork, start others and are killed by themselves: every span has to be there."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from stress.account import Place
from stress.conftest import FaultRow, NewPlace
from stress.judge import judge
from stress.nursery import Nursery
from stress.recover import recover, recover_by_command


class Case(NamedTuple):
    """A fault, and the victim that it befalls."""

    fault: str
    victim: str
    options: dict[str, Any] = {}
    status: int = 0
    fresh: bool = False
    """In an interpreter of its own."""
    completes: Callable[[Place], object] | None = None
    """Who completes its traces, where it does not do so itself."""
    turns: int = 1


def ending(fault: str, victim: str, status: int = 0, **options: Any) -> Case:
    return Case(fault, f"endings.{victim}", options, status, fresh=True, completes=recover)


def program(fault: str, victim: str, **options: Any) -> Case:
    return Case(fault, victim, options, fresh=True, completes=recover_by_command)


def inside(fault: str, end: str, status: int) -> Case:
    return ending(f"{fault} while 4 threads record", "inside_of_spans", status, end=end)


# The child of another fork than Python's would wait for threads that it does not have.
DOORS = {"fork": "os.fork", "fork_from_c": "fork from C", "clone": "bare clone system call"}
FORK = "os.fork while 4 threads record"
MULTIPROCESSING = [
    Case(
        f"multiprocessing, {method}, {name}, {how}",
        f"workers.{kind}",
        {"method": method, "terminated": how == "terminated"},
        fresh=True,
    )
    for method in ("fork", "spawn", "forkserver")
    for kind, name in (("processes", "Process"), ("pools", "Pool"))
    for how in ("joined", "terminated")
]
CASES = [
    ending("the program ends without finalize", "returns"),
    ending("finalize while 4 threads record", "finalizes"),
    inside("os._exit", "exit", 3),
    ending("sys.exit inside of spans", "sys_exit", 3, settings={}),
    ending("unhandled exception", "raises", 1),
    ending("unhandled exception in a thread", "raises_in_a_thread"),
    inside("os.abort", "abort", -signal.SIGABRT),
    inside("segmentation fault", "address zero", -signal.SIGSEGV),
    ending("interpreter shutdown, 4 daemon threads record", "leaves_daemon_threads"),
    ending("the main thread ends before 4 others", "leaves_threads"),
    program("subprocesses, started while 3 threads record", "programs.runs_programs"),
    program("exec of /bin/true while 3 threads record", "programs.becomes_true"),
    program("exec of a program that records", "programs.becomes_a_tracer"),
    Case(FORK, "forks.children", {"by": "fork", "threads": 4}, turns=2),
    *(
        Case(DOORS[by], "forks.children", {"by": by, "threads": 0}, turns=2)
        for by in ("fork_from_c", "clone")
    ),
    *(
        Case(
            f"{name} inside of spans, which the child leaves, too",
            "forks.inside_a_span",
            {"by": by},
        )
        for by, name in DOORS.items()
    ),
    Case("os.fork three deep, none ends in order", "forks.three_deep"),
    *MULTIPROCESSING,
    Case(
        "kill -9 while an argument is turned into text",
        "threads.killed_by_an_argument",
        status=-signal.SIGKILL,
        completes=recover,
    ),
    *(
        Case(
            f"{end} inside of a span open for long, arguments change",
            "threads.inside_a_long_span",
            {"killed": status != 0},
            status,
            completes=recover,
        )
        for end, status in (("kill -9", -signal.SIGKILL), ("end of the program", 0))
    ),
    Case("signal handler that records, 2,000 times a second", "signals.handler_that_records"),
]


@pytest.mark.parametrize("case", CASES, ids=[case.fault for case in CASES])
def test_ending(case: Case, nursery: Nursery, new_place: NewPlace, fault_row: FaultRow) -> None:
    with fault_row(case.fault) as row:
        for turn in range(case.turns):
            place = new_place()
            victim = nursery.start(case.victim, place, fresh=case.fresh, **case.options)
            assert victim.ended() == case.status, victim.said
            if case.completes is not None:
                case.completes(place)
            row.add(judge(place, perfetto=turn == 0))
