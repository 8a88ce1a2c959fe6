"""The JSON Schema of a config, made from the models: what an editor checks while it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic.json_schema import models_json_schema

from dftrace_ai.inspect.config import names
from dftrace_ai.inspect.config.grammar.models import (
    FEATURE_MODELS,
    KEY_ALIASES,
    BaseLogTensorStats,
    Feature,
    Layers,
    SectionHead,
)
from dftrace_ai.inspect.config.grammar.needs import contradictions, needs_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dftrace_ai.inspect.config.grammar.values import JsonSchema

__all__ = ["config_schema"]

PARTS: tuple[type[Layers | Feature], ...] = (
    Layers,
    BaseLogTensorStats,
    *FEATURE_MODELS.values(),
)
MODELS: tuple[type[BaseModel], ...] = (SectionHead, *PARTS)

DISABLED = {"properties": {"enabled": {"const": False}}, "required": ["enabled"]}


def config_schema() -> JsonSchema:
    """Return the schema of a whole config file.

    It is as strict as a schema can be: it does not know custom features, and does not see that a
    range ends before it begins, nor that a feature is given in two spellings.
    """
    _, schema = models_json_schema([(model, "validation") for model in MODELS])
    definitions = schema["$defs"]
    for definition in definitions.values():
        _take_aliases(definition)
    for model in PARTS:
        definition = definitions[model.__name__]
        _need_one(definition, model.needs_one_of)
        if needs := needs_of(model.__name__):
            definition["allOf"] = [*definition.get("allOf", ()), *needs]
        if "enabled" in definition["properties"]:
            definitions[model.__name__] = _or_disabled(definition)
    section = definitions.pop("SectionHead")
    _add(section, "LogTensorStats", "BaseLogTensorStats")
    _add(section, names.NAMESPACE, "Namespace", names.NAMESPACE_ALIASES)
    definitions["Section"] = _or_disabled({**section, "title": "Section"})
    definitions["Namespace"] = _namespace()
    return {
        "$defs": definitions,
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/Section"},
    }


def _take_aliases(definition: JsonSchema) -> None:
    properties = definition["properties"]
    for value in properties.values():
        # Where a key is not given, the feature may say it; only these two have a default.
        if value.get("default") not in (0, 1):
            value.pop("default", None)
    for alias, key in KEY_ALIASES.items():
        if key in properties:
            properties[alias] = {**properties[key], "deprecated": True}
            definition["allOf"] = [{"not": {"required": [key, alias]}}]


def _need_one(definition: JsonSchema, keys: tuple[str, ...]) -> None:
    spellings = [*keys, *(alias for alias, key in KEY_ALIASES.items() if key in keys)]
    if keys:
        definition["anyOf"] = [{"required": [key]} for key in spellings]


def _or_disabled(definition: JsonSchema) -> JsonSchema:
    """Return a definition of which only `enabled` is looked at where that is false."""
    whole = {key: value for key, value in definition.items() if key not in {"title", "type"}}
    return {
        "title": definition["title"],
        "type": "object",
        "required": ["enabled"],
        "if": DISABLED,
        "else": whole,
    }


def _namespace() -> JsonSchema:
    definition: JsonSchema = {
        "title": "Namespace",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {},
    }
    for feature in FEATURE_MODELS:
        _add(definition, feature, feature, names.FEATURE_ALIASES)
    twins = ({"required": [*pair]} for pair in names.FEATURE_ALIASES.items())
    definition["allOf"] = [{"not": {"type": "object", **twin}} for twin in twins]
    definition["allOf"] += contradictions()
    return definition


def _add(
    definition: JsonSchema, name: str, model: str, aliases: dict[str, str] | None = None
) -> None:
    """Add a key that is known in any case and under other names."""
    reference = {"$ref": f"#/$defs/{model}"}
    others = [alias for alias, known in (aliases or {}).items() if known == name]
    definition["properties"][name] = reference
    definition.setdefault("patternProperties", {})[names.any_case([name, *others])] = reference
