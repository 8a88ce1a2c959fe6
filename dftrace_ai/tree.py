"""The one tree of the process: `ai`, with what belongs to the tree as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dftrace_ai import _native
from dftrace_ai.categories import ROOT, Categories

__all__ = ["Tree", "ai"]


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
            _native.instant("instant", name, None if args is None else dict(args))

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
            series = values if isinstance(values, Mapping) else {"value": values}
            _native.counter(name, dict(series))


ai = Tree(*ROOT)
