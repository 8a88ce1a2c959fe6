"""What LogFp8TensorStats tells of attached layers, and in which format tensors are looked at."""

from __future__ import annotations

import pytest
import torch
from attached_models import HYBRID, emulated, on_grid, scale, section, session, statistics_of
from torch import nn

import dftrace_ai.inspect as debug_api

STATS = ["underflows%", "overflows%", "mse", "scale_inv_min", "scale_inv_max"]
FMAX = {"E4M3": 448.0, "E5M2": 57344.0}


def lost(tensors, format_, scales, prefix=""):
    """The statistics of a step, counted element by element."""
    count = sum(one.numel() for one in tensors)
    under = over = squares = 0.0
    for one, by in zip(tensors, scales, strict=True):
        scaled = (one.float() * by).double()
        under += int(((on_grid(scaled, format_) == 0) & (one != 0)).sum())
        over += int((scaled.abs() > FMAX[format_] * (1 + 2**-22)).sum())
        back = emulated(one, format_, by=by)
        squares += float((back.double() - one.double()).square().sum())
    values = [100 * under / count, 100 * over / count, squares / count]
    values += [1 / float(max(scales)), 1 / float(min(scales))]
    return {prefix + stat: value for stat, value in zip(STATS, values, strict=True)}


@pytest.mark.parametrize("recipe", [None, "current", "delayed"])
def test_what_is_lost_is_counted_by_the_scale_in_force(recipe, tmp_path):
    current, delayed = "fp8_current_scaling_", "fp8_delayed_scaling_"
    stats = [*STATS, *(current + stat for stat in STATS)]
    if recipe == "delayed":
        stats += [delayed + stat for stat in STATS]
    config = section({"LogFp8TensorStats": {"stats": stats, "tensors": list(HYBRID)}})
    generator = torch.Generator().manual_seed(2)
    with session(config, tmp_path) as values:
        torch.manual_seed(0)
        model = nn.Linear(16, 8, bias=False)
        debug_api.attach(model, fp8=recipe)
        before = dict.fromkeys(HYBRID, torch.tensor(1.0))
        for step in range(3):
            seen = {"activation": [], "weight": [model.weight.detach()], "gradient": []}
            for part in range(2):
                spread = torch.randn(32, 16, generator=generator).mul(4).exp()
                x = torch.randn(32, 16, generator=generator) * spread * 4.0 ** (step + part)
                g = torch.randn(32, 8, generator=generator) * spread[:, :8]
                model(x).backward(g)
                seen["activation"].append(x)
                seen["gradient"].append(g)
            debug_api.step()
            for name, tensors in seen.items():
                format_ = HYBRID[name]
                own = [scale(one.abs().max(), format_) for one in tensors]
                held = [before[name]] * len(tensors)
                expected = lost(tensors, format_, held if recipe == "delayed" else own)
                expected |= lost(tensors, format_, own, current)
                if recipe == "delayed":
                    expected |= lost(tensors, format_, held, delayed)
                for stat, value in expected.items():
                    found = values[f"model_{name}_{stat}", step]
                    assert found == pytest.approx(value, rel=2e-6), (name, stat, step)
                # The largest of all steps up to now.
                before[name] = min([*own, before[name]] if step else own)


@pytest.mark.parametrize("tensors", [["wgrad"], []], ids=["GEMM by GEMM", "looked at"])
@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_is_looked_at_as_the_gemm_gets_it_but_for_the_weight(compiled, tensors, tmp_path):
    torch._dynamo.reset()
    number = 1.001  # 1 in bfloat16
    config = statistics_of(["max"], ["activation", "weight", "output", "gradient", *tensors])
    with session(config, tmp_path) as values:
        model = nn.Linear(1, 1, bias=False)
        nn.init.constant_(model.weight, number)
        debug_api.attach(model)
        run = torch.compile(model, backend="aot_eager") if compiled else model
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = run(torch.full((2, 1), number))
        y.backward(torch.ones(2, 1, dtype=y.dtype))
        debug_api.step()
        found = {name.split("_")[1]: values[name, 0] for name in values.names}
    expected = {"activation": 1, "weight": pytest.approx(number, rel=1e-6), "output": 1}
    assert found == {**expected, "gradient": 1, **dict.fromkeys(tensors, 2)}
