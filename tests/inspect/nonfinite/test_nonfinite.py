"""The watch for NaN and infinities: what is told, and what stands in the trace."""

from __future__ import annotations

import math

import pytest
import torch
from inspect_sessions import main_log, section, session, statistics_of
from torch import nn

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.nonfinite import MARKS


@pytest.fixture(autouse=True)
def _anew():
    MARKS.reset()
    MARKS.step = 0


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 2))


def marked(recording):
    found = [event for event in recording.trace.events if event.cat == "nonfinite"]
    return [(event.name, event.args) for event in found]


def test_the_first_one_is_told_with_its_place_and_counts(traced, capsys):
    with traced() as recording:
        model = network()
        watch = debug_api.watch_nonfinite(model, name="net")
        x = torch.randn(3, 4)
        model(x).sum().backward()
        assert capsys.readouterr().err == ""
        debug_api.step()
        debug_api.step()
        model(x)
        with torch.no_grad():
            model[2].weight[1, 1] = math.inf
        model(x)
        watch.stop()
        model(x)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert "net.2: output has 0 NaN and 3 infinities in 24 elements" in told[0]
    assert "iteration 2, micro-batch 1" in told[0]
    assert "its activation is finite, and its weight has such values, too" in told[0]
    found = marked(recording)
    # What comes out of the next layer is no longer finite either, and not the first.
    assert [name for name, _ in found] == ["net.2:output", "net.3:output"]
    first, second = (args for _, args in found)
    assert first["first"] is True
    assert second["first"] is False
    names = recording.trace.thread_names
    tracks = [names[one.tid] for one in recording.trace.events if one.cat == "nonfinite"]
    assert tracks == ["first non-finite value", "non-finite values"]
    assert (first["iteration"], first["micro_batch"]) == (2, 1)
    assert (first["n_nan"], first["n_inf"], first["n"]) == (0, 3, 24)
    assert (first["weight_n_inf"], first["activation_n_inf"]) == (1, 0)
    assert second["activation_n_inf"] == 3


def test_gradients_are_watched_and_marked_again_when_they_were_finite_in_between(traced, capsys):
    with traced() as recording:
        model = network()
        watch = debug_api.watch_nonfinite(model)
        assert repr(watch).startswith("<watch for non-finite values, on ")
        x = torch.randn(3, 4)
        for factor in (1.0, math.nan, math.nan, 1.0, math.inf):
            (model(x).sum() * factor).backward()
            debug_api.step()
        watch.stop()
        assert repr(watch) == "<watch for non-finite values, stopped>"
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert "model.3: gradient has 6 NaN and 0 infinities in 6 elements" in told[0]
    found = [(name, args["iteration"]) for name, args in marked(recording)]
    of_last = [iteration for name, iteration in found if name == "model.3:gradient"]
    assert of_last == [1, 4]
    assert ("model.0:gradient", 1) in found


