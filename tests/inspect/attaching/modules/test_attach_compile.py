"""Attached models under torch.compile: every kind of layer, in whole graphs, none made twice."""

from __future__ import annotations

import gc
import shutil

import pytest
import torch
from inspect_sessions import ALL, QUANTISED, main_log, session, statistics_of
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from torch_features import compiles, compiles_its_own_modules

import dftrace_ai.inspect as debug_api

# The compiler itself looks at the gradients of inner tensors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
]

inductor = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="needs a compiler of C++"
)


@pytest.fixture(autouse=True)
def _no_graphs_of_other_tests():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Attention(nn.Module):
    def __init__(self, **keywords):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **keywords)

    def forward(self, x):
        other = x[:2, :, : self.attention.kdim]
        if self.attention._qkv_same_embed_dim:
            other = x
        return self.attention(x, other, other, need_weights=False)[0]


class OverOther(Attention):
    def forward(self, x):
        return self.attention(x, x[:2] * 2, x[:2] * 2)[0]


class Kinds(nn.Module):
    def __init__(self):
        super().__init__()
        conv1d = pytest.importorskip("transformers.pytorch_utils").Conv1D
        self.embedding = nn.Embedding(10, 8)
        self.norm = nn.LayerNorm(8)
        self.convolution = nn.Conv1d(8, 8, 1)
        self.linear = nn.Linear(8, 8)
        self.transposed = conv1d(8, 8)

    def forward(self, indices):
        x = self.norm(self.embedding(indices))
        x = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        return self.transposed(torch.tanh(self.linear(x)))


MODELS = {
    "kinds": (Kinds, lambda: torch.arange(6).reshape(2, 3)),
    "packed": (Attention, lambda: torch.linspace(-1, 1, 48).reshape(3, 2, 8)),
    "two inputs": (OverOther, lambda: torch.linspace(-1, 1, 48).reshape(3, 2, 8)),
    "three weights": (
        lambda: Attention(kdim=6, vdim=6),
        lambda: torch.linspace(-1, 1, 48).reshape(3, 2, 8),
    ),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False))


def batch():
    return torch.linspace(-2, 1, 40).reshape(5, 8).requires_grad_()


def trained(model, run, given, steps=1, step=debug_api.step):
    """Outputs and gradients of some steps."""
    found = []
    for _ in range(steps):
        model.zero_grad(set_to_none=True)
        given.grad = None
        y = run(given)
        y.square().sum().backward()
        found += [y.detach(), *(one.grad for one in (given, *model.parameters()))]
        step()
    return found


def assert_alike(found, expected, within):
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=within, atol=within)


def assert_same_values(found, expected, rel=1e-6):
    assert set(found) == set(expected)
    for key, values in expected.items():
        assert found[key] == pytest.approx(values, rel=rel, abs=1e-5), key


def held_against_eager(
    make, given, config, folder, steps=1, *, backend="aot_eager", fp8=None, whole=True, around=None
):
    """Train as it is and compiled, to the same; return what that is, and the graphs by step."""
    found = []
    for compiled in (False, True):
        with session(config, folder / str(compiled)) as values:
            torch.manual_seed(0)
            model = make()
            debug_api.attach(model, fp8=fp8)
            graphs = CompileCounterWithBackend(backend)
            run = torch.compile(model, backend=graphs, fullgraph=whole) if compiled else model
            counts = []

            def step():
                counts.append(graphs.frame_count)  # noqa: B023
                debug_api.step()

            run = run if around is None else around(run)
            found.append((trained(model, run, given, steps, step), values.found))
    (eager, logged), (graphed, of_graphed) = found
    # Inductor does not round as torch does.
    within = 1e-4 if backend == "inductor" else 1e-6
    assert_alike(graphed, eager, within)
    assert_same_values(of_graphed, logged, rel=within)
    return eager, logged, counts


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize(
    ("backend", "kind", "fp8"),
    [
        *[("aot_eager", kind, fp8) for kind in MODELS for fp8 in (None, "current")],
        *[pytest.param("inductor", kind, None, marks=inductor) for kind in ("kinds", "packed")],
    ],
)
def test_whole_graphs_of_all_kinds_of_layers(backend, kind, fp8, tmp_path):
    # Torch 2.4 does not compile attention, but calls it.
    whole = kind == "kinds" or compiles_its_own_modules()
    make, given = MODELS[kind]
    config = statistics_of(["l1_norm", "std"], ALL, freq=2)
    _, logged, graphs = held_against_eager(
        make, given(), config, tmp_path, 4, backend=backend, fp8=fp8, whole=whole
    )
    assert logged
    if whole:
        assert graphs[-1] == (2 if fp8 is None or kind == "kinds" else 1)


