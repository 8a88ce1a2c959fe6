"""What parts record with: nodes beside the tree's, how deep a thread is, and who may be asked."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from dftrace_ai.annotation.node import AccompaniedNode, ProfilerNode
from dftrace_ai.run.emitting import ThreadCounts, TrainingState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

NOTHING = ProfilerNode("", "", enabled=False)
"""Records nothing: takes the place of a node outside of the steps that are asked for."""

# Kept with the tree: who instruments a second time finds them again.
_beside: dict[tuple[ProfilerNode, str, int, tuple[str, ...]], ProfilerNode] = {}

ALL_NODES = ProfilerNode("", "")
"""Reaches those that follow what is told of the step that a training is in."""


def beside(
    node: ProfilerNode,
    name: str | None = None,
    *,
    of_the_step: bool = True,
    copy: int = 0,
    companions: tuple[str, ...] = (),
) -> ProfilerNode:
    """Return a node that is enabled, disabled and updated with one of the tree.

    What is said to it is said to it alone. `copy`: one of several, such as that of a thread.
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
        _beside[key] = found
    return found


def give_anew(node: ProfilerNode, told: Mapping[str, int | str | None]) -> None:
    """Give a node of `beside`, of this thread alone, the arguments of its next event.

    `told`: all that such events tell; what this one cannot, None, is no member of it.
    """
    if None not in told.values():
        node._merge_args(dict(told))
        return
    others = {name: value for name, value in node._copy_args().items() if name not in told}
    node._clear_args()
    node._merge_args(others | {name: one for name, one in told.items() if one is not None})


def forget_arguments() -> None:
    """Have all nodes again the arguments of those that they follow."""
    TrainingState.forget_told()
    for (node, *_), one in _beside.items():
        one._take_args(node)


depth = ThreadCounts()
"""Of this thread.

Attributes:
    forward: modules within modules that are recorded.
    backward: 1 within a backward pass that is recorded.
    optimizer: 1 within an optimizer's step that is recorded.
    waiting: 1 while a loader is asked for a batch.
    hooked: 1 within an optimizer's step that its hooks have told of.
    computing: 1 within what a framework has made one function of, and is recorded as a whole.
"""


class Kept(threading.local):
    """What is on in this thread."""

    # An optimizer whose step is on by its hooks, and the span of it.
    hooked: tuple[Any, Any] | None = None
    # That whose forward is on, where modules within it are recorded.
    model: Any = None


kept = Kept()


def leave_hooked() -> None:
    """End an optimizer's step that its hooks told of, and that has raised: torch tells no end."""
    hooked, kept.hooked = kept.hooked, None
    depth.hooked = 0
    if hooked is not None and hooked[1] is not None:
        hooked[1].end_unless_empty()


def asked(question: Callable[..., T], *of: Any) -> T | None:
    """Return what the program's objects answer, None where they raise: an argument is missing."""
    try:
        return question(*of)
    except Exception:  # noqa: BLE001 - the argument is left out, which is what a reader sees
        return None
