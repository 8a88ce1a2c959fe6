"""What a file of settings may say of each: the JSON Schema of all that `Config` takes.

Texts that stand for numbers and truth values are among it, since the same words come from variables
of the environment. What no schema can say: that a rank exists in a world size, that a range of
steps begins before it ends, and numbers with exponents or underscores in quotes.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from dftrace_ai.config.rows import FALSE_WORDS, TRUE_WORDS
from dftrace_ai.config.settings import COMPRESSION_LEVELS, SETTINGS
from dftrace_ai.config.values import UNUSABLE_SIGNALS
from dftrace_ai.inspect.config.names import any_case

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.config.rows import Setting

__all__ = ["agreements", "alternatives", "as_read"]

Schema = dict[str, Any]

NULL: Schema = {"type": "null"}
# Not in the Python of every machine on which the schema is made.
SIGNALS = {*signal.Signals.__members__, "SIGSTKFLT"} - UNUSABLE_SIGNALS
MODES = [0o600 | group << 3 | other for group in (0, 2, 4, 6) for other in (0, 2, 4, 6)]

NAME, RANK = r"\s*[\w-]{1,64}\s*", r"\s*[0-9]{1,9}\s*"
PLACE: Schema = {"type": "string", "format": "path", "pattern": r"^[^\u0000]*\S[^\u0000]*$"}
LIST: Schema = {"type": "array", "items": {"type": "string"}}

OWN: dict[str, list[Schema]] = {
    "log_file": [{**PLACE, "not": {"pattern": r"(?:^|/)\.\.$|^\.$"}}],
    "spool_dir": [PLACE],
    "file_mode": [
        {"type": "string", "pattern": r"^\s*(?:0[oO])?0*6[0246][0246]\s*$"},
        {"enum": MODES},
    ],
    "layout": [
        {
            "type": "string",
            "pattern": f"^{NAME}={RANK}(?:,{NAME}={RANK}){{0,15}}$",
            "not": {"pattern": r"(?:^|,)\s*([\w-]+)\s*=(?:.*,)?\s*\1\s*="},
        },
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 16,
            "propertyNames": {"pattern": f"^{NAME}$"},
            "additionalProperties": {
                "anyOf": [
                    {"type": "integer", "minimum": 0, "maximum": 10**9 - 1},
                    {"type": "string", "pattern": f"^{RANK}$"},
                ]
            },
        },
    ],
    "auto_steps": [
        {
            "type": "string",
            "pattern": r"^\s*[0-9]*\s*:\s*[0-9]*\s*$",
            "not": {"pattern": r":\s*0+\s*$"},
        }
    ],
    "auto_parts": [{"type": "string"}, LIST],
    "auto_modules": [{"type": "string"}, LIST],
    "plugins": [{"type": "string"}, LIST],
}


def alternatives(name: str) -> list[Schema]:
    """Return what is accepted of a setting by itself, the usual first."""
    field = SETTINGS[name]
    found = OWN.get(name) or _of_kind(name, field)
    return [*found, NULL] if field.optional else found


def as_read(schema: Schema) -> Schema:
    """Return a schema as pydantic makes it, with the texts that it takes for numbers and truth.

    Args:
        schema: of a value.
    """
    if "anyOf" in schema:
        widened = [as_read(one) for one in schema["anyOf"]]
        return {**schema, "anyOf": [one for kind in widened for one in kind.get("anyOf", [kind])]}
    kind = schema.get("type")
    if kind == "array":
        return {**schema, "items": as_read(schema["items"])}
    if kind not in {"boolean", "integer", "number"}:
        return schema
    known = {"type", "minimum", "maximum", "exclusiveMinimum"}
    rest = {key: value for key, value in schema.items() if key not in known}
    if kind == "boolean":
        return {**rest, "anyOf": _truths()}
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    of_kind = int if kind == "integer" else float
    found = _numbers(of_kind, least, schema.get("maximum"), above="exclusiveMinimum" in schema)
    return {**rest, "anyOf": found}


def _truths() -> list[Schema]:
    words = any_case(sorted({*TRUE_WORDS, *FALSE_WORDS}))
    return [{"type": "boolean"}, {"enum": [0, 1]}, {"type": "string", "pattern": words}]


def _of_kind(name: str, field: Setting) -> list[Schema]:
    if field.kind is bool:
        return _truths()
    if field.kind in (int, float):
        return _numbers(field.kind, field.least, field.most)
    if name == "dump_signal":
        return [_spelt({one.removeprefix("SIG") for one in SIGNALS}, "(?:[sS][iI][gG])?")]
    if field.words:
        also = ("WARN",) if name == "log_level" else ()
        return [{"enum": list(field.words)}, _spelt((*field.words, *also))]
    return [{"type": "string"}]


def _spelt(words: Iterable[str], before: str = "") -> Schema:
    """Return the schema of words in any case, with blanks around."""
    inner = any_case(sorted(words)).removeprefix("^").removesuffix("$")
    return {"type": "string", "pattern": rf"^\s*{before}{inner}\s*$"}


def _numbers(
    kind: type, least: float | None, most: float | None, *, above: bool = False
) -> list[Schema]:
    bounds = {"exclusiveMinimum" if above else "minimum": least, "maximum": most}
    number: Schema = {key: value for key, value in bounds.items() if value is not None}
    number["type"] = "integer" if kind is int else "number"
    if least is None:
        text = r"[+-]?[0-9]+(?:\.0+)?"
    elif kind is int:
        text = rf"\+?0*(?:{_between(int(least), most)})(?:\.0+)?"
    else:
        # From 0.01, say, up to one, from one up to the end, and the end itself.
        places = len(f"{least:f}".rstrip("0").partition(".")[2])
        small = rf"\.0{{0,{places - 1}}}[1-9][0-9]*"
        if not least:
            small = r"\.0*[1-9][0-9]*" if above else r"0(?:\.[0-9]*)?|\.[0-9]+"
        end = int(most or 0)
        text = (
            rf"\+?0*(?:{small}"
            rf"|(?:{_between(1, end - 1)})(?:\.[0-9]*)?|{end}(?:\.0*)?)"
        )
    return [number, {"type": "string", "pattern": rf"^\s*{text}\s*$"}]


def _between(least: int, most: float | None) -> str:
    """Return a regular expression of the whole numbers from one to another; no zeros before."""
    if most is None:
        digits = len(str(least))
        return f"{_between(least, 10**digits - 1)}|[1-9][0-9]{{{digits},}}"
    ends = {int(most)}
    for places in range(1, len(str(int(most))) + 1):
        step = 10**places
        up = least - least % step + step - 1
        down = (int(most) + 1) - (int(most) + 1) % step - 1
        ends |= {one for one in (up, down) if least <= one < most}
    found, begin = [], least
    for end in sorted(ends):
        found.append(_alike(str(begin), str(end)))
        begin = end + 1
    return "|".join(found)


def _alike(first: str, last: str) -> str:
    """Return the expression of a range whose ends differ in classes of digits alone."""
    pieces = [a if a == b else f"[{a}-{b}]" for a, b in zip(first, last, strict=True)]
    return "".join(pieces)


def _given(name: str) -> Schema:
    return {"required": [name], "properties": {name: {"not": NULL}}}


def agreements() -> list[Schema]:
    """Return what settings have to be beside each other."""

    def compressed(word: str) -> Schema:
        return {"required": ["compression"], "properties": {"compression": _spelt([word])}}

    def level(of: str) -> Schema:
        least, most = COMPRESSION_LEVELS[of]
        return {"properties": {"compression_level": {"anyOf": [*_numbers(int, least, most), NULL]}}}

    words = any_case(sorted(TRUE_WORDS))
    on = {"anyOf": [{"enum": [True, 1]}, {"type": "string", "pattern": words}]}
    return [
        {
            "if": compressed("none"),
            "else": {"if": compressed("zstd"), "then": level("zstd"), "else": level("gzip")},
        },
        {
            "if": _given("flight_seconds"),
            "then": {"required": ["flight_recorder"], "properties": {"flight_recorder": on}},
        },
        {"if": _given("max_files"), "then": _given("max_file_bytes")},
    ]
