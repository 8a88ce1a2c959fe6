"""The settings of a run, gathered from arguments, environment and a YAML file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError

from dftrace_ai.config.explaining import explained
from dftrace_ai.config.model import Config
from dftrace_ai.config.sources import (
    ConfigSources,
    argument_settings,
    environment_settings,
)
from dftrace_ai.config.yaml_settings import yaml_settings
from dftrace_ai.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["config_of", "load_config", "may_be_none", "refuse_what_is_no_config"]


def config_of(values: Mapping[str, object]) -> Config:
    """Make the settings from values by the names of the fields.

    Raises:
        ConfigError: a name is unknown or its value is not accepted.
    """
    given: Any = values
    return Config(**given)


def refuse_what_is_no_config(given: object) -> None:
    """Refuse what was given in the place of a `Config` and is none.

    Args:
        given: the first argument of `initialize` or `tracing`.

    Raises:
        ConfigError: it is something else; the message says how to give what was meant.
    """
    if isinstance(given, Config):
        return
    if isinstance(given, (str, os.PathLike)):
        mend = f"name the setting, as in log_file={os.fspath(given)!r}"
    elif callable(given):
        mend = "a function is decorated with parentheses, @dftrace_ai.tracing()"
    else:
        mend = "give settings by name, as in ids=False"
    raise ConfigError(f"a Config is needed in this place, not a {type(given).__name__}: {mend}")


def load_config(
    path: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    **overrides: object,
) -> Config:
    """Gather the settings of a run.

    Args:
        path: a YAML file of settings; by default the one that ``DFTRACE_CONFIG``
            names, if any.
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
    variables = os.environ if environ is None else environ
    known = tuple(Config.model_fields)
    file = path if path is not None else variables.get("DFTRACE_CONFIG") or None
    settings = ConfigSources(
        file=yaml_settings(file, known) if file is not None else {},
        environment=environment_settings(variables, known, may_be_none()),
        arguments=argument_settings(overrides, known),
    ).merged()
    try:
        return config_of({name: setting.value for name, setting in settings.items()})
    except ConfigError as error:
        # The model knows the fields, only this function knows where they came from.
        if isinstance(error.__cause__, ValidationError):
            raise ConfigError(explained(error.__cause__, settings, Config.model_fields)) from None
        raise


def may_be_none() -> frozenset[str]:
    """Return the names of the fields for which the word "none" in a variable means: no value."""
    fields = Config.model_fields.items()
    return frozenset(name for name, one in fields if type(None) in get_args(one.annotation))
