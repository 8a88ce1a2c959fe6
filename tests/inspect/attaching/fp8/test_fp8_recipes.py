"""Emulated FP8: recipes, where they are in force, and the features that take layers out of them."""

from __future__ import annotations

import copy
import math
import threading

import pytest
import torch
from attached_models import HYBRID, Delayed, batches, emulated, main_log, one_step, section, session
from torch import nn
from torch.utils.checkpoint import checkpoint

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect import InspectError


def reference(model, x, gradient, change):
    weight = model.weight.detach()
    y = nn.functional.linear(
        change("fprop", "activation", x), change("fprop", "weight", weight), model.bias.detach()
    )
    dx = change("dgrad", "gradient", gradient).mm(change("dgrad", "weight", weight))
    dw = change("wgrad", "gradient", gradient).t().mm(change("wgrad", "activation", x))
    return y, dx, dw


def assert_equal(found, expected):
    for name, one, other in zip(("Y", "dX", "dW"), found, expected, strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize(
    ("recipe", "formats", "margin"),
    [
        ({"name": "current"}, HYBRID, 0),
        ({"name": "current", "fp8_format": "E5M2"}, dict.fromkeys(HYBRID, "E5M2"), 0),
        ("current", HYBRID, 0),
        ({"name": "current", "fp8_format": "E4M3", "margin": 2}, dict.fromkeys(HYBRID, "E4M3"), 2),
    ],
    ids=str,
)
def test_current_scaling_takes_the_amax_of_the_tensor_itself(recipe, formats, margin, tmp_path):
    with session("", tmp_path):
        model = nn.Linear(5, 4)
        debug_api.attach(model, fp8=recipe)
        for x, gradient in batches(2):
            found = one_step(model, x, gradient)
            assert_equal(
                found,
                reference(
                    model, x, gradient, lambda _, name, one: emulated(one, formats[name], margin)
                ),
            )
            debug_api.step()


@pytest.mark.parametrize(
    "recipe",
    [
        True,
        {"amax_history_len": 2},
        {"amax_compute_algo": "most_recent", "margin": 1},
    ],
    ids=str,
)
def test_delayed_scaling_takes_the_amax_of_earlier_steps(recipe, tmp_path):
    keys = {} if recipe is True else recipe
    by_hand = Delayed(
        keys.get("amax_history_len", 1024),
        keys.get("amax_compute_algo", "max"),
        keys.get("margin", 0),
    )
    with session("", tmp_path):
        model = nn.Linear(5, 4)
        debug_api.attach(model, fp8=recipe)
        data = batches(8)
        for first, second in zip(data[::2], data[1::2], strict=True):
            # Two micro-batches: the scales change between steps only.
            for x, gradient in (first, second):
                found = one_step(model, x, gradient)
                assert_equal(found, reference(model, x, gradient, by_hand.change))
            by_hand.step(
                activation=[first[0], second[0]],
                weight=[model.weight],
                gradient=[first[1], second[1]],
            )
            debug_api.step()


@pytest.mark.parametrize("default", [torch.float32, torch.bfloat16])
def test_the_history_of_a_layer_that_never_trains_may_begin_in_inference_and_is_fp32(
    default, tmp_path
):
    by_hand, data = Delayed(), batches(4)
    with session("", tmp_path):
        model = nn.Linear(5, 4)
        debug_api.attach(model, fp8=True)
        for step, (x, _) in enumerate(data):
            torch.set_default_dtype(default)
            try:
                with torch.inference_mode() if step == 0 else torch.no_grad():
                    y = model(x)
                    debug_api.step()
            finally:
                torch.set_default_dtype(torch.float32)
            operands = {"activation": x, "weight": model.weight}
            changed = [by_hand.change("fprop", *one).detach() for one in operands.items()]
            assert torch.equal(y, nn.functional.linear(*changed, model.bias))
            by_hand.step(activation=[x], weight=[model.weight])


def test_an_amax_that_is_of_no_use_keeps_the_scale(tmp_path):
    by_hand = Delayed(1)
    with session("", tmp_path):
        model = nn.Linear(5, 4)
        debug_api.attach(model, fp8={"amax_history_len": 1})
        (x, gradient), *_ = batches(1)
        for factor in (1.0, 0.0, math.inf, math.nan, 1.0):
            given = x * factor if math.isfinite(factor) else x.fill_diagonal_(factor)
            y = model(given.detach())
            y.backward(gradient)
            expected = nn.functional.linear(
                by_hand.change("fprop", "activation", given),
                by_hand.change("fprop", "weight", model.weight),
                model.bias,
            )
            assert torch.equal(y.nan_to_num(3e30), expected.nan_to_num(3e30))
            finite = [given] if torch.isfinite(given).all() else []
            tensors = {"activation": finite} if finite else {}
            by_hand.step(**tensors, weight=[model.weight], gradient=[gradient])
            debug_api.step()
            x = batches(1)[0][0]


def test_a_layer_that_did_not_run_keeps_its_history(tmp_path):
    with session("", tmp_path):
        model = nn.Linear(5, 4)
        debug_api.attach(model, fp8={"amax_history_len": 2})
        by_hand = Delayed(2)
        (x, gradient), *_ = batches(1)
        # A step without the layer must not push the first one out.
        for given in (x * 9, None, x, None, None):
            if given is not None:
                one_step(model, given, gradient)
                by_hand.step(activation=[given], weight=[model.weight], gradient=[gradient])
            debug_api.step()
        assert_equal(one_step(model, x, gradient), reference(model, x, gradient, by_hand.change))


def test_blocks_stand_in_each_other_and_hold_for_their_thread(tmp_path):
    (x, gradient), *_ = batches(1)
    with session("", tmp_path):
        model = nn.Linear(5, 4)
        plain = one_step(copy.deepcopy(model), x, gradient)
        debug_api.attach(model)

        def current(_, name, tensor):
            return emulated(tensor, HYBRID[name])

        def ran_in_fp8():
            found = one_step(model, x, gradient)
            if torch.equal(found[0], plain[0]):
                assert_equal(found, plain)
                return False
            assert_equal(found, reference(model, x, gradient, current))
            return True

        block = debug_api.fp8_autocast(recipe={"name": "current"})
        assert not ran_in_fp8()
        with block:
            assert ran_in_fp8()
            with debug_api.fp8_autocast(enabled=False):
                assert not ran_in_fp8()
                with block:
                    assert ran_in_fp8()
            elsewhere = []
            thread = threading.Thread(target=lambda: elsewhere.append(ran_in_fp8()))
            thread.start()
            thread.join()
            assert elsewhere == [False]
            with pytest.raises(ZeroDivisionError), debug_api.fp8_autocast(enabled=False):
                raise ZeroDivisionError
            assert ran_in_fp8()
        assert not ran_in_fp8()


def test_the_backward_runs_as_the_forward_did(tmp_path):
    (x, gradient), *_ = batches(1)
    with session("", tmp_path):
        model = nn.Linear(5, 4)
        debug_api.attach(model)
        with debug_api.fp8_autocast(recipe="current"):
            y = model(x.requires_grad_())
        y.backward(gradient)
        expected = reference(
            model, x.detach(), gradient, lambda _, name, one: emulated(one, HYBRID[name])
        )
        assert_equal((y.detach(), x.grad, model.weight.grad), expected)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_is_computed_again_as_it_was(use_reentrant, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4))
    (x, gradient), *_ = batches(1)
    results = []
    for saved in (True, False):
        with session("", tmp_path / str(saved)):
            one = copy.deepcopy(model)
            debug_api.attach(one)
            inputs = x.clone().requires_grad_()
            with debug_api.fp8_autocast(recipe="current"):
                y = one(inputs) if saved else checkpoint(one, inputs, use_reentrant=use_reentrant)
            # The block is over when the checkpoint is computed again.
            y.backward(gradient)
            results.append([y.detach(), inputs.grad, *(p.grad for p in one.parameters())])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_a_session_is_not_needed_for_the_block():
    model = nn.Linear(5, 4)
    x = torch.randn(3, 5)
    with debug_api.fp8_autocast():
        assert torch.equal(model(x), nn.functional.linear(x, model.weight, model.bias))


