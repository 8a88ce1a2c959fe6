"""What a layer computes while its operands are changed, held against an emulation of its own."""

from __future__ import annotations

import itertools

import pytest
import torch
from attached_models import emulated, main_log, section, session
from torch import nn

import dftrace_ai.inspect as debug_api

PAIRS = (
    ("fprop", "activation"),
    ("fprop", "weight"),
    ("dgrad", "gradient"),
    ("dgrad", "weight"),
    ("wgrad", "gradient"),
    ("wgrad", "activation"),
)
FORMATS = {"activation": "E4M3", "weight": "E4M3", "gradient": "E5M2"}
DTYPES = (torch.float32, torch.bfloat16)


def fake_quant(chosen, margin=0):
    items = []
    for gemm in ("fprop", "dgrad", "wgrad"):
        tensors = [
            {"tensor": tensor, "quant_format": FORMATS[tensor], "margin": margin}
            for of, tensor in chosen
            if of == gemm
        ]
        if tensors:
            items.append({"gemm": gemm, "tensors_struct": tensors})
    # A switch needs at least one item.
    return {"FakeQuant": {"quant_format": "E4M3", "gemms_struct": items}} if items else {}


def operands(dtype, shape=(6, 5), outputs=4):
    generator = torch.Generator().manual_seed(7)
    make = lambda *size: torch.randn(*size, generator=generator).mul(3).to(dtype)  # noqa: E731
    return make(*shape), make(outputs, shape[-1]), make(outputs), make(*shape[:-1], outputs)


def through(model, x, gradient):
    x = x.clone().requires_grad_()
    y = model(x)
    y.backward(gradient)
    return y.detach(), x.grad, model.weight.grad, model.bias.grad


def linear(weight, bias):
    model = nn.Linear(weight.size(1), weight.size(0), dtype=weight.dtype)
    with torch.no_grad():
        model.weight.copy_(weight)
        model.bias.copy_(bias)
    return model


def reference(x, weight, bias, gradient, change):
    """The three GEMMs, with `change(gemm, tensor name, tensor)` on each operand."""
    y = nn.functional.linear(
        change("fprop", "activation", x), change("fprop", "weight", weight), bias
    )
    rows, inputs = gradient.flatten(0, -2), x.flatten(0, -2)
    dx = change("dgrad", "gradient", rows).mm(change("dgrad", "weight", weight)).view(x.shape)
    dw = change("wgrad", "gradient", rows).t().mm(change("wgrad", "activation", inputs))
    return y, dx, dw, rows.sum(0)


def assert_same(found, expected):
    for name, one, other in zip(("Y", "dX", "dW", "db"), found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "chosen",
    [subset for count in range(len(PAIRS) + 1) for subset in itertools.combinations(PAIRS, count)],
    ids=lambda chosen: "+".join(f"{gemm}.{tensor}" for gemm, tensor in chosen) or "none",
)
def test_each_choice_of_operands_is_quantised_in_its_gemm_alone(chosen, dtype, tmp_path):
    x, weight, bias, gradient = operands(dtype)
    with session(section(fake_quant(chosen)), tmp_path):
        model = linear(weight, bias)
        debug_api.attach(model)
        found = through(model, x, gradient)

    def change(gemm, name, tensor):
        return emulated(tensor, FORMATS[name]) if (gemm, name) in chosen else tensor

    assert_same(found, reference(x, weight, bias, gradient, change))
    plain = through(linear(weight, bias), x, gradient)
    if not chosen:
        assert_same(found, plain)
    else:
        of_gemm = {"fprop": 0, "dgrad": 1, "wgrad": 2}
        for gemm, index in of_gemm.items():
            differs = not torch.equal(found[index], plain[index])
            assert differs == any(of == gemm for of, _ in chosen)


