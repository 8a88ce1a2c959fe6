"""`dftrace inspect check` and `dftrace inspect features`: what they print, how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from inspect_configs import EXAMPLES, LOG, one_section
from printed_json import checked
from safety.commands import invoke

from dftrace_ai.inspect.config.features import forget_custom_features

MODEL = """
import torch

print("made by the module")


def make():
    print("made by the function")
    return torch.nn.ModuleDict(
        {
            "fc1": torch.nn.Linear(2, 2),
            "layernorm_qkv": torch.nn.LayerNorm(2),
            "fc2": torch.nn.Linear(2, 2),
            "head": torch.nn.Linear(2, 2),
        }
    )


class Inner:
    make = staticmethod(make)


def number():
    return 3


def fails():
    raise RuntimeError("no\\nGPU \\x1b[2J")
"""


def run(*arguments: object) -> tuple[int, str, str]:
    done = invoke("inspect", *arguments)
    return done.status, done.out, done.err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that makes models; forgotten afterwards, with what it registered."""
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("made_model.py").write_text(MODEL)
    yield "made_model"
    sys.modules.pop("made_model", None)
    forget_custom_features()


def written(config: Any) -> str:
    text = config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False)
    Path("inspect.yaml").write_text(text)
    return "inspect.yaml"


def test_a_good_config_is_explained(folder: Path) -> None:
    status, out, err = run("check", written(EXAMPLES["two sections"]))
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "fprop_in_high_precision",
        "  layers with 'fc1' or 'fc2' in the name, else as the class",
        "  fprop: high precision",
        "",
        "activations",
        "  layers with 'layernorm_linear' in the name, else as the class",
        "  LogTensorStats activation: max, min, mean, std, l1_norm",
        "    every iteration, from 2 to 5: 2, 3, 4, 5",
        "",
        "inspect.yaml: no problems",
    ]


def test_the_iterations_are_told(folder: Path) -> None:
    config = one_section(
        {"layer_name_regex_pattern": "^a"},
        base={"tensors": "x", "stats": "mean", "freq": 3},
        LogTensorStats={
            "stats": "mean",
            "tensors_struct": [
                {"tensor": "weight", "freq": 10, "start_end_list": [[5, 31], [80, -1]]},
                {"tensor": "gradient", "start_step": 7, "end_step": 6},
            ],
        },
    )
    status, out, _ = run("check", written(config), "--iterations", 100)
    assert status == 0
    assert "  LogTensorStats weight: mean\n" in out
    expected = "multiples of 10, from 5 to 30 and from 80 on: 10, 20, 30, 80, 90 (5 of 100)\n"
    assert expected in out
    assert "never: none (0 of 100)\n" in out
    assert "  log_tensor_stats x: mean\n    multiples of 3: 0, 3, 6, 9, 12, ... (34 of 100)" in out
    assert "warning: one.transformer_engine.LogTensorStats: gradient is never logged" in out
    assert out.endswith("inspect.yaml: 1 warning\n")


def test_gemms_are_told(folder: Path) -> None:
    config = one_section(
        FakeQuant={"gemms": "fprop", "tensors": ["weight", "output"], "quant_format": "E4M3"},
        PerTensorScaling={"gemms": "wgrad", "tensors": "gradient", "margin": 2},
    )
    _, out, _ = run("check", written(config))
    assert (
        "  fprop: high precision; weight by FakeQuant to E4M3; output by FakeQuant to E4M3" in out
    )
    assert "  wgrad: FP8; gradient by PerTensorScaling, margin 2" in out
    assert "dgrad" not in out


def test_all_problems_are_shown_and_the_status_is_one(folder: Path) -> None:
    config = {
        "good": one_section(LogTensorStats=LOG)["one"],
        "bad": {"enabled": True, "layers": {"layer_number": 1}, "torch": {"FakeQant": {}}},
        "worse": {"layers": {}},
        "off": {"enabled": False},
    }
    status, out, _ = run("check", written(config))
    assert status == 1
    lines = out.splitlines()
    assert lines[0] == "good"
    assert "not enabled: off" in lines
    errors = [line for line in lines if line.startswith("error: ")]
    assert [line.split(": ")[1] for line in errors] == [
        "bad.layers.layer_number",
        "bad.torch.FakeQant",
        "worse.enabled",
        "worse.layers",
    ]
    assert lines[-1] == "inspect.yaml: 4 errors"


