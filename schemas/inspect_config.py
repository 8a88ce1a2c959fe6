"""The JSON Schema of a config, made from the models: what an editor checks while it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic.json_schema import models_json_schema

from dftrace_ai.inspect.config import names
from dftrace_ai.inspect.config.grammar import (
    FEATURE_MODELS,
    KEY_ALIASES,
    BaseLogTensorStats,
    Feature,
    Layers,
    SectionHead,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dftrace_ai.inspect.config.grammar import JsonSchema


PARTS: tuple[type[Layers | Feature], ...] = (
    Layers,
    BaseLogTensorStats,
    *FEATURE_MODELS.values(),
)
MODELS: tuple[type[BaseModel], ...] = (SectionHead, *PARTS)

DISABLED = {"properties": {"enabled": {"const": False}}, "required": ["enabled"]}


def config_schema() -> JsonSchema:
    """Return the schema of a whole config file."""
    # It is as strict as a schema can be: it does not know custom features, and does not see that a
    # range ends before it begins, nor that a feature is given in two spellings.
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


STATS_KEYS = ("stats", "type")
TENSOR_KEYS = ("tensors", "tensors_struct")


def needs_of(feature: str) -> list[JsonSchema]:
    """Return what has to hold of a feature beside its keys one by one."""
    if feature.endswith("TensorStats"):
        return _log_needs()
    if feature in {"PerTensorScaling", "FakeQuant"}:
        return _gemm_needs(formats=feature == "FakeQuant")
    return []


def _has(*keys: str) -> JsonSchema:
    """Return what holds where one of the keys is given."""
    return {"anyOf": [{"required": [key]} for key in keys]}


def _none_in(key: str) -> JsonSchema:
    """Return what holds where a list is empty; so it does where there is none."""
    return {"properties": {key: {"type": "array", "maxItems": 0}}}


def _each(struct: str, schema: JsonSchema) -> JsonSchema:
    return {"properties": {struct: {"items": schema}}}


def _if(condition: JsonSchema, then: JsonSchema, otherwise: JsonSchema | bool) -> JsonSchema:
    return {"if": condition, "then": then, "else": otherwise}


def _log_needs() -> list[JsonSchema]:
    """Statistics for each tensor: those of its item, else those around it."""
    lists = {key: {"anyOf": [{"type": "string"}, {"minItems": 1}]} for key in STATS_KEYS}
    some = {**_has(*STATS_KEYS), "properties": lists}
    own = {"properties": lists}
    return [
        _if(
            _has("tensors_struct"),
            {**_each("tensors_struct", own), "anyOf": [some, _each("tensors_struct", some)]},
            {"anyOf": [some, _none_in("tensors")]},
        )
    ]


def _gemm_needs(*, formats: bool) -> list[JsonSchema]:
    """Tensors for each GEMM, of its item or around it, and for each of them a format, if asked."""
    tensors, of_gemms = _has(*TENSOR_KEYS), "gemms_struct"
    selected = [
        _if(
            _has(of_gemms),
            {"anyOf": [tensors, _each(of_gemms, tensors)]},
            {"anyOf": [tensors, _none_in("gemms")]},
        )
    ]
    if not formats:
        return selected
    format_ = _has("quant_format")
    each_tensor = _each("tensors_struct", format_)
    lacks_none = _if(_has("tensors_struct"), each_tensor, _none_in("tensors"))
    here = {"anyOf": [format_, lacks_none]}
    # An item that says no tensors has those around it.
    own = {"anyOf": [format_, _if(tensors, lacks_none, False)]}
    inner = {"anyOf": [format_, _if(tensors, lacks_none, {})]}
    return [
        *selected,
        {
            "anyOf": [
                format_,
                _if(
                    _has(of_gemms),
                    _if(lacks_none, _each(of_gemms, inner), _each(of_gemms, own)),
                    {"anyOf": [here, _none_in("gemms")]},
                ),
            ]
        },
    ]


def contradictions() -> list[JsonSchema]:
    """Return what cannot hold of features beside each other: a GEMM in FP8 that is out of it."""
    found: list[JsonSchema] = []
    for gemm, operands in names.OPERANDS.items():
        scaled = _feature("PerTensorScaling", _scales(gemm, operands))
        for name in ("FakeQuant", "DisableFp8Gemm", "DisableFp8Layer"):
            off = {} if name == "DisableFp8Layer" else _selects("gemm", (gemm,))
            found.append({"not": {"allOf": [scaled, _feature(name, off)]}})
    return found


def _feature(name: str, holds: JsonSchema) -> JsonSchema:
    """Return what holds where a feature, in any spelling, is enabled and something holds of it."""
    others = [alias for alias, known in names.FEATURE_ALIASES.items() if known == name]
    enabled = {"required": ["enabled"], "properties": {"enabled": {"const": True}}}
    here = {"type": "object", "allOf": [enabled, holds]}
    # Some member is so: not all of them are not.
    none = {"patternProperties": {names.any_case([name, *others]): {"not": here}}}
    return {"type": "object", "not": none}


def _some(struct: str, holds: JsonSchema) -> JsonSchema:
    return {"required": [struct], "properties": {struct: {"type": "array", "contains": holds}}}


def _selects(kind: str, wanted: tuple[str, ...]) -> JsonSchema:
    """Return what holds where a list, or the struct that wins over it, names one of these."""
    name = {"type": "string", "pattern": names.any_case(wanted)}
    one = {"required": [kind], "properties": {kind: name}}
    listed = {"anyOf": [name, {"type": "array", "contains": name}]}
    plain = {"required": [f"{kind}s"], "properties": {f"{kind}s": listed}}
    return _if(_has(f"{kind}s_struct"), _some(f"{kind}s_struct", one), plain)


def _scales(gemm: str, operands: tuple[str, ...]) -> JsonSchema:
    """Return what holds where PerTensorScaling is for an operand of a GEMM."""
    tensor = _selects("tensor", operands)
    here = {"required": ["gemm"], "properties": {"gemm": {"pattern": names.any_case([gemm])}}}
    own = _has(*TENSOR_KEYS)
    by_itself = _some("gemms_struct", {"allOf": [here, own, tensor]})
    by_those_around = _some("gemms_struct", {"allOf": [here, {"not": own}]})
    return _if(
        _has("gemms_struct"),
        {"anyOf": [by_itself, {"allOf": [tensor, by_those_around]}]},
        {"allOf": [tensor, _selects("gemm", (gemm,))]},
    )
