"""Where settings come from: arguments, variables of the environment, a YAML file, the project's."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from dftrace_ai.config.rows import MESSAGE_LETTERS, PREFIX, Given, nearest
from dftrace_ai.config.settings import SETTINGS, Config
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import ToldOnce, in_short, quoted, shortened, tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dftrace_ai.config.project_file import ProjectFile
    from dftrace_ai.config.yaml_file import YamlFile

# Names under the prefix that are not settings: the YAML file, the run a child joins, and that
# `dftrace run` has started the program.
RESERVED = (
    "DFTRACE_CONFIG",
    "DFTRACE_RUN",
    "DFTRACE_RUN_SETTINGS",
    "DFTRACE_LAUNCH",
    "DFTRACE_LAUNCH_END",
)

# Who finds one of them goes on with what the process found that set it.
OF_CHILDREN = ("DFTRACE_RUN", "DFTRACE_LAUNCH")

_told = ToldOnce()


def load_config(
    path: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    **overrides: object,
) -> Config:
    """Gather the settings of a run.

    Args:
        path: a YAML file of settings; by default the one that ``DFTRACE_CONFIG``
            names, if any. It wins over that of the project, see `project_file`.
        environ: the environment to read; by default that of the process. This is
            the only place where settings are read from it.
        **overrides: settings that win over environment and file, by field name.

    Returns:
        The settings, checked and frozen.

    Raises:
        ConfigError: a key is unknown, a value is not accepted, or the file cannot
            be read. The message names the argument, variable or line.

    Example::

        config = load_config("trace.yaml", compression="none")
    """
    for name in overrides:
        if name not in SETTINGS:
            raise ConfigError(f"unknown setting {name!r}{nearest(name, SETTINGS)}")
    given, _ = settings_given(path, os.environ if environ is None else environ, overrides)
    return Config._from(given)


def settings_given(
    path: str | os.PathLike[str] | None,
    environ: Mapping[str, str],
    arguments: Mapping[str, object],
) -> tuple[dict[str, Given], ProjectFile | None]:
    """Return what files, variables and arguments say, and the project's file, if that was read.

    The file is that of `DFTRACE_CONFIG` by default. The project's is not read where recording is
    switched off without it: a fault of it is none of theirs who record nothing.
    """
    file = path if path is not None else environ.get("DFTRACE_CONFIG") or None
    given = _settings_of_file(file) if file is not None else {}
    given |= _settings_of_environment(environ)
    given |= {name: Given(value, name) for name, value in arguments.items()}
    if any(environ.get(name) for name in OF_CHILDREN) or _is_off(given):
        return given, None
    from dftrace_ai.config.project_file import project_file

    project = project_file()
    return (project.settings if project else {}) | given, project


def _is_off(given: Mapping[str, Given]) -> bool:
    try:
        return "enabled" in given and not SETTINGS["enabled"].taken(given["enabled"].value)
    except (ValueError, TypeError, OverflowError):
        return False  # which is told with the other faults


def _settings_of_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """Read variables; an empty one counts as not set, and ours wins over dftracer's."""
    settings: dict[str, Given] = {}
    for name, row in SETTINGS.items():
        text = environ.get(row.variable, "").strip()
        if text:
            missing = row.optional and text.lower() == "none"
            value = None if missing else text
            settings[name] = Given(value, f"environment variable {row.variable}")
        elif row.alias and (text := environ.get(row.alias, "").strip()):
            settings[name] = Given(row.read_alias(text), f"environment variable {row.alias}")
    # A child of a traced run would only repeat what its parent said.
    if "DFTRACE_RUN" not in environ:
        _warn_of_misspelt(environ)
    return settings


def _warn_of_misspelt(environ: Mapping[str, str]) -> None:
    variables = {row.variable for row in SETTINGS.values()}
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


def _settings_of_file(path: str | os.PathLike[str]) -> dict[str, Given]:
    """Read a YAML file: one mapping of names to values, each name once."""
    import yaml

    from dftrace_ai.config.yaml_file import Guard, opened

    # A file of settings has a few lines, and no setting needs references or depth.
    guard = Guard(
        most_bytes=64 * 1024,
        most_depth=16,
        most_nodes=64 * 1024,
        references=False,
        unreadable=ConfigError,
        refused=_refused,
    )
    file_name = quoted(os.fspath(path))
    settings: dict[str, Given] = {}
    try:
        with opened(path, guard) as file:
            for line, key, value in _pairs(file):
                if key not in [*SETTINGS]:  # it may be a list
                    shown = in_short(key, MESSAGE_LETTERS)
                    hint = nearest(str(key)[:MESSAGE_LETTERS], SETTINGS)
                    raise ConfigError(f"{file_name}:{line}: unknown key {shown}{hint}")
                settings[key] = Given(value, f"{file_name}:{line}: {key}")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{file_name}:{mark.line + 1}" if mark else file_name
        problem = shortened(quoted(str(error.problem)), MESSAGE_LETTERS)
        raise ConfigError(f"{where}: not YAML as expected: {problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file_name}: not YAML: {str(error).splitlines()[0]}") from error
    return settings


def _refused(file_name: str, line: int, problem: str) -> ConfigError:
    return ConfigError(f"{file_name}:{line}: not YAML as expected: {problem}")


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
