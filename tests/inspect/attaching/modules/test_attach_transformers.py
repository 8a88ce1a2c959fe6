"""Models of Hugging Face, made from configs: the same bits, and everything that is seen."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from inspect_sessions import ALL, main_log, section, session, statistics_of

import dftrace_ai.inspect as debug_api

transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50}

pytestmark = [
    pytest.mark.skipif(
        not transformers.utils.is_torch_available(), reason="this transformers takes no such torch"
    ),
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def gpt2(layers):
    config = transformers.GPT2Config(
        n_layer=layers,
        n_embd=16,
        n_head=2,
        vocab_size=50,
        n_positions=16,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return transformers.GPT2LMHeadModel(config)


def bert(layers):
    config = transformers.BertConfig(
        num_hidden_layers=layers, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **SIZES
    )
    return transformers.BertForMaskedLM(config)


def llama(layers):
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(num_hidden_layers=layers, **SIZES)
    )


MODELS = {"gpt2": gpt2, "bert": bert, "llama": llama}


def made(kind, layers=2):
    torch.manual_seed(0)
    return MODELS[kind](layers).train()


def step(model, run=None):
    ids = torch.arange(16).reshape(2, 8)
    loss = (model if run is None else run)(input_ids=ids, labels=ids).loss
    loss.backward()
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    return [loss.detach(), *gradients]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_the_same_bits_and_every_layer(kind, autocast, tmp_path):
    precision = torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast)
    with precision:
        expected = step(made(kind))
    with session(statistics_of(["max"], ALL), tmp_path) as values:
        model = made(kind)
        debug_api.attach(model)
        with precision:
            assert_same(step(model), expected)
        debug_api.step()
        layers = {name for name, one in model.named_modules() if vars(one)["_parameters"]}
        seen = {name.removeprefix("model.").rsplit("_", 2)[0] for name in values.names}
        assert seen == layers
    assert not any("ERROR" in line for line in main_log(tmp_path))


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_gradient_checkpointing_in_fp8(kind, use_reentrant, tmp_path):
    found = []
    for checkpointed in (False, True):
        with session(statistics_of(["l1_norm"], ALL), tmp_path / str(checkpointed)) as values:
            model = made(kind)
            if checkpointed:
                how = {"use_reentrant": use_reentrant}
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
            debug_api.attach(model, fp8="current")
            found.append((step(model), values))
            debug_api.step()
    assert_same(found[1][0], found[0][0])
    assert found[1][1].found == found[0][1].found


@pytest.mark.sampled(0)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("layers", [1, 2])
def test_compiled_models(layers, kind, tmp_path):
    torch._dynamo.reset()
    found = []
    for compiled in (False, True):
        with session(statistics_of(["max"], ALL, freq=2), tmp_path / str(compiled)) as values:
            model = made(kind, layers)
            debug_api.attach(model)
            run = torch.compile(model, backend="aot_eager") if compiled else None
            for _ in range(3):
                model.zero_grad()
                results = step(model, run)
                debug_api.step()
            found.append((results, values.found))
    for one, other in zip(found[1][0], found[0][0], strict=True):
        torch.testing.assert_close(one, other)
    assert set(found[1][1]) == set(found[0][1])
    for key, values in found[0][1].items():
        assert found[1][1][key] == pytest.approx(values, rel=1e-4, abs=1e-6), key


@pytest.mark.parametrize("kind", MODELS)
def test_models_are_saved_as_they_were(kind, tmp_path):
    config = section(
        {"FakeQuant": {"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "E4M3"}}
    )
    with session(config, tmp_path), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = made(kind)
        debug_api.attach(model)
        model.save_pretrained(tmp_path / "saved")
        loaded = type(model).from_pretrained(tmp_path / "saved")
        assert_same(loaded.state_dict().values(), model.state_dict().values())
        twin = copy.deepcopy(model)
        assert {type(one) for one in twin.modules()} == {type(one) for one in loaded.modules()}
