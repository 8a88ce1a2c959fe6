"""Custom features in attached layers: what they are given, when they are asked, what they do."""

from __future__ import annotations

import pytest
import torch
from attached_models import emulated, main_log, section, session
from torch import nn

import dftrace_ai.inspect as debug_api


@pytest.fixture
def features():
    """Registers features for a test."""
    from dftrace_ai.inspect.config.features import forget_custom_features

    forget_custom_features()
    yield debug_api.register_feature
    forget_custom_features()


def test_a_feature_changes_an_operand_of_one_gemm(features, tmp_path):
    @features("Clip")
    class Clip:
        def modify_tensor_enabled(self, config, layer_name, gemm, tensor_name, iteration):
            return (gemm, tensor_name) == (config["gemm"], "gradient"), iteration + 1

        def modify_tensor(self, config, layer_name, gemm, tensor_name, tensor, iteration, **kw):
            return tensor.clamp(-config["limit"], config["limit"]).double()

    config = section({"Clip": {"gemm": "wgrad", "limit": 0.5}})
    with session(config, tmp_path):
        model = nn.Linear(3, 4)
        debug_api.attach(model, name="layer")
        x = torch.randn(2, 3, requires_grad=True)
        gradient = torch.randn(2, 4)
        model(x).backward(gradient)
        assert torch.equal(x.grad, gradient.mm(model.weight))
        assert torch.equal(model.weight.grad, gradient.clamp(-0.5, 0.5).t().mm(x))
        assert torch.equal(model.bias.grad, gradient.sum(0))
    told = [line for line in main_log(tmp_path) if "Clip" in line]
    assert told == ["INFO - layer: Feature=Clip, API=process_tensor: wgrad, gradient"]


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
    for name, off in (("First", "fprop"), ("Second", "wgrad")):

        class Agrees:
            def fp8_gemm_enabled(self, config, layer_name, gemm, iteration):
                return gemm != config["off"] or iteration > 0

        Agrees.__qualname__ = name
        features(name)(Agrees)
    config = section({"First": {"off": "fprop"}, "Second": {"off": "wgrad"}})
    with session(config, tmp_path):
        model = nn.Linear(3, 4)
        debug_api.attach(model, fp8="current")
        x = torch.randn(2, 3)
        gradient = torch.randn(2, 4)
        for iteration in range(2):
            given = x.clone().requires_grad_()
            model.weight.grad = None
            y = model(given)
            y.backward(gradient)
            weight = model.weight.detach()
            quantised = [emulated(one, "E4M3") for one in (x, weight)]
            rows = emulated(gradient, "E5M2")
            operands = quantised if iteration else (x, weight)
            assert torch.equal(y, nn.functional.linear(*operands, model.bias))
            assert torch.equal(given.grad, rows.mm(quantised[1]))
            expected = rows.t().mm(quantised[0]) if iteration else gradient.t().mm(x)
            assert torch.equal(model.weight.grad, expected)
            debug_api.step()


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