def test_the_same_as_json(folder: Path) -> None:
    config = one_section(LogTensorStats=LOG, FakeQuan={})
    config["two"] = one_section(LogTensorStats=LOG)["one"]
    status, out, _ = run("check", written(config), "--json", "--iterations", 7)
    found = checked(out, "inspect-check")
    assert status == 1
    (problem,) = found["problems"]
    assert (problem["severity"], problem["error"]) == ("error", "AssertionError")
    assert problem["where"] == "one.transformer_engine.FakeQuan"
    (section,) = found["sections"]
    assert section["selected"] is None
    assert section["statistics"] == [
        {
            "feature": "LogTensorStats",
            "tensor": "activation",
            "stats": ["mean"],
            "due": {
                "rule": "every iteration",
                "first": [0, 1, 2, 3, 4],
                "more": True,
                "count": 7,
                "steps": 7,
            },
        }
    ]


def test_what_is_no_yaml_is_a_problem(folder: Path) -> None:
    status, out, _ = run("check", written("a: [1\nb: 2\n"))
    assert status == 1
    assert out.splitlines()[0].startswith("error: inspect.yaml: line 2, column 2: not YAML")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.yaml"], "missing.yaml: there is no such file"),
        (["."], "is a directory"),
        ([], "CONFIG"),
        (["inspect.yaml", "--iterations", "0"], "--iterations"),
        (["inspect.yaml", "--model", "nocolon"], "module:function"),
        (["inspect.yaml", "--model", ":x"], "module:function"),
        (["inspect.yaml", "--model", "no_such_module_here:x"], "ModuleNotFoundError"),
        (["inspect.yaml", "--model", "made_model:nothing"], "AttributeError"),
        (["inspect.yaml", "--model", "made_model:number"], "gives a int"),
        (["inspect.yaml", "--model", "made_model:fails"], "RuntimeError: no GPU"),
    ],
)
def test_a_wrong_call(model: str, arguments: list[str], words: str) -> None:
    written(EXAMPLES["two sections"])
    status, out, err = run("check", *arguments)
    assert (status, "\x1b[2J" in err) == (2, False)
    assert words in err
    assert "layers" not in out


def test_the_layers_of_a_model_are_told(model: str) -> None:
    config = yaml.safe_load(EXAMPLES["two sections"])
    config["activations"]["layers"] = {"layer_types": ["layernorm"]}
    config["activations"]["torch"] = {"DisableFp8Layer": {"enabled": True}}
    config["nothing"] = one_section({"exact_layer_names": "model.x"}, LogTensorStats=LOG)["one"]
    written(config)
    status, out, err = run("check", "inspect.yaml", "--model", f"{model}:Inner.make")
    assert status == 0, err
    lines = out.splitlines()
    assert lines[2:4] == ["    model.fc1", "    model.fc2"]
    assert lines[lines.index("activations") + 2] == "    model.layernorm_qkv"
    assert lines[lines.index("layers in no section:") + 1] == "    model.head"
    useless = (
        "DisableFp8Layer has no effect on model.layernorm_qkv: no GEMMs that can be run otherwise"
    )
    assert lines[-4:] == [
        "warning: nothing.layers.exact_layer_names: no layer is called model.x",
        "warning: nothing.layers: no layer of the model is selected",
        f"warning: activations: {useless}",
        "inspect.yaml: 3 warnings",
    ]
    # What the user's own code prints must not get into the JSON.
    assert "made by the function" in err
    _, out, _ = run("check", "inspect.yaml", "--json", "--model", f"{model}:make")
    found = json.loads(out)
    assert found["sections"][0]["selected"] == ["model.fc1", "model.fc2"]
    assert found["layers_in_no_section"] == ["model.head"]


def test_a_layer_in_two_sections_is_a_problem(model: str) -> None:
    config = yaml.safe_load(EXAMPLES["two sections"])
    config["activations"]["layers"] = {"layer_types": ["fc2"]}
    written(config)
    status, out, _ = run("check", "inspect.yaml", "--model", f"{model}:make")
    assert status == 1
    assert "error: layer 'model.fc2' is selected by the sections" in out


def test_many_layers_in_two_sections_are_counted(model: str) -> None:
    config = one_section(LogTensorStats=LOG)
    config["two"] = config["one"]
    written(config)
    Path(f"{model}.py").write_text(
        "import torch\n"
        "def make():\n"
        "    return torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(50)))\n"
    )
    status, out, _ = run("check", "inspect.yaml", "--model", f"{model}:make")
    assert status == 1
    assert out.count("is selected by the sections 'one' and 'two'") == 20
    assert "error: 30 more layers are selected by more than one section\n" in out
    assert "no layer of the model is selected" not in out