@pytest.mark.parametrize(
    ("features", "off"),
    [
        ({"DisableFp8Gemm": {"gemms": ["fprop", "wgrad"]}}, {"fprop", "wgrad"}),
        ({"DisableFP8Layer": {}}, {"fprop", "dgrad", "wgrad"}),
        (
            {"DisableFP8GEMM": {"gemms": ["dgrad"]}, "DisableFp8Layer": {}},
            {"fprop", "dgrad", "wgrad"},
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("fp8", [None, "current"])
def test_gemms_are_taken_out_of_fp8(features, off, fp8, tmp_path):
    (x, gradient), *_ = batches(1)
    with session(section(features), tmp_path):
        model = nn.Linear(5, 4)
        debug_api.attach(model, fp8=fp8)

        def change(gemm, name, tensor):
            return tensor if fp8 is None or gemm in off else emulated(tensor, HYBRID[name])

        assert_equal(one_step(model, x, gradient), reference(model, x, gradient, change))
    lines = [line for line in main_log(tmp_path) if "gemm" in line]
    assert len(lines) == 6
    for line in lines:
        gemm = line.split("gemm ")[1].split(" - ")[0]
        plan = "High precision" if fp8 is None or gemm in off else "FP8 quantization"
        assert line.endswith(plan)


@pytest.mark.parametrize("recipe", ["delayed", "current"])
def test_per_tensor_scaling_scales_the_listed_operand_by_itself(recipe, tmp_path):
    config = section(
        {"PerTensorScaling": {"gemms": ["fprop", "wgrad"], "tensors": ["activation"], "margin": 2}}
    )
    by_hand = Delayed()
    with session(config, tmp_path):
        model = nn.Linear(5, 4)
        debug_api.attach(model, fp8=recipe)
        for x, gradient in batches(3):

            def change(gemm, name, tensor):
                if name == "activation":
                    return emulated(tensor, "E4M3", margin=2)
                if recipe == "current":
                    return emulated(tensor, HYBRID[name])
                return by_hand.change(gemm, name, tensor)

            assert_equal(one_step(model, x, gradient), reference(model, x, gradient, change))
            by_hand.step(weight=[model.weight], gradient=[gradient])
            debug_api.step()


def test_fake_quant_beats_fp8_and_disabled_gemms(tmp_path):
    (x, gradient), *_ = batches(1)
    config = section(
        {
            "FakeQuant": {"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "FP8E5M2"},
            "DisableFp8Gemm": {"gemms": ["fprop", "dgrad"]},
        }
    )

    def change(gemm, name, tensor):
        if (gemm, name) == ("fprop", "weight"):
            return emulated(tensor, "E5M2")
        return emulated(tensor, HYBRID[name]) if gemm == "wgrad" else tensor

    with session(config, tmp_path):
        model = nn.Linear(5, 4)
        debug_api.attach(model, fp8="current")
        assert_equal(one_step(model, x, gradient), reference(model, x, gradient, change))


@pytest.mark.parametrize(
    "features",
    [
        {"PerTensorScaling": {"tensors": ["weight"]}, "FakeQuant": {"tensors": ["weight"]}},
        {"PerTensorScaling": {"tensors": ["weight"]}, "FakeQuant": {"tensors": ["activation"]}},
        {"PerTensorScaling": {"tensors": ["weight"]}, "DisableFp8Gemm": None},
        {"PerTensorScaling": {"tensors": ["weight"]}, "DisableFp8Layer": {}},
    ],
    ids=str,
)
def test_combinations_that_contradict_each_other_are_refused(features, tmp_path):
    full = {}
    for name, keys in features.items():
        full[name] = keys if name == "DisableFp8Layer" else {"gemms": ["fprop"], **(keys or {})}
        if name == "FakeQuant":
            full[name]["quant_format"] = "E4M3"
    with pytest.raises(ValueError, match="PerTensorScaling"):
        debug_api.initialize(section(full), log_dir=tmp_path)


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [
        ({"name": "late"}, ValueError),
        ({"format": "E4M3"}, ValueError),
        ({"margin": 0.5}, ValueError),
        ({"amax_history_len": 0}, ValueError),
        ({"reduce_amax": "yes"}, ValueError),
        (3, TypeError),
    ],
    ids=str,
)
def test_recipes_that_are_not_known_are_refused(recipe, kind, tmp_path):
    with pytest.raises(kind, match="recipe") as found:
        debug_api.fp8_autocast(recipe=recipe)
    assert isinstance(found.value, InspectError)
    with session("", tmp_path):
        model = nn.Linear(2, 2)
        with pytest.raises(kind):
            debug_api.attach(model, fp8=recipe)
        debug_api.attach(model)