def test_blocks_that_are_compiled_one_by_one_share_their_graphs(tmp_path):
    with session(statistics_of(["max"], ALL, freq=2), tmp_path) as values:
        model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(12)])
        debug_api.attach(model)
        graphs = CompileCounterWithBackend("aot_eager")
        for block in model:
            block.compile(backend=graphs, fullgraph=True)
        counts = []
        for _ in range(4):
            model(torch.randn(3, 4, requires_grad=True)).sum().backward()
            debug_api.step()
            counts.append(graphs.frame_count)
        # With a plan and without one.
        assert counts[1:] == [2 * counts[0]] * 3
        # Where modules are compiled by what they are, none is shared.
        assert (counts[0] < 12) == compiles_its_own_modules()
    assert len({name.rpartition("_")[0] for name in values.names}) == 12 * len(ALL)


class CalledTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        return self.linear(torch.tanh(self.linear(x)) * 1000)


class CalledTwiceWithTheSame(CalledTwice):
    def forward(self, x):
        return self.linear(x) + 2 * self.linear(x) + self.norm(x) + self.norm(x)


@pytest.mark.sampled(0)
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=inductor)])
@pytest.mark.parametrize("model", [CalledTwice, CalledTwiceWithTheSame])
def test_a_layer_that_is_called_twice_counts_twice(model, backend, tmp_path):
    given, config = torch.linspace(-1, 1, 18).reshape(3, 6), statistics_of(["l1_norm"], ALL)
    held_against_eager(model, given, config, tmp_path, backend=backend)


