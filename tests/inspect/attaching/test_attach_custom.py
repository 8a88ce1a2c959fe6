"""Custom features in attached layers: what they are given, when they are asked, what they do."""

from __future__ import annotations

import pytest
import torch
from inspect_sessions import main_log, section, session
from torch import nn

import dftrace_ai.inspect as debug_api


@pytest.fixture
def features():
    """Registers features for a test."""
    from dftrace_ai.inspect.config.features import forget_custom_features

    forget_custom_features()
    yield debug_api.register_feature
    forget_custom_features()


def test_a_feature_is_asked_when_it_wants_to_be(features, tmp_path):
    asked, seen = [], []

    @features("Rare")
    class Rare:
        def inspect_tensor_enabled(self, config, layer_name, tensor_name, iteration):
            if tensor_name != "output":
                return False, None
            asked.append(iteration)
            return iteration in (0, 3), {0: 3, 3: 5, 5: None}[iteration]

        def inspect_tensor(self, config, layer_name, tensor_name, tensor, iteration, **kw):
            seen.append((layer_name, tensor_name, iteration, tuple(tensor.shape)))
            assert not tensor.requires_grad

    with session(section({"Rare": {}}), tmp_path):
        model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
        debug_api.attach(model)
        asked.clear()
        for _ in range(9):
            model(torch.randn(2, 3)).sum().backward()
            debug_api.step()
    assert asked == [3, 3, 5, 5]
    assert seen == [
        (f"model.{layer}", "output", iteration, (2, 4)) for iteration in (0, 3) for layer in (0, 1)
    ]


def test_every_feature_has_to_agree_to_fp8(features, tmp_path):
    for name in ("First", "Second"):

        class Agrees:
            def fp8_gemm_enabled(self, config, layer_name, gemm, iteration):
                return gemm != config["off"] or iteration > 0

        Agrees.__qualname__ = name
        features(name)(Agrees)
    config = section({"First": {"off": "fprop"}, "Second": {"off": "wgrad"}})
    with session(config, tmp_path):
        model = nn.Linear(3, 4)
        debug_api.attach(model, fp8="current")
        for _ in range(2):
            model(torch.randn(2, 3)).sum().backward()
            debug_api.step()
    plans = [line.split("gemm ")[1] for line in main_log(tmp_path) if ", gemm " in line]
    off = ["fprop - High precision", "wgrad - High precision"]
    assert [line for line in plans[:6] if "High" in line] == off * 2
    assert len(plans) == 12
    assert not any("High" in line for line in plans[6:])


@pytest.mark.parametrize("other", ["another", "built-in"])
def test_one_feature_at_most_changes_a_tensor(other, features, tmp_path):
    for name in ("First", "Second"):

        class Changes:
            def modify_tensor_enabled(self, config, layer_name, gemm, tensor_name, iteration):
                return tensor_name == "weight"

            def modify_tensor(self, config, layer_name, gemm, tensor_name, tensor, iteration):
                return tensor

        Changes.__qualname__ = name
        features(name)(Changes)
    fake = {"gemms": ["dgrad"], "tensors": ["weight"], "quant_format": "E4M3"}
    config = section(
        {"First": {}, **({"Second": {}} if other == "another" else {"FakeQuant": fake})}
    )
    model = nn.Linear(3, 4)
    with session(config, tmp_path):
        with pytest.raises(AssertionError, match="First|Second"):
            debug_api.attach(model)
        assert type(model) is nn.Linear


@pytest.mark.parametrize("between", ["step", "detach"])
def test_a_backward_after_the_step_runs_as_the_forward_was_to(between, features, tmp_path):
    @features("Doubled")
    class Doubled:
        def modify_tensor_enabled(self, config, layer_name, gemm, tensor_name, iteration):
            return tensor_name == "gradient" and iteration == 0, 1

        def modify_tensor(self, config, layer_name, gemm, tensor_name, tensor, iteration):
            return 2 * tensor

    with session(section({"Doubled": {}}), tmp_path):
        model = nn.Linear(3, 3)
        handle = debug_api.attach(model)
        y = model(torch.ones(2, 3))
        if between == "step":
            debug_api.step()
        else:
            handle.detach()
        y.sum().backward()
        assert torch.equal(model.weight.grad, torch.full((3, 3), 4.0))
    assert not any("ERROR" in line for line in main_log(tmp_path))


