"""What `dftrace summary` prints, as rows that tests look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
from safety.commands import invoke

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "summary.schema.json").read_text())
MS = 1_000_000


def as_json(*words: object) -> dict[str, Any]:
    done = invoke("summary", "--json", *words)
    assert done.status == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    jsonschema.validate(found, SCHEMA)
    assert set(found) == set(SCHEMA["properties"])
    return found


def table_rows(text: str) -> dict[str, list[str]]:
    """The words of each row of spans, by the name of the span."""
    rows = (line.split() for line in text.splitlines())
    return {words[1]: words for words in rows if len(words) > 4 and words[2].isdecimal()}


def sums(found: dict[str, Any]) -> dict[tuple[str, str], tuple[int, float]]:
    return {(row["group"], row["name"]): (row["count"], row["total_us"]) for row in found["spans"]}
