"""Attached models under torch.compile: the same numbers, and no graph is made twice."""

from __future__ import annotations

import copy

import pytest
import torch
from attached_models import ALL, section, session, statistics_of
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import dftrace_ai.inspect as debug_api

# The compiler itself looks at the gradients of inner tensors.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")


@pytest.fixture(autouse=True)
def _no_graphs_of_other_tests():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False))


def trained(model, run, steps, between=lambda: None):
    """Outputs and gradients of some steps."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(steps):
        x = torch.randn(5, 8, generator=generator, requires_grad=True)
        model.zero_grad(set_to_none=True)
        y = run(x)
        y.square().sum().backward()
        found += [y.detach(), x.grad, *(one.grad for one in model.parameters())]
        between()
    return found


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_two_graphs_are_made_and_taken_in_turn(backend, tmp_path):
    config = statistics_of(["l1_norm", "std"], ALL, freq=2)
    found = []
    for compiled in (False, True):
        with session(config, tmp_path / str(compiled)) as values:
            model = network()
            expected = trained(model, copy.deepcopy(model), 0)
            debug_api.attach(model)
            graphs = CompileCounterWithBackend(backend)
            run = torch.compile(model, backend=graphs, fullgraph=True) if compiled else model
            counts = []

            def step():
                counts.append(graphs.frame_count)  # noqa: B023
                debug_api.step()

            found.append((trained(model, run, 6, step), values.found))
            if compiled:
                # One with a plan, one without, and no third.
                assert counts == [1, 2, 2, 2, 2, 2]
    (eager, of_eager), (graphed, of_graphed) = found
    assert_same(graphed, eager)
    plain = network()
    assert_same(eager, trained(plain, plain, 6))
    assert set(of_graphed) == set(of_eager)
    assert len(of_eager) == 3 * 2 * 2 * len(ALL)
    for key, values in of_eager.items():
        assert of_graphed[key] == pytest.approx(values, rel=1e-6), key
    assert expected == []


@pytest.mark.parametrize("precision", ["float32", "autocast"])
def test_operands_are_changed_in_compiled_code(precision, tmp_path):
    config = section(
        {
            "FakeQuant": {
                "gemms": ["fprop", "dgrad"],
                "tensors": ["activation", "weight", "gradient"],
                "quant_format": "E5M2",
            },
            "LogTensorStats": {"stats": ["max"], "tensors": ["weight", "dgrad"], "freq": 2},
        }
    )
    found = []
    for compiled in (False, True):
        with session(config, tmp_path / str(compiled)) as values:
            model = network()
            debug_api.attach(model, fp8="delayed")
            run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model

            def in_precision(x):
                with torch.autocast("cpu", enabled=precision == "autocast"):
                    return run(x)  # noqa: B023

            found.append((trained(model, in_precision, 3, debug_api.step), values.found))
    (eager, of_eager), (graphed, of_graphed) = found
    assert_same(graphed, eager)
    assert of_graphed == of_eager
    plain = network()
    assert not torch.equal(trained(plain, plain, 1)[0], eager[0])


def test_other_layers_and_attention_are_seen_beside_compiled_code(tmp_path):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(8)
            self.attention = nn.MultiheadAttention(8, 2)
            self.out = nn.Linear(8, 4)

        def forward(self, x):
            x = self.norm(x)
            return self.out(x + self.attention(x, x, x, need_weights=False)[0])

    config = statistics_of(["l1_norm"], ALL[:4], freq=2)
    found = []
    for compiled in (False, True):
        with session(config, tmp_path / str(compiled)) as values:
            torch.manual_seed(0)
            model = Block()
            handle = debug_api.attach(model)
            graphs = CompileCounterWithBackend("eager")
            run = torch.compile(model, backend=graphs) if compiled else model
            counts = []

            def step():
                counts.append(graphs.frame_count)  # noqa: B023
                debug_api.step()

            outputs = trained(model, lambda x: run(x), 6, step)  # noqa: B023
            found.append((outputs, values.found))
            if compiled:
                assert counts[2:] == [counts[1]] * 4
            handle.detach()
            assert_same(trained(model, run, 2), trained(model, model, 2))
    (eager, of_eager), (graphed, of_graphed) = found
    assert_same(graphed, eager)
    assert set(of_graphed) == set(of_eager)
    assert len(of_eager) == 3 * 4 * 4
    for key, values in of_eager.items():
        assert of_graphed[key] == pytest.approx(values, rel=1e-6), key


def test_a_model_that_is_detached_runs_on(tmp_path):
    with session(statistics_of(["max"], ALL), tmp_path) as values:
        model = network()
        handle = debug_api.attach(model)
        run = torch.compile(model, backend="aot_eager")
        first = trained(model, run, 1)
        handle.detach()
        assert_same(trained(model, run, 1), first)
        debug_api.step()
        assert values.iterations("model.0_output_max") == [0]
        x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
        expected = nn.functional.linear(x, model[0].weight, model[0].bias).max().item()
        assert values["model.0_output_max", 0] == pytest.approx(expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_checkpoint_trains_on_where_attaching_has_its_layers_compiled_anew(backend, tmp_path):
    model = network()
    run = torch.compile(model, backend=backend)

    def through_checkpoint(x):
        return checkpoint(run, x, use_reentrant=False)

    # Before torch 2.5 what is within a checkpoint has to be compiled elsewhere first.
    expected = trained(model, run, 3)
    assert_same(trained(model, through_checkpoint, 3), expected)
    with session(statistics_of(["max"], ALL, freq=2), tmp_path) as values:
        handle = debug_api.attach(model)
        assert_same(trained(model, through_checkpoint, 3, debug_api.step), expected)
        assert values.iterations("model.0_gradient_max") == [0, 2]
        handle.detach()
        assert_same(trained(model, through_checkpoint, 3), expected)
