"""Settings from a YAML file: one mapping of names to values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dftrace_ai.config.sources import MESSAGE_LETTERS, Setting, nearest
from dftrace_ai.config.yaml_file import Guard, YamlFile, opened
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import in_short, quoted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["yaml_settings"]


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
