"""Layers that are only looked at compute the same bits as without inspection."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from inspect_sessions import emulated, main_log, section, session, statistics_of
from torch import nn

import dftrace_ai.inspect as debug_api

# What is asked for decides the way: nothing, a look beside torch's own GEMMs, or GEMMs of ours.
WAYS = {
    "idle": {"stats": ["mean"], "tensors": ["activation"], "start_step": 5},
    "looked at": {"stats": ["mean"], "tensors": ["activation", "weight", "output", "gradient"]},
    "GEMM by GEMM": {
        "stats": ["mean"],
        "tensors": ["activation", "weight", "output", "gradient", "dgrad", "wgrad"],
    },
}
SHAPES = {
    "one row": lambda: torch.randn(24),
    "matrix": lambda: torch.randn(32, 24),
    "transposed": lambda: torch.randn(24, 32).t(),
    "three": lambda: torch.randn(3, 7, 24),
    "three, transposed": lambda: torch.randn(7, 3, 24).transpose(0, 1),
    "four": lambda: torch.randn(2, 3, 5, 24),
    "wide rows": lambda: torch.randn(33, 48)[:, ::2],
    "column": lambda: torch.randn(9, 24).t().contiguous().t(),
}


def step_of(model, inputs, run=None, autocast=False):
    """Output and all gradients of one forward and backward."""
    inputs = [
        one.detach().clone(memory_format=torch.preserve_format).requires_grad_() for one in inputs
    ]
    model.zero_grad(set_to_none=True)
    context = torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext()
    with context:
        output = (run or type(model).__call__)(model, *inputs)
    generator = torch.Generator().manual_seed(3)
    gradient = torch.randn(output.shape, generator=generator).to(output.dtype)
    output.backward(gradient)
    gradients = {name: one.grad for name, one in model.named_parameters()}
    return [output.detach(), *(one.grad for one in inputs), *gradients.values()]


def assert_same_bits(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert torch.equal(one, other)


def check(model, inputs, way, folder, run=None, autocast=False, looked_at=True):
    plain = step_of(copy.deepcopy(model), inputs, run, autocast)
    with session(section({"LogTensorStats": WAYS[way]}), folder) as values:
        debug_api.attach(model)
        found = step_of(model, inputs, run, autocast)
        debug_api.step()
        assert bool(values.found) == (way != "idle" and looked_at)
    assert_same_bits(found, plain)
    assert_same_bits(step_of(model, inputs, run, autocast), plain)
    return values


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "autocast", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_linear(shape, precision, bias, way, tmp_path):
    torch.manual_seed(1)
    dtype = torch.float32 if precision == "autocast" else getattr(torch, precision)
    model = nn.Linear(24, 20, bias=bias, dtype=dtype)
    inputs = [SHAPES[shape]().to(dtype)]
    check(model, inputs, way, tmp_path, autocast=precision == "autocast")


@pytest.mark.parametrize("way", WAYS)
def test_gradients_without_memory_of_their_own_and_frozen_parameters(way, tmp_path):
    torch.manual_seed(1)
    with session(section({"LogTensorStats": WAYS[way]}), tmp_path):
        model = nn.Sequential(nn.Linear(24, 20), nn.Linear(20, 6))
        model[1].weight.requires_grad_(False)
        plain = copy.deepcopy(model)
        debug_api.attach(model)
        x = torch.randn(8, 24)
        for one in (model, plain):
            one(x).sum().backward()
        for name, parameter in model.named_parameters():
            other = plain.get_parameter(name)
            assert (parameter.grad is None) == (other.grad is None)
            if other.grad is not None:
                assert torch.equal(parameter.grad, other.grad)
        with torch.no_grad():
            assert torch.equal(model(x), plain(x))
        with torch.inference_mode():
            assert torch.equal(model(x), plain(x))


@pytest.mark.parametrize("way", WAYS)
def test_an_output_that_is_changed_in_place(way, tmp_path):
    def run(model, x):
        return model(x).mul_(2).add_(1)

    check(nn.Linear(24, 20), [torch.randn(32, 24)], way, tmp_path, run)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "autocast"])
def test_conv1d(precision, way, tmp_path):
    utilities = pytest.importorskip("transformers.pytorch_utils", reason="needs transformers")
    dtype = torch.float32 if precision == "autocast" else getattr(torch, precision)
    model = utilities.Conv1D(20, 24).to(dtype)
    x = torch.randn(3, 7, 24).to(dtype)
    check(model, [x], way, tmp_path, autocast=precision == "autocast")


def attend(**keywords):
    return lambda model, query, key, value: model(query, key, value, **keywords)[0]


def self_attend(**keywords):
    return lambda model, x: model(x, x, x, **keywords)[0]


CAUSAL = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
PADDED = torch.zeros(2, 6, dtype=torch.bool).index_fill(1, torch.tensor([5]), True)

ATTENTIONS = {
    "self": ({}, self_attend(need_weights=False), 1),
    "self with weights": ({}, self_attend(average_attn_weights=False), 1),
    "batch first": ({"batch_first": True}, self_attend(need_weights=False), 1),
    "causal": ({}, self_attend(attn_mask=CAUSAL, is_causal=True, need_weights=False), 1),
    "padded": ({}, self_attend(key_padding_mask=PADDED), 1),
    "both masks": ({}, self_attend(attn_mask=CAUSAL, key_padding_mask=PADDED), 1),
    "two inputs": ({}, lambda model, q, k: model(q, k, k, need_weights=False)[0], 2),
    "three inputs": ({}, attend(), 3),
    "other sizes": ({"kdim": 8, "vdim": 12}, attend(need_weights=False), 3),
    "no bias": ({"bias": False}, self_attend(), 1),
    "biases of keys": ({"add_bias_kv": True, "add_zero_attn": True}, self_attend(), 1),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", ATTENTIONS)
def test_attention(case, way, tmp_path):
    torch.manual_seed(1)
    keywords, run, count = ATTENTIONS[case]
    model = nn.MultiheadAttention(16, 4, **keywords)
    sizes = [16, keywords.get("kdim", 16), keywords.get("vdim", 16)]
    first = (2, 6) if keywords.get("batch_first") else (6, 2)
    inputs = [torch.randn(*first, size) for size in sizes[:count]]
    values = check(model, inputs, way, tmp_path, run)
    if way != "idle":
        parts = {"q_proj", "k_proj", "v_proj"} if "kdim" in keywords else {"in_proj"}
        assert {f"model.{part}_activation_mean" for part in (*parts, "out_proj")} <= values.names


def test_attention_with_dropout_draws_the_same(tmp_path):
    torch.manual_seed(1)
    model = nn.MultiheadAttention(16, 4, dropout=0.5)

    def run(model, x):
        torch.manual_seed(2)
        return model(x, x, x)[0]

    check(model, [torch.randn(6, 2, 16)], "GEMM by GEMM", tmp_path, run)


def test_unbatched_attention_and_autocast(tmp_path):
    torch.manual_seed(1)
    model = nn.MultiheadAttention(16, 4)
    run = self_attend(need_weights=False)
    check(model, [torch.randn(6, 16)], "GEMM by GEMM", tmp_path / "1", run)
    check(model, [torch.randn(6, 2, 16)], "GEMM by GEMM", tmp_path / "2", run, autocast=True)


@pytest.mark.parametrize("with_statistics", [True, False])
def test_slices_of_a_packed_weight_are_scaled_as_the_whole(with_statistics, tmp_path):
    """Attention over two inputs runs the packed weight in slices: its scale is still one."""
    torch.manual_seed(1)
    config = section(
        {
            "FakeQuant": {"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "E4M3"},
            "LogTensorStats": {
                "stats": ["max"],
                "tensors": ["weight"],
                "start_step": 0 if with_statistics else 1,
            },
        },
        layer_types=["in_proj"],
    )
    model = nn.MultiheadAttention(16, 4)
    with torch.no_grad():
        model.in_proj_weight[40].mul_(9)
    q, k = torch.randn(6, 2, 16), torch.randn(5, 2, 16)
    expected = copy.deepcopy(model)
    with torch.no_grad():
        expected.in_proj_weight.copy_(emulated(model.in_proj_weight, "E4M3"))
    with session(config, tmp_path) as values:
        debug_api.attach(model)
        found = model(q, k, k)[0]
        debug_api.step()
    assert torch.equal(found, expected(q, k, k)[0])
    if with_statistics:
        assert values["model.in_proj_weight_max", 0] == model.in_proj_weight.max()


@pytest.mark.parametrize("mode", ["no_grad", "train"])
def test_fused_encoder_layers_are_looked_at_and_the_fast_path_comes_back(mode, tmp_path):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 2)
    model.train(mode == "train")
    x = torch.randn(3, 5, 16)
    config = statistics_of(["cur_amax"], ["activation"], freq=2)
    assert torch.backends.mha.get_fastpath_enabled()
    with session(config, tmp_path) as values:
        debug_api.attach(model, observe_eval=True)
        assert not torch.backends.mha.get_fastpath_enabled()
        with torch.no_grad():
            model(x)
        debug_api.step()
        # Nothing is due now.
        assert torch.backends.mha.get_fastpath_enabled()
        with torch.no_grad():
            model(x)
        debug_api.step()
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled()
    for index in (0, 1):
        for part in ("self_attn.in_proj", "self_attn.out_proj", "linear1", "linear2", "norm1"):
            assert (f"model.layers.{index}.{part}_activation_cur_amax", 0) in values


def test_the_fast_path_stays_off_where_the_user_has_switched_it_off(tmp_path):
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with session(statistics_of(["min"], ["activation"]), tmp_path):
            debug_api.attach(nn.Linear(2, 2))
        assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("tensors", [["activation"], ["weight", "output"], None], ids=str)
def test_weights_that_are_made_anew_for_each_use_are_made_once(tensors, tmp_path):
    """Spectral norm goes on with its estimate each time that the weight is read."""

    def train(model):
        torch.manual_seed(1)
        outputs = []
        for x in torch.randn(4, 5, 6):
            outputs.append(model(x))
            outputs[-1].square().sum().backward()
            debug_api.step()
        return torch.stack(outputs), [parameter.grad for parameter in model.parameters()]

    torch.manual_seed(0)
    spectral_norm = nn.utils.parametrizations.spectral_norm
    convolution = spectral_norm(nn.Conv1d(2, 2, 2))
    plain = nn.Sequential(spectral_norm(nn.Linear(6, 6)), nn.Unflatten(1, (2, 3)), convolution)
    inspected = copy.deepcopy(plain)
    wanted, gradients = train(plain)
    with session(statistics_of(["max"], tensors or ["output"]), tmp_path) as values:
        if tensors is not None:
            debug_api.attach(inspected)
        watch = debug_api.watch_nonfinite(inspected) if tensors is None else None
        found, found_gradients = train(inspected)
        if watch is not None:
            watch.stop()
    assert torch.equal(found, wanted)
    for one, other in zip(found_gradients, gradients, strict=True):
        assert torch.equal(one, other)
    assert len(values.found) == 8 * len(tensors or ())


def test_other_modules_are_observed_and_compute_the_same(tmp_path):
    torch.manual_seed(1)

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, *, values):
            return {"scaled": values["x"] * self.weight, "rest": None}

    model = nn.ModuleDict(
        {
            "conv": nn.Conv2d(3, 4, 3),
            "embedding": nn.Embedding(5, 4),
            "norm": nn.LayerNorm(4),
            "pair": Pair(),
            "patched": nn.Linear(4, 4),
            "lstm": nn.LSTM(4, 4),
        }
    )
    # A forward of its own, as some libraries set it.
    own = model["patched"].forward
    model["patched"].forward = lambda x: own(x) * 2

    def run(model, image, x):
        table = model["embedding"](torch.tensor([0, 3]))
        y = model["pair"](values={"x": model["norm"](x)})["scaled"]
        rnn = model["lstm"](y)[0]
        return model["conv"](image).sum() + (model["patched"](rnn) * table.sum()).sum()

    inputs = [torch.randn(1, 3, 5, 5), torch.randn(2, 4)]
    plain = step_of(model, inputs, run)
    config = section(
        {
            "LogTensorStats": {
                "stats": ["l1_norm"],
                "tensors": ["activation", "weight", "output", "gradient"],
            },
            "FakeQuant": {"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "E4M3"},
        }
    )
    with session(config, tmp_path) as values:
        debug_api.attach(model)
        assert_same_bits(step_of(model, inputs, run), plain)
        debug_api.step()
    assert_same_bits(step_of(model, inputs, run), plain)
    for name in ("conv", "embedding", "norm", "pair", "patched", "lstm"):
        for tensor in ("activation", "output", "gradient", "weight"):
            there = (f"model.{name}_{tensor}_l1_norm", 0) in values
            assert there == ((name, tensor) != ("lstm", "weight")), (name, tensor)
    assert values["model.conv_activation_l1_norm", 0] == pytest.approx(inputs[0].abs().sum().item())
    warnings = [line for line in main_log(tmp_path) if line.startswith("WARNING")]
    assert len(warnings) == 2
    assert "FakeQuant cannot act" in "".join(warnings)
    assert "model.lstm (LSTM)" in "".join(warnings)