AS_TRANSFORMER_ENGINE = """
import dftrace_ai.inspect as debug_api


@debug_api.register_feature("PercentageGreaterThanThreshold")
class PercentageGreaterThanThreshold:
    def inspect_tensor_enabled(self, config, layer_name, tensor_name, iteration):
        return True, iteration + 1

    def inspect_tensor(self, config, layer_name, tensor_name, iteration, tp_group, tensor,
                       rowwise_quantized_tensor=None, columnwise_quantized_tensor=None,
                       quantizer=None, tp_size=1):
        share = (tensor > config["threshold"]).float().mean() * 100
        SEEN.append((layer_name, tensor_name, iteration, float(share), config["tensor"], tp_group,
                     rowwise_quantized_tensor, quantizer, tp_size))


@debug_api.register_feature("TeLike")
class TeLike:
    def fp8_gemm_enabled(self, config, layer_name, gemm, iteration):
        return False, iteration + 1

    def modify_tensor_enabled(self, config, layer_name, gemm, tensor_name, iteration):
        return True, iteration + 1

    def modify_tensor(self, config, layer_name, gemm, tensor_name, tensor, iteration,
                      default_quantizer, out=None, dtype=None):
        CHANGED.append((gemm, tensor_name, config.get("by"), default_quantizer, out, dtype))
        return (tensor * config["by"]).double()


@debug_api.register_feature("Rest")
class Rest:
    def inspect_tensor_enabled(self, **about):
        return about["tensor_name"] == "output"

    def inspect_tensor(self, *, tensor, config, later_than_this, **rest):
        RESTS.append({**rest, "later": later_than_this})


@debug_api.register_feature("Mine")
class Mine:
    def inspect_tensor_enabled(self, keys, layer, name, now):
        return name in keys["tensors"]

    def inspect_tensor(self, keys, layer, name, what, now, **kw):
        MINE.append((layer, name, tuple(what.shape), now, keys))

SEEN, CHANGED, RESTS, MINE = [], [], [], []
debug_api.kept = SEEN, CHANGED, RESTS, MINE
"""


def test_features_with_the_signatures_of_transformer_engine_run_as_they_are(
    features, monkeypatch, tmp_path
):
    monkeypatch.setattr(debug_api, "kept", None, raising=False)
    folder = tmp_path / "features" / "deep"
    folder.mkdir(parents=True)
    (folder / "te.py").write_text(AS_TRANSFORMER_ENGINE)
    config = section(
        {
            "PercentageGreaterThanThreshold": {
                "threshold": 9.0,
                "tensors_struct": [
                    {"tensor": "Activation", "threshold": 0.5},
                    {"tensor": "gradient"},
                ],
            },
            "TeLike": {
                "by": 2,
                "gemms_struct": [
                    {"gemm": "fprop", "tensors": ["weight"]},
                    {"gemm": "WGRAD", "tensors_struct": [{"tensor": "gradient", "by": 3}]},
                ],
            },
            "Rest": {},
            "Mine": {"tensors": ["weight"]},
        }
    )
    with session(config, tmp_path, feature_dirs=[folder.parent]):
        model = nn.Linear(4, 3, bias=False)
        debug_api.attach(model)
        x = torch.tensor([[0.0, 1.0, 2.0, 3.0]], requires_grad=True)
        y = model(x)
        assert torch.equal(y, 2 * nn.functional.linear(x, model.weight))
        y.backward(torch.ones(1, 3))
        assert torch.equal(x.grad, model.weight.sum(0, keepdim=True))
        assert torch.equal(model.weight.grad, 3 * x.expand(3, 4))
    assert not any(line.startswith(("ERROR", "WARN")) for line in main_log(tmp_path))
    seen, changed, rests, mine = debug_api.kept
    nothing = (None, None, None, 1)
    assert seen == [
        ("model", "activation", 0, 75.0, "activation", *nothing),
        ("model", "gradient", 0, 0.0, "gradient", *nothing),
    ]
    nothing = (None, None, None)
    assert changed == [("fprop", "weight", 2, *nothing), ("wgrad", "gradient", 3, *nothing)]
    (rest,) = rests
    absent = ("tp_group", "rowwise_quantized_tensor", "columnwise_quantized_tensor", "quantizer")
    assert rest == {
        "layer_name": "model",
        "tensor_name": "output",
        "iteration": 0,
        **dict.fromkeys((*absent, "tp_size", "later")),
    }
    assert mine == [("model", "weight", (3, 4), 0, {"tensors": ["weight"], "tensor": "weight"})]