def test_a_model_may_bring_features_of_its_own(model: str) -> None:
    registering = """
from dftrace_ai.inspect.config.features import register_feature

@register_feature("Clip")
class Clip:
    def inspect_tensor(self, config, layer_name, tensor_name, tensor, iteration, **kw):
        pass
"""
    Path(f"{model}.py").write_text(MODEL + registering)
    written(one_section(clip={"limit": 3}))
    assert run("check", "inspect.yaml")[0] == 1
    status, out, _ = run("check", "inspect.yaml", "--model", f"{model}:make")
    assert status == 0, out
    assert "  transformer_engine.Clip\n" in out


FEATURE = """
import dftrace_ai.inspect as debug_api

print("made by the file")


@debug_api.register_feature("Clip")
class Clip:
    'Clips the gradients.'

    def inspect_tensor(self, config, layer_name, tensor_name, tensor, iteration, **kw):
        pass
"""


@pytest.fixture
def feature_dir(folder: Path) -> Iterator[str]:
    """A directory with a file that registers a feature."""
    (folder / "mine" / "deeper").mkdir(parents=True)
    (folder / "mine" / "deeper" / "clip.py").write_text(FEATURE)
    yield "mine"
    forget_custom_features()


def test_features_of_directories_are_known(feature_dir: str) -> None:
    written(one_section(clip={"limit": 3}))
    status, out, err = run(
        *("check", "inspect.yaml", "--feature-dirs", feature_dir),
        *("--feature-dirs", "/any/transformer_engine/debug/features"),
    )
    assert status == 0, out
    assert "  transformer_engine.Clip\n" in out
    assert "made by" not in out
    assert "made by the file" in err
    _, out, _ = run("features", "--feature-dirs", feature_dir)
    assert out.splitlines()[-1].split() == ["transformer_engine.Clip", "Clips", "the", "gradients."]


def test_a_directory_of_features_that_cannot_be_used(feature_dir: str) -> None:
    written(one_section(clip={"limit": 3}))
    status, out, err = run("check", "inspect.yaml", "--feature-dirs", "no/such")
    assert (status, out) == (2, "")
    assert "no/such is no directory" in err
    Path(feature_dir, "z.py").write_text("raise RuntimeError('no\\x1b[2J')\n")
    status, out, err = run("check", "inspect.yaml", "--feature-dirs", feature_dir)
    assert (status, out) == (2, "")
    assert "RuntimeError: no" in err
    assert "z.py:1" in err
    assert "\x1b" not in err


def test_names_cannot_act_on_the_terminal(folder: Path) -> None:
    evil = "a\x1b[2J\u202eb\n"
    config = {
        evil: one_section(
            {"exact_layer_names": [evil]}, base={"tensors": [evil], "stats": "min", "freq": 1}
        )["one"],
        f"{evil}2": {"enabled": True, "layers": {evil: 1}, evil: {}},
        f"{evil}3": {"enabled": False},
    }
    status, out, err = run("check", written(config))
    assert status == 1
    assert "\\x1b[2J\\u202eb\\n" in out
    for text in (out, err):
        assert not [letter for letter in text if not letter.isprintable() and letter != "\n"]


def test_torch_is_not_needed_without_a_model(folder: Path) -> None:
    written(EXAMPLES["two sections"])
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from dftrace_ai.cli import app\n"
        "app(['inspect', 'check', 'inspect.yaml'], standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("no problems\n")


def test_features_are_listed_and_explained() -> None:
    status, out, _ = run("features")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "base.LogTensorStats",
        "transformer_engine.LogTensorStats",
        "transformer_engine.LogFp8TensorStats",
        "transformer_engine.LogNvfp4TensorStats",
        "transformer_engine.DisableFp8Gemm",
        "transformer_engine.DisableFp8Layer",
        "transformer_engine.PerTensorScaling",
        "transformer_engine.FakeQuant",
        "transformer_engine.DumpTensors",
    ]
    _, out, _ = run("features", "torch.FakeQuantFp8", "LogTensorStats")
    names = [line for line in out.splitlines() if "." in line and " " not in line]
    assert names == [
        "transformer_engine.FakeQuant",
        "base.LogTensorStats",
        "transformer_engine.LogTensorStats",
    ]
    assert "quant_format: FP8E4M3 or FP8E5M2, with one scale" in out
    assert len(checked(run("features", "all", "--json")[1], "inspect-features")["features"]) == 9
    status, _, err = run("features", "FakeQuan\x1b[2J")
    assert status == 2
    assert "transformer_engine.FakeQuant" in err
    assert "\x1b" not in err
