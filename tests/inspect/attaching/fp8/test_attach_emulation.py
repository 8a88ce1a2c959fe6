"""What a layer computes while its operands are changed, by features and by recipes of FP8.

Each is held against an emulation of its own, bit by bit; `modules/test_checkpoint_matrix.py` holds
recipes, formats, margins, features and their statistics against fp64.
"""

from __future__ import annotations

import copy
import itertools
import math
import threading

import pytest
import torch
from inspect_sessions import (
    HYBRID,
    QUANTISED,
    Delayed,
    emulated,
    main_log,
    section,
    session,
    statistics_of,
)
from torch import nn

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect import InspectError
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.fp8 import fake_quantise_in_blocks

PAIRS = (
    ("fprop", "activation"),
    ("fprop", "weight"),
    ("dgrad", "gradient"),
    ("dgrad", "weight"),
    ("wgrad", "gradient"),
    ("wgrad", "activation"),
)


def fake_quant(chosen):
    items = []
    for gemm in ("fprop", "dgrad", "wgrad"):
        tensors = [
            {"tensor": tensor, "quant_format": HYBRID[tensor]}
            for of, tensor in chosen
            if of == gemm
        ]
        if tensors:
            items.append({"gemm": gemm, "tensors_struct": tensors})
    # A switch needs at least one item.
    return {"FakeQuant": {"quant_format": "E4M3", "gemms_struct": items}} if items else {}


def linear():
    torch.manual_seed(7)
    return nn.Linear(5, 4)


def one_step(model, x, gradient):
    """Y, dX, dW and db; the tensors of the user stay as they are."""
    given, weight, of_y = (
        x.clone().requires_grad_(),
        model.weight.detach().clone(),
        gradient.clone(),
    )
    model.zero_grad(set_to_none=True)
    y = model(given)
    y.backward(of_y)
    for one, other in ((given, x), (model.weight, weight), (of_y, gradient)):
        assert torch.equal(one, other)
    return y.detach(), given.grad, model.weight.grad, model.bias.grad


def batches(count):
    generator = torch.Generator().manual_seed(5)
    return [
        (
            torch.randn(6, 5, generator=generator) * 2.0 ** (index % 3),
            torch.randn(6, 4, generator=generator) * 2.0 ** -(index % 4),
        )
        for index in range(count)
    ]


def reference(model, x, gradient, change):
    """The three GEMMs, with `change(gemm, tensor name, tensor)` on each operand."""
    weight = model.weight.detach()
    y = nn.functional.linear(
        change("fprop", "activation", x), change("fprop", "weight", weight), model.bias.detach()
    )
    dx = change("dgrad", "gradient", gradient).mm(change("dgrad", "weight", weight))
    dw = change("wgrad", "gradient", gradient).t().mm(change("wgrad", "activation", x))
    return y, dx, dw, gradient.sum(0)


def assert_same(found, expected):
    for name, one, other in zip(("Y", "dX", "dW", "db"), found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "chosen",
    [subset for count in range(len(PAIRS) + 1) for subset in itertools.combinations(PAIRS, count)],
    ids=lambda chosen: "+".join(f"{gemm}.{tensor}" for gemm, tensor in chosen) or "none",
)
def test_each_choice_of_operands_is_quantised_in_its_gemm_alone(chosen, dtype, tmp_path):
    x, gradient = (one.to(dtype) for one in batches(1)[0])
    with session(section(fake_quant(chosen)), tmp_path):
        model = linear().to(dtype)
        debug_api.attach(model)
        found = one_step(model, x, gradient)

    def change(gemm, name, tensor):
        return emulated(tensor, HYBRID[name]) if (gemm, name) in chosen else tensor

    assert_same(found, reference(linear().to(dtype), x, gradient, change))
    plain = one_step(linear().to(dtype), x, gradient)
    if not chosen:
        assert_same(found, plain)
    else:
        of_gemm = {"fprop": 0, "dgrad": 1, "wgrad": 2}
        for gemm, index in of_gemm.items():
            differs = not torch.equal(found[index], plain[index])
            assert differs == any(of == gemm for of, _ in chosen)


