"""What an attached network comes to under a feature and a recipe: fp64, without attaching anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from inspect_sessions import FMAX, emulated, exact_statistics, on_grid
from torch import Tensor, nn

GEMMS = {
    "fprop": ("activation", "weight"),
    "dgrad": ("gradient", "weight"),
    "wgrad": ("gradient", "activation"),
}


class ByHand:
    """A layer as the config describes it: fp64, without checkpoints, without the compiler."""

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
