"""Each feature on a GPU: in FP8 and outside of it, evaluated, compiled, captured, in half precision."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from inspect_sessions import ALL, SIX, Values, main_log, section, session
from torch import nn

import dftrace_ai.inspect as debug_api

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
    pytest.mark.filterwarnings("ignore:`torch.jit"),  # of torch's own compiler, by itself
]

GEMMS = ["fprop", "dgrad", "wgrad"]
OPERANDS = ["activation", "weight", "gradient"]
COUNTS = ["underflows%", "overflows%", "fp8_delayed_scaling_underflows%", "mse", "scale_inv_min"]
FEATURES: dict[str, dict[str, Any]] = {
    "LogTensorStats": {"stats": [*SIX, "cur_amax", "dynamic_range"], "tensors": ALL},
    "LogFp8TensorStats": {"stats": COUNTS, "tensors": OPERANDS},
    "DisableFp8Gemm": {"gemms": ["fprop"]},
    "DisableFp8Layer": {},
    "PerTensorScaling": {"gemms": GEMMS, "tensors": OPERANDS},
    "FakeQuant": {
        "gemms": GEMMS,
        "tensors_struct": [
            {"tensor": tensor, "quant_format": format_}
            for tensor, format_ in zip(OPERANDS, ("FP8E4M3", "MXFP8E4M3", "MXFP8E5M2"), strict=True)
        ],
    },
    "DumpTensors": {"tensors": ALL, "high_precision_tensor": True, "quantized_tensor": True},
}
CHANGES_OUTSIDE = {"FakeQuant"}
OBSERVES = ("LogTensorStats", "LogFp8TensorStats")
WIDTH, ROWS, STEPS = 32, 16, 3

Run = Callable[..., Any]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH)).cuda()


def inputs() -> list[torch.Tensor]:
    return [
        torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(n)).cuda()
        for n in range(STEPS)
    ]


def learn(run: Run, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    y = run(x)
    y.square().mean().backward()
    return [y.detach(), *(one.grad for one in model.parameters() if one.grad is not None)]


def evaluate(mode: Callable[[], Any]) -> Callable[..., list[torch.Tensor]]:
    def evaluated(run: Run, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
        model.eval()
        try:
            with mode():
                return [run(x).detach()]
        finally:
            model.train()

    return evaluated


def disabled(run: Run, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    with debug_api.fp8_autocast(enabled=False):
        return learn(run, model, x)


def halves(run: Run, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
    model.zero_grad()
    with torch.autocast("cuda", torch.float16):
        loss = run(x).float().square().mean()
    scaler.scale(loss).backward()
    # A rate of nothing: what follows runs with the same weights.
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    scaler.step(optimizer)
    scaler.update()
    grads = [one.grad for one in model.parameters() if one.grad is not None]
    return [loss.detach(), *grads, torch.tensor(scaler.get_scale())]


WAYS = {
    "training": learn,
    "eval": evaluate(nullcontext),
    "no_grad": evaluate(torch.no_grad),
    "inference": evaluate(torch.inference_mode),
    "disabled": disabled,
    "halves": halves,
}


def come_to(run: Run, model: nn.Module, *, fp8: bool) -> dict[str, list[torch.Tensor]]:
    """What each way comes to outside of FP8, with a training step in FP8 before each."""
    found = {}
    for (way, go), x in zip(WAYS.items(), itertools.cycle(inputs()), strict=False):
        with debug_api.fp8_autocast() if fp8 else nullcontext():
            learn(run, model, x)
        found[way] = [one.clone() for one in go(run, model, x)]
        debug_api.step()
    return found


def differing(here: dict[str, list[Any]], there: dict[str, list[Any]]) -> list[str]:
    return [way for way in here if not all(map(torch.equal, here[way], there[way]))]


def no_complaint(folder: Path) -> None:
    assert not [one for one in main_log(folder) if one.startswith(("ERROR", "WARNING"))]


@pytest.mark.parametrize("feature", FEATURES)
def test_outside_of_fp8_every_forward_is_as_without(feature: str, tmp_path: Path) -> None:
    plain = network()
    expected = come_to(plain, plain, fp8=False)
    with session(section({feature: FEATURES[feature]}), tmp_path) as values:
        model = network()
        debug_api.attach(model)
        found = come_to(model, model, fp8=True)
    if feature not in CHANGES_OUTSIDE:
        assert not differing(found, expected)
    assert all(one.isfinite().all() for way in found.values() for one in way)
    assert bool(values.names) == (feature in OBSERVES)
    no_complaint(tmp_path)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_a_model_is_observed_and_learns_the_same(backend: str, tmp_path: Path) -> None:
    def observed(compiled: bool, folder: Path) -> Values:
        torch._dynamo.reset()
        model = network()
        with session(section({name: FEATURES[name] for name in OBSERVES}), folder) as values:
            debug_api.attach(model)
            run = torch.compile(model, backend=backend) if compiled else model
            for x in inputs():
                with debug_api.fp8_autocast():
                    learn(run, model, x)
                learn(run, model, x)
                debug_api.step()
                WAYS["no_grad"](run, model, x)
        no_complaint(folder)
        return values

    eager, compiled = observed(False, tmp_path / "eager"), observed(True, tmp_path / "compiled")
    assert compiled.found.keys() == eager.found.keys()
    for (name, step), numbers in eager.found.items():
        if "fp8" in name or "flows" in name or "mse" in name:
            continue  # a sum in another order may round to another 8-bit number
        assert compiled.found[name, step] == pytest.approx(numbers, rel=1e-2, abs=1e-3), name


@pytest.mark.parametrize("feature", FEATURES)
def test_a_captured_training_replays_as_without(feature: str, tmp_path: Path) -> None:
    """While it is captured nothing is observed; what changes numbers belongs to the graph."""

    def replayed(model: nn.Module) -> list[torch.Tensor]:
        held = torch.zeros(ROWS, WIDTH, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                learn(model, model, held)
                debug_api.step()
        torch.cuda.current_stream().wait_stream(side)
        model.zero_grad()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(held)
            y.square().mean().backward()
        found = []
        for x in inputs():
            for one in model.parameters():
                assert one.grad is not None
                one.grad.zero_()
            held.copy_(x)
            graph.replay()
            debug_api.step()
            found += [y.clone(), *(one.grad.clone() for one in model.parameters())]
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells that a graph was made of gradients
        expected = replayed(network())
        with session(section({feature: FEATURES[feature]}), tmp_path):
            model = network()
            debug_api.attach(model)
            found = replayed(model)
            if feature in CHANGES_OUTSIDE:
                assert all(one.isfinite().all() for one in found)
            else:
                assert all(map(torch.equal, found, expected))
            # Behind it all goes on.
            learn(model, model, inputs()[0])
            debug_api.step()