def test_quantisation_is_that_of_what_autocast_makes_of_the_operands(tmp_path):
    x, gradient = batches(1)[0]
    config = section(
        {
            **QUANTISED["all"]["transformer_engine"],
            # Looks at the weight as it is, of which the scale must not be made.
            "LogTensorStats": {"stats": ["cur_amax"], "tensors": ["weight", "activation"]},
        }
    )
    with session(config, tmp_path) as values:
        model = linear()
        debug_api.attach(model)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x_ = x.clone().requires_grad_()
            y = model(x_)
        y.backward(gradient.bfloat16())
        debug_api.step()
    expected = reference(
        linear().bfloat16(),
        x.bfloat16(),
        gradient.bfloat16(),
        lambda _, name, one: emulated(one, "E4M3"),
    )
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, expected[0])
    for one, other in zip((x_.grad, model.weight.grad, model.bias.grad), expected[1:], strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other.float())
    assert values["model_weight_cur_amax", 0] == model.weight.abs().max()
    assert values["model_activation_cur_amax", 0] == x.bfloat16().abs().max()


@pytest.mark.parametrize("special", [float("nan"), float("inf"), 0.0])
def test_a_tensor_without_a_usable_amax_has_scale_one(special, tmp_path):
    x, gradient = batches(1)[0]
    x = torch.zeros_like(x) if special == 0 else x.index_fill(0, torch.tensor(2), special)
    with session(section(fake_quant([("fprop", "activation")])), tmp_path):
        model = linear()
        debug_api.attach(model)
        y = model(x)
    expected = nn.functional.linear(
        emulated(x, "E4M3", by=torch.tensor(1.0)), model.weight, model.bias
    )
    assert torch.equal(y.nan_to_num(7e30), expected.nan_to_num(7e30))


