"""Which routines there are: those of this package, and of the user's program."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec

from dftrace_ai.errors import ConfigError
from dftrace_ai.loggers.routines.base import BaseLogger
from dftrace_ai.wording import in_short

__all__ = ["HOMES", "routine_class"]

HOMES = {
    "metric": "metric",
    "hist": "histogram",
    "hparams": "hyperparameters",
    "image": "image",
    "mesh": "mesh",
    "video": "video",
}


def routine_class(key: str) -> type[BaseLogger]:
    """Find a routine by its key.

    Raises:
        ConfigError: there is none, and the message lists those that there are; or what it needs is
            not installed.

    Example::

        routine_class("metric")
    """
    if key in HOMES:
        import_module(f"dftrace_ai.loggers.routines.{HOMES[key]}")
    if key not in BaseLogger.known:
        names = sorted({*HOMES, *BaseLogger.known})
        near = get_close_matches(str(key), names, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ConfigError(
            f"there is no logging routine {in_short(key)}{hint}; known: {', '.join(names)}"
        )
    found = BaseLogger.known[key]
    missing = [package for package in found.packages if find_spec(package) is None]
    if missing:
        raise ConfigError(
            f"the logging routine {key!r} needs {', '.join(missing)}, which is not installed: "
            "pip install 'dftrace-ai[media]'"
        )
    return found