def test_each_backward_has_the_scales_of_its_own_forward(tmp_path):
    found = []
    for compiled in (False, True):
        with session(QUANTISED, tmp_path / str(compiled)):
            torch.manual_seed(0)
            model = CalledTwice()
            debug_api.attach(model)
            run = torch.compile(model, backend="aot_eager") if compiled else model
            x = torch.linspace(-1, 1, 18).reshape(3, 6).requires_grad_()
            first, second = run(x), run(100 * x)
            second.sum().backward()
            first.sum().backward()
            found.append([x.grad, model.linear.weight.grad])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_second_derivatives(tmp_path):
    found = []
    for way in ("plain", "attached", "compiled"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 1))
        with session(statistics_of(["max"], ALL), tmp_path / way) as values:
            if way != "plain":
                debug_api.attach(model)
            # Only this backend can differentiate twice.
            run = torch.compile(model, backend="eager") if way == "compiled" else model
            x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
            (gradient,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
            gradient.square().sum().backward()
            debug_api.step()
            found.append([x.grad, *(one.grad for one in model.parameters() if one.dim() == 2)])
            assert way == "plain" or values.found
    assert_alike(found[1], found[0], 1e-6)
    assert_alike(found[2], found[0], 1e-6)


def test_a_weight_that_is_computed_is_computed_once(tmp_path):
    """The power iteration of spectral_norm goes on whenever the weight is asked for."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 6)))
        with session(statistics_of(["max"], ALL), tmp_path / str(compiled)):
            if compiled:
                debug_api.attach(model)
            run = torch.compile(model, backend="aot_eager") if compiled else model
            optimizer = torch.optim.SGD(model.parameters(), 1.0)

            def step():
                optimizer.step()  # noqa: B023
                debug_api.step()

            trained(model, run, torch.linspace(-1, 1, 18).reshape(3, 6), 4, step)
            found.append(list(model.state_dict().values()))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dynamic", [True, None])
def test_shapes_that_change_need_no_further_graphs(dynamic, tmp_path):
    counts = []
    for attached in (False, True):
        torch._dynamo.reset()
        with session(statistics_of(["max"], ALL), tmp_path / str(attached)):
            model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 3))
            if attached:
                debug_api.attach(model)
            graphs = CompileCounterWithBackend("aot_eager")
            run = torch.compile(model, backend=graphs, fullgraph=True, dynamic=dynamic)
            for rows in (3, 5, 9, 17):
                trained(model, run, torch.randn(rows, 6))
            counts.append(graphs.frame_count)
    assert counts[0] == counts[1]


class Tupled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((6,), 2.0))

    def forward(self, x):
        return None, [(x * self.scale, x)]


class Named(Tupled):
    def forward(self, x):
        return {"of": x * self.scale}


class Structures(nn.Module):
    def __init__(self):
        super().__init__()
        self.tupled, self.named, self.recurrent = Tupled(), Named(), nn.LSTM(6, 6)

    def forward(self, x):
        return self.recurrent(self.named(self.tupled(x)[1][0][0])["of"])[0]


def test_outputs_within_structures_and_layers_that_are_not_compiled(tmp_path):
    given, config = torch.randn(3, 2, 6), statistics_of(["l1_norm"], ALL[:4])
    _, logged, _ = held_against_eager(Structures, given, config, tmp_path, 2, whole=False)
    assert len(logged) == 2 * 3 * 3


@pytest.mark.parametrize("config", [statistics_of(["max"], ALL), QUANTISED])
def test_transforms_in_compiled_code_leave_layers_alone(config, tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    x = torch.linspace(-1, 1, 24).reshape(2, 3, 4)

    def one(x):
        return model(x)

    def run(x):
        gradient = torch.func.grad(lambda x: model(x).square().sum())
        return torch.func.vmap(one)(x), gradient(x[0])

    expected = run(x)
    if not compiles(run, x, backend="aot_eager"):
        pytest.skip("this torch does not compile gradients of modules by torch.func")
    with session(config, tmp_path):
        debug_api.attach(model)
        found = torch.compile(run, backend="aot_eager", fullgraph=True)(x)
    assert_alike(found, expected, 1e-6)
    (told,) = [line for line in main_log(tmp_path) if "torch.func" in line]
    assert "neither seen nor changed" in told


def test_a_block_of_fp8_within_compiled_code(tmp_path):
    with session("", tmp_path):
        model = nn.Linear(4, 4)
        debug_api.attach(model)

        def run(x):
            with debug_api.fp8_autocast(recipe="current"):
                y = model(x)
            return y, model(x)

        x = torch.randn(3, 4)
        expected = run(x)
        assert not torch.equal(*expected)
        for one, other in zip(torch.compile(run, backend="eager")(x), expected, strict=True):
            assert torch.equal(one, other)


def test_a_model_that_is_attached_after_it_was_compiled(tmp_path):
    with session(statistics_of(["max"], ["output"]), tmp_path) as values:
        model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        run = torch.compile(model, backend="aot_eager", fullgraph=True)
        x = torch.randn(2, 4)
        run(x)
        handle = debug_api.attach(run)
        y = run(x)
        debug_api.step()
        assert values.names == {"model.0_output_max", "model.1_output_max"}
        assert values["model.1_output_max", 0] == pytest.approx(y.max().item())
        handle.detach()
        assert torch.equal(run(x), y)
        debug_api.step()
        assert values.iterations("model.0_output_max") == [0]


def test_nothing_of_a_compiled_step_outlives_it(tmp_path):
    def passes():
        gc.collect()
        return sum(type(one).__name__ == "Pass" for one in gc.get_objects())

    with session(statistics_of(["max"], ALL), tmp_path):
        model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        debug_api.attach(model, fp8="delayed")
        run = torch.compile(model, backend="aot_eager")
        y = run(torch.randn(2, 4))
        assert passes() == 2
        y.sum().backward()
        run(torch.randn(2, 4))
        del y
        assert passes() == 0


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_checkpoint_trains_on_where_attaching_has_its_layers_compiled_anew(backend, tmp_path):
    model = network()
    run = torch.compile(model, backend=backend)

    def through_checkpoint(x):
        return checkpoint(run, x, use_reentrant=False)

    # Before torch 2.5 what is within a checkpoint has to be compiled elsewhere first.
    expected = trained(model, run, batch(), 3)
    assert_alike(trained(model, through_checkpoint, batch(), 3), expected, 0)
    with session(statistics_of(["max"], ALL, freq=2), tmp_path) as values:
        handle = debug_api.attach(model)
        assert_alike(trained(model, through_checkpoint, batch(), 3), expected, 0)
        assert values.iterations("model.0_gradient_max") == [0, 2]
        handle.detach()
        assert_alike(trained(model, through_checkpoint, batch(), 3), expected, 0)
