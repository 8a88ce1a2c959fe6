"""What stands for a node behind a graph break: its blocks record nothing, else it is the node."""

from __future__ import annotations

from typing import Any

__all__ = ["Inert", "Reentry", "reenter"]


class Inert:
    """A node in a compiled function whose graph broke: it enters and leaves without a span."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node

    def __enter__(self) -> Any:
        return self.node

    def __exit__(self, *_: object) -> None:
        """Record nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Decorate, or make an instance, as the node does."""
        return self.node(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)

    def __repr__(self) -> str:
        return repr(self.node)


class Reentry:
    """Gives what stands for a node, by the number that the compiled code has in its place."""

    def __init__(self) -> None:
        self._nodes: dict[int, Any] = {}

    def number(self, node: Any) -> int:
        """Return the number of a node, which is kept from now on.

        Args:
            node: whose block the graph broke in.
        """
        self._nodes[id(node)] = node
        return id(node)

    def node(self, number: int) -> Any:
        """Return the node of a number."""
        return self._nodes[number]

    def __call__(self, number: int) -> Inert:
        """Return what stands for the node of a number."""
        return Inert(self._nodes[number])


reenter = Reentry()
"""What Dynamo calls, in the code that goes on behind a graph break, to have a node again."""
