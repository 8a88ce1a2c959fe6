"""The JSON Schemas in schemas/ are those that the models make."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import generate_schemas
import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from dftrace_ai.config.settings import SETTINGS
from dftrace_ai.trace_format.lines import event_adapter

SCHEMAS = Path(__file__).parents[2] / "schemas"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return generate_schemas.schema_texts()


def test_the_files_are_what_the_models_make(made: dict[str, str]) -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.glob("*.schema.json")}
    assert kept == made, "run: python schemas/generate_schemas.py"


def test_writing_then_checking_agrees(
    made: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generate_schemas, "schema_texts", lambda: made)
    assert generate_schemas.main([str(tmp_path), "--check"]) == 1
    assert generate_schemas.main([str(tmp_path)]) == 0
    assert generate_schemas.main([str(tmp_path), "--check"]) == 0
    (tmp_path / "event.schema.json").write_text("{}")
    assert generate_schemas.main([str(tmp_path), "--check"]) == 1
    assert "event.schema.json" in capsys.readouterr().out


def test_the_config_schema_names_every_field_and_variable(made: dict[str, str]) -> None:
    schema = json.loads(made["config.schema.json"])
    assert schema["properties"].keys() == SETTINGS.keys()
    assert schema["properties"]["enabled"]["x-environment-variable"] == "DFTRACE_ENABLE"
    assert schema["additionalProperties"] is False


# Draft 2020-12: its vocabularies, without what is for writing schemas of schemas.
KEYWORDS = set(
    "$schema $id $ref $defs $comment allOf anyOf oneOf not if then else dependentSchemas prefixItems "
    "items contains properties patternProperties additionalProperties propertyNames "
    "unevaluatedItems unevaluatedProperties type enum const multipleOf maximum exclusiveMaximum "
    "minimum exclusiveMinimum maxLength minLength pattern maxItems minItems uniqueItems "
    "maxContains minContains maxProperties minProperties required dependentRequired title "
    "description default deprecated readOnly writeOnly examples format contentEncoding "
    "contentMediaType contentSchema".split()
)
BY_NAME = {"$defs", "properties", "patternProperties", "dependentSchemas"}
VALUES = {"enum", "const", "default", "examples", "required", "dependentRequired"}


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all that lie within it."""
    if isinstance(schema, list):
        for one in schema:
            yield from subschemas(one)
    elif isinstance(schema, dict):
        yield schema
        for keyword, value in schema.items():
            inner = list(value.values()) if keyword in BY_NAME else value
            yield from subschemas([] if keyword in VALUES else inner)


def test_no_schema_has_a_keyword_that_json_schema_does_not_know() -> None:
    for name, text in generate_schemas.schema_texts().items():
        for one in subschemas(json.loads(text)):
            unknown = {word for word in one if not word.startswith("x-")} - KEYWORDS
            assert not unknown, (name, unknown)


def test_what_is_printed_has_all_its_members() -> None:
    files = ("event", "config", "project", "inspect", "loggers", "live", "run-line")
    read = {f"{name}.schema.json" for name in files}
    for name in generate_schemas.schema_texts().keys() - read:
        for one in subschemas(json.loads((SCHEMAS / name).read_text(encoding="utf-8"))):
            assert set(one.get("properties", ())) == set(one.get("required", ())), (name, one)


SPAN = {"id": 1, "name": "a", "cat": "b", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2.0, "ph": "X"}
LINES = {
    "span": {**SPAN, "args": {"hhash": "0" * 16}},
    "counter": {**SPAN, "cat": "counter", "ph": "C", "args": {"x": 1}},
    "flow": {**SPAN, "cat": "flow", "ph": "s"},
}
del LINES["counter"]["dur"], LINES["flow"]["dur"]


@pytest.mark.parametrize("kind", LINES)
def test_a_line_before_its_time_is_no_line(kind: str) -> None:
    schema = json.loads((SCHEMAS / "event.schema.json").read_text(encoding="utf-8"))
    for key in LINES[kind].keys() & {"ts", "dur"}:
        for value in (-(2**40), -1, -0.5, 0, 0.0, 0.5, 7, "7", None, True, [7]):
            line = {**LINES[kind], key: value}
            try:
                event_adapter().validate_python(line, strict=True)
                accepted = True
            except ValidationError:
                accepted = False
            assert accepted is (type(value) in (int, float) and value >= 0), value
            assert Draft202012Validator(schema).is_valid(line) is accepted, value
