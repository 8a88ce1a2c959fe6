"""What was asked of a run that was on already, held against what is in force."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.config.model import Config

__all__ = ["SettingWithoutEffect", "settings_without_effect"]


class SettingWithoutEffect(NamedTuple):
    """A setting, the value that the run has, and the one that was asked for, as they are shown."""

    name: str
    in_force: str
    asked: str


def settings_without_effect(
    asked: Config, names: Iterable[str], in_force: Config
) -> list[SettingWithoutEffect]:
    """Find the settings that somebody gave and the run has otherwise."""
    return [
        SettingWithoutEffect(name, _shown(there), _shown(wanted))
        for name in sorted(names)
        if (in_force.enabled or name == "enabled")
        and (wanted := getattr(asked, name)) != (there := getattr(in_force, name))
    ]


def _shown(value: object) -> str:
    return repr(str(value) if isinstance(value, Path) else value)
