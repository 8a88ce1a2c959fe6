"""An accelerator of pretence: its events happen when a test says so, at times that it knows."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dftrace_ai.device.clock import Place
from dftrace_ai.run import emitting

# How a program begins that is to have such an accelerator.
PROGRAM = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.device import intervals
from dftrace_ai.device.companions import use_clock
from device.stand_in import StandIn

gpu = StandIn()
use_clock(gpu)
"""


class StandInStream:
    """A queue of work whose lengths are given; what is behind it happens when it is done."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.end_ns = 0  # of its work, by the host's clock
        self.held = False  # the device does not come to anything of it

    def launch(self, length_ns: int) -> None:
        """Queues work that takes so long, right behind what is there."""
        self.end_ns += length_ns


class StandInEvent:
    """A mark on a stream; errors come from `StandIn.failing`."""

    def __init__(self, device: StandIn) -> None:
        self.device = device
        self.stream: StandInStream | None = None
        self.at_ns = 0  # when it happens, by the host's clock, which only tests know

    def record(self, stream: StandInStream) -> None:
        self.device.heard("record")
        self.stream = stream
        # Of streams that are used, the time is the test's alone: none hangs on how busy a machine is.
        stream.end_ns = stream.end_ns or now()
        self.at_ns = stream.end_ns if stream not in self.device.side else now()

    def query(self) -> bool:
        self.device.heard("query")
        assert self.stream is not None
        return not self.stream.held

    def elapsed_time(self, end_event: StandInEvent) -> float:
        self.device.heard("elapsed_time")
        if not (self.query() and end_event.query()):
            raise RuntimeError("an event has not happened")
        milliseconds = (end_event.at_ns - self.at_ns) * self.device.rate / 1e6
        single: float = struct.unpack("f", struct.pack("f", milliseconds))[0]
        return single


class StandIn:
    """A clock with devices and streams; what it is asked for is counted.

    Args:
        rate: how fast its clock goes, beside that of the host.
    """

    label = "GPU"

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = rate
        self.default = StandInStream(0)
        self.stream = self.default
        self.side: list[StandInStream] = []
        self.sides_held = False
        self.usable = True
        self.capturing = False
        self.failing = ""
        self.calls: list[str] = []
        self.begins: Callable[[], None] = lambda: None
        self.ends: Callable[[], None] = lambda: None

    def heard(self, what: str) -> None:
        self.calls.append(what)
        if what == self.failing:
            raise RuntimeError(f"{what} is not what the device wants")

    def place(self) -> Place | None:
        if not self.is_usable():
            return None
        return Place(self.stream.device, self.stream, self.stream is self.default)

    def is_usable(self) -> bool:
        return self.usable and not self.capturing

    def event(self) -> Any:
        self.heard("event")
        return StandInEvent(self)

    def side_stream(self, device: int) -> StandInStream:
        self.side.append(StandInStream(device))
        self.side[-1].held = self.sides_held
        return self.side[-1]

    def watch_captures(self, begins: Callable[[], None], ends: Callable[[], None]) -> None:
        self.begins, self.ends = begins, ends


def now() -> int:
    """The present by the trace's clock, nanoseconds."""
    return emitting.moment()[0]
