"""Waiting for a module that the program may import later: nothing here imports it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["when_imported"]


def when_imported(name: str, then: Callable[[], None]) -> Callable[[], None]:
    """Call a function when a module is there: at once, or behind the first import of it.

    Args:
        name: full name of a module that lies in no package.
        then: called once, when the module has been executed; raises nothing.

    Returns:
        What gives the waiting up.

    Example::

        give_up = when_imported("torch", patch_torch)
    """
    if name in sys.modules:
        importlib.import_module(name)  # another thread may be in the middle of its import
        then()
        return _nothing
    waiting = _Waiting(name, then)
    waiting.begin()
    return waiting.give_up


def _nothing() -> None:
    """Give up nothing."""


class _Waiting(MetaPathFinder):
    """Answers for one module, by what the other finders say, and leaves with that."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then
        self._given_up = False

    def begin(self) -> None:
        sys.meta_path.insert(0, self)

    def give_up(self) -> None:
        self._given_up = True
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            self.begin()  # not installed: it may be by the next try
        else:
            self._watch(spec.loader)
        return spec

    def _watch(self, loader: Any) -> None:
        # On the loader itself, which stays the module's: whoever looks at it finds it as always.
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            try:
                execute(module)
            except BaseException:
                if not self._given_up:
                    self.begin()
                raise
            if not self._given_up:
                self._then()

        loader.exec_module = exec_module
