"""Which interfaces and routines there are: this package's, others', and the user's own."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.routines.base import BaseLogger
from dftrace_ai.loggers.trackers.base import BaseLogint
from dftrace_ai.wording import described, in_short

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUP = "dftrace_ai.logints"
"""The entry-point group of other packages: the key in a config, and its class."""

# Loaded when they are asked for, each from the module of its name.
INTERFACES = (
    *("local", "trace", "tensorboard", "wandb", "mlflow", "comet", "aim", "neptune", "trackio"),
    "swanlab",
)
ROUTINES = {
    "metric": "metric",
    "hist": "histogram",
    "hparams": "hyperparameters",
    "image": "pictures",
    "mesh": "mesh",
    "video": "pictures",
}


def logint_class(name: str) -> type[BaseLogint]:
    """Find an interface by its key; a ConfigError names the known ones, or what it lacks."""
    if name not in BaseLogint.known:
        _load(name)
    kind = BaseLogint.known.get(name)
    if kind is None:
        others = (point.name for point in entry_points(group=GROUP))
        raise _unknown("interface", name, {*INTERFACES, *BaseLogint.known, *others})
    _check(f"the interface {name!r}", kind.packages, kind.extra or name)
    return kind


def routine_class(key: str) -> type[BaseLogger]:
    """Find a routine by its key; a ConfigError names the known ones, or what it lacks."""
    if key in ROUTINES:
        import_module(f"dftrace_ai.loggers.routines.{ROUTINES[key]}")
    kind = BaseLogger.known.get(key)
    if kind is None:
        raise _unknown("routine", key, {*ROUTINES, *BaseLogger.known})
    _check(f"the logging routine {key!r}", kind.packages, "media")
    return kind


def _load(name: str) -> None:
    if name in INTERFACES:
        import_module(f"dftrace_ai.loggers.trackers.{name}")
        return
    for point in entry_points(group=GROUP):
        if point.name == name:
            try:
                BaseLogint.known[name] = point.load()
            except Exception as error:
                raise ConfigError(
                    f"the logging interface {name!r} of {point.value} cannot be loaded: "
                    f"{described(error)}"
                ) from error


def _unknown(what: str, key: str, known: Iterable[str]) -> ConfigError:
    names = sorted(known)
    near = get_close_matches(str(key), names, 1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return ConfigError(
        f"there is no logging {what} {in_short(key)}{hint}; known: {', '.join(names)}"
    )


def _check(who: str, packages: Iterable[str], extra: str) -> None:
    missing = [package for package in packages if not _is_there(package)]
    if missing:
        raise ConfigError(
            f"{who} needs {', '.join(missing)}, which is not installed: "
            f"pip install 'dftrace-ai[{extra}]'"
        )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:
        return True  # the program has put a module of its own in its place
