"""What commands print as JSON, held against the schemas of the project."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).parents[1] / "schemas"


@cache
def schema(name: str) -> Any:
    """What holds values against a schema: made once, which takes thirty times as long as to ask it."""
    described = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    kind = jsonschema.validators.validator_for(described)
    kind.check_schema(described)
    return kind(described)


def checked(text: str, name: str) -> Any:
    """The value of a text, which is as a schema says and has all members that it names.

    Args:
        text: what a command printed.
        name: that of the schema, such as ``index``.
    """
    value = json.loads(text)
    schema(name).validate(value)
    described = schema(name).schema
    if "properties" in described:
        assert set(value) == set(described["properties"])
    return value
