"""The settings of a run as the run holds them, checked where possible without loading the model.

The model, `Config`, says what is accepted, and why something is not. To load and build it takes
longer than all else that begins a run. So plain code takes what it is sure of, by the table that is
made from the model, and everything else goes to the model: all that is faulty, and what is unusual.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dftrace_ai.config.fields import FIELDS, Fields
from dftrace_ai.config.sources import FALSE_WORDS, TRUE_WORDS, environment_settings
from dftrace_ai.config.values import fault_of_several

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dftrace_ai.config.model import Config
    from dftrace_ai.config.values import PlainField

__all__ = ["PlainConfig", "checked", "gathered", "plain_config", "plain_of"]

# Of a number as text; more digits, signs, exponents and underscores are the model's.
MOST_DIGITS = 15

UNSURE = object()

NUMBERS = (int, float)
MAY_BE_NONE = frozenset(name for name, field in FIELDS.items() if field.optional)


class PlainConfig(Fields):
    """Settings that have been checked; the attributes are those of `Config`.

    Args:
        values: what is not as it is by default, by name, as a `Config` would have it.
        given: names of the settings that somebody gave.

    Example::

        PlainConfig({"ids": False}, {"ids"}).ids  # False
    """

    def __init__(self, values: Mapping[str, object], given: Iterable[str]) -> None:
        vars(self).update(values)
        self.given = frozenset(given)

    def values_given(self) -> dict[str, object]:
        """Return what somebody gave, by name."""
        return {name: getattr(self, name) for name in FIELDS if name in self.given}

    def with_values(self, values: Mapping[str, object]) -> PlainConfig:
        """Return settings with some replaced, which are not checked and count as given."""
        own = {name: value for name, value in vars(self).items() if name != "given"}
        return PlainConfig({**own, **values}, {*self.given, *values})


def plain_of(config: Config) -> PlainConfig:
    """Return what a run holds of a `Config`."""
    return PlainConfig({name: getattr(config, name) for name in FIELDS}, config.model_fields_set)


def checked(values: Mapping[str, object]) -> PlainConfig:
    """Check settings by the names of the fields.

    Args:
        values: the settings that are not to be as they are by default.

    Raises:
        ConfigError: a name is unknown or its value is not accepted.

    Example::

        checked({"rank": 3}).rank  # 3
    """
    found = plain_config(values)
    if found is not None:
        return found
    from dftrace_ai.config.loading import config_of

    return plain_of(config_of(values))


def gathered(environ: Mapping[str, str], overrides: Mapping[str, object]) -> PlainConfig | None:
    """Gather the settings of a run as `load_config` does, where plain code is sure of them.

    Args:
        environ: the variables.
        overrides: settings by name, which win.

    Returns:
        The settings; None where there is a file of them, or anything that only the model can judge.
    """
    if environ.get("DFTRACE_CONFIG"):
        return None
    told = environment_settings(environ, tuple(FIELDS), MAY_BE_NONE)
    return plain_config({**{name: one.value for name, one in told.items()}, **overrides})


def plain_config(values: Mapping[str, object]) -> PlainConfig | None:
    """Check settings; None where only the model can judge.

    Args:
        values: settings by the names of the fields.
    """
    taken: dict[str, object] = {}
    for name, value in values.items():
        field = FIELDS.get(name)
        taken[name] = UNSURE if field is None else _taken(field, value)
        if taken[name] is UNSURE:
            return None
    config = PlainConfig(taken, taken)
    return None if fault_of_several(config) else config


def _taken(field: PlainField, value: object) -> object:
    """Return a value as the model takes it; `UNSURE` where it may do something else."""
    if value is None:
        return None if field.optional else UNSURE
    if type(value) not in {str, bool, int, float, type(Path())}:
        return UNSURE
    if field.read is not None:
        try:
            value = field.read(value)
        except (ValueError, RuntimeError):
            return UNSURE
    if field.kind is bool:
        return _truth(value)
    if field.kind in NUMBERS:
        return _number(field, value)
    if field.kind is str and not _is_text(value, field.words):
        return UNSURE
    return value if isinstance(value, field.kind) else UNSURE


def _truth(value: object) -> object:
    if isinstance(value, str) and value.isascii():
        word = value.lower()
        value = True if word in TRUE_WORDS else False if word in FALSE_WORDS else UNSURE
    return value if isinstance(value, bool) else UNSURE


def _number(field: PlainField, value: object) -> object:
    if isinstance(value, str):
        whole, point, rest = value.partition(".")
        parts = (whole, rest) if point and field.kind is float else (value,)
        if not all(one.isascii() and one.isdigit() and len(one) <= MOST_DIGITS for one in parts):
            return UNSURE
        value = float(value) if field.kind is float else int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return UNSURE
    if field.kind is int and not isinstance(value, int):
        return UNSURE
    # What is no number is neither more nor less.
    if field.least is not None and not value >= field.least:
        return UNSURE
    if field.most is not None and not value <= field.most:
        return UNSURE
    return field.kind(value)


def _is_text(value: object, words: tuple[str, ...]) -> bool:
    if not isinstance(value, str):
        return False
    if words:
        return value in words
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
