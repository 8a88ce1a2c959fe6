"""Statistics of formats in blocks, as a training logs them: here, and where records come late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from inspect_sessions import Values, section, session
from late_rings import through_rings
from torch import Tensor, nn

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.numerics.blocks import Blocks, block_range, blocks_of
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.fp8 import quantisation_record, row_in_blocks, scale_of
from dftrace_ai.inspect.numerics.record import Record, merge_all, record_of
from dftrace_ai.inspect.numerics.statistics import BlockRange

RANGE = "max_blockwise_dynamic_range"
OF_FP8 = [
    *("mxfp8_underflows%", "mxfp8_mse", "mxfp8_mse_columnwise", "mxfp8_scale_inv_min_columnwise"),
    *("fp8_block_scaling_mse", "fp8_block_scaling_scale_inv_max", "mxfp8_overflows%"),
    *("underflows%", "underflows%_columnwise", "fp8_current_scaling_mse_columnwise"),
]
CONFIG = section(
    {
        "LogTensorStats": {
            "stats": ["max", {RANGE: {"block_size": 4}}, "min", {RANGE: {"dims": 2}}],
            "tensors": ["activation", "weight", "gradient"],
        },
        "LogFp8TensorStats": {"stats": OF_FP8, "tensors": ["activation", "weight", "gradient"]},
        "LogNvfp4TensorStats": {
            "stats": ["underflows%", "mse"],
            "tensors": ["activation", "weight", "gradient"],
        },
    }
)
STEPS, MICRO_BATCHES = 2, 2


class Trained:
    """A layer, trained for two steps of two micro-batches, and what went through it."""

    def __init__(
        self, config: dict[str, Any], folder: Path, *, late: bool, **attached: Any
    ) -> None:
        torch.manual_seed(1)
        self.seen: dict[tuple[str, int], list[Tensor]] = {}
        model = nn.Linear(70, 40)
        with session(config, folder) as self.values:
            copies = through_rings(1) if late else None
            debug_api.attach(model, **attached)
            for step in range(STEPS):
                self.seen["weight", step] = [model.weight.detach().clone()]
                for _ in range(MICRO_BATCHES):
                    x = torch.randn(9, 70) * torch.logspace(-6, 2, 70)
                    y = model(x.requires_grad_())
                    gradient = torch.randn(9, 40) * torch.logspace(-4, 1, 40)
                    self.seen.setdefault(("activation", step), []).append(x.detach())
                    self.seen.setdefault(("gradient", step), []).append(gradient)
                    y.backward(gradient)
                with torch.no_grad():
                    model.weight -= 0.01 * model.weight.grad
                if copies is not None:
                    copies.now += 1
                debug_api.step()

    def lost(self, tensor: str, step: int, cut: Blocks) -> Record:
        return merge_all(
            record_of(row_in_blocks(one, cut).tolist()) for one in self.seen[tensor, step]
        )

    def range(self, tensor: str, step: int, stat: BlockRange) -> float:
        return max(float(block_range(one, stat)) for one in self.seen[tensor, step])


def check(values: Values, name: str, step: int, wanted: float) -> None:
    assert values[f"model_{name}", step] == pytest.approx(wanted, rel=1e-5), name


@pytest.mark.parametrize("late", [False, True])
def test_what_is_logged_is_that_of_all_micro_batches(tmp_path: Path, late: bool) -> None:
    found = Trained(CONFIG, tmp_path, late=late)
    values = found.values
    for step in range(STEPS):
        for tensor in ("activation", "weight", "gradient"):
            both_ways = tensor != "gradient"
            for stat in (BlockRange(4, 1, both_ways), BlockRange(32, 2, both_ways)):
                check(values, f"{tensor}_{stat}", step, found.range(tensor, step, stat))
            assert str(stat).endswith("_max_over_orientations") == both_ways
            seen = torch.cat(found.seen[tensor, step])
            check(values, f"{tensor}_max", step, float(seen.max()))
            for recipe in ("mxfp8", "fp8_block_scaling", "nvfp4"):
                lost = found.lost(tensor, step, blocks_of(recipe, tensor))
                check(values, f"{tensor}_{recipe}_mse", step, lost.square_error / lost.n_total)
            columns = found.lost(tensor, step, blocks_of("mxfp8", tensor, columnwise=True))
            share = columns.square_error / columns.n_total
            check(values, f"{tensor}_mxfp8_mse_columnwise", step, share)
            name = f"{tensor}_mxfp8_scale_inv_min_columnwise"
            check(values, name, step, 1 / columns.scale_max)
            lost = found.lost(tensor, step, blocks_of("nvfp4", tensor))
            assert lost.n_under > 0
            check(values, f"{tensor}_nvfp4_underflows%", step, 100 * lost.n_under / lost.n_total)
            lost = found.lost(tensor, step, blocks_of("fp8_block_scaling", tensor))
            check(values, f"{tensor}_fp8_block_scaling_scale_inv_max", step, 1 / lost.scale_min)
            assert values[f"model_{tensor}_mxfp8_overflows%", step] == 0
            # One scale is the same both ways.
            assert (
                values[f"model_{tensor}_underflows%", step]
                == values[f"model_{tensor}_underflows%_columnwise", step]
            )
            format_ = Format.E5M2 if tensor == "gradient" else Format.E4M3
            whole = merge_all(
                quantisation_record(one, format_, scale_of(float(one.abs().max()), format_))
                for one in found.seen[tensor, step]
            )
            name = f"{tensor}_fp8_current_scaling_mse_columnwise"
            check(values, name, step, whole.square_error / whole.n_total)


@pytest.mark.parametrize("late", [False, True])
def test_a_tensor_that_is_rounded_in_blocks_is_told_by_these(tmp_path: Path, late: bool) -> None:
    fake = {"gemms": ["fprop"], "tensors": ["activation"], "quant_format": "MXFP8E5M2"}
    stats = ["mse", "underflows%_columnwise"]
    config = section(
        {"FakeQuant": fake, "LogFp8TensorStats": {"stats": stats, "tensors": ["activation"]}}
    )
    found = Trained(config, tmp_path, late=late)
    for step in range(STEPS):
        lost = found.lost("activation", step, Blocks(Format.E5M2, 1, 32))
        check(found.values, "activation_mse", step, lost.square_error / lost.n_total)
        lost = found.lost("activation", step, Blocks(Format.E5M2, 32, 1))
        share = 100 * lost.n_under / lost.n_total
        check(found.values, "activation_underflows%_columnwise", step, share)


def test_a_tensor_of_zeros_and_numbers_that_are_none(tmp_path: Path) -> None:
    with session(CONFIG, tmp_path) as values:
        model = nn.Linear(32, 32)
        debug_api.attach(model)
        x = torch.zeros(2, 32)
        model(x)
        debug_api.step()
        assert values[f"model_activation_{BlockRange(4, 1, both_ways=True)}", 0] == 0
        assert values["model_activation_nvfp4_mse", 0] == 0
        x[0, 3] = torch.nan
        model(x)
        debug_api.step()
        for stat in (str(BlockRange(4, 1, both_ways=True)), "nvfp4_mse"):
            assert values[f"model_activation_{stat}", 1] != values[f"model_activation_{stat}", 1]
