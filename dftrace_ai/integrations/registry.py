"""The parts that a framework is traced by: ours, and those that other packages bring."""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dftrace_ai.integrations.options import ALL
from dftrace_ai.integrations.swapping import tell_of
from dftrace_ai.wording import tell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.integrations.options import AutoOptions

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
    "steps": "options:record_steps",
    "io": "files:install",
    "gc": "garbage:install",
    "lightning": "lightning:install",
    "transformers": "transformers:install",
    "accelerate": "accelerate:install",
    "deepspeed": "deepspeed:install",
    "megatron": "megatron:install",
    "ray": "ray:install",
    "keras": "keras:install",
    "tensorflow": "tensorflow:install",
    "tapes": "tensorflow:install_tapes",
}
"""Parts that need no torch: they wait for what they are named after, or for nothing."""

OF_TORCH = {
    "forward": "torch.forward:install",
    "backward": "torch.backward:install",
    "optimizer": "torch.optimizer:install",
    "data": "torch.data:install",
    "transfer": "torch.transfer:install",
    "checkpoint": "torch.checkpoint:install",
    "collectives": "torch.collectives:install",
    "pipelining": "torch.pipelining:install",
    "compilations": "torch.compilations:install",
}

BUILT_IN = OF_FRAMEWORKS | OF_TORCH
"""Our parts by name: module and function, imported when the framework is there."""


def install_framework_parts(options: AutoOptions) -> dict[str, Removal]:
    """Install what is wanted of the parts that need no torch; one that fails is told of."""
    return _installed(_built_in(OF_FRAMEWORKS), options)


def install_torch_parts(options: AutoOptions) -> dict[str, Removal]:
    """Install what is wanted of the parts that record torch, and of those of other packages."""
    ours = OF_TORCH
    torch = sys.modules.get("torch")
    is_wanted = any(options.wants(name) for name in ours)
    if is_wanted and not isinstance(getattr(torch, "Tensor", None), type):
        place = getattr(torch, "__file__", None) or "of that name"
        tell(logging.WARNING, "auto records nothing of the module torch, not PyTorch: %s", place)
        ours = {}
    return _installed(itertools.chain(_built_in(ours), entry_points(group=GROUP)), options)


def install_other_parts(framework: str, options: AutoOptions) -> dict[str, Removal]:
    """Install what is wanted of the parts of other packages that record a framework."""
    return _installed(entry_points(group=GROUPS[framework]), options)


def unknown_parts(names: Iterable[str]) -> str:
    """Return a clause that tells of names without a part, and of all parts; empty for none."""
    strange = sorted(set(names) - BUILT_IN.keys() - {ALL})
    if strange:  # only then is it worth a look at what is installed
        others = {one.name for group in GROUPS.values() for one in entry_points(group=group)}
        known = [*BUILT_IN, *sorted(others)]
        strange = [name for name in strange if name not in others]
    if not strange:
        return ""
    return f"there is no part {', '.join(map(repr, strange))}; there are {', '.join(known)}"


def _built_in(homes: dict[str, str]) -> list[EntryPoint]:
    return [EntryPoint(name, f"{__package__}.{home}", GROUP) for name, home in homes.items()]


def _installed(parts: Iterable[EntryPoint], options: AutoOptions) -> dict[str, Removal]:
    removals: dict[str, Removal] = {}
    for entry in parts:
        if options.wants(entry.name):
            name = entry.name
            try:
                found = entry.load()
                part = found if isinstance(found, Part) else Part(name, found)
                name = part.name
                removals[name] = part.install(options)
            except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
                tell_of(name, error)
    return removals
