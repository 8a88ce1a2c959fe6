"""A node's place in the tree: what it hangs on, what hangs on it, and how it is copied."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from dftrace_ai._native import Node
from dftrace_ai.annotation.compiled_code import has_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

N = TypeVar("N", bound="BranchingNode")


class BranchingNode(Node):
    """A node with named children, which have from the start what it has by then."""

    # A node that a call makes is made without `__init__`, and has no children yet.
    _named: Mapping[str, BranchingNode] = MappingProxyType({})
    _above: tuple[BranchingNode, str] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        has_kind(cls)

    def __init__(self, cat: str, name: str, enabled: bool = True) -> None:
        super().__init__()
        self._grow()

    def _grow(self) -> None:
        """Make the children that this kind of node has from the start."""

    def _child_of(self, name: str, kind: type[N]) -> N:
        """Return the child of that name, made if need be with what this node has by now."""
        child: Any = self._named.get(name)
        if child is None:
            child = self._alike(name, kind)
            self._hang(name, child)
        found: N = child
        return found

    def _hang(self, key: str, child: BranchingNode) -> None:
        named: dict[str, BranchingNode] = self.__dict__.setdefault("_named", {})
        named[key] = child
        child._above = (self, key)
        self._add_child(child)

    def _branch(self, category: str, kind: type[N]) -> N:
        branch = kind(category, category)
        self._hang(category, branch)
        return branch

    def _alike(self, name: str, kind: type[N], enabled: bool | None = None) -> N:
        node = kind(self.cat, name, self.enabled if enabled is None else enabled)
        node._take_args(self)
        return node

    def enable(self) -> None:
        """Record the events of this node and of all below it."""
        self._switch(True)

    def disable(self) -> None:
        """Stop recording the events of this node and of all below it."""
        self._switch(False)

    def reset(self) -> None:
        """Drop the arguments of this node and of all below it."""
        self._clear_args()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as what is found at the same place of the tree.

        A data set or model that holds a node goes to other processes and into
        checkpoints; a node that is not of the tree goes with its arguments.
        """
        keys: list[str] = []
        top = self
        while top._above is not None:
            top, key = top._above
            keys.append(key)
        return top._reduce_place(tuple(reversed(keys))) or (
            _remade,
            (type(self), self.cat, self.name, self.enabled, self._copy_args()),
        )

    def _reduce_place(self, keys: tuple[str, ...]) -> tuple[Any, ...] | None:
        """Return what finds a node below this one again; None where this one is nobody's root."""
        return None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.cat}:{self.name}{'' if self.enabled else ' disabled'}>"
        )


def _remade(kind: type[N], cat: str, name: str, enabled: bool, args: dict[str, object]) -> N:
    node = kind(cat, name, enabled)
    node._merge_args(args)
    return node
