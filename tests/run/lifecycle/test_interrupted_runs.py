"""Signals at every place in what begins and ends a run: nothing hangs, nothing is lost."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import read_all, trace_files
from interruption import Interruption
from sampling import share_of

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.run import lifecycle
from dftrace_ai.run.lifecycle import current_run

FOLDER = Path(lifecycle.__file__).parent
OURS = {FOLDER / name for name in ("run.py", "beginning.py", "ending.py", "lifecycle.py")}


class Interrupt(BaseException):
    """What the handler raises."""


@pytest.fixture(autouse=True)
def _no_run() -> Iterator[None]:
    for _ in range(3):
        dftrace_ai.finalize()
    yield
    for _ in range(3):
        dftrace_ai.finalize()


def event() -> None:
    with ai.compute.forward:
        pass


def raises() -> None:
    raise Interrupt


# Both are called here, in the part of the program that has the run.
def ends() -> None:
    dftrace_ai.finalize()


def joins() -> None:
    dftrace_ai.initialize()


HANDLERS: dict[str, Callable[[], Any]] = {
    "raises": raises,
    "ends": ends,
    "joins": joins,
    "ends and raises": lambda: (ends(), raises()),
}


def at_each_place(
    handler: Callable[[], Any], modules: set[Path] = OURS, *, first: int = 0, share: float = 1
) -> Iterator[Interruption]:
    """A handler that comes at one place after the other, until it has come at none; no run is left.

    Args:
        handler: what it does.
        modules: where it comes.
        first: of a share, which is the first: those of others lie between.
        share: of the places, where not all of the matrix is asked for.
    """
    every = round(1 / share_of(share)) if share < 1 else 1
    for place in itertools.count(1 + first % every, every):
        interruption = Interruption(place, handler, modules)
        yield interruption
        dftrace_ai.finalize()
        assert current_run() is None, place
        assert not dftrace_ai._native.is_on(), place
        if not interruption.came:
            assert place > 5
            return


@pytest.mark.sampled
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("operation", ["initialize", "finalize", "tracing"])
def test_a_handler_at_any_place(
    operation: str, handler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recorded while a run is on is in a complete trace, and the next run is as any other."""
    # A handler may be the first, so the settings are given to all alike.
    monkeypatch.setenv("DFTRACE_LOG_FILE", str(tmp_path / "t"))
    monkeypatch.setenv("DFTRACE_COMPRESSION", "none")
    recorded = 0
    # Each place is one of some handler.
    first = list(HANDLERS).index(handler)
    for interruption in at_each_place(HANDLERS[handler], first=first, share=1 / 3):
        if operation == "finalize":
            dftrace_ai.initialize()
            event()
            recorded += 1
        with interruption, contextlib.suppress(Interrupt):
            if operation == "tracing":
                with dftrace_ai.tracing():
                    recorded += dftrace_ai._native.is_on()
                    event()
            else:
                getattr(dftrace_ai, operation)()
        recorded += dftrace_ai._native.is_on()
        event()
    traces = read_all(trace_files(tmp_path))
    assert sum(t.names["forward"] for t in traces) == recorded
    assert {t.footer["ended"] for t in traces} <= {"finalize", "exception"}
    with dftrace_ai.tracing() as run:
        event()
    assert run.stats()["events"] == 1


def test_a_handler_ends_the_run_while_its_counters_begin_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for no lock that its own thread has; each run's last sample is in its trace."""
    monkeypatch.setenv("DFTRACE_LOG_FILE", str(tmp_path / "t"))
    counters = {FOLDER / "system_counters.py"}
    for interruption in at_each_place(ends, counters):
        with interruption:
            dftrace_ai.initialize(system_counters_s=60)
    for interruption in at_each_place(ends, {*counters, Path(threading.__file__)}):
        dftrace_ai.initialize(system_counters_s=60)
        event()
        with interruption:
            dftrace_ai.finalize()
    traces = read_all(trace_files(tmp_path))
    assert {t.names["cpu %"] for t in traces if t.names["forward"]} == {1}
    assert not [t for t in threading.enumerate() if t.name == "dftrace-counters"]


def test_who_is_interrupted_while_it_joins_holds_nothing(tmp_path: Path) -> None:
    """The run ends with those who have it; a second beginning of theirs takes nothing from them."""
    library: dict[str, Any] = {"__name__": "library"}
    exec("import dftrace_ai\ndef begin(): dftrace_ai.initialize()", library)
    for begin in (dftrace_ai.initialize, library["begin"]):
        for interruption in at_each_place(raises):
            dftrace_ai.initialize(log_file=tmp_path / "t", compression="none")
            with interruption, contextlib.suppress(Interrupt):
                begin()
            assert current_run() is not None
            if not interruption.came:
                dftrace_ai.finalize()  # of both


@pytest.mark.sampled
@pytest.mark.parametrize("decorated", [False, True])
def test_a_block_that_an_interrupt_left_open_holds_nothing(decorated: bool, tmp_path: Path) -> None:
    """Also if the handler raises before the first line of what would end the block."""

    @dftrace_ai.tracing(log_file=tmp_path / "t", compression="none")
    def work() -> None:
        event()

    for interruption in at_each_place(raises, first=decorated, share=1 / 2):
        with interruption, contextlib.suppress(Interrupt):
            if decorated:
                work()
            else:
                with dftrace_ai.tracing(log_file=tmp_path / "t", compression="none"):
                    event()
