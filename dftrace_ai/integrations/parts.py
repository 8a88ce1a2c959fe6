"""The parts that a framework is traced by: ours, and those that other packages bring."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dftrace_ai.integrations.wrapping.listening import tell_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.integrations.options import AutoOptions

__all__ = ["BUILT_IN", "GROUP", "Part", "Removal", "find_parts", "install_parts"]

GROUP = "dftrace_ai.auto_parts"
"""Entry points of this group are parts: a `Part`, or a function `install(options)`."""

Removal: TypeAlias = Callable[[], None]
"""What takes a part out again; called once."""


class Part(NamedTuple):
    """Something that records a piece of what a framework does.

    Attributes:
        name: by which it is switched on and off.
        install: gets the options, and returns what takes it out again. Where the framework lacks
            what it needs it raises `NotInThisVersion`, and has changed nothing.
    """

    name: str
    install: Callable[[AutoOptions], Removal]


# In the order in which they are installed: what hears of the training before what tells of it.
BUILT_IN = {
    "steps": "dftrace_ai.integrations.torch.steps",
    "forward": "dftrace_ai.integrations.torch.forward",
    "backward": "dftrace_ai.integrations.torch.backward",
    "optimizer": "dftrace_ai.integrations.torch.optimizer",
    "data": "dftrace_ai.integrations.torch.data",
    "transfer": "dftrace_ai.integrations.torch.transfer",
    "checkpoint": "dftrace_ai.integrations.torch.checkpoint",
    "collectives": "dftrace_ai.integrations.torch.collectives",
    "compilations": "dftrace_ai.integrations.torch.compilations",
    "lightning": "dftrace_ai.integrations.lightning",
    "transformers": "dftrace_ai.integrations.transformers",
    "accelerate": "dftrace_ai.integrations.accelerate",
    "keras": "dftrace_ai.integrations.keras",
}
"""Our parts by name: modules with a function `install`, imported when the framework is there."""


def find_parts(options: AutoOptions) -> Iterator[Part]:
    """Yield the parts that are wanted; one that cannot be loaded is told of and left out.

    Args:
        options: which are wanted.
    """
    for name, home in BUILT_IN.items():
        if options.wants(name):
            yield from _loaded(name, functools.partial(_install_of, home))
    for entry in entry_points(group=GROUP):
        if options.wants(entry.name):
            yield from _loaded(entry.name, entry.load)


def _install_of(home: str) -> Any:
    return import_module(home).install


def _loaded(name: str, load: Callable[[], Any]) -> Iterator[Part]:
    try:
        found = load()
    except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
        tell_of(name, error)
    else:
        yield found if isinstance(found, Part) else Part(name, found)


def install_parts(options: AutoOptions) -> dict[str, Removal]:
    """Install what is wanted; one that fails is told of, and the others and the training go on.

    Args:
        options: for the parts.

    Returns:
        By name what takes each out again, in the order in which they were installed.
    """
    removals: dict[str, Removal] = {}
    for part in find_parts(options):
        _install(part, options, removals)
    return removals


def _install(part: Part, options: AutoOptions, removals: dict[str, Removal]) -> None:
    try:
        removals[part.name] = part.install(options)
    except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
        tell_of(part.name, error)
