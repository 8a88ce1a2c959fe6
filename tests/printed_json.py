"""What commands print as JSON, held against the schemas of the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).parents[1] / "schemas"


def checked(text: str, schema: str) -> Any:
    """The value of a text, which is as a schema says and has all members that it names.

    Args:
        text: what a command printed.
        schema: the name of the schema, such as ``index``.
    """
    value = json.loads(text)
    described = json.loads((SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(value, described)
    if "properties" in described:
        assert set(value) == set(described["properties"])
    return value
