"""Which section a layer belongs to."""

from __future__ import annotations

from typing import Any

import pytest
from inspect_configs import LOG, example, one_section

from dftrace_ai.inspect.config import LayerInfo, load
from dftrace_ai.inspect.errors import InspectError

NAMES = {
    "model.decoder.0.self_attention.layernorm_qkv": "LayerNormLinear",
    "model.decoder.0.mlp.fc1": "Linear",
    "model.decoder.1.mlp.fc1": "Linear",
    "model.decoder.1.mlp.fc12": "Linear",
    "model.decoder.12.mlp.fc2": "RowParallel_Linear",
    "model.head": "Linear",
}
LAYERS = [LayerInfo(name, class_name) for name, class_name in NAMES.items()]
FC1 = ["model.decoder.0.mlp.fc1", "model.decoder.1.mlp.fc1"]
QKV = "model.decoder.0.self_attention.layernorm_qkv"
HEAD = "model.head"
EVERY = [*NAMES]


def selected(layers: Any, given: list[LayerInfo] = LAYERS) -> list[str]:
    selector = load(one_section(layers, LogTensorStats=LOG)).selector(given)
    return [layer.name for layer in given if selector.section_of(layer) is not None]


SELECTED: list[tuple[Any, ...]] = [
    # exact names
    ({"exact_layer_names": FC1}, FC1),
    ({"exact_layer_names": [HEAD, "model.nothing"]}, [HEAD]),
    ({"exact_layer_names": HEAD}, [HEAD]),
    ({"exact_layer_names": ["model.decoder"]}, []),
    ({"exact_layer_names": []}, []),
    ({"exact_layer_names": [HEAD], "layer_types": ["all"]}, [HEAD]),
    ({"exact_layer_names": [HEAD], "layer_name_regex_pattern": "fc1"}, [HEAD]),
    # patterns
    ({"layer_name_regex_pattern": "fc1$"}, FC1),
    ({"layer_name_regex_pattern": r"\.(0|12)\."}, [QKV, EVERY[1], EVERY[4]]),
    ({"layer_name_regex_pattern": "^decoder"}, []),
    ({"layer_name_regex_pattern": "head", "layer_numbers": 0, "layer_types": "fc1"}, [HEAD]),
    # types
    ({"layer_types": ["fc2", "head"]}, EVERY[4:]),
    ({"layer_types": "fc1"}, EVERY[1:4]),
    ({"layer_types": ["all"]}, EVERY),
    ({"layer_types": "ALL"}, EVERY),
    ({"layer_types": ["layernorm_linear"]}, [QKV]),
    ({"layer_types": ["rowparallellinear"]}, [EVERY[4]]),
    ({"layer_types": ["row_parallel_LINEAR", "head"]}, EVERY[4:]),
    ({"layer_types": ["Linear"]}, [*EVERY[1:4], HEAD]),
    ({"layer_types": ["FC1"]}, []),
    ({"layer_types": []}, []),
    ({"layer_type": "head"}, [HEAD]),
    # numbers
    ({"layer_numbers": [0]}, EVERY[:2]),
    ({"layer_numbers": 1}, EVERY[2:4]),
    ({"layer_numbers": ["1-12"]}, EVERY[2:5]),
    ({"layer_numbers": "0-1"}, EVERY[:4]),
    ({"layer_numbers": [12, " 0 - 0 "]}, [*EVERY[:2], EVERY[4]]),
    ({"layer_numbers": ["2-11"]}, []),
    ({"layer_numbers": "all"}, EVERY),
    ({"layer_numbers": ["all"]}, EVERY),
    # types and numbers
    ({"layer_types": ["fc1"], "layer_numbers": [1]}, EVERY[2:4]),
    ({"layer_types": ["all"], "layer_numbers": [12]}, [EVERY[4]]),
    ({"layer_types": ["head"], "layer_numbers": [0]}, []),
    ({"layer_types": ["head"], "layer_numbers": "all"}, [HEAD]),
]


@pytest.mark.parametrize(("layers", "expected"), SELECTED)
def test_the_selected_layers(layers: Any, expected: list[str]) -> None:
    assert selected(layers) == expected


def test_a_class_counts_only_where_no_name_has_the_word() -> None:
    entry = {"layer_types": ["layernorm_linear"]}
    named = LayerInfo("model.layernorm_linear", "Linear")
    assert selected(entry, [LAYERS[0], named]) == [named.name]
    assert selected(entry, [LAYERS[0]]) == [QKV]
    assert selected(entry, [LayerInfo("tensor_of_nobody")]) == []


