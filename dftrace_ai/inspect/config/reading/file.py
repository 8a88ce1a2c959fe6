"""The YAML of a config file, read without letting the file do harm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeAlias

from dftrace_ai.config.yaml_file import Guard, opened
from dftrace_ai.inspect.errors import InspectTypeError, InspectValueError
from dftrace_ai.wording import in_short

__all__ = ["ConfigSource", "parsed", "read_yaml"]

ConfigSource: TypeAlias = "str | os.PathLike[str] | dict[str, Any] | None"
"""The path of a YAML file, or what such a file holds; None and an empty path are no config."""


def parsed(config_file: object) -> tuple[Any, str | None] | None:
    """Return what a config holds, and the name of its file.

    A dict has no name. None where there is no config: an empty path, or one that does not exist.
    """
    if isinstance(config_file, dict):
        return config_file, None
    if config_file is None or config_file == "":
        return None
    if not isinstance(config_file, (str, os.PathLike)):
        raise InspectTypeError(
            f"config_file: {in_short(config_file)} is not accepted; accepted: a path or a dict"
        )
    path = os.fspath(config_file)
    if not isinstance(path, str):
        raise InspectTypeError(f"config_file: {in_short(path)} is not accepted; accepted: text")
    return None if _is_missing(path) else (read_yaml(path), path)


def _is_missing(path: str) -> bool:
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False  # whatever is there cannot be read, which reading it tells
    return False


def read_yaml(path: str) -> Any:
    """Return what a YAML file holds."""
    with opened(path, _GUARD) as file:
        return None if file.root is None else file.loader.construct_document(file.root)


def _refused(name: str, line: int, problem: str) -> InspectValueError:
    return InspectValueError(f"{name}:{line}: {problem}")


# A config for a thousand layers has a tenth of these nodes.
_GUARD = Guard(
    most_bytes=1024 * 1024,
    most_depth=32,
    most_nodes=100_000,
    references=True,
    unreadable=InspectValueError,
    refused=_refused,
)
