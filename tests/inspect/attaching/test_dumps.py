"""DumpTensors: files with tensors as they were seen and as FP8 made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from inspect_sessions import emulated, main_log, section, session
from torch import nn

import dftrace_ai.inspect as debug_api
from dftrace_ai.inspect.errors import InspectAssertionError
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.fp8 import fake_quantise_in_blocks

BOTH = {"high_precision_tensor": True, "quantized_tensor": True}
GEMMS = ["fprop", "dgrad", "wgrad"]


def dumped(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """By name without its end what each file holds; a reader trusts none of it."""
    found = (folder / "tensor_dumps" / "rank_0").glob("*")
    return {path.stem: torch.load(path) for path in sorted(found)}


def numbers(kept: dict[str, torch.Tensor]) -> torch.Tensor:
    """What the GEMM had."""
    whole, scale_inv = kept["quantized"].float(), kept["scale_inv"]
    if scale_inv.dim():  # blocks of 32 in each row
        scale_inv = scale_inv.repeat_interleave(32, -1)[..., : whole.shape[-1]]
    return whole * scale_inv


def test_files_hold_what_was_seen_and_what_fp8_made_of_it(tmp_path: Path) -> None:
    x = torch.randn(8, 48, requires_grad=True)
    config = section({"DumpTensors": {**BOTH, "tensors": ["activation", "weight", "gradient"]}})
    with session(config, tmp_path):
        model = nn.Linear(48, 40)
        debug_api.attach(model, fp8="current")
        y = model(x[:, :])
        y.backward(torch.ones(8, 40) / 3)
    found = dumped(tmp_path)
    assert found.keys() == {
        f"model_{name}_iter_000000" for name in ("activation", "weight", "gradient")
    }
    formats = {"activation": "E4M3", "weight": "E4M3", "gradient": "E5M2"}
    seen = {"activation": x, "weight": model.weight, "gradient": torch.ones(8, 40) / 3}
    for name, format_ in formats.items():
        kept = found[f"model_{name}_iter_000000"]
        assert torch.equal(kept["high_precision"], seen[name])
        assert torch.equal(numbers(kept), emulated(seen[name], format_))
        kind = torch.float8_e4m3fn if format_ == "E4M3" else torch.float8_e5m2
        assert kept["quantized"].dtype == kind
    assert torch.equal(
        y,
        nn.functional.linear(
            *map(
                numbers, (found["model_activation_iter_000000"], found["model_weight_iter_000000"])
            ),
            model.bias,
        ),
    )


def test_blocks_of_mxfp8_come_with_the_power_of_each(tmp_path: Path) -> None:
    fake = {"gemms": ["fprop"], "tensors": ["activation"], "quant_format": "MXFP8E4M3"}
    config = section({"FakeQuant": fake, "DumpTensors": {"tensors": "activation", **BOTH}})
    x = torch.randn(3, 5, 70) * torch.logspace(-5, 5, 70)
    with session(config, tmp_path):
        model = nn.Linear(70, 4)
        debug_api.attach(model)
        model(x)
    (kept,) = dumped(tmp_path).values()
    assert kept["scale_inv"].shape == (3, 5, 3)
    assert torch.equal(numbers(kept), fake_quantise_in_blocks(x, Format.E4M3))


def test_what_is_due_is_written_each_time_under_a_name_of_its_own(tmp_path: Path) -> None:
    """By the schedule of each tensor; micro-batches and layers of like names apart; only what is asked."""
    items = [
        {"tensor": "activation", "freq": 2, "high_precision_tensor": True},
        {"tensor": "output", "start_step": 2, "end_step": 2},
    ]
    config = section({"DumpTensors": {"tensors_struct": items, "high_precision_tensor": True}})
    model = nn.ModuleDict({"a_b": nn.Linear(2, 2), "a": nn.ModuleDict({"b": nn.Linear(2, 2)})})
    given: dict[str, torch.Tensor] = {}
    with session(config, tmp_path):
        debug_api.attach(model)
        for step in range(3):
            for micro in range(2):
                for layer in (model["a_b"], model["a"]["b"]):  # type: ignore[index]
                    x = torch.full((3, 2), float(len(given)))
                    given[f"{step}.{micro}.{layer is model['a_b']}"] = x
                    layer(x)
            debug_api.step()
    found = dumped(tmp_path)
    suffixes = ["000000", "000000_micro_2", "000002", "000002_micro_2"]
    assert {name for name in found if "activation" in name} == {
        f"model_a_b_activation{other}_iter_{one}" for other in ("", "~2") for one in suffixes
    }
    assert {name for name in found if "output" in name} == {
        f"model_a_b_output{other}_iter_{one}" for other in ("", "~2") for one in suffixes[2:]
    }
    for place, suffix in enumerate(suffixes):
        first = found[f"model_a_b_activation_iter_{suffix}"]
        assert first.keys() == {"high_precision"}
        step, micro = (place // 2) * 2, place % 2
        assert torch.equal(first["high_precision"], given[f"{step}.{micro}.True"])


def test_a_view_brings_itself_alone_and_what_cannot_be_written_ends_no_training(
    tmp_path: Path,
) -> None:
    config = section({"DumpTensors": {"tensors": ["activation", "output"], **BOTH}})
    x = torch.randn(1000, 8)
    with session(config, tmp_path):
        model = nn.Linear(8, 8)
        debug_api.attach(model)
        model(x[:2])
        (path,) = (tmp_path / "tensor_dumps" / "rank_0").glob("*activation*")
        assert path.stat().st_size < 4000
        path.parent.rename(tmp_path / "gone")
        path.parent.touch()
        assert model(x[:2]).shape == (2, 8)
        model(x[:2])
    errors = [line for line in main_log(tmp_path) if line.startswith("ERROR")]
    assert len(errors) == 1
    assert "File exists" in errors[0]
    idle = [
        line for line in main_log(tmp_path) if "is told once" in line and "has no FP8 of" in line
    ]
    assert len(idle) == 2


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"tensors": "weight"}, "nothing is written of weight"),
        ({"tensors": "weight", **BOTH, "end_step": 3, "start_step": 5}, "never written"),
        ({"tensors": [], **BOTH}, "tensors is empty"),
    ],
)
def test_what_would_write_nothing_is_told(
    keys: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with session(section({"DumpTensors": keys}), tmp_path):
        model = nn.Linear(2, 2)
        debug_api.attach(model)
        model(torch.ones(1, 2))
    assert words in " ".join(main_log(tmp_path))
    assert not dumped(tmp_path)


def test_wrong_keys_are_refused(tmp_path: Path) -> None:
    for keys in (BOTH, {"tensors": "weight", "quantized_tensor": "yes"}, {"tensors": "x", **BOTH}):
        with (
            pytest.raises((ValueError, InspectAssertionError)),
            session(section({"DumpTensors": keys}), tmp_path),
        ):
            pass
