"""Why settings are not accepted, in words: where each came from, and what is accepted there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from dftrace_ai.config.sources import MESSAGE_LETTERS, nearest
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError
    from pydantic.fields import FieldInfo

    from dftrace_ai.config.sources import Setting

__all__ = ["accepted_values", "explained"]

# What `accepted_values` says where the type alone does not say it.
ACCEPTED_IN_WORDS = {
    "auto_modules": "names or patterns with commas between them, such as 'layers.*', or none",
    "auto_parts": "names with commas between them, such as 'forward,backward' or '-data'",
    "auto_steps": "a range A:B of whole numbers, such as '10:20', '10:' or ':20', or none",
    "compression_level": "a whole number, 1 to 12 for gzip and 1 to 19 for zstd, or none",
    "dump_signal": "the name of a signal that can be handled, such as SIGUSR2, or none",
    "file_mode": "an octal mode with reading and writing for the owner, such as '0640', "
    "and no execution",
    "layout": "a rank for each dimension, such as 'dp=0,pp=1', each dimension once, or none",
    "log_file": "a path whose last part is a file stem, such as 'out/trace'",
}


def explained(
    error: ValidationError, settings: Mapping[str, Setting], fields: Mapping[str, FieldInfo]
) -> str:
    """Return one line for each fault: source, value, what is accepted.

    Args:
        error: of the model of all settings.
        settings: what was given, and where, by the name of the field.
        fields: the model's fields by name.
    """
    lines: list[str] = []
    for fault in error.errors(include_url=False):
        name = str(fault["loc"][0]) if fault["loc"] else ""
        if not name:
            lines.append(_of_several(str(fault["msg"]), settings))
        elif name not in fields:
            lines.append(f"unknown setting {name!r}{nearest(name, fields)}")
        else:
            given = in_short(settings[name].value, MESSAGE_LETTERS)
            lines.append(
                f"{settings[name].origin}: {given} is not accepted; "
                f"accepted: {accepted_values(name, fields)}"
            )
    return "\n".join(dict.fromkeys(lines))


def _of_several(message: str, settings: Mapping[str, Setting]) -> str:
    """Return the message of a rule over several fields, with the sources of those fields."""
    text = message.removeprefix("Value error, ")
    named = [setting.origin for name, setting in settings.items() if name in text.split()]
    return f"{', '.join(named)}: {text}" if named else text


def accepted_values(name: str, fields: Mapping[str, FieldInfo]) -> str:
    """Say in words what a field accepts.

    Args:
        name: the name of a field of `Config`.
        fields: the fields of `Config` by name.

    Returns:
        Such as ``'gzip', 'zstd' or 'none'`` or ``a whole number from 1 to 60000``.
    """
    if name in ACCEPTED_IN_WORDS:
        return ACCEPTED_IN_WORDS[name]
    info = fields[name]
    kinds = get_args(info.annotation) or (info.annotation,)
    optional = " or none" if type(None) in kinds else ""
    if get_origin(info.annotation) is Literal:
        *most, last = (repr(kind) for kind in kinds)
        return f"{', '.join(most)} or {last}"
    if bool in kinds:
        return "true or false (also 1 and 0, yes and no, on and off)"
    if int in kinds or float in kinds:
        noun = "a whole number" if int in kinds else "a number"
        least = next((rule.ge for rule in info.metadata if hasattr(rule, "ge")), None)
        greatest = next((rule.le for rule in info.metadata if hasattr(rule, "le")), None)
        bounds = f", {least} or more" if greatest is None else f" from {least} to {greatest}"
        return noun + bounds + optional
    return f"{'a path' if Path in kinds else 'text'}{optional}"
