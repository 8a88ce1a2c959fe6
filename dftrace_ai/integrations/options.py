"""What is recorded of a framework: the options of `auto`, and the gate that says whether now."""

from __future__ import annotations

import os
import re
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from dftrace_ai.config import values
from dftrace_ai.integrations.steps import ALL_STEPS, StepRange, Training
from dftrace_ai.run.emitting import Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dftrace_ai.config.settings import Config

EVERYWHERE: Final = "all"
"""As a list of folders: every file."""


def folders_of(text: str | None) -> tuple[str, ...]:
    """Return the absolute paths of the folders that a setting names, with colons between them.

    ``file:///data`` is one, too; ``all`` is every file; what is not on this machine is left out.
    """
    if not text:
        return ()
    if text == EVERYWHERE:
        return ("/",)
    whole = os.path.exists(text)  # noqa: PTH110 - of a text that may be no path
    found: dict[str, None] = {}
    for one in [text] if whole else re.split(r":(?!//)", text):
        scheme, mark, rest = one.partition("://")
        if mark and scheme != "file":
            continue
        path = "/" + unquote(rest).partition("/")[2] if mark else one
        if path:
            found[os.path.abspath(os.path.expanduser(path))] = None  # noqa: PTH100, PTH111
    return tuple(found)


ALL = "all"
"""As a name of a part: every one."""


class Chosen:
    """Objects of the program by identity, not kept alive; where none were given, all are meant."""

    def __init__(self, given: Any) -> None:
        self.all = given is None
        several = isinstance(given, (list, tuple, set, frozenset))
        objects: Iterable[Any] = given if several else () if given is None else (given,)
        self._references = {id(one): weakref.ref(one) for one in objects}

    def __contains__(self, one: object) -> bool:
        if self.all:
            return True
        reference = self._references.get(id(one))
        return reference is not None and reference() is one

    def __bool__(self) -> bool:
        return not self.all


@dataclass(frozen=True)
class AutoOptions:
    """What the parts are told.

    Attributes:
        parts: names of the parts that are wanted; None for all.
        without: names of those that are not.
        steps: which steps are recorded.
        depth: how deep modules within modules are recorded; 1 for the outermost alone.
        modules: patterns of names or classes of modules that are recorded at any depth.
        companions: what goes beside the spans of computing, such as the time on the device.
        io: files are recorded, too.
        folders: absolute paths of those in which files are recorded.
        models: the models that are looked at.
        optimizers: the optimizers that are looked at.
        loaders: the loaders that are looked at.
        gate: whether anything is recorded now.
        training: which step it is; the parts tell it what happens.
        not_meant: whether a call of a module, by its arguments, computes nothing; of frameworks.
    """

    parts: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    steps: StepRange = ALL_STEPS
    depth: int = 1
    modules: tuple[str, ...] = ()
    companions: tuple[str, ...] = ()
    io: bool = False
    folders: tuple[str, ...] = ()
    models: Chosen = field(default_factory=lambda: Chosen(None), compare=False)
    optimizers: Chosen = field(default_factory=lambda: Chosen(None), compare=False)
    loaders: Chosen = field(default_factory=lambda: Chosen(None), compare=False)
    gate: Gate = field(default_factory=Gate, compare=False)
    training: Training = field(init=False, compare=False)
    not_meant: list[Callable[[Any], bool]] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "training", Training(self.gate, self.steps))

    def wants(self, part: str) -> bool:
        """Return whether a part is to be installed."""
        if part == "io":  # the one that has to be asked for
            return part not in self.without and (self.io or part in (self.parts or ()))
        return part not in self.without and (self.parts is None or part in self.parts)


def options_of(
    config: Config, *, model: Any = None, optimizer: Any = None, loader: Any = None
) -> AutoOptions:
    """Return the options that settings and a call of `auto` give."""
    wanted, without = values.named(config.auto_parts)
    beside = {"device": config.auto_device, "nvtx": config.auto_nvtx, "itt": config.auto_itt}
    patterns = (config.auto_modules or "").split(",")
    return AutoOptions(
        parts=None if ALL in wanted or not wanted else wanted,
        without=without,
        steps=StepRange.parsed(config.auto_steps),
        depth=config.auto_depth,
        modules=tuple(pattern.strip() for pattern in patterns if pattern.strip()),
        companions=tuple(name for name, wanted in beside.items() if wanted),
        io=config.auto_io,
        folders=folders_of(config.data_dir),
        models=Chosen(model),
        optimizers=Chosen(optimizer),
        loaders=Chosen(loader),
    )


def record_steps(options: AutoOptions) -> Callable[[], None]:
    """Have steps recorded, as the other parts tell of them: the part `steps`."""
    training = options.training
    training.recorded = True

    def remove() -> None:
        training.end()
        training.recorded = False

    return remove
