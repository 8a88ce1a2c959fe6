"""Modules within modules that get spans of their own: by depth, by name and by class."""

from __future__ import annotations

import weakref
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.asking import asked
from dftrace_ai.integrations.nodes import NOTHING, beside
from dftrace_ai.integrations.torch.depth import kept

if TYPE_CHECKING:
    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.options import AutoOptions

__all__ = ["InnerModules"]


class InnerModules:
    """Knows the nodes of modules, named after where each lies in its model."""

    def __init__(self, options: AutoOptions) -> None:
        self._options = options
        self._known: dict[int, tuple[weakref.ref[Any], str]] = {}

    def node_of(self, module: Any, level: int) -> ProfilerNode:
        """Return the node of a module that is about to be called, which may record nothing."""
        options = self._options
        if not options.gate.recording:
            return NOTHING
        name = self._name_of(module)
        wanted = level <= options.depth or any(
            fnmatchcase(name, pattern) or fnmatchcase(type(module).__name__, pattern)
            for pattern in options.modules
        )
        if not wanted:
            return NOTHING
        return beside(ai.compute.forward, name, companions=options.companions)

    def learn(self, model: Any) -> None:
        """Take note of where the modules of a model lie."""
        asked(self._learn_below, model, "", {id(model)})

    def _learn_below(self, module: Any, path: str, met: set[int]) -> None:
        # As `named_modules` names them, which hashes and compares modules by methods of theirs.
        for name, inner in module._modules.items():
            if inner is not None and id(inner) not in met:
                met.add(id(inner))
                self._note(inner, f"{path}{name}")
                asked(self._learn_below, inner, f"{path}{name}.", met)

    def _note(self, module: Any, name: str) -> None:
        known, key = self._known, id(module)
        known[key] = (weakref.ref(module, lambda _: known.pop(key, None)), name)

    def _name_of(self, module: Any) -> str:
        known = self._known.get(id(module))
        if known is None or known[0]() is not module:
            if kept.model is not None:
                self.learn(kept.model)
            known = self._known.get(id(module))
            if known is None or known[0]() is not module:  # of no model: made in a forward
                self._note(module, type(module).__name__)
        return self._known[id(module)][1]
