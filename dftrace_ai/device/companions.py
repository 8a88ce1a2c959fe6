"""What goes beside the spans of a node: the time on the device, ranges for other profilers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dftrace_ai.device.ranges import Ranges
from dftrace_ai.device.recording import stream_times

if TYPE_CHECKING:
    from dftrace_ai._native import Node

__all__ = ["COMPANIONS", "Companion"]


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
            times.end(begun, node)

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
