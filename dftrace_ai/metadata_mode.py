"""Nodes in metadata mode: a line at the start and one at the end, instead of a span."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.node import ProfilerNode

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["MetadataNode"]


class _Lines:
    """What ends a pair of lines, in the place of an open span."""

    def __init__(self, node: MetadataNode) -> None:
        self._node = node

    def end(self, *_: object) -> None:
        self._node.stop()

    end_unless_empty = cancel = end


class MetadataNode(ProfilerNode):
    """What ``node(metadata=True)`` makes: `start` and `stop` of it write lines.

    A ``with`` block, a call of a decorated function and a resume of a decorated
    generator are a start and a stop. The lines have no arguments.
    """

    def start(self, metadata: bool = True, **given: Any) -> None:
        """Write the line ``<name>.start``."""
        super().start(metadata=True)

    def stop(self, metadata: bool = True) -> None:
        """Write the line ``<name>.end``."""
        super().stop(metadata=True)

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

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as a node of its own."""
        return MetadataNode, (self.cat, self.name, self.enabled)
