"""Hearing of a framework's own hooks: once it is imported, and without ever raising in them."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, TypeAlias

from dftrace_ai.integrations.swapping import NotInThisVersion, Swaps
from dftrace_ai.run.place.late_import import when_imported
from dftrace_ai.wording import described, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.steps.training import Training

__all__ = ["Hooks", "Listener", "evaluating", "learning", "needed", "once_imported", "tell_of"]

Hooks: TypeAlias = "Mapping[str, Callable[[Training, Any], object]]"
"""By the name of a framework's hook: what is told to the training, with what the hook is given."""


class Listener:
    """Tells a training of what a framework's hooks are given.

    It raises nothing: where a version of the framework lacks what is asked for, that is said once
    and nothing is asked any more.
    """

    def __init__(self, part: str, hooks: Hooks) -> None:
        self._part = part
        self._hooks = hooks

    def hear(self, options: AutoOptions | None, hook: str, given: Any) -> None:
        """Tell the training of a hook, if it says anything.

        `options`: of `auto`; None where it is off.
        """
        tells = self._hooks.get(hook)
        if tells is None or options is None or not options.gate.live:
            return
        try:
            tells(options.training, given)
        except Exception as error:  # noqa: BLE001 - the training goes on
            self._hooks = {}
            tell_of(self._part, NotInThisVersion(described(error)))


def evaluating(options: AutoOptions, stage: str, original: Any) -> Any:
    """Return a function of which each outermost call is an evaluation."""
    training = options.training

    @functools.wraps(original)
    def evaluates(*args: Any, **kwargs: Any) -> Any:
        if not options.gate.live or not training.evaluation_begins():
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            training.evaluation_ends(stage)

    return evaluates


def learning(options: AutoOptions, original: Any) -> Any:
    """Return a function that trains, behind which nothing that a framework has told holds on."""

    @functools.wraps(original)
    def learns(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            if options.gate.live:
                options.training.told_all()

    return learns


def once_imported(
    part: str, module: str, install: Callable[[Swaps, ModuleType], None]
) -> Callable[[], None]:
    """Install a part when a framework is there: at once, or behind its first import."""
    swaps = Swaps()

    def there() -> None:
        import sys

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


def needed(module: ModuleType | None, name: str) -> Any:
    """Return what a module has by a name.

    `module`: of a framework; None where it does not have that module; raises NotInThisVersion: it
    has no such thing.
    """
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
