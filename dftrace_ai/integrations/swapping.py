"""Attributes of a framework's classes and modules: replaced once it is there, and put back."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from dftrace_ai.run.late_import import when_imported
from dftrace_ai.wording import described, tell

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType, TracebackType

    from typing_extensions import Self

_ABSENT: Any = object()
_ORIGINAL = "__dftrace_original__"


class NotInThisVersion(Exception):  # noqa: N818 - no fault: a part finds out that it has to rest
    """The framework, in the version that is here, lacks what a part needs; the message names it."""


def original_of(function: Any) -> Any:
    """Return what a replacement stands for, or the object itself where it is none."""
    return getattr(function, _ORIGINAL, function)


def is_replaced(function: Any) -> bool:
    """Whether it is a replacement, or what somebody has laid over one as a wrapper of it."""
    return hasattr(function, _ORIGINAL)


def standing_for(found: Any, make: Callable[[Any], Any]) -> Any:
    """Return what `make` makes of a function, marked as its replacement."""
    made = make(found)
    setattr(made, _ORIGINAL, found)
    return made


class Swaps:
    """Replacements that are put back together, the latest first.

    As a block it puts everything back when an exception leaves it: a part is installed as a
    whole or not at all.

    Example::

        with Swaps() as swaps:
            swaps.swap(torch, "save", recorded)
        return swaps.restore
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.restore()

    def swap(
        self, owner: Any, name: str, make: Callable[[Any], Any], *, static: bool = False
    ) -> None:
        """Replace an attribute by what `make` makes of it.

        Args:
            owner: a class or module.
            name: of the attribute; what a class inherits is laid over, and uncovered again.
            make: gets what is there, and returns what takes its place.
            static: it becomes a static method.

        Raises:
            NotInThisVersion: there is no such attribute.
        """
        found = getattr(owner, name, _ABSENT)
        if found is _ABSENT:
            raise NotInThisVersion(f"{getattr(owner, '__name__', owner)}.{name}")
        made = standing_for(found, make)
        self.put(owner, name, staticmethod(made) if static else made)

    def put(self, owner: Any, name: str, made: object) -> None:
        """Replace an attribute by something of which `original_of` knows nothing.

        Args:
            owner: a class or module.
            name: of the attribute.
            made: what takes its place.
        """
        raw = vars(owner).get(name, _ABSENT)
        setattr(owner, name, made)
        put = vars(owner)[name]

        def back() -> None:
            # What somebody has laid over ours is his; ours stays below it and does nothing.
            if vars(owner).get(name) is put:
                if raw is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, raw)

        self._undo.append(back)

    def then(self, undo: Callable[[], None]) -> None:
        """Have something else undone with the replacements."""
        self._undo.append(undo)

    def restore(self) -> None:
        """Put everything back; a second call does nothing."""
        while self._undo:
            self._undo.pop()()


def once_imported(
    part: str, module: str, install: Callable[[Swaps, ModuleType], None]
) -> Callable[[], None]:
    """Install a part when a framework is there: at once, or behind its first import."""
    swaps = Swaps()

    def there() -> None:
        try:
            with swaps:
                install(swaps, sys.modules[module])
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            tell_of(part, error)

    give_up = when_imported(module, there)

    def remove() -> None:
        give_up()
        swaps.restore()

    return remove


def all_of(*removals: Callable[[], None]) -> Callable[[], None]:
    """Return what takes all out that several take out."""

    def remove() -> None:
        for removal in removals:
            removal()

    return remove


def needed(module: ModuleType | None, name: str) -> Any:
    """Return what a module has by a name; None for one that the framework does not have."""
    found = getattr(module, name, None)
    if found is None:
        raise NotInThisVersion(name if module is None else f"{module.__name__}.{name}")
    return found


def tell_of(part: str, error: Exception) -> None:
    """Tell of a part that cannot be installed."""
    lacks = isinstance(error, NotInThisVersion)
    tell(
        logging.WARNING,
        "auto records nothing of the part %s, %s: %s",
        part,
        "which this version of the framework is not known for: it lacks" if lacks else "and why",
        error if lacks else described(error),
    )
