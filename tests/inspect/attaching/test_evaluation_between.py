"""An evaluation before or within a training leaves the training as it would be without it."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from inspect_sessions import Delayed, session
from torch import nn

import dftrace_ai.inspect as debug_api

STEPS = 4


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


@contextmanager
def not_training(model, mode):
    """The ways in which people evaluate."""
    model.train(mode in ("train, no_grad", "train, inference_mode"))
    try:
        with torch.inference_mode() if "inference" in mode else torch.no_grad():
            yield
    finally:
        model.train()


def trained(folder, evaluate=lambda model, run, when: None, compiled=False):
    """The weights after some steps, and the losses of the steps."""
    with session("", folder):
        model = network()
        debug_api.attach(model, fp8={"name": "delayed"})
        run = torch.compile(model, backend="aot_eager") if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        generator = torch.Generator().manual_seed(1)
        losses = []
        evaluate(model, run, "before")
        for step in range(STEPS):
            loss = run(torch.randn(5, 6, generator=generator)).square().mean()
            evaluate(model, run, f"within {step}")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            debug_api.step()
            evaluate(model, run, f"after {step}")
            losses.append(loss.detach())
        return [*losses, *(one.detach() for one in model.parameters())]


@pytest.mark.parametrize("when", ["before", "before, a step", "within 1", "after 2", "everywhere"])
@pytest.mark.parametrize(
    "mode", ["eval, no_grad", "eval, inference_mode", "train, no_grad", "train, inference_mode"]
)
def test_an_evaluation_leaves_no_trace_in_delayed_scaling(mode, when, tmp_path):
    def evaluate(model, run, now):
        if when in ("everywhere", now) or (when == "before, a step" and now == "before"):
            with not_training(model, mode):
                run(torch.full((2, 6), 1e3))
            if when == "before, a step":
                debug_api.step()

    for one, other in zip(trained(tmp_path, evaluate), trained(tmp_path), strict=True):
        assert torch.equal(one, other)


def test_an_evaluation_runs_under_the_scale_of_the_training(tmp_path):
    by_hand = Delayed()
    x = torch.linspace(-3, 3, 10).reshape(2, 5)
    with session("", tmp_path):
        model = nn.Linear(5, 4)
        debug_api.attach(model, fp8=True)
        model(x).sum().backward()
        by_hand.step(activation=[x], weight=[model.weight], gradient=[torch.ones(2, 4)])
        debug_api.step()
        for _ in range(2):
            with torch.no_grad():
                y = model(x * 100)
            operands = {"activation": x * 100, "weight": model.weight.detach()}
            changed = [by_hand.change("fprop", *one) for one in operands.items()]
            assert torch.equal(y, nn.functional.linear(*changed, model.bias))
            debug_api.step()


def test_a_fine_tuning_in_eval_mode_trains(tmp_path):
    by_hand = Delayed()
    x, ones = torch.linspace(-3, 3, 10).reshape(2, 5), torch.ones(2, 4)
    with session("", tmp_path):
        model = nn.Linear(5, 4).eval()
        debug_api.attach(model, fp8=True)
        for _ in range(3):
            given = x.clone().requires_grad_()
            model(given).sum().backward()
            weight = by_hand.change("dgrad", "weight", model.weight)
            assert torch.equal(given.grad, by_hand.change("dgrad", "gradient", ones).mm(weight))
            by_hand.step(activation=[x], weight=[model.weight], gradient=[ones])
            debug_api.step()


def test_an_evaluation_is_no_micro_batch(traced, tmp_path):
    with traced() as recording, session("", tmp_path):
        model = network()
        watch = debug_api.watch_nonfinite(model)
        for value in (1.0, float("inf")):
            model.eval()
            with torch.no_grad():
                model(torch.ones(2, 6))
            model.train()
            model(torch.full((2, 6), value))
        watch.stop()
    marks = [one for one in recording.trace.events if one.cat == "nonfinite"]
    assert {one.args["micro_batch"] for one in marks} == {1}
    assert marks[0].name == "model.0:output"
