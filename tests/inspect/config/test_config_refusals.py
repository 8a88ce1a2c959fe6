"""What a config may not say: the class of the error, the place, and what is accepted there."""

from __future__ import annotations

from typing import Any

import pytest
from inspect_configs import LOG, one_section

from dftrace_ai.inspect.config import examine, load
from dftrace_ai.inspect.errors import InspectError

WEIGHT = {"gemms": "fprop", "tensors": "weight"}
SCALED = {"PerTensorScaling": WEIGHT}
ROUNDED = {**WEIGHT, "quant_format": "E4M3"}
NAMESPACE = "one.transformer_engine"


def without(key: str, config: dict[str, Any]) -> dict[str, Any]:
    return {"one": {name: value for name, value in config["one"].items() if name != key}}


def bare(keys: Any, name: str = "LogTensorStats") -> dict[str, Any]:
    """A feature with exactly these keys, or with something that is no keys at all."""
    config = one_section()
    config["one"]["transformer_engine"] = {name: keys}
    return config


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str, list[str]]] = {
    "section without enabled": (
        without("enabled", one_section()),
        AssertionError,
        "one.enabled",
        ["is missing"],
    ),
    "section without layers": (
        without("layers", one_section()),
        AssertionError,
        "one.layers",
        ["is missing"],
    ),
    "enabled is no truth value": (
        {"one": {**one_section()["one"], "enabled": "yes"}},
        ValueError,
        "one.enabled",
        ["'yes'", "true or false"],
    ),
    "section is a list": ({"one": []}, ValueError, "one", ["a mapping of keys"]),
    "section is nothing": ({"one": None}, ValueError, "one", ["a mapping of keys", "null"]),
    "name of a section is a number": ({1: {"enabled": True}}, ValueError, "1", ["text"]),
    "feature without enabled": (
        bare({"tensors": ["weight"], "stats": ["min"]}),
        AssertionError,
        f"{NAMESPACE}.LogTensorStats.enabled",
        ["is missing"],
    ),
    "feature is nothing": (
        bare(None),
        ValueError,
        f"{NAMESPACE}.LogTensorStats",
        ["a mapping of keys"],
    ),
    "namespace is a list": (
        {"one": {**one_section()["one"], "torch": ["FakeQuant"]}},
        ValueError,
        "one.torch",
        ["features are needed"],
    ),
    "unknown feature": (
        one_section(FakeQuan={}),
        AssertionError,
        f"{NAMESPACE}.FakeQuan",
        ["'FakeQuant'?", "LogTensorStats", "DisableFp8Layer", "PerTensorScaling"],
    ),
    "unknown namespace": (
        {"one": {**one_section()["one"], "transformer_engin": {}}},
        AssertionError,
        "one.transformer_engin",
        ["'transformer_engine'?", "torch", "dftrace_ai", "LogTensorStats"],
    ),
    "feature in the wrong place": (
        {"one": {**one_section()["one"], "FakeQuant": {}}},
        AssertionError,
        "one.FakeQuant",
        ["under transformer_engine"],
    ),
    "feature twice": (
        one_section(DisableFp8Layer={}, DisableQuantizationLayer={}),
        ValueError,
        f"{NAMESPACE}.DisableQuantizationLayer",
        ["DisableFp8Layer is given twice"],
    ),
    "unknown key": (
        one_section(LogTensorStats={**LOG, "frequ": 2}),
        ValueError,
        f"{NAMESPACE}.LogTensorStats.frequ",
        ["'freq'?", "start_end_list"],
    ),
    "unknown key of an item": (
        one_section(LogTensorStats={"tensors_struct": [{"tensor": "weight", "stat": ["min"]}]}),
        ValueError,
        f"{NAMESPACE}.LogTensorStats.tensors_struct[0].stat",
        ["'stats'?", "tensor"],
    ),
    "key of another feature": (
        one_section(LogTensorStats={**LOG, "gemms": ["fprop"]}),
        ValueError,
        f"{NAMESPACE}.LogTensorStats.gemms",
        ["accepted: enabled", "tensors"],
    ),
    "tensors of DisableFp8Gemm": (
        one_section(DisableFp8Gemm={"gemms": "fprop", "tensors": ["weight"]}),
        ValueError,
        f"{NAMESPACE}.DisableFp8Gemm.tensors",
        ["gemms and gemms_struct"],
    ),
    "margin of an item of DisableFp8Gemm": (
        one_section(DisableFp8Gemm={"gemms_struct": [{"gemm": "fprop", "margin": 1}]}),
        ValueError,
        f"{NAMESPACE}.DisableFp8Gemm.gemms_struct[0].margin",
        ["accepted: gemm"],
    ),
    "gemms of DisableFp8Layer": (
        one_section(DisableFp8Layer={"gemms": ["fprop"]}),
        ValueError,
        f"{NAMESPACE}.DisableFp8Layer.gemms",
        ["unknown key"],
    ),
    "enabled in an item": (
        one_section(LogTensorStats={"tensors_struct": [{"tensor": "weight", "enabled": True}]}),
        AssertionError,
        f"{NAMESPACE}.LogTensorStats.tensors_struct[0].enabled",
        ["an item has no 'enabled'"],
    ),
    "enabled in an inner item": (
        one_section(
            PerTensorScaling={
                "gemms_struct": [
                    {"gemm": "fprop", "tensors_struct": [{"tensor": "weight", "enabled": True}]}
                ]
            }
        ),
        AssertionError,
        f"{NAMESPACE}.PerTensorScaling.gemms_struct[0].tensors_struct[0].enabled",
        ["an item has no 'enabled'"],
    ),
    "no gemms": (
        one_section(PerTensorScaling={"tensors": ["weight"]}),
        ValueError,
        f"{NAMESPACE}.PerTensorScaling",
        ["gemms or gemms_struct is needed"],
    ),
    "no gemms of DisableFp8Gemm": (
        one_section(DisableFp8Gemm={}),
        ValueError,
        f"{NAMESPACE}.DisableFp8Gemm",
        ["gemms or gemms_struct is needed"],
    ),
    "no tensors": (
        one_section(LogTensorStats={"stats": ["min"]}),
        ValueError,
        f"{NAMESPACE}.LogTensorStats",
        ["tensors or tensors_struct is needed"],
    ),
    "no tensors for one gemm": (
        one_section(
            PerTensorScaling={
                "gemms_struct": [{"gemm": "fprop", "tensors": "weight"}, {"gemm": "dgrad"}]
            }
        ),
        ValueError,
        f"{NAMESPACE}.PerTensorScaling (dgrad)",
        ["tensors or tensors_struct is needed"],
    ),
    "no tensors in base": (
        one_section(base={"stats": ["min"]}),
        ValueError,
        "one.LogTensorStats",
        ["tensors or tensors_struct is needed"],
    ),
    "unknown gemm": (
        one_section(DisableFp8Gemm={"gemms": ["fprop", "forward"]}),
        AssertionError,
        f"{NAMESPACE}.DisableFp8Gemm.gemms",
        ["'forward'", "fprop, dgrad and wgrad"],
    ),
    "unknown gemm of an item": (
        one_section(DisableFp8Gemm={"gemms_struct": [{"gemm": "x"}]}),
        AssertionError,
        f"{NAMESPACE}.DisableFp8Gemm.gemms_struct[0].gemm",
        ["'x'", "fprop, dgrad and wgrad"],
    ),
    "item without gemm": (
        one_section(DisableFp8Gemm={"gemms_struct": [{}]}),
        ValueError,
        f"{NAMESPACE}.DisableFp8Gemm.gemms_struct[0].gemm",
        ["is missing"],
    ),
    "struct is no list": (
        one_section(LogTensorStats={"tensors_struct": {"tensor": "weight"}}),
        ValueError,
        f"{NAMESPACE}.LogTensorStats.tensors_struct",
        ["a list of mappings"],
    ),
    "unknown tensor": (
        one_section(LogTensorStats={**LOG, "tensors": ["weights"]}),
        AssertionError,
        f"{NAMESPACE}.LogTensorStats.tensors",
        ["'weights'", "activation, weight, gradient, output, dgrad and wgrad"],
    ),
    "unknown statistic": (
        one_section(LogTensorStats={**LOG, "stats": ["mean", "median"]}),
        ValueError,
        f"{NAMESPACE}.LogTensorStats.stats",
        ["'median'", "min, max, mean, std, l1_norm, l2_norm, cur_amax and dynamic_range"],
    ),
    "unknown statistic in base": (
        one_section(base={"tensors": "x", "stats": ["median"]}),
        ValueError,
        "one.LogTensorStats.stats",
        ["'median'", "cur_amax"],
    ),
    "statistic of the other feature": (
        one_section(LogFp8TensorStats={"tensors": "weight", "stats": ["mean"]}),
        ValueError,
        f"{NAMESPACE}.LogFp8TensorStats.stats",
        ["'mean'", "underflows%, overflows%", "fp8_delayed_scaling_underflows%"],
    ),
    "no stats": (
        one_section(LogTensorStats={"tensors": "weight"}),
        ValueError,
        f"{NAMESPACE}.LogTensorStats",
        ["stats is needed for weight"],
    ),
    "empty stats": (
        one_section(LogFp8TensorStats={"tensors": "weight", "stats": []}),
        ValueError,
        f"{NAMESPACE}.LogFp8TensorStats",
        ["stats is needed for weight"],
    ),
    "no stats for one tensor": (
        one_section(
            LogTensorStats={
                "tensors_struct": [{"tensor": "weight", "stats": "min"}, {"tensor": "gradient"}]
            }
        ),
        ValueError,
        f"{NAMESPACE}.LogTensorStats",
        ["stats is needed for gradient"],
    ),
    "no format": (
        one_section(FakeQuant=WEIGHT),
        ValueError,
        f"{NAMESPACE}.FakeQuant",
        ["quant_format is needed for weight in fprop", "FP8E4M3", "FP8E5M2"],
    ),
    "unknown format": (
        one_section(FakeQuant={**WEIGHT, "quant_format": "FP8"}),
        ValueError,
        f"{NAMESPACE}.FakeQuant.quant_format",
        ["'FP8'", "FP8E4M3", "FP8E5M2"],
    ),
    "format that others name": (
        one_section(FakeQuant={**WEIGHT, "quant_format": "MXFP8E4M3"}),
        ValueError,
        f"{NAMESPACE}.FakeQuant.quant_format",
        ["not supported", "FP8E4M3"],
    ),
    "margin": (
        one_section(PerTensorScaling={**WEIGHT, "margin": 1.5}),
        ValueError,
        f"{NAMESPACE}.PerTensorScaling.margin",
        ["1.5", "a whole number"],
    ),
    # Features that exclude each other.
    "rounded and scaled": (
        one_section(FakeQuant=ROUNDED, **SCALED),
        ValueError,
        f"{NAMESPACE}.PerTensorScaling",
        ["weight in fprop is given to FakeQuant, too"],
    ),
    "rounded and scaled, another tensor of the gemm": (
        one_section(FakeQuant={**ROUNDED, "tensors": "activation"}, **SCALED),
        ValueError,
        f"{NAMESPACE}.PerTensorScaling",
        ["needs fprop in FP8", "FakeQuant takes fprop out of it"],
    ),
    "the result rounded, an operand scaled": (
        one_section(FakeQuant={**ROUNDED, "tensors": "output"}, **SCALED),
        ValueError,
        f"{NAMESPACE}.PerTensorScaling",
        ["FakeQuant takes fprop out of it"],
    ),
    "disabled gemm and scaled": (
        one_section(DisableFp8Gemm={"gemms": "fprop"}, **SCALED),
        ValueError,
        f"{NAMESPACE}.PerTensorScaling",
        ["needs fprop in FP8", "DisableFp8Gemm takes fprop out of it"],
    ),
    "disabled layer and scaled": (
        one_section(DisableFp8Layer={}, **SCALED),
        ValueError,
        f"{NAMESPACE}.PerTensorScaling",
        ["needs fprop in FP8", "DisableFp8Layer takes fprop out of it"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_place_and_what_is_accepted(name: str) -> None:
    config, kind, where, words = REFUSED[name]
    with pytest.raises(kind) as raised:
        load(config)
    assert isinstance(raised.value, InspectError)
    assert str(raised.value).startswith(f"{where}: ")
    for word in words:
        assert word in str(raised.value)
    read, problems = examine(config)
    (error,) = (problem for problem in problems if problem.severity == "error")
    assert (error.where, error.kind) == (where, kind)
    assert read
    assert not read.sections


@pytest.mark.parametrize(
    "features",
    [
        {"FakeQuant": ROUNDED, "PerTensorScaling": {"gemms": "dgrad", "tensors": "weight"}},
        {"DisableFp8Gemm": {"gemms": "dgrad"}, "PerTensorScaling": WEIGHT},
        {"DisableFp8Gemm": {"gemms": "fprop"}, "FakeQuant": ROUNDED},
        {"DisableFp8Layer": {}, "FakeQuant": ROUNDED},
        {"DisableFp8Layer": {}, "DisableFp8Gemm": {"gemms": "fprop"}},
        {"DisableFp8Layer": {}, "LogFp8TensorStats": {"tensors": "weight", "stats": "mse"}},
        {"FakeQuant": ROUNDED, "LogTensorStats": LOG},
        {"PerTensorScaling": WEIGHT, "LogTensorStats": LOG, "base": {**LOG, "freq": 1}},
        {"DisableFp8Layer": {"enabled": False}, "PerTensorScaling": WEIGHT},
        # Nothing is scaled here, so that nothing is in the way.
        {"DisableFp8Layer": {}, "PerTensorScaling": {"gemms": "dgrad", "tensors": "activation"}},
    ],
)
def test_features_that_go_together(features: dict[str, Any]) -> None:
    assert load(one_section(**features)).sections
