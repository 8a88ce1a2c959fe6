"""Ranges of other profilers in step with spans: NVTX for Nsight, ITT for VTune."""

from __future__ import annotations

from importlib import import_module
from threading import get_ident, local
from typing import TYPE_CHECKING, Any

from dftrace_ai.run.loaded_torch import loaded_torch
from dftrace_ai.wording import briefly, warn

if TYPE_CHECKING:
    from dftrace_ai._native import Node

__all__ = ["Range", "Ranges"]


class Range:
    """A range that was begun on a thread.

    Attributes:
        thread: whose it is.
        is_over: its span has ended.
    """

    __slots__ = ("is_over", "thread")

    def __init__(self) -> None:
        self.thread = get_ident()
        self.is_over = False


class _Stack(local):
    """The ranges of a thread, the innermost last."""

    def __init__(self) -> None:
        self.ranges: list[Range] = []


class Ranges:
    """Begins a range with each span and ends it with it, by a module of torch's.

    Ranges of a thread nest. One whose span ends before those that began in it, as in tasks that
    take turns, ends with them. Where the library cannot be used, that is told once.

    Args:
        label: what the ranges are called.
        module: has ``range_push`` and ``range_pop``.
    """

    def __init__(self, label: str, module: str) -> None:
        self._label = label
        self._name = module
        self._module: Any = None
        self._is_hopeless = False
        self._stack = _Stack()

    def begin(self, node: Node, *, is_resume: bool) -> Range | None:
        """Begin a range, called by category and name of the node."""
        if self._is_hopeless or loaded_torch() is None:
            return None
        try:
            if self._module is None:
                self._module = import_module(self._name)
            self._pop()
            self._module.range_push(f"{node.cat}.{node.name}")
        except Exception as error:  # noqa: BLE001 - whatever the library raises
            self._give_up(error)
            return None
        begun = Range()
        self._stack.ranges.append(begun)
        return begun

    def end(self, begun: Range, node: Node | None = None) -> None:
        """End a range, at once if it is the innermost of this thread."""
        begun.is_over = True
        if begun.thread == get_ident():
            try:
                self._pop()
            except Exception as error:  # noqa: BLE001 - whatever the library raises
                self._give_up(error)

    drop = end

    def _pop(self) -> None:
        ranges = self._stack.ranges
        while ranges and ranges[-1].is_over:
            ranges.pop()
            self._module.range_pop()

    def _give_up(self, error: Exception) -> None:
        if not self._is_hopeless:
            self._is_hopeless = True
            warn("there are no ranges of %s: %s", self._label, briefly(error))
