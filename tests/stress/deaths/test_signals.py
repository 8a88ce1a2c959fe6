"""Signals, with and without handlers of the user's."""

from __future__ import annotations

import random
import signal
import time

import pytest
from sampling import times

from stress.account import processes_with_spans
from stress.conftest import SEED, FaultRow, NewPlace
from stress.judge import judge
from stress.nursery import Nursery, wait_until
from stress.recover import recover

DEADLY = {
    "SIGTERM": ["SIGTERM"],
    "SIGABRT": ["SIGABRT"],
    "SIGSEGV": ["SIGSEGV"],
    "any other deadly signal": [
        *("SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGTRAP", "SIGHUP", "SIGQUIT", "SIGUSR1"),
        *("SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGPOLL", "SIGRTMIN"),
    ],
}


@pytest.mark.parametrize("which", DEADLY)
def test_without_a_handler(
    which: str, nursery: Nursery, new_place: NewPlace, fault_row: FaultRow
) -> None:
    rng = random.Random(f"{SEED} {which}")
    with fault_row(f"{which}, no handler, 3 threads") as row:
        for name in DEADLY[which]:
            place = new_place()
            victim = nursery.start("threads.until_killed", place, threads=3, settings={})
            wait_until(lambda: processes_with_spans(place))
            time.sleep(rng.random() * 0.005)
            victim.kill(signal.Signals[name])
            assert victim.ended() == -signal.Signals[name], victim.said
            recover(place)
            row.add(judge(place, perfetto=len(DEADLY[which]) == 1))


HANDLERS = {
    "handler_before": ("SIGTERM, handler set before initialize", signal.SIGTERM, {5}),
    "handler_after": ("SIGTERM, handler set after initialize", signal.SIGTERM, {5}),
    "handler_that_goes_on": ("SIGTERM, handler goes on", signal.SIGTERM, {0}),
    # The status depends on how Python was started.
    "interrupted": (
        "SIGINT, KeyboardInterrupt ends the program",
        signal.SIGINT,
        {1, -signal.SIGINT},
    ),
    "interrupt_caught": ("SIGINT, KeyboardInterrupt is caught", signal.SIGINT, {0}),
}


@pytest.mark.sampled
@pytest.mark.parametrize("victim_name", HANDLERS)
def test_with_a_handler(
    victim_name: str, nursery: Nursery, new_place: NewPlace, fault_row: FaultRow
) -> None:
    """The status tells that the user's handler was called, and what the signal leads to."""
    fault, number, statuses = HANDLERS[victim_name]
    rng = random.Random(f"{SEED} {victim_name}")
    with fault_row(fault) as row:
        for turn in range(times(4, 0.5)):
            place = new_place()
            victim = nursery.start(f"signals.{victim_name}", place)
            wait_until(lambda: processes_with_spans(place))
            time.sleep(rng.random() * 0.005)
            victim.kill(number)
            assert victim.ended() in statuses, victim.said
            row.add(judge(place, perfetto=turn == 0))
