"""What goes wrong in looking at tensors is told once, and the training goes on."""

from __future__ import annotations

import pytest
import torch
from attached_models import main_log, section, session, statistics_of
from torch import nn

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.collecting import observer


def train(model, count=3):
    for _ in range(count):
        model.zero_grad(set_to_none=True)
        model(torch.ones(2, 3)).sum().backward()
        debug_api.step()
    return [parameter.grad for parameter in model.parameters()]


def errors_of(folder):
    return [line for line in main_log(folder) if line.startswith("ERROR")]


def test_a_statistic_that_fails(monkeypatch, tmp_path):
    real = observer.collect

    def failing(tensor, **keywords):
        if tensor.shape == (2, 3):
            raise RuntimeError("no such kernel")
        return real(tensor, **keywords)

    config = statistics_of(["min"], ["activation", "weight", "gradient"])
    with session(config, tmp_path) as values:
        model = nn.Linear(3, 4)
        debug_api.attach(model)
        monkeypatch.setattr(observer, "collect", failing)
        gradients = train(model)
        assert torch.equal(gradients[1], torch.full((4,), 2.0))
    assert values.names == {"model_weight_min", "model_gradient_min"}
    (told,) = errors_of(tmp_path)
    assert "model: the statistics of activation failed" in told
    assert "no such kernel" in told


def test_tensors_that_have_no_statistics(tmp_path):
    class Spectrum(nn.Module):
        def __init__(self):
            super().__init__()
            self.window = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return torch.fft.fft(x * self.window)

    with session(statistics_of(["min"], ["activation", "output"]), tmp_path) as values:
        model = Spectrum()
        debug_api.attach(model)
        for _ in range(2):
            model(torch.ones(2, 3)).abs().sum().backward()
            debug_api.step()
    assert values.names == {"model_activation_min"}
    (told,) = errors_of(tmp_path)
    assert "complex" in told


def test_a_logger_that_fails(tmp_path):
    class Broken:
        def log_scalar(self, name, value, iteration, **kwargs):
            raise OSError("disk full")

    class Writer:
        def __init__(self):
            self.found = []

        def add_scalar(self, name, value, iteration):
            self.found.append((name, iteration))

    writer = Writer()
    debug_api.initialize(
        statistics_of(["min"], ["activation"]),
        log_dir=tmp_path,
        statistics_logger=Broken(),
        tb_writer=writer,
    )
    try:
        model = nn.Linear(3, 4)
        debug_api.attach(model)
        train(model)
    finally:
        debug_api.end_debug()
    assert writer.found == [("model_activation_min", iteration) for iteration in range(3)]
    (told,) = errors_of(tmp_path)
    assert "Broken" in told
    assert "disk full" in told


METHODS = ("modify_tensor_enabled", "inspect_tensor_enabled", "fp8_gemm_enabled")


@pytest.fixture
def features():
    """Registers features for a test."""
    from dftrace_ai.inspect.config.features import forget_custom_features

    forget_custom_features()
    yield debug_api.register_feature
    forget_custom_features()


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
        train(model)
        found = model(torch.ones(2, 3))
    doubled = broken not in {"modify_tensor", "modify_tensor_enabled", "shape"}
    x = torch.full((2, 3), 2.0 if doubled else 1.0)
    assert torch.equal(found, nn.functional.linear(x, model.weight, model.bias))
    (told,) = errors_of(tmp_path)
    assert "Odd" in told
    assert "TypeError" in told if broken == "shape" else "KeyError" in told