def test_second_derivatives_pass_the_quantisation(tmp_path):
    with session(section(fake_quant(PAIRS)), tmp_path):
        model = linear()
        debug_api.attach(model)
        x = torch.randn(6, 5, requires_grad=True)
        (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        first.square().sum().backward()
        assert x.grad.abs().sum() > 0
        assert model.weight.grad.abs().sum() > 0


def test_the_log_names_the_plan_and_what_acts(tmp_path):
    x, gradient = batches(1)[0]
    with session(section(fake_quant([("dgrad", "weight")])), tmp_path):
        model = linear()
        debug_api.attach(model, name="decoder", fp8={"name": "current"})
        for _ in range(2):
            one_step(model, x, gradient)
    lines = main_log(tmp_path)
    plans = [line for line in lines if "gemm" in line]
    assert plans == [
        "INFO - decoder: Tensor: activation, gemm fprop - FP8 quantization",
        "INFO - decoder: Tensor: activation, gemm wgrad - FP8 quantization",
        "INFO - decoder: Tensor: weight, gemm fprop - FP8 quantization",
        "INFO - decoder: Tensor: weight, gemm dgrad - modify_tensor()",
        "INFO - decoder: Tensor: gradient, gemm dgrad - High precision",
        "INFO - decoder: Tensor: gradient, gemm wgrad - FP8 quantization",
    ]
    told = [line for line in lines if "process_tensor" in line]
    assert told == ["INFO - decoder: Feature=FakeQuant, API=process_tensor: dgrad, weight"]


@pytest.mark.parametrize("tensors", [["wgrad"], []], ids=["GEMM by GEMM", "looked at"])
@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_is_looked_at_as_the_gemm_gets_it_but_for_the_weight(compiled, tensors, tmp_path):
    torch._dynamo.reset()
    number = 1.001  # 1 in bfloat16
    config = statistics_of(["max"], ["activation", "weight", "output", "gradient", *tensors])
    with session(config, tmp_path) as values:
        model = nn.Linear(1, 1, bias=False)
        nn.init.constant_(model.weight, number)
        debug_api.attach(model)
        run = torch.compile(model, backend="aot_eager") if compiled else model
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = run(torch.full((2, 1), number))
        y.backward(torch.ones(2, 1, dtype=y.dtype))
        debug_api.step()
        found = {name.split("_")[1]: values[name, 0] for name in values.names}
    expected = {"activation": 1, "weight": pytest.approx(number, rel=1e-6), "output": 1}
    assert found == {**expected, "gradient": 1, **dict.fromkeys(tensors, 2)}


# Recipes


@pytest.mark.parametrize(
    "recipe",
    [True, {"amax_history_len": 2}, {"amax_compute_algo": "most_recent", "margin": 1}],
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
        model = linear()
        debug_api.attach(model, fp8=recipe)
        data = batches(8)
        for first, second in zip(data[::2], data[1::2], strict=True):
            # Two micro-batches: the scales change between steps only.
            for x, gradient in (first, second):
                found = one_step(model, x, gradient)
                assert_same(found, reference(model, x, gradient, by_hand.change))
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
        model = linear()
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
        model = linear()
        debug_api.attach(model, fp8={"amax_history_len": 1})
        x, gradient = batches(1)[0]
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
        model = linear()
        debug_api.attach(model, fp8={"amax_history_len": 2})
        by_hand = Delayed(2)
        x, gradient = batches(1)[0]
        # A step without the layer must not push the first one out.
        for given in (x * 9, None, x, None, None):
            if given is not None:
                one_step(model, given, gradient)
                by_hand.step(activation=[given], weight=[model.weight], gradient=[gradient])
            debug_api.step()
        assert_same(one_step(model, x, gradient), reference(model, x, gradient, by_hand.change))


def test_blocks_stand_in_each_other_and_hold_for_their_thread(tmp_path):
    x, gradient = batches(1)[0]
    with session("", tmp_path):
        model = linear()
        plain = one_step(copy.deepcopy(model), x, gradient)
        debug_api.attach(model)

        def by_current(_, name, tensor):
            return emulated(tensor, HYBRID[name])

        def ran_in_fp8():
            found = one_step(model, x, gradient)
            if torch.equal(found[0], plain[0]):
                assert_same(found, plain)
                return False
            assert_same(found, reference(model, x, gradient, by_current))
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


def test_a_session_is_not_needed_for_the_block():
    model = nn.Linear(5, 4)
    x = torch.randn(3, 5)
    with debug_api.fp8_autocast():
        assert torch.equal(model(x), nn.functional.linear(x, model.weight, model.bias))


def test_fake_quant_beats_fp8_and_disabled_gemms(tmp_path):
    x, gradient = batches(1)[0]
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
        model = linear()
        debug_api.attach(model, fp8="current")
        assert_same(one_step(model, x, gradient), reference(model, x, gradient, change))


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


def test_operands_in_blocks_are_those_of_mxfp8(tmp_path):
    """Each operand as it is told, along its last dimension; gradients pass as if nothing were done."""
    formats = {"activation": "MXFP8E4M3", "weight": "MXFP8E4M3", "gradient": "MXFP8E5M2"}
    items = [{"tensor": tensor, "quant_format": format_} for tensor, format_ in formats.items()]
    config = section({"FakeQuant": {"gemms": ["fprop", "dgrad", "wgrad"], "tensors_struct": items}})
    # Blocks of very different magnitude: one scale for all would turn most of it to zero.
    x = (torch.randn(40, 96) * torch.logspace(-6, 6, 96)).requires_grad_()
    gradient = torch.randn(40, 70) * torch.logspace(-6, 6, 70)
    with session(config, tmp_path):
        model = nn.Linear(96, 70)
        debug_api.attach(model)
        y = model(x)
        y.backward(gradient)
    a = fake_quantise_in_blocks(x, Format.E4M3)
    w = fake_quantise_in_blocks(model.weight, Format.E4M3)
    g = fake_quantise_in_blocks(gradient, Format.E5M2)
    assert torch.equal(y, nn.functional.linear(a, w, model.bias))
    assert torch.equal(x.grad, g.mm(w))
    assert torch.equal(model.weight.grad, g.t().mm(a))
    assert (a != 0).float().mean() > 0.95
