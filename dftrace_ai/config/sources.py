"""Where settings come from (arguments, environment, a YAML file) and how each one is named."""

from __future__ import annotations

import difflib
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dftrace_ai.config.yaml_file import Guard, YamlFile, opened
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import ToldOnce, in_short, quoted, shortened, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "RESERVED",
    "ConfigSources",
    "Setting",
    "argument_settings",
    "environment_settings",
    "nearest",
    "variable_of",
    "yaml_settings",
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


@dataclass(frozen=True)
class Setting:
    """A value and the words that name its source, such as ``trace.yaml:3: compression``."""

    value: object
    origin: str


@dataclass(frozen=True)
class ConfigSources:
    """Settings by source; later fields win over earlier ones."""

    file: Mapping[str, Setting] = field(default_factory=dict)
    environment: Mapping[str, Setting] = field(default_factory=dict)
    arguments: Mapping[str, Setting] = field(default_factory=dict)

    def merged(self) -> dict[str, Setting]:
        """Return the winning setting of each field."""
        return {**self.file, **self.environment, **self.arguments}


def variable_of(name: str) -> str:
    """Return the environment variable of a field: ``variable_of("rank") == "DFTRACE_RANK"``."""
    return RENAMED.get(name, PREFIX + name.upper())


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean 'rank'?``, or nothing when no name is near."""
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


def yaml_settings(path: str | os.PathLike[str], known: Sequence[str]) -> dict[str, Setting]:
    """Read the settings of a YAML file: one mapping of field names to values.

    Args:
        path: the file.
        known: the names of all fields.

    Returns:
        The settings by field; none for an empty file.

    Raises:
        ConfigError: the file cannot be read, is not such a mapping, repeats a key
            or has a key that is no field. The message names file and line.
    """
    import yaml

    name = quoted(os.fspath(path))
    settings: dict[str, Setting] = {}
    try:
        with opened(path, _GUARD) as file:
            for line, key, value in _pairs(file):
                if key not in known:
                    shown = in_short(key, MESSAGE_LETTERS)
                    hint = nearest(str(key)[:MESSAGE_LETTERS], known)
                    raise ConfigError(f"{name}:{line}: unknown key {shown}{hint}")
                settings[key] = Setting(value, f"{name}:{line}: {key}")
    except yaml.MarkedYAMLError as error:
        where = f"{name}:{error.problem_mark.line + 1}" if error.problem_mark else name
        problem = shortened(quoted(str(error.problem)), MESSAGE_LETTERS)
        raise ConfigError(f"{where}: not YAML as expected: {problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not YAML: {str(error).splitlines()[0]}") from error
    return settings


def _refused(name: str, line: int, problem: str) -> ConfigError:
    return ConfigError(f"{name}:{line}: not YAML as expected: {problem}")


# A file of settings has a few lines, and no setting needs references or depth.
_GUARD = Guard(
    most_bytes=64 * 1024,
    most_depth=16,
    most_nodes=64 * 1024,
    references=False,
    unreadable=ConfigError,
    refused=_refused,
)


def _pairs(file: YamlFile) -> Iterator[tuple[int, Any, Any]]:
    """Yield line number, key and value of each entry of the mapping that a file holds."""
    import yaml

    if file.root is None:
        return
    if not isinstance(file.root, yaml.MappingNode):
        raise yaml.MarkedYAMLError(
            problem="lines of the form 'key: value' are needed", problem_mark=file.root.start_mark
        )
    for key, value in file.root.value:
        yield (
            key.start_mark.line + 1,
            file.loader.construct_object(key, deep=True),
            file.loader.construct_object(value, deep=True),
        )
