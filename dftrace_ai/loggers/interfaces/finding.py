"""Which interfaces there are: of this package, of other packages, and of the user's program."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec

from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.interfaces.base import BaseLogint
from dftrace_ai.wording import described, in_short

__all__ = ["GROUP", "HOMES", "known_names", "logint_class"]

GROUP = "dftrace_ai.logints"
"""The entry-point group of other packages: the key in a config, and its class."""

# Loaded when they are asked for: a module for each key.
HOMES = {
    "local": "local",
    "trace": "trace",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "comet": "comet",
    "aim": "aim",
    "neptune": "neptune",
    "trackio": "trackio",
    "swanlab": "swanlab",
}


def known_names() -> list[str]:
    """Return the keys of all interfaces, sorted."""
    others = (point.name for point in entry_points(group=GROUP))
    return sorted({*HOMES, *BaseLogint.known, *others})


def logint_class(name: str) -> type[BaseLogint]:
    """Find an interface by its key.

    Args:
        name: the key in a config, such as ``"tensorboard"``.

    Raises:
        ConfigError: there is none of that name, or what it needs is not installed; the message
            names the extra that installs it.

    Example::

        logint_class("local")
    """
    found = BaseLogint.known.get(name)
    if found is None:
        _load(name)
        found = BaseLogint.known.get(name)
    if found is None:
        names = known_names()
        near = get_close_matches(str(name), names, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ConfigError(
            f"there is no logging interface {in_short(name)}{hint}; known: {', '.join(names)}"
        )
    missing = [package for package in found.packages if not _is_there(package)]
    if missing:
        raise ConfigError(
            f"the interface {name!r} needs {', '.join(missing)}, which is not installed: "
            f"pip install 'dftrace-ai[{found.extra or name}]'"
        )
    return found


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:
        return True  # the program has put a module of its own in its place


def _load(name: str) -> None:
    if name in HOMES:
        import_module(f"dftrace_ai.loggers.interfaces.{HOMES[name]}")
        return
    for point in entry_points(group=GROUP):
        if point.name == name:
            try:
                found = point.load()
            except Exception as error:
                raise ConfigError(
                    f"the logging interface {name!r} of {point.value} cannot be loaded: "
                    f"{described(error)}"
                ) from error
            BaseLogint.known[name] = found
