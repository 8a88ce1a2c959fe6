"""Nodes in metadata mode: a line at the start and one at the end, instead of a span."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai._native import Node
from dftrace_ai.run.emitting import metadata, time_us

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["MetadataMode", "write_mark"]


def write_mark(node: Node, mark: str) -> None:
    """Write the line of a node's start or end.

    Args:
        node: whose; nothing is written where it is disabled.
        mark: ``start`` or ``end``.
    """
    if node.enabled:
        metadata(f"{node.name}.{mark}", str(time_us()))


class _Lines:
    """What ends a pair of lines, in the place of an open span."""

    def __init__(self, node: MetadataMode) -> None:
        self._node = node

    def end(self, *_: object) -> None:
        self._node.stop()

    end_unless_empty = cancel = end


class MetadataMode(Node):
    """What makes a node write lines where it would write spans.

    A ``with`` block, a call of a decorated function and a resume of a decorated
    generator are a start and a stop. The lines have no arguments.
    """

    def start(self, metadata: bool = True, **given: Any) -> None:
        """Write the line ``<name>.start``."""
        write_mark(self, "start")

    def stop(self, metadata: bool = True) -> None:
        """Write the line ``<name>.end``."""
        write_mark(self, "end")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, exc_type: object, exc: object, traceback: object, /) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, exc_type: object, exc: object, traceback: object) -> None:
        self.stop()

    def _begin(self) -> Any:
        if not self.enabled:
            return None
        self.start()
        return _Lines(self)
