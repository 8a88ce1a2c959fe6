"""Each feature and recipe, under each way to checkpoint and compile, comes to fp64 by hand."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from inspect_sessions import FMAX, Values, emulated, exact_statistics, on_grid, section
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import dftrace_ai.inspect as debug_api

STEPS, MICRO_BATCHES = 3, 2
ALL = ("activation", "weight", "output", "gradient", "dgrad", "wgrad")
STATS = ("min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range")
LOSSES = ("underflows%", "overflows%", "mse", "scale_inv_min", "scale_inv_max")

RECIPES: dict[str, dict[str, Any] | None] = {
    "off": None,
    "current": {"name": "current"},
    "current E4M3": {"name": "current", "fp8_format": "E4M3", "margin": 2},
    "current E5M2": {"name": "current", "fp8_format": "E5M2"},
    "delayed": {"name": "delayed"},
    "delayed E4M3": {"name": "delayed", "fp8_format": "E4M3", "amax_history_len": 2},
    "delayed E5M2": {
        "name": "delayed",
        "fp8_format": "E5M2",
        "amax_compute_algo": "most_recent",
        "margin": 1,
    },
    "delayed shared": {"name": "delayed", "reduce_amax": True},
    "block current": {"name": "current"},
    "block delayed": {"name": "delayed"},
}

FEATURES: dict[str, dict[str, Any]] = {
    "none": {},
    "LogTensorStats": {"LogTensorStats": {"stats": [*STATS], "tensors": [*ALL]}},
    "LogFp8TensorStats": {"LogFp8TensorStats": {"stats": [*LOSSES], "tensors": [*ALL]}},
    "LogFp8TensorStats current": {
        "LogFp8TensorStats": {
            "stats": [f"fp8_current_scaling_{stat}" for stat in LOSSES],
            "tensors": [*ALL],
        }
    },
    "LogFp8TensorStats delayed": {
        "LogFp8TensorStats": {
            "stats": [f"fp8_delayed_scaling_{stat}" for stat in LOSSES],
            "tensors": ["activation", "weight", "gradient"],
        }
    },
    "DisableFp8Gemm": {"DisableFp8Gemm": {"gemms": ["fprop", "wgrad"]}},
    "DisableFp8Layer": {"DisableFp8Layer": {}},
    "PerTensorScaling": {
        "PerTensorScaling": {
            "gemms": ["fprop", "dgrad"],
            "tensors": ["activation", "gradient"],
            "margin": 1,
        }
    },
    "FakeQuant": {
        "FakeQuant": {
            "gemms": ["dgrad", "wgrad"],
            "tensors": ["weight", "gradient", "activation"],
            "quant_format": "E5M2",
        }
    },
    "FakeQuant results": {
        "FakeQuant": {
            "gemms_struct": [
                {"gemm": "fprop", "tensors": ["output"]},
                {"gemm": "dgrad", "tensors": ["dgrad"]},
                {"gemm": "wgrad", "tensors": ["wgrad"]},
            ],
            "quant_format": "E4M3",
            "margin": 1,
        }
    },
    "Halved": {"Halved": {}},
    "Counted": {"Counted": {}},
    "WgradOff": {"WgradOff": {}},
    "watch": {},
}

WAYS = ("eager", "compiled", "compiled inside")
CHECKPOINTS = ("none", "reentrant", "not reentrant")


class Case(NamedTuple):
    """One cell of the matrix."""

    recipe: str
    feature: str
    checkpoint: str
    way: str

    @property
    def sensible(self) -> bool:
        if self.way == "compiled inside" and self.checkpoint == "none":
            return False
        if self.feature == "PerTensorScaling":
            return self.recipe != "off"
        if self.feature == "LogFp8TensorStats delayed":
            return "delayed" in self.recipe and "block" not in self.recipe
        return True

    def __str__(self) -> str:
        return ", ".join(self)


EVERY = [
    case
    for case in map(Case._make, itertools.product(RECIPES, FEATURES, CHECKPOINTS, WAYS))
    if case.sensible
]

# Where it was, or could have been, wrong: what a checkpoint computes again is all that has a
# backward, or the compiler decides which of the two has.
CORNERS = [
    Case("delayed", "LogFp8TensorStats delayed", "reentrant", "eager"),
    Case("block delayed", "LogTensorStats", "reentrant", "eager"),
    Case("delayed shared", "none", "reentrant", "eager"),
    Case("delayed", "LogFp8TensorStats current", "none", "eager"),
    Case("delayed", "PerTensorScaling", "none", "eager"),
    # A power of two in a scale changes a number that is not tiny in nothing: its inverse tells.
    Case("current E4M3", "LogFp8TensorStats", "none", "eager"),
    Case("delayed E5M2", "LogFp8TensorStats delayed", "none", "eager"),
    Case("delayed", "LogTensorStats", "not reentrant", "compiled"),
    Case("delayed E5M2", "FakeQuant", "not reentrant", "compiled inside"),
    Case("delayed", "LogFp8TensorStats", "reentrant", "compiled inside"),
]


# What it comes to by hand: fp64, without attaching anything, checkpoints or the compiler.


GEMMS = {
    "fprop": ("activation", "weight"),
    "dgrad": ("gradient", "weight"),
    "wgrad": ("gradient", "activation"),
}


class ByHand:
    """A layer as the config describes it."""

    def __init__(self, feature: str, recipe: dict[str, Any] | None) -> None:
        self.feature = feature
        self.keys = recipe
        self.histories: dict[str, list[float]] = {}
        self.scales: dict[str, Tensor] = {}
        self.seen: dict[str, list[tuple[Tensor, Tensor, str]]] = {}

    def format_of(self, tensor: str) -> str:
        given = (self.keys or {}).get("fp8_format", "HYBRID")
        backward = tensor in ("gradient", "dgrad", "wgrad")
        return given if given != "HYBRID" else "E5M2" if backward else "E4M3"

    def delayed(self) -> bool:
        return self.keys is not None and self.keys["name"] == "delayed"

    def current(self, tensor: Tensor, format_: str, margin: int) -> Tensor:
        amax = float(tensor.abs().max())
        if not amax:
            return torch.tensor(1.0)
        # fmax / amax in fp64, rounded to fp32 once.
        return torch.tensor(FMAX[format_] / amax, dtype=torch.float32) / 2.0**margin

    def scale(self, name: str, tensor: Tensor) -> Tensor:
        """Of the recipe."""
        if self.delayed():
            return self.scales.get(name, torch.tensor(1.0))
        margin = (self.keys or {}).get("margin", 0)
        return self.current(tensor, self.format_of(name), margin)

    def off(self, gemm: str) -> bool:
        return {
            "DisableFp8Gemm": gemm in ("fprop", "wgrad"),
            "DisableFp8Layer": True,
            "FakeQuant": gemm in ("dgrad", "wgrad"),
            "FakeQuant results": True,
            "WgradOff": gemm == "wgrad",
        }.get(self.feature, False)

    def treatment(self, gemm: str, name: str, tensor: Tensor) -> tuple[str, Tensor] | None:
        """Format and scale, None where the tensor stays as it is."""
        if self.feature == "PerTensorScaling" and name in ("activation", "gradient"):
            if gemm in ("fprop", "dgrad"):
                format_ = self.format_of(name)
                return format_, self.current(tensor, format_, 1)
        if self.feature == "FakeQuant" and gemm in ("dgrad", "wgrad") and name in GEMMS[gemm]:
            return "E5M2", self.current(tensor, "E5M2", 0)
        if self.feature == "FakeQuant results" and name in ("output", "dgrad", "wgrad"):
            return "E4M3", self.current(tensor, "E4M3", 1)
        if self.keys is None or self.off(gemm) or name not in GEMMS[gemm]:
            return None
        return self.format_of(name), self.scale(name, tensor)

    def change(self, gemm: str, name: str, tensor: Tensor) -> Tensor:
        if self.feature == "Halved" and (gemm, name) == ("dgrad", "gradient"):
            return tensor / 2
        found = self.treatment(gemm, name, tensor)
        return tensor if found is None else emulated(tensor, found[0], by=found[1])

    def see(self, name: str, tensor: Tensor) -> None:
        """Keep a tensor as it is, with the scale in force for it, or that would be."""
        seen = self.seen.setdefault(name, [])
        if name == "weight" and seen:
            return
        found = next(
            (
                one
                for gemm in GEMMS
                if (one := self.treatment(gemm, name, tensor)) is not None
                and not (self.feature == "Halved" and (gemm, name) == ("dgrad", "gradient"))
            ),
            None,
        )
        if found is None or self.feature == "LogFp8TensorStats current":
            format_ = self.format_of(name)
            found = format_, self.current(tensor, format_, 0)
        seen.append((tensor.detach().clone(), found[1], found[0]))

    def step(self) -> dict[str, list[tuple[Tensor, Tensor, str]]]:
        """Go on to the next step; return what was seen in this one."""
        seen, self.seen = self.seen, {}
        keys = self.keys or {}
        for name in ("activation", "weight", "gradient") if self.delayed() else ():
            history = self.histories.setdefault(name, [])
            history.append(max(float(one.abs().max()) for one, *_ in seen[name]))
            del history[: -keys.get("amax_history_len", 1024)]
            recent = keys.get("amax_compute_algo") == "most_recent"
            amax = history[-1] if recent else float(torch.tensor(max(history)))
            if amax:
                scale = torch.tensor(FMAX[self.format_of(name)] / amax, dtype=torch.float32)
                self.scales[name] = scale / 2.0 ** keys.get("margin", 0)
        return seen


class _Gemms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, hand: ByHand) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.hand, ctx.biased = hand, b is not None
        hand.see("activation", x)
        hand.see("weight", w)
        y = hand.change("fprop", "activation", x) @ hand.change("fprop", "weight", w).T
        y = y if b is None else y + b
        hand.see("output", y)
        return hand.change("fprop", "output", y)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x, w), hand, (g,) = ctx.saved_tensors, ctx.hand, gradients
        hand.see("gradient", g)
        dx = hand.change("dgrad", "gradient", g) @ hand.change("dgrad", "weight", w)
        hand.see("dgrad", dx)
        dw = hand.change("wgrad", "gradient", g).T @ hand.change("wgrad", "activation", x)
        hand.see("wgrad", dw)
        dx, dw = hand.change("dgrad", "dgrad", dx), hand.change("wgrad", "wgrad", dw)
        return dx, dw, g.sum(0) if ctx.biased else None, None


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 4, bias=False)
    ).double()


def through_by_hand(model: nn.Sequential, hands: list[ByHand]) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        apply: Any = _Gemms.apply
        y = apply(x, model[0].weight, model[0].bias, hands[0])
        return apply(model[2](model[1](y)), model[3].weight, None, hands[1])

    return run


def statistics(seen: list[tuple[Tensor, Tensor, str]], stats: list[str]) -> dict[str, float]:
    """By definition, of all the parts together."""
    whole = torch.cat([one.flatten() for one, *_ in seen])
    count = len(whole)
    under = over = error = 0.0
    inverse = []
    for one, scale, format_ in seen:
        back = on_grid((one.float() * scale).double(), format_) * float(1.0 / scale)
        under += float(((one != 0) & (back == 0)).sum())
        over += float((one.abs() * float(scale) > FMAX[format_] * (1 + 1e-6)).sum())
        error += float((one - back).square().sum())
        inverse.append(1.0 / float(scale))
    found = {
        **exact_statistics(whole),
        "underflows%": 100 * under / count,
        "overflows%": 100 * over / count,
        "mse": error / count,
        "scale_inv_min": min(inverse),
        "scale_inv_max": max(inverse),
    }
    return {stat: float(found[re.sub("fp8_.*_scaling_", "", stat)]) for stat in stats}


# Features of a user's.


class Halved:
    """Halves the gradients that go into a GEMM."""

    def modify_tensor_enabled(self, config, layer_name, gemm, tensor_name, iteration):
        return (gemm, tensor_name) == ("dgrad", "gradient")

    def modify_tensor(self, config, layer_name, gemm, tensor_name, tensor, iteration, **kw):
        return tensor / 2


class Counted:
    """Counts what it is shown."""

    counts: dict[tuple[str, str, int], int] = {}

    def inspect_tensor_enabled(self, config, layer_name, tensor_name, iteration):
        return True

    def inspect_tensor(self, config, layer_name, tensor_name, tensor, iteration, **kw):
        key = layer_name, tensor_name, iteration
        self.counts[key] = self.counts.get(key, 0) + 1


class WgradOff:
    """Takes a GEMM out of FP8."""

    def fp8_gemm_enabled(self, config, layer_name, gemm, iteration):
        return gemm != "wgrad"


def batches() -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(9)
    for index in range(STEPS * MICRO_BATCHES):
        x = torch.randn(5, 6, generator=generator, dtype=torch.float64)
        yield x * 2.0 ** (index % 3)


def trained(
    model: nn.Module,
    run: Callable[[Tensor], Tensor],
    block: Callable[[], Any],
    between: Callable[[], None],
    step: Callable[[], None],
) -> list[Tensor]:
    """Outputs and gradients; the loss is so small that FP8 needs the scale of the gradients."""
    found: list[Tensor] = []
    for index, x in enumerate(batches()):
        if index % MICRO_BATCHES == 0:
            model.zero_grad(set_to_none=True)
        x.requires_grad_()
        with block():
            y = run(x)
        between()
        (y.square().sum() * 1e-6).backward()
        found += [y.detach(), x.grad.clone()]
        if index % MICRO_BATCHES == MICRO_BATCHES - 1:
            found += [one.grad.clone() for one in model.parameters()]
            step()
    return found


def way_through(case: Case, model: nn.Module) -> Callable[[Tensor], Tensor]:
    again = {"use_reentrant": case.checkpoint == "reentrant"}
    if case.way == "compiled inside":
        inside = torch.compile(model, backend="aot_eager")
        return lambda x: checkpoint(inside, x, **again)
    if case.checkpoint == "none":
        run: Callable[[Tensor], Tensor] = model
    else:
        run = lambda x: checkpoint(model, x, **again)  # noqa: E731
    return torch.compile(run, backend="aot_eager") if case.way == "compiled" else run


def hold_against_fp64(case: Case, folder: Path) -> None:
    """Train in both ways; all outputs, gradients and statistics have to be the same.

    Between a forward and its backward there is an evaluation of tensors a thousand times as large,
    which must leave no trace.
    """
    hands = [ByHand(case.feature, RECIPES[case.recipe]) for _ in range(2)]
    plain = network()
    expected_values: dict[tuple[str, int], float] = {}
    asked = next((one for name, one in FEATURES[case.feature].items() if "Log" in name), None)

    def step_by_hand() -> None:
        number = step_by_hand.number  # type: ignore[attr-defined]
        step_by_hand.number += 1  # type: ignore[attr-defined]
        for layer, hand in zip(("model.0", "model.3"), hands, strict=True):
            seen = hand.step()
            for tensor in asked["tensors"] if asked else ():
                for stat, value in statistics(seen[tensor], asked["stats"]).items():
                    expected_values[f"{layer}_{tensor}_{stat}", number] = value

    step_by_hand.number = 0  # type: ignore[attr-defined]
    expected = trained(
        plain, through_by_hand(plain, hands), nullcontext, lambda: None, step_by_hand
    )

    custom = {"Halved": Halved, "Counted": Counted, "WgradOff": WgradOff}.get(case.feature)
    if custom is not None:
        debug_api.register_feature(case.feature)(custom)
    Counted.counts.clear()
    config = section(FEATURES[case.feature], layer_types=["model.0", "model.3"])
    values = Values()
    debug_api.initialize(config, log_dir=folder, statistics_logger=values)
    try:
        model = network()
        in_block = case.recipe.startswith("block")
        debug_api.attach(model, fp8=None if in_block else RECIPES[case.recipe])
        watch = debug_api.watch_nonfinite(model) if case.feature == "watch" else None
        run = way_through(case, model)

        def block() -> Any:
            return (
                debug_api.fp8_autocast(recipe=RECIPES[case.recipe]) if in_block else nullcontext()
            )

        def evaluation() -> None:
            model.eval()
            with torch.no_grad():
                model(torch.full((3, 6), 1e3, dtype=torch.float64))
            model.train()

        # A block whose feature needs it is also that of the evaluation.
        def between() -> None:
            with block() if case.feature == "PerTensorScaling" else nullcontext():
                evaluation()

        found = trained(model, run, block, between, debug_api.step)
        if watch is not None:
            watch.stop()
    finally:
        debug_api.end_debug()
        torch._dynamo.reset()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-18)
    logged = {key: value for key, (value,) in values.found.items() if "LayerNorm" not in key[0]}
    assert set(logged) == set(expected_values)
    for key, value in expected_values.items():
        # The mean of a gradient that goes into a norm is 0, but for what rounding leaves of it.
        name, step = key
        mean = name.endswith("_mean")
        near = 1e-6 * expected_values[name.removesuffix("mean") + "std", step] if mean else 1e-30
        assert logged[key] == pytest.approx(value, rel=2e-6, abs=near), key
    if case.feature == "Counted":
        assert set(Counted.counts.values()) == {MICRO_BATCHES}
        assert len(Counted.counts) == 2 * len(ALL) * STEPS
    assert all(math.isfinite(value) for value in logged.values())


def marked(case: Case) -> object:
    return pytest.param(*case, id=str(case), marks=[pytest.mark.always] if case in CORNERS else [])


def through(*ways: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        Case._fields, [marked(case) for case in EVERY if case.way in ways]
    )


@pytest.mark.sampled(0.06)
@through("eager")
def test_a_training_comes_to_the_same_as_in_fp64_by_hand(
    recipe, feature, checkpoint, way, tmp_path
):
    hold_against_fp64(Case(recipe, feature, checkpoint, way), tmp_path)


@pytest.mark.sampled(0.02)
@through("compiled", "compiled inside")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_a_compiled_training_comes_to_the_same_as_in_fp64_by_hand(
    recipe, feature, checkpoint, way, tmp_path
):
    hold_against_fp64(Case(recipe, feature, checkpoint, way), tmp_path)
