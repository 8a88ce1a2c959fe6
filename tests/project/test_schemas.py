"""The JSON Schemas in schemas/ are those that the models make."""

from __future__ import annotations

import json
from pathlib import Path

import generate_schemas
import pytest

from dftrace_ai.config.model import Config

SCHEMAS = Path(__file__).parents[2] / "schemas"


def test_the_files_are_what_the_models_make() -> None:
    made = generate_schemas.schema_texts()
    kept = {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.glob("*.schema.json")}
    assert kept == made, "run: python schemas/generate_schemas.py"


def test_writing_then_checking_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate_schemas.main([str(tmp_path), "--check"]) == 1
    assert generate_schemas.main([str(tmp_path)]) == 0
    assert generate_schemas.main([str(tmp_path), "--check"]) == 0
    (tmp_path / "event.schema.json").write_text("{}")
    assert generate_schemas.main([str(tmp_path), "--check"]) == 1
    assert "event.schema.json" in capsys.readouterr().out


def test_the_config_schema_names_every_field_and_variable() -> None:
    schema = json.loads(generate_schemas.schema_texts()["config.schema.json"])
    assert schema["properties"].keys() == Config.model_fields.keys()
    assert schema["properties"]["enabled"]["x-environment-variable"] == "DFTRACE_ENABLE"
    assert schema["additionalProperties"] is False
