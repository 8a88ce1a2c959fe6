"""Ranges of other profilers begin and end with the spans."""

from __future__ import annotations

import asyncio
import sys
import threading
import types

import pytest
from conftest import Traced

from dftrace_ai import ai
from dftrace_ai.device.companions import COMPANIONS, Ranges


class Library(types.ModuleType):
    """What a profiler would see."""

    def __init__(self) -> None:
        super().__init__("torch.made.ranges")
        self.said: list[str] = []
        self.failing = False

    def range_push(self, name: str) -> None:
        if self.failing:
            raise RuntimeError("functions are not installed")
        self.said.append(name)

    def range_pop(self) -> None:
        self.said.append("end")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    """The library that nodes made in a test with ``nvtx=True`` and ``itt=True`` find."""
    made = Library()
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setitem(COMPANIONS, "nvtx", Ranges("NVTX", made.__name__))
    monkeypatch.setitem(COMPANIONS, "itt", Ranges("ITT", made.__name__))
    return made


def test_ranges_nest_as_spans_do(traced: Traced, library: Library) -> None:
    outer = ai.comm.barrier.derive("around")(nvtx=True)
    inner = ai.comm.send.derive("part")(nvtx=True)
    with traced(perfetto=False) as run:
        with outer, inner, outer(metadata=True), ai.comm.barrier.derive("around")(nvtx=False):
            pass
        with pytest.raises(KeyError), inner:
            raise KeyError
        inner.start()
        inner.stop()
        with outer, inner(enable=False):
            pass
    one = ("comm.send.part", "end")
    assert library.said == [
        "comm.barrier.around",
        *one,
        "end",
        *one,
        *one,
        "comm.barrier.around",
        "end",
    ]
    assert len(run.trace.spans) == 6


def test_spans_that_take_turns_or_end_elsewhere_leave_ranges_that_nest(
    traced: Traced, library: Library
) -> None:
    node = ai.comm.receive.derive("turns")(nvtx=True)

    @node
    async def wait(first: asyncio.Event, then: asyncio.Event) -> None:
        first.set()
        await then.wait()

    async def both() -> None:
        a, b = asyncio.Event(), asyncio.Event()
        await asyncio.gather(wait(a, b), wait(b, a))

    ranges, begun = COMPANIONS["nvtx"], []
    with traced(perfetto=False):
        asyncio.run(both())
        name = "comm.receive.turns"
        assert library.said == [name, name, "end", "end"]
        # The range of this thread is not to end one of another.
        begun.append(ranges.begin(node, is_resume=False))
        thread = threading.Thread(target=ranges.end, args=(begun[0], node))
        thread.start()
        thread.join()
        assert library.said[4:] == [name]
        with node:
            pass
    assert library.said[4:] == [name, "end", name, "end"]


def test_a_library_that_is_not_there_is_told_of_once(
    traced: Traced, library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    library.failing = True
    node = ai.comm.gather.derive("without")(nvtx=True, itt=True)
    with traced(perfetto=False) as run:
        for _ in range(3):
            with node:
                pass
    assert len(run.trace.spans) == 3
    assert sorted(r.getMessage() for r in caplog.records) == [
        "there are no ranges of ITT: RuntimeError: functions are not installed",
        "there are no ranges of NVTX: RuntimeError: functions are not installed",
    ]
