"""Features that users register, and what a config says of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from inspect_configs import LOG, one_section

from dftrace_ai.inspect.config import LayerInfo, layer_plan, load
from dftrace_ai.inspect.config.features import (
    custom_features,
    explanations,
    feature_names,
    forget_custom_features,
    register_feature,
)
from dftrace_ai.inspect.errors import InspectError


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
    with pytest.raises(AssertionError, match=r"known in .* FakeQuant and Clip"):
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
    assert len(explanations()) == len(explanations("all")) == 9
    with pytest.raises(ValueError, match=r"mine\.Other.*known: base\.LogTensorStats"):
        explanations("mine.Other")
