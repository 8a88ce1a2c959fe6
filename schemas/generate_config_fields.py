"""Makes the plain table of the settings: ``python schemas/generate_config_fields.py``."""

from __future__ import annotations

import sys
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BeforeValidator

from dftrace_ai.config import values
from dftrace_ai.config.model import Config
from dftrace_ai.config.values import ToCore

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

_HERE = Path(__file__).resolve().parent
TARGET = _HERE.parent / "dftrace_ai" / "config" / "fields.py"

KINDS = (bool, int, float, str, Path)

_HEAD = '''"""The settings without the model. Generated: edit config/model.py instead."""

from __future__ import annotations

from pathlib import Path

from dftrace_ai.config.values import {names}

__all__ = ["FIELDS", "Fields"]


class Fields:
    """What a `Config` has as attributes, with their defaults."""

'''


class _Writer:
    """Writes fields down, and keeps in mind what of `config.values` they name."""

    def __init__(self) -> None:
        self.used = {"PlainField"}

    def named(self, function: Any) -> str:
        """Return the name of a function of `config.values`."""
        name = str(function.__name__)
        if getattr(values, name, None) is not function or name not in values.__all__:
            raise TypeError(f"{name} has to be a public function of dftrace_ai.config.values")
        self.used.add(name)
        return name

    def core(self, told: ToCore) -> str:
        """Return how the core is told of a setting."""
        self.used.add("ToCore")
        plain = told.value is ToCore(told.name).value
        return f'ToCore("{told.name}"{"" if plain else f", {self.named(told.value)}"})'

    def field(self, name: str, info: FieldInfo) -> tuple[str, str]:
        """Return a field as an attribute, and as a row of the table."""
        several = get_origin(info.annotation) in {Literal, Union, UnionType}
        kinds = get_args(info.annotation) if several else (info.annotation,)
        optional = type(None) in kinds
        words: tuple[str, ...] = ()
        if get_origin(info.annotation) is Literal:
            words, kinds = kinds, (str,)
        kind = next((one for one in kinds if one in KINDS), None)
        if kind is None or set(kinds) - {kind, type(None)}:
            raise TypeError(f"{name}: plain code knows no such values")
        default = f"Path({str(info.default)!r})" if kind is Path and info.default else None
        given = [kind.__name__, default or repr(info.default)]
        if optional:
            given.append("optional=True")
        given += self._rules(name, info)
        if kind is float and not any(one.startswith("most=") for one in given):
            raise TypeError(f"{name}: a number without an end may be none")
        if words:
            given.append(f"words={words!r}")
        annotation = f"{kind.__name__}{' | None' if optional else ''}"
        attribute = f"    {name}: {annotation} = {default or repr(info.default)}"
        return attribute, f'    "{name}": PlainField({", ".join(given)}),'

    def _rules(self, name: str, info: FieldInfo) -> list[str]:
        found: list[str] = []
        for rule in info.metadata:
            if isinstance(rule, Ge):
                found.append(f"least={rule.ge!r}")
            elif isinstance(rule, Le):
                found.append(f"most={rule.le!r}")
            elif isinstance(rule, BeforeValidator):
                found.append(f"read={self.named(rule.func)}")
            elif isinstance(rule, ToCore):
                found.append(f"to_core={self.core(rule)}")
            elif getattr(rule, "allow_inf_nan", True):
                raise TypeError(f"{name}: plain code knows no such rule: {rule!r}")
        return found


def generated(model: type[BaseModel] = Config) -> str:
    """Make the text of fields.py.

    Args:
        model: of the settings.

    Returns:
        Python source; the project's formatter breaks its lines.

    Raises:
        TypeError: the model has a rule that plain code does not know.
    """
    writer = _Writer()
    fields = [writer.field(name, info) for name, info in model.model_fields.items()]
    lines = _HEAD.format(names=", ".join(sorted(writer.used))).splitlines()
    lines += [attribute for attribute, _ in fields]
    lines += ["", "", "FIELDS: dict[str, PlainField] = {", *(row for _, row in fields), "}", ""]
    return "\n".join(lines)


def main() -> None:
    """Write the file."""
    TARGET.write_text(generated(), encoding="utf-8")
    sys.stdout.write(f"wrote {TARGET.name}\n")


if __name__ == "__main__":
    main()
