"""The nodes of instrumentation: beside those of the tree, with arguments of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dftrace_ai.annotation.node import AccompaniedNode, ProfilerNode

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ALL_NODES", "NOTHING", "beside", "forget_arguments", "give_anew"]

NOTHING = ProfilerNode("", "", enabled=False)
"""Records nothing: takes the place of a node outside of the steps that are asked for."""

# Kept with the tree: who instruments a second time finds them again.
_beside: dict[tuple[ProfilerNode, str, int, tuple[str, ...]], ProfilerNode] = {}

ALL_NODES = ProfilerNode("", "")
"""Reaches those that carry what is said of the whole training."""


def beside(
    node: ProfilerNode,
    name: str | None = None,
    *,
    of_the_step: bool = True,
    copy: int = 0,
    companions: tuple[str, ...] = (),
) -> ProfilerNode:
    """Return a node that follows one of the tree, with arguments that the tree's does not have.

    It is enabled, disabled and updated with that node; what is said to it is said to it alone.

    `copy`: one of several for the same place, such as that of a thread.
    """
    key = (node, name or "", copy, companions)
    found = _beside.get(key)
    if found is None:
        kind = AccompaniedNode if companions else ProfilerNode
        found = kind(node.cat, f"{node.name}.{name}" if name else node.name, node.enabled)
        if isinstance(found, AccompaniedNode):
            found._take_companions(companions)
        found._takes_told(False)
        found._take_args(node)
        node._add_child(found)
        if of_the_step:
            ALL_NODES._add_child(found)
            if found._copy_args():
                found._merge_args(ALL_NODES._copy_args())
            else:
                found._take_args(ALL_NODES)
        _beside[key] = found
    return found


def give_anew(node: ProfilerNode, told: Mapping[str, object]) -> None:
    """Give a node of `beside` the arguments of one event; the next one's are given so, too.

    `node`: of one thread, so that nobody else's event has them; `told`: all that such events tell,
    with None for what this one cannot: it has no such member.
    """
    if None not in told.values():
        node._merge_args(dict(told))
        return
    kept = {name: value for name, value in node._copy_args().items() if name not in told}
    node._clear_args()
    node._merge_args(kept | {name: one for name, one in told.items() if one is not None})


def forget_arguments() -> None:
    """Have all nodes again the arguments of those that they follow."""
    ALL_NODES._clear_args()
    for (node, *_), one in _beside.items():
        one._take_args(node)
