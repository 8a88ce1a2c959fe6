"""What goes beside the spans of a node: the time on the device, ranges for other profilers.

Loaded late, by the first span that has a companion.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import import_module
from threading import get_ident, local
from typing import TYPE_CHECKING, Any, Final, Protocol

from dftrace_ai.device.clock import NoClockError, find_clock
from dftrace_ai.device.intervals import StreamTimes
from dftrace_ai.run.emitting import metadata
from dftrace_ai.run.hooks import Hook, register
from dftrace_ai.run.late_import import loaded_torch
from dftrace_ai.wording import briefly, counted, warn

if TYPE_CHECKING:
    from dftrace_ai._native import Node
    from dftrace_ai.device.clock import DeviceClock
    from dftrace_ai.run.run import Run


@dataclass(slots=True, eq=False)
class Range:
    """A range that was begun on a thread."""

    thread: int
    is_over: bool = False  # its span has ended


class _Stack(local):
    """The ranges of a thread, the innermost last."""

    def __init__(self) -> None:
        self.ranges: list[Range] = []


class Ranges:
    """Begins a range with each span and ends it with it, by a module of torch's.

    Ranges of a thread nest. One whose span ends before those that began in it, as in tasks that
    take turns, ends with them. Where the library cannot be used, that is told once.
    """

    def __init__(self, label: str, module: str) -> None:
        self._label = label
        self._name = module
        self._module: Any = None
        self._is_hopeless = False
        self._stack = _Stack()

    def begin(self, node: Node, *, is_resume: bool) -> Range | None:
        """Begin a range, called by category and name of the node."""
        if self._is_hopeless or loaded_torch() is None:
            return None
        try:
            if self._module is None:
                self._module = import_module(self._name)
            self._pop()
            self._module.range_push(f"{node.cat}.{node.name}")
        except Exception as error:  # noqa: BLE001 - whatever the library raises
            self._give_up(error)
            return None
        begun = Range(get_ident())
        self._stack.ranges.append(begun)
        return begun

    def end(self, begun: Range, node: Node | None = None) -> None:
        """End a range, at once if it is the innermost of this thread."""
        begun.is_over = True
        if begun.thread == get_ident():
            try:
                self._pop()
            except Exception as error:  # noqa: BLE001 - whatever the library raises
                self._give_up(error)

    drop = end

    def _pop(self) -> None:
        ranges = self._stack.ranges
        while ranges and ranges[-1].is_over:
            ranges.pop()
            self._module.range_pop()

    def _give_up(self, error: Exception) -> None:
        if not self._is_hopeless:
            self._is_hopeless = True
            warn("there are no ranges of %s: %s", self._label, briefly(error))


SETTLE_LIMIT_S: Final = 2.0
"""So long the end of a run waits for devices to pass what is under way, at most."""

LOOK_S: Final = 0.001

_times: StreamTimes | None = None
_is_hopeless = False


def stream_times() -> StreamTimes | None:
    """Return what measures the device of this process; None where there is none, or none yet."""
    global _times, _is_hopeless
    if _times is None and not _is_hopeless:
        try:
            clock = find_clock()
            _times = None if clock is None else StreamTimes(clock)
        except NoClockError as error:
            _is_hopeless = True
            warn("spans have no time on a device: %s", error)
        except Exception as error:  # noqa: BLE001 - whatever the device's library raises
            _is_hopeless = True
            warn("spans have no time on a device: %s", briefly(error))
    return _times


def use_clock(clock: DeviceClock | None) -> None:
    """Measure another accelerator than that of torch from now on.

    Args:
        clock: its events; None for torch's again.

    Example::

        use_clock(MyAccelerator())
        with ai.compute.forward(device=True):
            launch()
    """
    global _times, _is_hopeless
    _times = None if clock is None else StreamTimes(clock)
    _is_hopeless = False


def _begin(_: Run) -> None:
    if _times is not None:
        _times.restart()


def _end(run: Run) -> None:
    times = _times
    if times is None:
        return
    limit_s = min(SETTLE_LIMIT_S, run._config_in_force().finalize_timeout_s)
    until_s = time.monotonic() + limit_s
    while (under_way := times.settle()) and time.monotonic() < until_s:
        time.sleep(LOOK_S)
    without = times.left_out + under_way
    if without:
        metadata("spans without time on the device", str(without))
        warn(
            "%s no time on the device: %d for which it was not done %g s after the end, and %d "
            "for which it failed, was captured or had more than enough to do",
            f"{counted(without, 'span')} {'has' if without == 1 else 'have'}",
            under_way,
            limit_s,
            times.left_out,
        )
    times.restart()


def _forget(_: Run) -> None:
    if _times is not None:
        _times.forget_parent()


register(Hook("times on devices", _begin, _end, _forget))


class Companion(Protocol):
    """Something that begins and ends with a span; it raises nothing and waits for nothing."""

    def begin(self, node: Node, *, is_resume: bool) -> Any:
        """Begin with a span that is open by now; returns what ends it, None for nothing.

        Of a resume of a generator, which is no event when nothing is in it, nothing may be told
        before it ends.
        """

    def end(self, begun: Any, node: Node) -> None:
        """End before the span does."""

    def drop(self, begun: Any) -> None:
        """End with a span that is taken back."""


class DeviceTime:
    """An interval of the stream that is current when the span begins."""

    def begin(self, node: Node, *, is_resume: bool) -> Any:
        """Record an event."""
        times = stream_times()
        return None if times is None else times.begin(is_resume=is_resume)

    def end(self, begun: Any, node: Node) -> None:
        """Record another one."""
        times = stream_times()
        if times is not None:
            times.end(begun, (node.cat, node.name, node._copy_args()))

    def drop(self, begun: Any) -> None:
        """Take the event back."""
        times = stream_times()
        if times is not None:
            times.drop(begun)


COMPANIONS: dict[str, Companion] = {
    "device": DeviceTime(),
    "nvtx": Ranges("NVTX", "torch.cuda.nvtx"),
    "itt": Ranges("ITT", "torch.profiler.itt"),
}
"""By the name of the argument that asks for them."""
