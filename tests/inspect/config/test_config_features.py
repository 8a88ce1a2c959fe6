"""What features mean for a layer, other spellings of them, and those that users register."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from inspect_configs import EXAMPLES, LOG, example, one_section, section_of

from dftrace_ai.inspect.config import LayerInfo, LayerPlan, Modify, layer_plan, load
from dftrace_ai.inspect.config.features import (
    custom_features,
    explanations,
    feature_names,
    forget_custom_features,
    register_feature,
)
from dftrace_ai.inspect.errors import InspectError

LAYER = LayerInfo("model.fc1", "Linear")
E4M3 = {"quant_format": "FP8E4M3"}


def plan_of(config: dict[str, Any]) -> LayerPlan:
    return layer_plan(section_of(config), LAYER)


def plan(**features: Any) -> LayerPlan:
    return plan_of(one_section(**features))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_form_is_accepted(name: str) -> None:
    config = load(example(name))
    assert list(config.sections) == list(example(name))
    # Of these, one selects a tensor that its GEMM does not have.
    assert len(config.warnings) == (name == "PerTensorScaling")


def test_fake_quant_by_gemm() -> None:
    found = plan_of(example("FakeQuant"))
    assert found.modify == {
        ("fprop", "activation"): Modify("FakeQuant", "E5M2", 0),
        ("fprop", "weight"): Modify("FakeQuant", "E5M2", 0),
        ("dgrad", "gradient"): Modify("FakeQuant", "E5M2", 0),
    }
    assert found.high_precision == {"fprop", "dgrad"}


def test_a_tensor_that_the_gemm_lacks_has_no_effect_and_is_told() -> None:
    config = load(example("PerTensorScaling"))
    found = layer_plan(config.sections["scaled_by_themselves"], LAYER)
    assert found.modify == {("dgrad", "weight"): Modify("PerTensorScaling", None, 1)}
    assert found.high_precision == set()
    (warning,) = config.warnings
    assert warning.where == "scaled_by_themselves.transformer_engine.PerTensorScaling"
    assert "activation is no tensor of dgrad" in warning.text


def test_all_gemms_with_all_tensors_is_no_reason_to_warn() -> None:
    keys = {"gemms": ["fprop", "dgrad", "wgrad"], "tensors": ["activation", "weight", "gradient"]}
    config = load(one_section(PerTensorScaling=keys))
    assert config.warnings == ()
    assert len(layer_plan(config.sections["one"], LAYER).modify) == 6


def test_results_can_be_rounded_but_not_scaled() -> None:
    keys = {"gemms": "wgrad", "tensors": ["wgrad", "output"]}
    assert plan(FakeQuant={**keys, **E4M3}).modify == {
        ("wgrad", "wgrad"): Modify("FakeQuant", "E4M3", 0)
    }
    assert plan(PerTensorScaling=keys).modify == {}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        # The struct wins over the list, the first item of a name over the next.
        (
            {"gemms": ["dgrad"], "gemms_struct": [{"gemm": "fprop", "tensors": "weight"}]},
            {("fprop", "weight"): 0},
        ),
        (
            {
                "gemms_struct": [
                    {"gemm": "fprop", "tensors": "weight", "margin": 1},
                    {"gemm": "fprop", "tensors": "activation", "margin": 2},
                ]
            },
            {("fprop", "weight"): 1},
        ),
        (
            {
                "gemms": ["fprop"],
                "tensors": ["activation"],
                "tensors_struct": [{"tensor": "weight", "margin": 3}],
            },
            {("fprop", "weight"): 3},
        ),
        # Inner keys win over outer ones.
        (
            {
                "margin": 1,
                "gemms_struct": [
                    {
                        "gemm": "fprop",
                        "margin": 2,
                        "tensors_struct": [
                            {"tensor": "weight", "margin": 3},
                            {"tensor": "activation"},
                        ],
                    },
                    {"gemm": "dgrad", "tensors_struct": [{"tensor": "weight"}]},
                ],
            },
            {("fprop", "weight"): 3, ("fprop", "activation"): 2, ("dgrad", "weight"): 1},
        ),
        # Tensors beside gemms_struct are those of the items that say none.
        (
            {
                "tensors": ["weight"],
                "gemms_struct": [{"gemm": "fprop"}, {"gemm": "dgrad", "tensors": ["gradient"]}],
            },
            {("fprop", "weight"): 0, ("dgrad", "gradient"): 0},
        ),
        (
            {
                "tensors_struct": [{"tensor": "weight", "margin": 4}],
                "gemms_struct": [{"gemm": "fprop"}, {"gemm": "dgrad", "tensors": ["gradient"]}],
            },
            {("fprop", "weight"): 4, ("dgrad", "gradient"): 0},
        ),
        ({"gemms": ["FPROP"], "tensors": "Weight"}, {("fprop", "weight"): 0}),
        ({"gemms": [], "tensors": "weight"}, {}),
        ({"gemms": ["fprop"], "gemms_struct": [], "tensors": "weight"}, {}),
    ],
)
def test_which_keys_are_in_force(keys: Any, expected: dict[tuple[str, str], int]) -> None:
    for name, more in (("PerTensorScaling", {}), ("FakeQuant", E4M3)):
        found = plan(**{name: {**keys, **more}}).modify
        assert {key: how.margin for key, how in found.items()} == expected
        assert {how.feature for how in found.values()} <= {name}


def test_the_format_may_be_said_at_any_level() -> None:
    struct = [
        {"gemm": "fprop", "tensors": ["weight"], "quant_format": "e4m3"},
        {"gemm": "dgrad", "tensors_struct": [{"tensor": "weight", "quant_format": "fp8e5m2"}]},
    ]
    found = plan(FakeQuant={"gemms_struct": struct}).modify
    assert [how.format for how in found.values()] == ["E4M3", "E5M2"]


def test_gemms_that_stay_out_of_fp8() -> None:
    assert plan_of(example("DisableFp8Gemm")).high_precision == {"dgrad", "wgrad"}
    assert plan_of(example("DisableFp8Layer")).high_precision == {"fprop", "dgrad", "wgrad"}
    struct = {"gemms_struct": [{"gemm": "wgrad"}]}
    assert plan(DisableFp8Gemm=struct).high_precision == {"wgrad"}
    assert plan(DisableFp8Gemm={"enabled": False, "nonsense": 1}).high_precision == set()


def test_statistics_keep_the_order_of_the_config() -> None:
    keys = {"stats": ["std", "MIN", "amax", "cur_amax"], "tensors": ["output", "weight", "dgrad"]}
    found = plan(LogTensorStats=keys).observe
    assert [one.tensor for one in found] == ["output", "weight", "dgrad"]
    assert {one.stats for one in found} == {("std", "min", "cur_amax")}
    assert {one.feature for one in found} == {"LogTensorStats"}


def test_fp8_statistics_are_known_under_several_names() -> None:
    stats = ["underflows", "OVERFLOWS%", "fp8_delayed_scaling_overflows", "mse", "scale_inv_max"]
    (found,) = plan(LogFp8TensorStats={"stats": stats, "tensors": "gradient"}).observe
    assert found.stats == (
        "underflows%",
        "overflows%",
        "fp8_delayed_scaling_overflows%",
        "mse",
        "scale_inv_max",
    )
    stats = ["MXFP8_underflows_columnwise", "fp8_block_scaling_mse", "scale_inv_min_columnwise"]
    (found,) = plan(LogFp8TensorStats={"stats": stats, "tensors": "gradient"}).observe
    assert found.stats == (
        "mxfp8_underflows%_columnwise",
        "fp8_block_scaling_mse",
        "scale_inv_min_columnwise",
    )
    stats = ["underflows", "nvfp4_underflows%", "MSE"]
    (found,) = plan(LogNvfp4TensorStats={"stats": stats, "tensors": "gradient"}).observe
    assert found.stats == ("nvfp4_underflows%", "nvfp4_mse")


def test_a_statistic_with_keys_of_its_own_has_them_in_its_name() -> None:
    range_ = "max_blockwise_dynamic_range"
    stats = [{range_: {"block_size": 4, "dims": 2}}, "max", {range_: {}}, {range_: {"dims": 1}}]
    (found,) = plan(LogTensorStats={"stats": stats, "tensors": "gradient"}).observe
    assert found.stats == (f"{range_}_block_size_4_dims_2", "max", f"{range_}_block_size_32_dims_1")


@pytest.mark.parametrize(
    ("spelling", "feature"),
    [
        ("DisableFP8GEMM", "DisableFp8Gemm"),
        ("DisableQuantizationGEMM", "DisableFp8Gemm"),
        ("DisableFP8Layer", "DisableFp8Layer"),
        ("disablequantizationlayer", "DisableFp8Layer"),
        ("FakeQuantFp8", "FakeQuant"),
        ("PERTENSORSCALING", "PerTensorScaling"),
        ("logtensorstats", "LogTensorStats"),
        ("LogFP8TensorStats", "LogFp8TensorStats"),
    ],
)
@pytest.mark.parametrize("namespace", ["transformer_engine", "torch", "dftrace_ai", "Torch"])
def test_other_spellings(spelling: str, feature: str, namespace: str) -> None:
    keys: dict[str, Any] = {
        "DisableFp8Gemm": {"gemms": "fprop"},
        "FakeQuant": {"gemms": "fprop", "tensors": "weight", **E4M3},
        "PerTensorScaling": {"gemms": "fprop", "tensors": "weight"},
        "LogTensorStats": LOG,
        "LogFp8TensorStats": {"tensors": "weight", "stats": "mse"},
    }.get(feature, {})
    config = one_section(**{spelling: keys})
    config["one"][namespace] = config["one"].pop("transformer_engine")
    assert list(section_of(config).features) == [feature]


def test_type_and_layer_type_are_taken_with_a_warning() -> None:
    config = load(
        one_section(
            {"layer_type": "fc1"},
            LogTensorStats={"tensors_struct": [{"tensor": "weight", "type": ["mean"]}]},
        )
    )
    (found,) = layer_plan(config.sections["one"], LAYER).observe
    assert found.stats == ("mean",)
    assert [warning.where for warning in config.warnings] == [
        "one.layers.layer_type",
        "one.transformer_engine.LogTensorStats.tensors_struct[0].type",
    ]


def test_the_base_namespace_feeds_explicit_calls_only() -> None:
    base = {"tensors": ["hidden state"], "stats": ["cur_amax"], "freq": 5}
    section = section_of(one_section(base=base, LogTensorStats=LOG))
    assert [one.tensor for one in layer_plan(section, LAYER).observe] == ["activation"]
    found = section.base_observe("hidden state")
    assert found
    assert (found.feature, found.stats, found.schedule.freq) == ("LogTensorStats", ("cur_amax",), 5)
    assert section.base_observe("activation") is None
    assert section_of(one_section(LogTensorStats=LOG)).base_observe("activation") is None


def test_a_base_namespace_without_freq_is_told() -> None:
    config = load(one_section(base={"tensors": ["x"], "stats": ["mean"]}))
    assert [(w.where, "freq" in w.text) for w in config.warnings] == [("one.LogTensorStats", True)]


def test_a_layer_without_gemms_is_observed_and_says_what_it_ignores() -> None:
    section = section_of(one_section(LogTensorStats=LOG, DisableFp8Layer={}))
    found = layer_plan(section, LayerInfo("model.norm", "LayerNorm", has_gemms=False))
    assert len(found.observe) == 1
    assert found.ignored == ("DisableFp8Layer",)
    assert not found.high_precision
    assert layer_plan(None, LAYER) == LayerPlan()


@pytest.mark.parametrize("recipe", ["delayed", "current"])
def test_what_needs_a_recipe(recipe: str) -> None:
    delayed = plan(
        LogFp8TensorStats={"tensors": "weight", "stats": "fp8_delayed_scaling_underflows%"}
    )
    anywhere = plan(
        LogTensorStats=LOG,
        PerTensorScaling={"gemms": "dgrad", "tensors": "weight"},
        FakeQuant={"gemms": "fprop", "tensors": "weight", **E4M3},
        LogFp8TensorStats={"tensors": "weight", "stats": ["mse", "fp8_current_scaling_mse"]},
    )
    anywhere.check_recipe(recipe)
    if recipe == "delayed":
        delayed.check_recipe(recipe)
    else:
        with pytest.raises(ValueError, match="fp8_delayed_scaling_underflows%") as raised:
            delayed.check_recipe(recipe)
        assert isinstance(raised.value, InspectError)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    forget_custom_features()


class Clip:
    """Clips what a config says.

    limit: the greatest value
    """

    def modify_tensor(self, config, layer_name, gemm, tensor_name, tensor, iteration, **kw):
        return tensor


class Other:
    def inspect_tensor(self, config, layer_name, tensor_name, tensor, iteration, **kw):
        pass


def test_a_registered_feature_is_known() -> None:
    with pytest.raises(AssertionError, match="clip"):
        load(one_section(clip={"limit": [1]}))
    assert register_feature("Clip")(Clip) is Clip
    given = one_section(clip={"limit": [1]}, LogTensorStats=LOG)
    section = load(given).sections["one"]
    (use,) = layer_plan(section, LayerInfo("model.fc1")).custom
    assert use.feature.implementation is Clip
    assert use.config == {"limit": [1]}
    given["one"]["transformer_engine"]["clip"]["limit"].append(2)
    assert use.config == {"limit": [1]}
    with pytest.raises(AssertionError, match=r"known in .* DumpTensors and Clip"):
        load(one_section(Clap={}))


def test_it_may_have_a_namespace_of_its_own() -> None:
    register_feature("Clip", "mine")(Clip)
    register_feature("Other", "base")(Other)
    config = one_section()
    config["one"]["Mine"] = {"Clip": {"enabled": True}}
    config["one"]["Other"] = {"enabled": True}
    found = [use.feature.full_name for use in load(config).sections["one"].custom]
    assert found == ["mine.Clip", "base.Other"]
    with pytest.raises(AssertionError, match=r"one\.transformer_engine\.Clip"):
        load(one_section(Clip={}))


@pytest.mark.parametrize(
    ("body", "kind", "where"),
    [
        ({"enabled": 1}, ValueError, "one.transformer_engine.Clip.enabled"),
        (None, ValueError, "one.transformer_engine.Clip"),
    ],
)
def test_it_needs_enabled(body: object, kind: type[Exception], where: str) -> None:
    register_feature("Clip")(Clip)
    config = one_section()
    config["one"]["transformer_engine"]["Clip"] = body
    with pytest.raises(kind) as raised:
        load(config)
    assert str(raised.value).startswith(f"{where}: ")
    config["one"]["transformer_engine"]["Clip"] = {"limit": 1}
    with pytest.raises(AssertionError, match="enabled: is missing"):
        load(config)
    config["one"]["transformer_engine"]["Clip"] = {"enabled": False}
    assert load(config).sections["one"].custom == ()


def test_what_is_in_force_for_it_is_found_as_for_built_in_ones() -> None:
    register_feature("Clip")(Clip)
    weight = {"tensors_struct": [{"tensor": "weight", "limit": 4}]}
    gemms = [{"gemm": "fprop"}, {"gemm": "dgrad", "tensors": ["gradient"], "limit": 2}]
    config = one_section(Clip={"limit": 1, **weight, "gemms_struct": gemms})
    (use,) = load(config).sections["one"].custom
    cases = (("fprop", "weight", 4), ("dgrad", "gradient", 2), ("dgrad", "weight", None))
    for gemm, tensor, limit in cases:
        keys = use.keys_for(gemm, tensor)
        assert (keys and keys["limit"]) == limit


def test_what_cannot_be_registered() -> None:
    with pytest.raises(ValueError, match="built-in"):
        register_feature("fakequant")(Clip)
    with pytest.raises(ValueError, match="built-in"):
        register_feature("DisableQuantizationGEMM", "torch")(Clip)
    with pytest.raises(ValueError, match="none of the methods"):
        register_feature("Clip")(int)
    for name, namespace in (("", "mine"), ("Clip", ""), (3, "mine"), ("enabled", "base")):
        with pytest.raises(InspectError, match="no name"):
            register_feature(name, namespace)
    assert custom_features() == []


def test_a_file_may_be_executed_again_and_a_name_is_taken_once() -> None:
    register_feature("Clip")(Clip)
    again = type("Clip", (Clip,), {})
    register_feature("CLIP", "torch")(again)
    assert [feature.implementation for feature in custom_features()] == [again]
    with pytest.raises(ValueError, match="already registered, by Clip"):
        register_feature("Clip")(Other)


def test_it_is_explained_by_its_own_words() -> None:
    register_feature("Clip", "mine")(Clip)
    register_feature("Other")(Other)
    assert feature_names()[-2:] == ["mine.Clip", "transformer_engine.Other"]
    found = explanations(["MINE.clip", "other"])
    assert "limit: the greatest value" in found["mine.Clip"]
    assert found["transformer_engine.Other"] == "A custom feature."
    assert len(explanations()) == len(explanations("all")) == 11
    with pytest.raises(ValueError, match=r"mine\.Other.*known: base\.LogTensorStats"):
        explanations("mine.Other")
