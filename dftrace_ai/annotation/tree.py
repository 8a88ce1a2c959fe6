"""The one tree of the process: `ai`, with what belongs to the tree as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.categories import ROOT, Categories
from dftrace_ai.run.emitting import counter, instant
from dftrace_ai.run.hooks import Hook, register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.run.run import Run


class Tree(Categories):
    """The root: everything below it is reached by name, as in ``ai.compute.forward``."""

    def instant(self, name: str, args: Mapping[str, Any] | None = None) -> None:
        """Mark a moment inside the span that is open now.

        Args:
            name: name of the event.
            args: its arguments, by name.

        Example::

            ai.instant("best accuracy", args={"accuracy": 0.98})
        """
        if self.enabled:
            instant(name, args)

    def counter(self, name: str, values: float | Mapping[str, float]) -> None:
        """Plot numbers of this moment as counter tracks, one for each name in `values`.

        Args:
            name: name of the counter.
            values: finite numbers by series, or one number, whose series is called
                ``value``; anything else is left out and counted.

        Example::

            ai.counter("loss", 0.31)
            ai.counter("losses", values={"train": 0.31, "validation": 0.42})
        """
        if self.enabled:
            counter(name, values)

    def _reduce_place(self, keys: tuple[str, ...]) -> tuple[Any, ...] | None:
        return (_at, keys) if self is ai else None


ai = Tree(*ROOT)
"""The tree of annotations: `ai.compute.forward` decorates, opens a block, or goes along a loop."""
# What counts steps tells of them beside what the user says of his spans; not of steps themselves.
ai._takes_told(True)
ai.pipeline._takes_told(False)


def _at(*keys: str) -> ProfilerNode:
    """Return the node at a place of the tree, made if it is a derived one of another process."""
    node: ProfilerNode = ai
    for key in keys:
        node = node._child(key)
    return node


# Nodes that the configuration, not the user, turned off for this run.
_switched_off: list[ProfilerNode] = []


def _switch_io_off(run: Run) -> None:
    if run._settings is not None and not run._settings["io"]:
        for branch in (ai.data, ai.checkpoint, ai.other):
            if branch.io.enabled:
                _switched_off.append(branch.io)
                branch.io.disable()


def _switch_io_on(_: Run) -> None:
    for node in _switched_off:
        node.enable()
    _switched_off.clear()


register(Hook("annotations of io", _switch_io_off, _switch_io_on))
