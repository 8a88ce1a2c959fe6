"""Where settings come from (arguments, environment, a YAML file) and how each one is named."""

from __future__ import annotations

import difflib
import logging
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dftrace_ai.errors import ConfigError, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "RESERVED",
    "ConfigSources",
    "Setting",
    "argument_settings",
    "environment_settings",
    "nearest",
    "small_text",
    "variable_of",
    "yaml_settings",
]

PREFIX = "DFTRACE_"

# Names under the prefix that are not fields: the run a child joins, and the YAML file.
RESERVED = ("DFTRACE_CONFIG", "DFTRACE_RUN", "DFTRACE_RUN_SETTINGS")

# Fields whose variable is not the prefix and the field's name.
RENAMED = {"enabled": "DFTRACE_ENABLE"}

# A file of settings has a few lines; parsing takes a thousand times its size.
FILE_BYTES = 64 * 1024
MOST_DEPTH = 16

MESSAGE_LETTERS = 200

TRUE_WORDS = frozenset({"1", "true", "t", "yes", "y", "on"})
FALSE_WORDS = frozenset({"0", "false", "f", "no", "n", "off"})

_logger = logging.getLogger("dftrace_ai")
_warned: set[str] = set()


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
        if near and variable not in _warned:
            _warned.add(variable)
            _logger.warning(
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
    text = small_text(path, name)
    try:
        pairs = list(_yaml_pairs(text))
    except yaml.MarkedYAMLError as error:
        where = f"{name}:{error.problem_mark.line + 1}" if error.problem_mark else name
        problem = quoted(str(error.problem))[:MESSAGE_LETTERS]
        raise ConfigError(f"{where}: not YAML as expected: {problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not YAML: {str(error).splitlines()[0]}") from error
    except ValueError as error:
        # A date that does not exist, a number of thousands of digits.
        raise ConfigError(f"{name}: a value cannot be read: {str(error)[:200]}") from error
    settings: dict[str, Setting] = {}
    for line, key, value in pairs:
        if key not in known:
            shown = repr(key)[:MESSAGE_LETTERS]
            hint = nearest(str(key)[:MESSAGE_LETTERS], known)
            raise ConfigError(f"{name}:{line}: unknown key {shown}{hint}")
        if key in settings:
            raise ConfigError(f"{name}:{line}: {key} is given twice")
        settings[key] = Setting(value, f"{name}:{line}: {key}")
    return settings


def small_text(path: str | os.PathLike[str], name: str, most_bytes: int = FILE_BYTES) -> str:
    """Return the text of a file that may be anything: a pipe, a device, a disk image.

    Args:
        path: the file.
        name: what messages call it.
        most_bytes: a file of more bytes is refused.

    Raises:
        ConfigError: it is no regular file, cannot be read, has more bytes or is not UTF-8.
    """
    # Not waiting for a writer, should it become a pipe after it was looked at.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        data = None
        if stat.S_ISREG(Path(path).stat().st_mode):
            with open(os.open(path, flags), "rb") as file:  # noqa: PTH123
                data = file.read(most_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot read the settings: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{name}: cannot read the settings: {error}") from error
    if data is None:
        raise ConfigError(f"{name}: cannot read the settings: not a regular file")
    if len(data) > most_bytes:
        raise ConfigError(f"{name}: no file of settings: it has more than {most_bytes} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: the settings are not UTF-8 text: {error.reason}") from error


def _yaml_pairs(text: str) -> Iterator[tuple[int, Any, Any]]:
    """Yield line number, key and value of each entry of the mapping that `text` holds."""
    import yaml

    _refuse_what_multiplies(text)
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return
        if not isinstance(root, yaml.MappingNode):
            raise yaml.MarkedYAMLError(
                problem="lines of the form 'key: value' are needed", problem_mark=root.start_mark
            )
        for key, value in root.value:
            yield (
                key.start_mark.line + 1,
                loader.construct_object(key, deep=True),
                loader.construct_object(value, deep=True),
            )
    finally:
        loader.dispose()


def _refuse_what_multiplies(text: str) -> None:
    """Refuse references, of which a few lines stand for gigabytes, and depth, which takes hours.

    No setting needs either.
    """
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            problem = f"a reference (*{event.anchor}); write the value itself"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_DEPTH:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=mark)
