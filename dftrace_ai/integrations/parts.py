"""The parts that a framework is traced by: ours, and those that other packages bring."""

from __future__ import annotations

import functools
import itertools
import logging
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dftrace_ai.integrations.options import ALL
from dftrace_ai.integrations.wrapping.listening import tell_of
from dftrace_ai.wording import tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dftrace_ai.integrations.options import AutoOptions

__all__ = [
    "BUILT_IN",
    "GROUP",
    "GROUPS",
    "Part",
    "Removal",
    "install_framework_parts",
    "install_other_parts",
    "install_torch_parts",
    "unknown_parts",
]

GROUP = "dftrace_ai.auto_parts"
"""Entry points of this group are parts: a `Part`, or a function `install(options)`.

They are installed when torch is imported; those of ``dftrace_ai.auto_parts.keras`` and
``dftrace_ai.auto_parts.tensorflow`` when that one is.
"""

GROUPS = {"torch": GROUP, **{name: f"{GROUP}.{name}" for name in ("tensorflow", "keras")}}
"""The group of each framework: of what brings a training along, by its module.

Keras may compute by neither of the others. What `dftrace run` has Pythons load names them, too.
"""

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
OF_FRAMEWORKS = {
    "steps": "dftrace_ai.integrations.steps.recording",
    "io": "dftrace_ai.integrations.files",
    "lightning": "dftrace_ai.integrations.lightning",
    "transformers": "dftrace_ai.integrations.transformers",
    "accelerate": "dftrace_ai.integrations.engines.accelerate",
    "deepspeed": "dftrace_ai.integrations.engines.deepspeed",
    "megatron": "dftrace_ai.integrations.engines.megatron",
    "ray": "dftrace_ai.integrations.ray",
    "keras": "dftrace_ai.integrations.keras",
    "tensorflow": "dftrace_ai.integrations.tensorflow",
    "tapes": "dftrace_ai.integrations.engines.tapes",
}
"""Parts that need no torch: they wait for what they are named after, or for nothing."""

OF_TORCH = {
    "forward": "dftrace_ai.integrations.torch.forward",
    "backward": "dftrace_ai.integrations.torch.backward",
    "optimizer": "dftrace_ai.integrations.torch.optimizer",
    "data": "dftrace_ai.integrations.torch.data",
    "transfer": "dftrace_ai.integrations.torch.transfer",
    "checkpoint": "dftrace_ai.integrations.torch.checkpoint",
    "collectives": "dftrace_ai.integrations.torch.collectives",
    "compilations": "dftrace_ai.integrations.torch.compilations",
}

BUILT_IN = OF_FRAMEWORKS | OF_TORCH
"""Our parts by name: modules with a function `install`, imported when the framework is there."""


def _install_of(home: str) -> Any:
    return import_module(home).install


def _loaded(name: str, load: Callable[[], Any]) -> Iterator[Part]:
    try:
        found = load()
    except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
        tell_of(name, error)
    else:
        yield found if isinstance(found, Part) else Part(name, found)


def install_framework_parts(options: AutoOptions) -> dict[str, Removal]:
    """Install what is wanted of the parts that need no torch.

    One that fails is told of, and the others and the training go on.
    """
    return _installed(_built_in(OF_FRAMEWORKS, options), options)


def install_torch_parts(options: AutoOptions) -> dict[str, Removal]:
    """Install what is wanted of the parts that record torch, and of those of other packages."""
    wanted = {name: home for name, home in OF_TORCH.items() if options.wants(name)}
    torch = sys.modules.get("torch")
    if wanted and not isinstance(getattr(torch, "Tensor", None), type):
        place = getattr(torch, "__file__", None) or "of that name"
        tell(logging.WARNING, "auto records nothing of the module torch, not PyTorch: %s", place)
        wanted = {}
    found = itertools.chain(_built_in(wanted, options), _of_other_packages("torch", options))
    return _installed(found, options)


def install_other_parts(framework: str, options: AutoOptions) -> dict[str, Removal]:
    """Install what is wanted of the parts of other packages that record a framework."""
    return _installed(_of_other_packages(framework, options), options)


def unknown_parts(names: Iterable[str]) -> str:
    """Tell of names that no part has.

    Returns a clause with the names of all parts; empty where each name has its part.
    """
    strange = sorted(set(names) - BUILT_IN.keys() - {ALL})
    if strange:  # only then is it worth a look at what is installed
        others = {one.name for group in GROUPS.values() for one in entry_points(group=group)}
        known = [*BUILT_IN, *sorted(others)]
        strange = [name for name in strange if name not in others]
    if not strange:
        return ""
    return f"there is no part {', '.join(map(repr, strange))}; there are {', '.join(known)}"


def _built_in(homes: dict[str, str], options: AutoOptions) -> Iterator[Part]:
    for name, home in homes.items():
        if options.wants(name):
            yield from _loaded(name, functools.partial(_install_of, home))


def _of_other_packages(framework: str, options: AutoOptions) -> Iterator[Part]:
    for entry in entry_points(group=GROUPS[framework]):
        if options.wants(entry.name):
            yield from _loaded(entry.name, entry.load)


def _installed(parts: Iterable[Part], options: AutoOptions) -> dict[str, Removal]:
    removals: dict[str, Removal] = {}
    for part in parts:
        _install(part, options, removals)
    return removals


def _install(part: Part, options: AutoOptions, removals: dict[str, Removal]) -> None:
    try:
        removals[part.name] = part.install(options)
    except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
        tell_of(part.name, error)
