"""What a shared tree is to record, as plain Python: nodes, and what threads have open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from given_values import merged, shown

Wanted = list[tuple[str, str, "str | None", "int | None"]]
"""Of each span that has ended: its name, its arguments, its error, the number of its item."""


@dataclass(eq=False)
class NodeModel:
    """What a node has."""

    name: str
    args: dict[str, object] = field(default_factory=dict)
    enabled: bool = True
    below: dict[str, NodeModel] = field(default_factory=dict)

    def update(self, more: Mapping[str, object]) -> None:
        """Merge into the node and all below it."""
        self.args.update(more)
        for child in self.below.values():
            child.update(more)

    def reset(self) -> None:
        """Drop everything, here and below."""
        self.args.clear()
        for child in self.below.values():
            child.reset()

    def switch(self, enabled: bool) -> None:
        """Turn on or off, here and below."""
        self.enabled = enabled
        for child in self.below.values():
            child.switch(enabled)

    def derived(self, name: str) -> NodeModel:
        """Return the child, which begins with what this one has by now."""
        if name not in self.below:
            self.below[name] = NodeModel(f"{self.name}.{name}", dict(self.args), self.enabled)
        return self.below[name]

    def instance(self, given: Mapping[str, object], enable: bool | None) -> NodeModel:
        """Return what parentheses make: it follows nobody."""
        state = self.enabled if enable is None else enable
        return NodeModel(self.name, {**self.args, **merged(given)}, state)

    def ended(
        self, wanted: Wanted, part: str = "", error: str | None = None, count: int | None = None
    ) -> None:
        """Note a span that ends now."""
        wanted.append((self.name + part, shown(self.args), error, count))


class Block:
    """A `with` block or the call of a decorated function."""

    def __init__(self, node: NodeModel, wanted: Wanted) -> None:
        self.node, self.wanted = node, wanted
        self.is_open = node.enabled

    def leave(self, error: str | None) -> bool:
        """End it; return whether the thread is still in it."""
        if self.is_open:
            self.node.ended(self.wanted, error=error)
        return False


class Loop:
    """A loop through `.iter`.

    Args:
        node: whose.
        wanted: takes what ends.
        items: how many it has.
        stays: whether the thread is left in each wait for an item, too.
    """

    def __init__(self, node: NodeModel, wanted: Wanted, items: int, *, stays: bool = False) -> None:
        self.node, self.wanted, self.left, self.stays = node, wanted, items, stays
        self.count = 0
        self.recorded = self.waits = self.has_block = False

    def ask(self) -> bool:
        """Ask for the next item; return whether there is one, or is waited for."""
        self.end_block()
        self.recorded = self.node.enabled
        if not self.left:
            return False
        self.waits = True
        return self.stays or self.got()

    def got(self) -> bool:
        """Get it."""
        self.waits = False
        self.left -= 1
        self.count += 1
        if self.recorded:
            self.node.ended(self.wanted, ".iter", None, self.count)
        self.has_block = self.recorded
        return True

    def end_block(self) -> None:
        """End what is done with an item."""
        if self.has_block:
            self.node.ended(self.wanted, ".block", None, self.count)
        self.has_block = False

    def leave(self, error: str | None) -> bool:
        """End the wait or what is done with an item; return whether the thread is still in it."""
        if error is None:
            return self.got() if self.waits else self.ask()
        if not self.waits:
            self.end_block()
        elif self.recorded:
            self.node.ended(self.wanted, ".iter", error, self.count + 1)
        return False
