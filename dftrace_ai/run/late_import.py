"""Modules that the program may import, torch above all; nothing here imports them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def loaded_torch() -> Any:
    """Return torch; None where it is not imported, or another thread is about to import it."""
    # Of a module that is being imported only a part is there, and nobody has a tensor yet.
    torch: Any = sys.modules.get("torch")
    if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):
        return None
    return torch


def is_older_than(major: int, minor: int) -> bool:
    """Tell whether torch is here, be it in the middle of its import, in a version before this."""
    version = getattr(sys.modules.get("torch"), "__version__", None)
    if version is None:
        return False
    parts = str(version).partition("+")[0].split(".")[:2]
    return tuple(int(part) for part in parts if part.isdecimal()) < (major, minor)


def when_imported(name: str, then: Callable[[], None]) -> Callable[[], None]:
    """Call a function when a module is there: at once, or behind the import that brings it."""
    waiting = _Waiting(name, then)
    if sys.modules.get(name) is not None:  # None stands for a module that somebody has barred
        from importlib import import_module

        module = import_module(name)  # another thread may be in the middle of it
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "_initializing", False) is True:  # and so may this one
            give_up = _behind_import(spec, then)
            if give_up is not None:
                return give_up
        then()
    else:
        sys.meta_path.insert(0, waiting)
    return waiting.give_up


def _behind_import(spec: Any, then: Callable[[], None]) -> Callable[[], None] | None:
    """Call a function behind the import that goes by a spec; give what gives that up, if it can."""
    # It sets a mark when it has ended. Loaders are left alone: some take no attribute, and what
    # they raise has no frame of ours.
    kind = type(spec)
    wanted = [then]

    class Underway(kind):  # type: ignore[misc, valid-type]
        def __setattr__(self, name: str, value: object) -> None:
            if name != "_initializing" or value:
                super().__setattr__(name, value)
                return
            self.__class__ = kind
            setattr(self, name, value)
            if wanted and sys.modules.get(self.name) is not None:
                wanted.pop()()

    try:
        spec.__class__ = Underway
    except TypeError:
        return None
    return wanted.clear


class _Waiting:
    """A finder that knows one module, by what the others say of it, until that is imported."""

    # The program's finders are compared with nothing: one may raise where it is.
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def give_up(self) -> None:
        self._leave()

    def _leave(self) -> bool:
        for place, finder in enumerate(sys.meta_path):
            if finder is self:
                del sys.meta_path[place]
                return True
        return False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        # Behind this one: two that wait for the same module would ask each other for ever.
        behind = False
        for finder in list(sys.meta_path):
            find: Any = getattr(finder, "find_spec", None) if behind else None
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                _behind_import(spec, self._there)
                return spec
            behind = behind or finder is self
        return None

    def _there(self) -> None:
        if self._leave():
            self._then()
