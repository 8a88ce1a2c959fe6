"""Layers that run where, or on what, nothing can be looked at: they compute as if plain."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from inspect_sessions import ALL, QUANTISED, main_log, session, statistics_of
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import dftrace_ai.inspect as debug_api

CONFIGS = {
    "looked at": statistics_of(["max"], ALL[:4]),
    "GEMMs looked at": statistics_of(["max"], ALL),
    "changed": QUANTISED,
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))


def batch():
    return torch.linspace(-1, 1, 40).reshape(5, 8)


def per_sample_gradients(model):
    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x[None],)).square().sum()

    parameters = {name: one.detach() for name, one in model.named_parameters()}
    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, batch())
    return list(gradients.values())


def ensemble(model):
    parameters, buffers = torch.func.stack_module_state([copy.deepcopy(model) for _ in range(2)])

    def run(parameters, buffers):
        return torch.func.functional_call(model, (parameters, buffers), (batch(),))

    return [torch.func.vmap(run)(parameters, buffers)]


def functional_gradients(model):
    def loss(parameters):
        return torch.func.functional_call(model, parameters, (batch(),)).square().sum()

    return list(torch.func.grad(loss)(dict(model.named_parameters())).values())


def forward_mode(model):
    with forward_ad.dual_level():
        x = forward_ad.make_dual(batch(), torch.ones(5, 8))
        return list(forward_ad.unpack_dual(model(x)))


def traced(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [torch.jit.trace(model, (batch(),), check_trace=False)(batch())]


def exported(model):
    program = torch.export.export(model, (batch(),))
    assert "dftrace" not in str(program.graph)
    return [program.module()(batch())]


def exported_strictly(model):
    program = torch.export.export(model, (batch(),), strict=True)
    assert "dftrace" not in str(program.graph)
    return [program.module()(batch())]


def without_numbers(model):
    with FakeTensorMode(allow_non_fake_inputs=True):
        model(torch.randn(3, 8)).sum().backward()
    return []


def on_meta(model):
    return [torch.tensor(model.to("meta")(torch.randn(3, 8, device="meta")).shape)]


WAYS = {
    "torch.func: samples": per_sample_gradients,
    "torch.func: models": ensemble,
    "torch.func: gradients": functional_gradients,
    "torch.func: jvp": lambda model: list(torch.func.jvp(model, (batch(),), (torch.ones(5, 8),))),
    "torch.func: second derivatives": lambda model: [
        torch.func.hessian(lambda x: model(x).square().sum())(batch()[0])
    ],
    "forward-mode differentiation": forward_mode,
    "torch.jit.trace": traced,
    "torch.export": exported,
    "torch.export: strict": exported_strictly,
    "tensors without numbers: fake": without_numbers,
    "tensors without numbers: meta": on_meta,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("way", WAYS)
def test_a_layer_that_cannot_be_looked_into_computes_as_if_plain(way, config, tmp_path):
    torch._dynamo.reset()
    expected = WAYS[way](network())
    with session(CONFIGS[config], tmp_path):
        model = network()
        debug_api.attach(model)
        found = WAYS[way](model)
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other)
    where = way.split(":")[0]
    told = [line for line in main_log(tmp_path) if where in line]
    assert told
    assert all("WARNING" in line for line in told)
    assert len(told) == len(set(told))
    assert not any("ERROR" in line for line in main_log(tmp_path))


@pytest.mark.parametrize("config", CONFIGS)
def test_a_backward_of_many_gradients_at_once(config, tmp_path):
    def gradients(model):
        x = batch().requires_grad_()
        y = model(x)
        several = torch.stack([torch.ones(y.shape), torch.full(y.shape, -2.0)])
        inputs = [x, *model.parameters()]
        return torch.autograd.grad(y, inputs, several, is_grads_batched=True)

    expected = gradients(network())
    with session(CONFIGS[config], tmp_path):
        model = network()
        debug_api.attach(model)
        for one, other in zip(gradients(model), expected, strict=True):
            assert one.shape == other.shape
            if config != "changed":
                assert torch.equal(one, other)
    assert not any("ERROR" in line for line in main_log(tmp_path))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kind", ["complex numbers", "sparse tensors", "nested tensors"])
def test_tensors_of_other_kinds_pass(kind, config, tmp_path):
    def run(model):
        dtype = model.weight.dtype
        x = torch.linspace(-1, 1, 12).reshape(3, 4).to(dtype)
        if kind == "sparse tensors":
            x = x.to_sparse()
        if kind == "nested tensors":
            x = torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged)
        y = model(x)
        y = y.values() if kind == "nested tensors" else y
        y.abs().sum().backward()
        return y.detach(), model.weight.grad

    torch.manual_seed(0)
    model = nn.Linear(4, 4, dtype=torch.complex64 if kind == "complex numbers" else None)
    expected = run(copy.deepcopy(model))
    with session(CONFIGS[config], tmp_path):
        debug_api.attach(model)
        for one, other in zip(run(model), expected, strict=True):
            assert torch.equal(one, other)
    (told,) = [line for line in main_log(tmp_path) if kind in line]
    assert told.startswith("WARNING - model runs")


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_layers_without_inputs_or_outputs_pass(shape, config, tmp_path):
    with session(CONFIGS[config], tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = nn.Linear(*shape)
        debug_api.attach(model)
        x = torch.randn(2, 2, shape[0], requires_grad=True)
        y = model(x)
        y.sum().backward()
        assert y.shape == (2, 2, shape[1])
        assert torch.equal(x.grad, torch.zeros(2, 2, shape[0]))
        assert torch.equal(model.bias.grad, torch.full((shape[1],), 4.0))


def test_what_is_around_is_asked_anew_each_time(tmp_path):
    with session(statistics_of(["max"], ["activation"]), tmp_path) as values:
        model = nn.Linear(8, 2)
        debug_api.attach(model)
        torch.func.vmap(model)(batch())
        model(batch())
        debug_api.step()
        assert values["model_activation_max", 0] == 1
