"""Clocks of accelerators: what one has to offer for its time to be measured, and torch's."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from dftrace_ai.run.late_import import loaded_torch

if TYPE_CHECKING:
    from collections.abc import Callable

NEEDED = ("Event", "Stream", "current_stream", "current_device", "is_initialized")
# What is called GPU in traces; others bear the name that torch has for them.
GPUS = ("cuda", "hip")

Stream: TypeAlias = Any
"""A queue of a device, as its library has it; it can be hashed, and equals the same one."""


class Place(NamedTuple):
    """Where work goes that is launched now."""

    device: int  # number of the device
    stream: Stream  # the stream
    is_default: bool  # it is the one that a program has which chooses none


class DeviceEvent(Protocol):
    """A mark on a stream, with the device's time; `torch.cuda.Event` is one."""

    def record(self, stream: Stream) -> None:
        """Put it behind all that the stream has by now; it may have been used before."""

    def query(self) -> bool:
        """Return whether the device has come to it; waits for nothing."""

    def elapsed_time(self, end_event: Any) -> float:
        """Return milliseconds from this one to another; the device has passed both."""


class DeviceClock(Protocol):
    """An accelerator's events; those of torch are a `TorchClock`."""

    label: str  # what its tracks are called, such as ``GPU``

    def place(self) -> Place | None:
        """Return where this thread's work goes; None where no event may be recorded now.

        That is so where `is_usable` says no.
        """

    def is_usable(self) -> bool:
        """Return whether this thread may record events now.

        It may not before the program has used the device, while its stream is captured into a
        graph, and in a forked child that cannot use it.
        """

    def event(self) -> DeviceEvent:
        """Make an event with a time."""

    def side_stream(self, device: int) -> Stream:
        """Make a stream that nobody else uses."""

    def watch_captures(self, begins: Callable[[], None], ends: Callable[[], None]) -> None:
        """Have two functions called around each capture of a graph, in whichever thread.

        CUDA takes a look at an event for an error in a capture that another thread makes.
        """


class NoClockError(Exception):
    """There is no accelerator whose time could be measured; says why."""


def find_clock() -> TorchClock | None:
    """Return the clock of torch's accelerator; None where torch is not loaded yet.

    Nothing is initialized: a process that does not use its device may be forked.

    Raises NoClockError: this torch has no accelerator, or one without events.
    """
    torch = loaded_torch()
    if torch is None:
        return None
    kind = _kind_of_accelerator(torch)
    if kind is None:
        raise NoClockError("this PyTorch is one for processors alone")
    module = getattr(torch, kind, None)
    lacking = [name for name in NEEDED if not hasattr(module, name)]
    if lacking:
        raise NoClockError(f"torch.{kind} of this PyTorch has no {lacking[0]}")
    return TorchClock(kind, module)


def _kind_of_accelerator(torch: Any) -> str | None:
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        device = accelerator.current_accelerator()
        return None if device is None else str(device.type)
    version = torch.version
    return "cuda" if version.cuda or getattr(version, "hip", None) else None


class TorchClock:
    """Events of a module of torch's, such as ``torch.cuda``."""

    def __init__(self, kind: str, module: Any) -> None:
        self.label = "GPU" if kind in GPUS else kind.upper()
        self._module = module
        self._is_capturing: Callable[[], bool] = getattr(
            module, "is_current_stream_capturing", lambda: False
        )

    def place(self) -> Place | None:
        """Return where this thread's work goes; None where no event may be recorded now."""
        if not self.is_usable():
            return None
        module = self._module
        stream = module.current_stream()
        return Place(module.current_device(), stream, getattr(stream, "cuda_stream", None) == 0)

    def is_usable(self) -> bool:
        """Return whether this thread may record events now; initializes nothing."""
        return bool(self._module.is_initialized()) and not self._is_capturing()

    def event(self) -> DeviceEvent:
        """Make an event with a time."""
        event: DeviceEvent = self._module.Event(enable_timing=True)
        return event

    def side_stream(self, device: int) -> Stream:
        """Make a stream for looks at the clock, before all other work where there is an order."""
        return self._module.Stream(device, priority=-1)

    def watch_captures(self, begins: Callable[[], None], ends: Callable[[], None]) -> None:
        """Have two functions called around each capture; nothing where graphs are not known."""
        graph = getattr(self._module, "CUDAGraph", None)
        begin, end = getattr(graph, "capture_begin", None), getattr(graph, "capture_end", None)
        if graph is None or begin is None or end is None:
            return

        @functools.wraps(begin)
        def capture_begin(*args: Any, **kwargs: Any) -> Any:
            begins()
            try:
                return begin(*args, **kwargs)
            except BaseException:
                ends()
                raise

        @functools.wraps(end)
        def capture_end(*args: Any, **kwargs: Any) -> Any:
            try:
                return end(*args, **kwargs)
            finally:
                ends()

        graph.capture_begin, graph.capture_end = capture_begin, capture_end
