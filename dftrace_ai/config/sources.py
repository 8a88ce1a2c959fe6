"""Where settings come from (arguments, environment) and how each one is named."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import ToldOnce, quoted, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

__all__ = [
    "RESERVED",
    "ConfigSources",
    "Setting",
    "argument_settings",
    "environment_settings",
    "nearest",
    "variable_of",
]

PREFIX = "DFTRACE_"

# Names under the prefix that are not fields: the YAML file, the run a child joins, and that
# `dftrace run` has started the program.
RESERVED = ("DFTRACE_CONFIG", "DFTRACE_RUN", "DFTRACE_RUN_SETTINGS", "DFTRACE_LAUNCH")

# Fields whose variable is not the prefix and the field's name.
RENAMED = {"enabled": "DFTRACE_ENABLE"}

MESSAGE_LETTERS = 200

TRUE_WORDS = frozenset({"1", "true", "t", "yes", "y", "on"})
FALSE_WORDS = frozenset({"0", "false", "f", "no", "n", "off"})

_told = ToldOnce()


class Setting(NamedTuple):
    """A value and the words that name its source, such as ``trace.yaml:3: compression``."""

    value: object
    origin: str


class ConfigSources(NamedTuple):
    """Settings by source; later fields win over earlier ones."""

    file: Mapping[str, Setting]
    environment: Mapping[str, Setting]
    arguments: Mapping[str, Setting]

    def merged(self) -> dict[str, Setting]:
        """Return the winning setting of each field."""
        return {**self.file, **self.environment, **self.arguments}


def variable_of(name: str) -> str:
    """Return the environment variable of a field: ``variable_of("rank") == "DFTRACE_RANK"``."""
    return RENAMED.get(name, PREFIX + name.upper())


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean 'rank'?``, or nothing when no name is near."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def _truth(text: str) -> bool | None:
    word = text.strip().lower()
    if word in TRUE_WORDS:
        return True
    return False if word in FALSE_WORDS else None


def _gzip_or_none(text: str) -> object:
    truth = _truth(text)
    return text if truth is None else ("gzip" if truth else "none")


def _as_it_is(text: str) -> object:
    return text


# dftracer's names, honoured where they mean the same: variable -> field and reading.
ALIASES: dict[str, tuple[str, Callable[[str], object]]] = {
    "DFTRACER_ENABLE": ("enabled", _as_it_is),
    "DFTRACER_LOG_FILE": ("log_file", _as_it_is),
    "DFTRACER_TRACE_COMPRESSION": ("compression", _gzip_or_none),
    "DFTRACER_INC_METADATA": ("args", _as_it_is),
    "DFTRACER_WRITE_BUFFER_SIZE": ("write_buffer_bytes", _as_it_is),
    "DFTRACER_LOG_LEVEL": ("log_level", _as_it_is),
}


def environment_settings(
    environ: Mapping[str, str], known: Sequence[str], may_be_none: Collection[str]
) -> dict[str, Setting]:
    """Read the settings that the environment gives.

    A variable that is empty counts as not set. A ``DFTRACE_`` name wins over the
    ``DFTRACER_`` name of the same field. A name under ``DFTRACE_`` that is no
    field but resembles one is told once, on the logger ``dftrace_ai``.

    Args:
        environ: the variables.
        known: the names of all fields.
        may_be_none: those among them for which the word "none" means: no value.

    Returns:
        The settings by field.
    """
    settings: dict[str, Setting] = {}
    for alias, (name, reading) in ALIASES.items():
        text = environ.get(alias, "")
        if text.strip():
            settings[name] = Setting(reading(text.strip()), f"environment variable {alias}")
    for name in known:
        variable = variable_of(name)
        text = environ.get(variable, "").strip()
        if text:
            missing = name in may_be_none and text.lower() == "none"
            settings[name] = Setting(None if missing else text, f"environment variable {variable}")
    # A child of a traced run would only repeat what its parent said.
    if "DFTRACE_RUN" not in environ:
        _warn_of_misspelt(environ, known)
    return settings


def _warn_of_misspelt(environ: Mapping[str, str], known: Sequence[str]) -> None:
    variables = {variable_of(name) for name in known}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in variables or variable in RESERVED:
            continue
        import difflib

        near = difflib.get_close_matches(variable, sorted(variables), n=1, cutoff=0.8)
        if near and _told.first(variable):
            tell(
                logging.WARNING,
                "environment variable %s is not known and has no effect; did you mean %s?",
                quoted(variable),
                near[0],
            )


def argument_settings(overrides: Mapping[str, object], known: Sequence[str]) -> dict[str, Setting]:
    """Take settings given as keyword arguments.

    Raises:
        ConfigError: a name is not that of a field.
    """
    for name in overrides:
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}{nearest(name, known)}")
    return {name: Setting(value, name) for name, value in overrides.items()}