def test_what_a_config_looks_at_is_watched_for_nothing(traced, tmp_path):
    config = statistics_of(["max"], ["output", "gradient", "activation"], freq=2)
    with traced() as recording, session(config, tmp_path):
        model = network()
        debug_api.attach(model)
        with torch.no_grad():
            model[0].bias[0] = math.nan
        model(torch.randn(3, 4))
        debug_api.step()
        model[0].bias.data[0] = math.inf
        model(torch.randn(3, 4))
        debug_api.step()
    warnings = [line for line in main_log(tmp_path) if "NaN" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("WARNING - model.0: output has 3 NaN and 0 infinities")
    names = [name for name, args in marked(recording) if args["iteration"] == 0]
    assert names == ["model.0:output", "model.1:activation", "model.1:output"] + [
        f"model.{layer}:{tensor}" for layer in (2, 3) for tensor in ("activation", "output")
    ]
    # Nothing is due in the other iteration.
    assert {args["iteration"] for _, args in marked(recording)} == {0}


@pytest.mark.parametrize("first", ["watch", "attach"])
def test_a_watch_stands_beside_a_config(first, traced, tmp_path):
    config = section(
        {
            "LogTensorStats": {"stats": ["l1_norm"], "tensors": ["activation"], "freq": 2},
            "FakeQuant": {"gemms": ["fprop"], "tensors": ["weight"], "quant_format": "E4M3"},
        },
        layer_types=["Linear"],
    )
    with traced() as recording, session(config, tmp_path) as values:
        model = network()
        kinds = [type(one) for one in model]
        if first == "watch":
            watch = debug_api.watch_nonfinite(model)
            handle = debug_api.attach(model)
        else:
            handle = debug_api.attach(model)
            watch = debug_api.watch_nonfinite(model)
        for _ in range(2):
            model(torch.randn(3, 4))
            debug_api.step()
        assert values.iterations("model.2_activation_l1_norm") == [0]
        if first == "watch":
            handle.detach()
        else:
            watch.stop()
            watch = debug_api.watch_nonfinite(model)
        model[1].bias.data[0] = math.nan
        model(torch.randn(3, 4))
        watch.stop()
        handle.detach()
        assert [type(one) for one in model] == kinds
    lines = [line for line in main_log(tmp_path) if "NaN" in line]
    assert len(lines) == 1
    assert "model.1: output has 3 NaN" in lines[0]
    assert "iteration 2, micro-batch 0" in lines[0]
    assert marked(recording)[0][0] == "model.1:output"


def test_a_watch_changes_no_bits_and_leaves_no_trace_of_itself():
    plain, model = network(), network()
    watch = debug_api.watch_nonfinite(model)
    x = torch.randn(3, 4)
    for one in (plain, model):
        one(x).square().sum().backward()
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    watch.stop()
    watch.stop()
    assert [type(one) for one in model] == [type(one) for one in plain]
    assert torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(TypeError):
        debug_api.watch_nonfinite([model])


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_compiled_code_is_watched_in_whole_graphs(capsys):
    torch._dynamo.reset()
    told = []
    for compiled in (False, True):
        MARKS.reset()
        model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))
        watch = debug_api.watch_nonfinite(model)
        run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        run(torch.ones(2, 4)).sum().backward()
        run(torch.tensor([[1.0, math.inf, 0.0, 0.0]])).sum().backward()
        watch.stop()
        told.append(capsys.readouterr().err)
    assert told[0] == told[1]
    assert "model.0: output has 4 NaN" in told[0]
    assert "its activation has such values, too, and its weight is finite" in told[0]


def test_counts_of_another_device_come_in_a_later_step(monkeypatch, capsys):
    """The way of a GPU, walked by tensors of the CPU."""
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    model = network()
    watch = debug_api.watch_nonfinite(model)
    model[2].bias.data[3] = -math.inf
    model(torch.randn(3, 4))
    debug_api.step()
    told = capsys.readouterr().err
    assert "model.2: output has 0 NaN and 3 infinities in 24 elements" in told
    assert "iteration 0, micro-batch 0" in told
    model[0].bias.data[0] = math.nan
    model(torch.randn(3, 4))
    watch.stop()
    assert capsys.readouterr().err == ""


def test_a_model_without_numbers_and_counts_that_do_not_come_end_nothing(monkeypatch, capsys):
    model = torch.nn.Linear(2, 2, device="meta")
    watch = debug_api.watch_nonfinite(model)
    model(torch.ones(1, 2, device="meta")).sum().backward()
    debug_api.step()
    assert capsys.readouterr().err == ""

    def lost(*_args, **_kwargs):
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(watch.elsewhere, "fetch", lost)
    debug_api.step()
    debug_api.step()
    assert capsys.readouterr().err.count("the device is gone") == 1
    monkeypatch.undo()
    watch.stop()
    assert type(model) is torch.nn.Linear
