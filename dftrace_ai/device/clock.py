"""What an accelerator has to offer for its time to be measured: events and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DeviceClock", "DeviceEvent", "Place", "Stream"]

Stream: TypeAlias = Any
"""A queue of a device, as its library has it; it can be hashed, and equals the same one."""


class Place(NamedTuple):
    """Where work goes that is launched now.

    Attributes:
        device: number of the device.
        stream: the stream.
        is_default: it is the one that a program has which chooses none.
    """

    device: int
    stream: Stream
    is_default: bool


class DeviceEvent(Protocol):
    """A mark on a stream, with the device's time; `torch.cuda.Event` is one."""

    def record(self, stream: Stream) -> None:
        """Put it behind all that the stream has by now; it may have been used before."""

    def query(self) -> bool:
        """Return whether the device has come to it; waits for nothing."""

    def elapsed_time(self, end_event: Any) -> float:
        """Return milliseconds from this one to another; the device has passed both."""


class DeviceClock(Protocol):
    """An accelerator's events; that of CUDA is `dftrace_ai.device.companions.TorchClock`.

    Attributes:
        label: what its tracks are called, such as ``GPU``.
    """

    label: str

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
