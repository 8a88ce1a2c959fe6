"""What attached models cost: calls of layers that are not due, and memory that stays."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
import torch
from inspect_sessions import ALL, section, session, statistics_of
from torch import nn

import dftrace_ai.inspect as debug_api


def calls_of(function):
    """The functions that run, Python's and C's, in their order."""
    called = []

    def note(frame, event, argument):
        if event == "call":
            called.append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else "call")
        elif event == "c_call":
            called.append(argument.__name__)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    # That which ends it.
    return called[:-1]


def test_a_layer_that_is_not_due_runs_what_it_ran_before(tmp_path):
    x = torch.randn(3, 4)
    model = nn.ModuleList([nn.Linear(4, 4), nn.LayerNorm(4), nn.MultiheadAttention(4, 2)])
    runs = [lambda: model[0](x), lambda: model[1](x), lambda: model[2](x, x, x)]
    for run in runs:
        run()  # the first time may do more
    plain = [calls_of(run) for run in runs]
    with session(statistics_of(["min"], ["activation"], start_step=1), tmp_path):
        debug_api.attach(model)
        idle = [calls_of(run) for run in runs]
        debug_api.step()
        busy = [calls_of(run) for run in runs]

    def renamed(called):
        return ["Linear.forward" if name == "_forward_linear" else name for name in called]

    # Of a Linear not a single call more; of others one, the original forward.
    assert len(idle[0]) == len(plain[0])
    if sys.version_info >= (3, 11):
        assert renamed(idle[0]) == plain[0]
    for one, other in zip(idle[1:], plain[1:], strict=True):
        assert len(one) == len(other) + 1
    assert all(len(one) > len(other) + 3 for one, other in zip(busy, plain, strict=True))


def test_steps_look_only_at_layers_that_are_due(tmp_path):
    """The cost of a step does not grow with layers that have nothing to do."""
    counts = []
    for number in (2, 200):
        config = statistics_of(["min"], ["activation"], start_step=500)
        with session(config, tmp_path / str(number)):
            debug_api.attach(nn.ModuleList(nn.Linear(2, 2) for _ in range(number)))
            debug_api.step()
            counts.append(len(calls_of(debug_api.step)))
    assert counts[0] == counts[1]


def calls_of_a_session(folder, layers):
    sections = {
        f"s{number}": statistics_of(["max"], ["output"], start_step=5)["all"]
        | {"layers": {"layer_numbers": [number]}}
        for number in range(layers)
    }
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(layers)))
    counts = {"initialize": len(calls_of(lambda: debug_api.initialize(sections, log_dir=folder)))}
    counts["attach"] = len(calls_of(lambda: debug_api.attach(model)))
    counts["first step"] = len(calls_of(debug_api.step))
    counts["step"] = len(calls_of(debug_api.step))
    counts["end_debug"] = len(calls_of(debug_api.end_debug))
    return counts


def test_a_session_takes_no_more_than_its_share_for_each_layer(tmp_path):
    calls_of_a_session(tmp_path, 2)  # what is done once in a process
    few = calls_of_a_session(tmp_path, 25)
    many = calls_of_a_session(tmp_path, 400)
    for part in ("initialize", "first step", "end_debug"):
        assert many[part] <= 20 * few[part], part
    # Each layer is held against each section, which is one call of little cost.
    assert many["attach"] <= 20 * few["attach"] + 6 * 400 * 400
    assert many["step"] <= few["step"] + 10


# Memory


@pytest.mark.parametrize("fp8", [None, "delayed", "only watched"])
def test_nothing_of_a_step_outlives_it(fp8, tmp_path):
    config = section(
        {
            "LogTensorStats": {"stats": ["std"], "tensors": ALL},
            "LogFp8TensorStats": {"stats": ["underflows%"], "tensors": ["activation"]},
        }
    )
    gc.collect()
    gc.disable()
    try:
        with session(config, tmp_path):
            model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
            attention = nn.MultiheadAttention(4, 2)
            if fp8 == "only watched":
                watch = debug_api.watch_nonfinite(nn.ModuleList([model, attention]))
            else:
                debug_api.attach(nn.ModuleList([model, attention]), fp8=fp8)
            x = torch.randn(3, 2, 4)
            first = model[0](x)
            hidden = model[1](first)
            out = attention(hidden, hidden, model[2](hidden))[0]
            out.sum().backward()
            kept = [weakref.ref(one) for one in (x, first, hidden, out)]
            kept += [weakref.ref(one.untyped_storage()) for one in (x, first, hidden, out)]
            del x, first, hidden, out
            # Without the collector of cycles.
            assert [one() for one in kept] == [None] * len(kept)
            debug_api.step()
            if fp8 == "only watched":
                watch.stop()
    finally:
        gc.enable()


def test_a_thousand_steps_do_not_grow(tmp_path):
    config = section(
        {
            "LogTensorStats": {"stats": ["std"], "tensors": ALL, "freq": 3},
            "LogFp8TensorStats": {"stats": ["mse"], "tensors": ["activation"], "freq": 7},
        }
    )

    class Nothing:
        def log_scalar(self, name, value, iteration, **kwargs):
            pass

    debug_api.initialize(config, log_dir=tmp_path, statistics_logger=Nothing())
    try:
        model = nn.Linear(3, 2)
        debug_api.attach(model, fp8={"amax_history_len": 16})
        watch = debug_api.watch_nonfinite(model)
        x = torch.randn(2, 3, requires_grad=True)

        def run(count):
            for _ in range(count):
                model(x).sum().backward()
                debug_api.step()
            gc.collect()
            return len(gc.get_objects())

        run(60)
        before = run(21)
        after = run(1050)
        watch.stop()
    finally:
        debug_api.end_debug()
    assert after - before < 60


def test_a_model_without_users_goes_once_it_is_detached(tmp_path):
    with session(statistics_of(["std"], ALL), tmp_path):
        model = nn.Linear(4, 4)
        gone = weakref.ref(model)
        handle = debug_api.attach(model)
        model(torch.randn(2, 4)).sum().backward()
        handle.detach()
        del model, handle
        gc.collect()
        assert gone() is None