def test_the_gemms_of_a_config_choose_those_that_a_feature_takes_out_of_fp8(features, tmp_path):
    @features("Off")
    class Off:
        def fp8_gemm_enabled(self, config, layer_name, gemm, iteration):
            return False

    with session(section({"Off": {"gemms": "dgrad"}}), tmp_path):
        debug_api.attach(nn.Linear(4, 3), fp8=True)
    off = [line.split("gemm ")[1] for line in main_log(tmp_path) if "High precision" in line]
    assert off == ["dgrad - High precision"] * 2


METHODS = ("modify_tensor_enabled", "inspect_tensor_enabled", "fp8_gemm_enabled")


@pytest.mark.parametrize("broken", [*METHODS, "modify_tensor", "inspect_tensor", "shape"])
def test_a_custom_feature_that_fails(broken, features, tmp_path):
    def perhaps(name, value):
        if name == broken:
            raise KeyError("threshold")
        return value

    @features("Odd")
    class Odd:
        def modify_tensor_enabled(self, config, layer_name, gemm, tensor_name, iteration):
            wanted = (gemm, tensor_name) == ("fprop", "activation")
            return perhaps("modify_tensor_enabled", wanted)

        def modify_tensor(self, config, layer_name, gemm, tensor_name, tensor, iteration, **kw):
            perhaps("modify_tensor", None)
            return tensor[:1] if broken == "shape" else tensor * 2

        def inspect_tensor_enabled(self, config, layer_name, tensor_name, iteration):
            return perhaps("inspect_tensor_enabled", tensor_name == "activation")

        def inspect_tensor(self, config, layer_name, tensor_name, tensor, iteration, **kw):
            perhaps("inspect_tensor", None)

        def fp8_gemm_enabled(self, config, layer_name, gemm, iteration):
            return perhaps("fp8_gemm_enabled", True)

    with session(section({"Odd": {}}), tmp_path):
        model = nn.Linear(3, 4)
        debug_api.attach(model)
        for _ in range(3):
            model(torch.ones(2, 3)).sum().backward()
            debug_api.step()
        found = model(torch.ones(2, 3))
    doubled = broken not in {"modify_tensor", "modify_tensor_enabled", "shape"}
    x = torch.full((2, 3), 2.0 if doubled else 1.0)
    assert torch.equal(found, nn.functional.linear(x, model.weight, model.bias))
    (told,) = [line for line in main_log(tmp_path) if line.startswith("ERROR")]
    method = "modify_tensor" if broken == "shape" else broken
    assert told.startswith(f"ERROR - model: {method} of feature Odd failed")
    assert "TypeError" in told if broken == "shape" else "KeyError" in told


def test_what_chooses_nothing_is_told_by_name(features, tmp_path):
    @features("Odd")
    class Odd:
        def inspect_tensor_enabled(self, config, layer_name, tensor_name, iteration):
            return False

        def inspect_tensor(self, config, tensor):
            pass

    with session(section({"Odd": {"tensors": ["weight", "hidden"], "gemms": 3}}), tmp_path):
        pass
    place = "WARNING - all.transformer_engine.Odd"
    warned = [line.split(":")[0] for line in main_log(tmp_path) if line.startswith(place)]
    assert warned == [f"{place}.gemms", f"{place}.tensors"]