def test_results_are_quantised_after_their_gemm_and_margins_leave_room(tmp_path):
    x, weight, bias, gradient = operands(torch.float32)
    config = section(
        {
            "FakeQuant": {
                "gemms_struct": [
                    {"gemm": "fprop", "tensors": ["output"], "quant_format": "E4M3"},
                    {"gemm": "dgrad", "tensors": ["dgrad"], "quant_format": "E5M2"},
                    {
                        "gemm": "wgrad",
                        "tensors": ["wgrad", "activation"],
                        "quant_format": "E4M3",
                        "margin": 3,
                    },
                ]
            }
        }
    )
    with session(config, tmp_path):
        model = linear(weight, bias)
        debug_api.attach(model)
        y, dx, dw, db = through(model, x, gradient)
    expected_y, expected_dx, _, expected_db = reference(
        x, weight, bias, gradient, lambda gemm, name, tensor: tensor
    )
    expected_dw = gradient.t().mm(emulated(x, "E4M3", margin=3))
    assert torch.equal(y, emulated(expected_y, "E4M3"))
    assert torch.equal(dx, emulated(expected_dx, "E5M2"))
    assert torch.equal(dw, emulated(expected_dw, "E4M3", margin=3))
    assert torch.equal(db, expected_db)


def test_quantisation_is_that_of_what_autocast_makes_of_the_operands(tmp_path):
    x, weight, bias, gradient = operands(torch.float32)
    config = section(
        {
            "FakeQuant": {
                "gemms": ["fprop", "dgrad", "wgrad"],
                "tensors": ["activation", "weight", "gradient"],
                "quant_format": "E4M3",
            },
            # Looks at the weight as it is, of which the scale must not be made.
            "LogTensorStats": {"stats": ["cur_amax"], "tensors": ["weight", "activation"]},
        }
    )
    with session(config, tmp_path) as values:
        model = linear(weight, bias)
        debug_api.attach(model)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x_ = x.clone().requires_grad_()
            y = model(x_)
        y.backward(gradient.bfloat16())
        debug_api.step()
    narrow = [one.bfloat16() for one in (x, weight, bias, gradient)]
    expected = reference(*narrow, lambda gemm, name, tensor: emulated(tensor, "E4M3"))
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, expected[0])
    for one, other in zip((x_.grad, model.weight.grad, model.bias.grad), expected[1:], strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other.float())
    assert values["model_weight_cur_amax", 0] == weight.abs().max()
    assert values["model_activation_cur_amax", 0] == x.bfloat16().abs().max()


@pytest.mark.parametrize("special", [float("nan"), float("inf"), 0.0])
def test_a_tensor_without_a_usable_amax_has_scale_one(special, tmp_path):
    x, weight, bias, gradient = operands(torch.float32)
    x = torch.zeros_like(x) if special == 0 else x.index_fill(0, torch.tensor(2), special)
    with session(section(fake_quant([("fprop", "activation")])), tmp_path):
        model = linear(weight, bias)
        debug_api.attach(model)
        y = model(x)
    expected = nn.functional.linear(emulated(x, "E4M3", by=torch.tensor(1.0)), weight, bias)
    assert torch.equal(y.nan_to_num(7e30), expected.nan_to_num(7e30))


def test_tensors_without_elements_pass(tmp_path):
    config = section(
        {
            **fake_quant(PAIRS),
            "LogTensorStats": {"stats": ["min"], "tensors": ["activation", "output"]},
        }
    )
    with session(config, tmp_path) as values:
        model = nn.Linear(5, 4)
        debug_api.attach(model)
        x = torch.zeros(0, 5, requires_grad=True)
        model(x).sum().backward()
        debug_api.step()
        assert x.grad.shape == (0, 5)
        assert not values.found


def test_the_tensors_of_the_user_stay_as_they_are(tmp_path):
    x, weight, bias, gradient = operands(torch.float32)
    with session(section(fake_quant(PAIRS)), tmp_path):
        model = linear(weight, bias)
        debug_api.attach(model)
        before = x.clone(), gradient.clone()
        through(model, x, gradient)
    assert torch.equal(x, before[0])
    assert torch.equal(gradient, before[1])
    assert torch.equal(model.weight, weight)


def test_second_derivatives_pass_the_quantisation(tmp_path):
    with session(section(fake_quant(PAIRS)), tmp_path):
        model = nn.Linear(5, 4)
        debug_api.attach(model)
        x = torch.randn(6, 5, requires_grad=True)
        (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        first.square().sum().backward()
        assert x.grad.abs().sum() > 0
        assert model.weight.grad.abs().sum() > 0


def test_the_log_names_the_plan_and_what_acts(tmp_path):
    x, weight, bias, gradient = operands(torch.float32)
    with session(section(fake_quant([("dgrad", "weight")])), tmp_path):
        model = linear(weight, bias)
        debug_api.attach(model, name="decoder", fp8={"name": "current"})
        for _ in range(2):
            through(model, x, gradient)
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
