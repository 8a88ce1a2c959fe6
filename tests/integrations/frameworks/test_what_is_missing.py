"""A framework that is not there, and one in a version that nobody knows: said in a line, and no harm."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest
import torch
from conftest import RunScript, Traced
from torch import nn

from dftrace_ai.errors import DftraceError
from dftrace_ai.integrations import keras, lightning, tensorflow, transformers
from dftrace_ai.integrations.auto import Auto

MODULES = {
    "lightning": "lightning.pytorch",
    "transformers": "transformers.trainer",
    "accelerate": "accelerate.accelerator",
    "keras": "keras",
    "deepspeed": "deepspeed",
    "megatron": "megatron.core.pipeline_parallel.schedules",
    "ray": "ray.train",
    "tensorflow": "tensorflow",
}


@pytest.mark.parametrize("framework", [lightning, transformers, keras, tensorflow])
def test_a_framework_that_is_missing_is_named_with_its_extra(
    framework: ModuleType, auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = framework.trace_hook if framework is tensorflow else framework.trace_callback
    if framework is not lightning:
        made = "_hook_class" if framework is tensorflow else "_callback_class"
        getattr(framework, made).cache_clear()
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", *MODULES):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DftraceError) as raised:
        make()
    extra = framework.__name__.rpartition(".")[2]
    assert str(raised.value).endswith(f"install it with: pip install 'dftrace-ai[{extra}]'")
    assert auto.options is None


BACKENDS = """
import json, os, sys
os.environ["KERAS_BACKEND"] = "{backend}"
for name in ("torch", "tensorflow", "jax"):
    sys.modules[name] = None
from dftrace_ai.errors import DftraceError
from dftrace_ai.integrations import keras, lightning
try:
    {call}
except DftraceError as error:
    print(json.dumps(str(error)))
"""
OF_KERAS = "a callback of `fit` needs {}, which Keras computes with here"
OF_LIGHTNING = "a trainer's callback needs PyTorch, which Lightning computes with here"


@pytest.mark.parametrize(
    ("backend", "call", "told", "extra"),
    [
        ("tensorflow", "keras.trace_callback()", OF_KERAS.format("TensorFlow"), "tensorflow"),
        ("jax", "keras.trace_callback()", OF_KERAS.format("JAX"), "jax"),
        ("torch", "keras.trace_callback()", OF_KERAS.format("PyTorch"), "keras"),
        ("torch", "lightning.trace_callback()", OF_LIGHTNING, "lightning"),
        ("torch", "lightning.trace_profiler()", OF_LIGHTNING, "lightning"),
    ],
)
def test_a_framework_without_what_it_computes_with_names_the_extra(
    backend: str, call: str, told: str, extra: str, run_script: RunScript
) -> None:
    said = run_script(BACKENDS.format(backend=backend, call=call)).said
    assert said == [f"{told}; install it with: pip install 'dftrace-ai[{extra}]'"]


def test_a_version_that_lacks_something_is_told_of_once_and_all_else_is_recorded(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [*MODULES.values(), "lightning.pytorch.trainer", "transformers.trainer_callback"]:
        made = ModuleType(name)
        made.__spec__ = ModuleSpec(name, None)  # torch asks for that of some
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with traced(perfetto=False) as run:
        auto()
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        auto.remove()
    told = [one.getMessage() for one in caplog.records]
    for part in MODULES:
        (line,) = [one for one in told if f"the part {part}," in one]
        assert "it lacks: " in line
    assert [e.name for e in run.trace.spans if e.cat == "compute"] == [
        *("forward", "backward", "step"),
        *("forward", "backward", "step"),
    ]


def test_a_hook_that_gives_something_unknown_goes_on(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home, inner = ModuleType("lightning.pytorch"), ModuleType("lightning.pytorch.trainer")
    called = []

    def hooks(trainer, name, *args):
        called.append((trainer, name, *args))

    inner.call = SimpleNamespace(_call_callback_hooks=hooks)
    home.Trainer = type("Trainer", (), {"save_checkpoint": lambda self, filepath: None})
    monkeypatch.setitem(sys.modules, "lightning.pytorch", home)
    monkeypatch.setitem(sys.modules, "lightning.pytorch.trainer", inner)
    with traced(perfetto=False):
        auto()
        for name in ("on_train_start", "on_train_batch_start"):
            inner.call._call_callback_hooks("no trainer", name, 1)
        auto.remove()
        assert inner.call._call_callback_hooks is hooks
    assert called == [
        ("no trainer", "on_train_start", 1),
        ("no trainer", "on_train_batch_start", 1),
    ]
    (line,) = [m for one in caplog.records if "the part lightning" in (m := one.getMessage())]
    assert "global_step" in line
