"""Waiting for a module that the program may import later: nothing here imports it."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

__all__ = ["when_imported"]


def when_imported(name: str, then: Callable[[], None]) -> Callable[[], None]:
    """Call a function when a module is there: at once, or behind the import that brings it.

    Args:
        name: full name of the module.
        then: called once, when the module has been executed; raises nothing.

    Returns:
        What gives the waiting up.

    Example::

        give_up = when_imported("torch._dynamo", teach)
    """
    waiting = _Waiting(name, then)
    if sys.modules.get(name) is not None:  # None stands for a module that somebody has barred
        from importlib import import_module

        module = import_module(name)  # another thread may be in the middle of it
        spec = getattr(module, "__spec__", None)
        if type(spec) in {ModuleSpec, _Underway} and getattr(spec, "_initializing", False):
            return _Underway.watch(spec, then)  # and so may this one
        then()
    else:
        sys.meta_path.insert(0, waiting)
    return waiting.give_up


class _Underway(ModuleSpec):
    """A spec whose module is being imported; it is an ordinary one again when that is over."""

    _dftrace_waiting: list[Callable[[], None]]

    @classmethod
    def watch(cls, spec: Any, then: Callable[[], None]) -> Callable[[], None]:
        """Have a function called behind the import; return what gives that up."""
        if type(spec) is ModuleSpec:
            vars(spec)["_dftrace_waiting"] = []
            spec.__class__ = cls
        waiting: list[Callable[[], None]] = spec._dftrace_waiting
        waiting.append(then)

        def give_up() -> None:
            if then in waiting:
                waiting.remove(then)

        return give_up

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        # What imports a module says so when it has, or has not, done it.
        if name == "_initializing" and not value:
            waiting: list[Callable[[], None]] = vars(self).pop("_dftrace_waiting")
            self.__class__ = ModuleSpec  # type: ignore[assignment]
            while waiting and sys.modules.get(self.name) is not None:
                waiting.pop(0)()


class _Waiting:
    """A finder that knows one module, by what the others say of it, until that is imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def give_up(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        finders = list(sys.meta_path)
        if fullname != self._name or self not in finders:
            return None
        # Behind this one: two that wait for the same module would ask each other for ever.
        for finder in finders[finders.index(self) + 1 :]:
            find: Any = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader: Any) -> None:
        """Call the function behind this import, if one follows: some only ask for the spec."""
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            # On the loader for this one import, so that the module's is what it would be.
            vars(loader).pop("exec_module", None)
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._then()

        loader.exec_module = exec_module