def test_a_module_of_several_layers_is_found_by_names_and_by_class() -> None:
    layers = [
        LayerInfo("transformer_layer.self_attention.layernorm_qkv", "LayerNormLinear"),
        LayerInfo("transformer_layer.self_attention.proj", "Linear"),
        LayerInfo("transformer_layer.layernorm_mlp.fc1", "LayerNormMLP"),
        LayerInfo("transformer_layer.layernorm_mlp.fc2", "LayerNormMLP"),
    ]
    selector = load(example("two sections")).selector(layers)
    found = [selector.section_of(layer) for layer in layers]
    assert [one.name if one else None for one in found] == [
        "activations",
        None,
        "fprop_in_high_precision",
        "fprop_in_high_precision",
    ]


def test_a_layer_in_two_sections_is_refused() -> None:
    config = load(
        {
            "first": one_section({"layer_types": ["fc1"]}, LogTensorStats=LOG)["one"],
            "second": one_section({"layer_numbers": [0]}, LogTensorStats=LOG)["one"],
            "off": {"enabled": False, "layers": {"layer_types": ["all"]}},
        }
    )
    assert config.disabled == ("off",)
    selector = config.selector(LAYERS)
    assert selector.section_of(LAYERS[0]).name == "second"
    with pytest.raises(ValueError, match=r"model\.decoder\.0\.mlp\.fc1.*'first' and 'second'") as e:
        selector.section_of(LAYERS[1])
    assert isinstance(e.value, InspectError)
    with pytest.raises(ValueError, match="'first' and 'second'"):
        config.section_of(LAYERS[1], LAYERS)


def test_exact_names_of_no_layer_are_told() -> None:
    config = load(one_section({"exact_layer_names": [HEAD, "model.x"]}, LogTensorStats=LOG))
    assert [(s.name, n) for s, n in config.selector(LAYERS).unmatched_names()] == [
        ("one", "model.x")
    ]
    assert config.section_of(LAYERS[5], LAYERS) is config.sections["one"]


BAD_LAYERS: list[tuple[Any, ...]] = [
    ({}, AssertionError, ["one.layers: ", "exact_layer_names", "layer_numbers is needed"]),
    ({"layer_type_s": ["x"]}, ValueError, ["one.layers.layer_type_s", "'layer_types'?"]),
    ({"layer_types": 3}, ValueError, ["one.layers.layer_types", "a list of names"]),
    ({"layer_types": [3]}, ValueError, ["one.layers.layer_types", "3", "a name"]),
    ({"layer_types": None}, ValueError, ["one.layers.layer_types", "a list of names"]),
    ({"layer_types": "a", "layer_type": "b"}, ValueError, ["layer_type:", "the same key"]),
    ({"exact_layer_names": [""]}, ValueError, ["one.layers.exact_layer_names", "a name"]),
    ({"layer_name_regex_pattern": "("}, ValueError, ["pattern", "no regular expression"]),
    ({"layer_name_regex_pattern": 4}, ValueError, ["pattern", "a name"]),
    ({"layer_numbers": ["3-1"]}, ValueError, ["one.layers.layer_numbers", "'2-5'"]),
    ({"layer_numbers": [True]}, ValueError, ["one.layers.layer_numbers", "true"]),
    ({"layer_numbers": [-1]}, ValueError, ["one.layers.layer_numbers", "-1"]),
    ({"layer_numbers": [1.5]}, ValueError, ["one.layers.layer_numbers", "1.5"]),
    ({"layer_numbers": ["1-2-3"]}, ValueError, ["one.layers.layer_numbers", "'1-2-3'"]),
    ({"layer_numbers": "first"}, ValueError, ["one.layers.layer_numbers", "'first'"]),
    ("fc1", ValueError, ["one.layers: ", "a mapping of keys"]),
]


@pytest.mark.parametrize(("layers", "kind", "words"), BAD_LAYERS)
def test_a_bad_selection_is_refused(layers: Any, kind: type[Exception], words: list[str]) -> None:
    with pytest.raises(kind) as raised:
        load(one_section(layers, LogTensorStats=LOG))
    assert isinstance(raised.value, InspectError)
    for word in words:
        assert word in str(raised.value)
