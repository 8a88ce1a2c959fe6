"""Stand-ins for engines, and frameworks that are missing or in a version that nobody knows."""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from conftest import RunScript, Traced
from torch import nn
from torch.utils.data import DataLoader

from dftrace_ai.errors import DftraceError
from dftrace_ai.integrations import keras, lightning, tensorflow, transformers
from dftrace_ai.integrations.auto import Auto

ACCUMULATED = 2


class DeepSpeedEngine:
    """Accumulates, scales and counts."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.module = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.module.parameters(), 0.1)
        self.global_steps = self.skipped_steps = self.micro_steps = 0
        self.overflows: set[int] = set()

    def backward(self, loss):
        (loss / ACCUMULATED).backward()

    def step(self):
        self.micro_steps += 1
        if self.micro_steps % ACCUMULATED == 0:
            self._take_model_step(None)

    def _take_model_step(self, lr_kwargs):
        if self.global_steps in self.overflows:
            self.skipped_steps += 1
        else:
            self.optimizer.step()
        self.module.zero_grad()
        self.global_steps += 1

    def save_checkpoint(self, save_dir, tag=None):
        folder = Path(save_dir, tag or f"global_step{self.global_steps}")
        folder.mkdir()
        torch.save(self.module.state_dict(), folder / "model.pt")
        return True

    def load_checkpoint(self, load_dir, tag=None):
        path = Path(load_dir, tag, "model.pt")
        self.module.load_state_dict(torch.load(path))
        self.global_steps, self.skipped_steps = 10, 3
        return str(path), {}

    def train(self, steps: int) -> list[float]:
        losses, batches = [], iter(DataLoader(torch.ones(steps * 4, 4), batch_size=2))
        for x in batches:
            loss = self.module(x).sum()
            losses.append(loss.item())
            self.backward(loss)
            self.step()
        return losses


class PipelineEngine(DeepSpeedEngine):
    def eval_batch(self, batches):
        with torch.no_grad():
            return [self.module(x).sum().item() for x in batches]


@pytest.fixture
def deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in (("engine", DeepSpeedEngine), ("pipe.engine", PipelineEngine)):
        home = ModuleType(f"deepspeed.runtime.{name}")
        setattr(home, kind.__name__, kind)
        monkeypatch.setitem(sys.modules, home.__name__, home)
    home = ModuleType("deepspeed")
    home.__spec__ = ModuleSpec("deepspeed", None)  # torch asks for those of some
    monkeypatch.setitem(sys.modules, "deepspeed", home)


@pytest.mark.usefixtures("deepspeed")
def test_an_engine_has_its_steps_also_those_left_out_and_its_own_numbers(
    traced: Traced, auto: Auto, tmp_path: Path
) -> None:
    before = dict(vars(DeepSpeedEngine)), dict(vars(PipelineEngine))

    def train(folder: Path) -> list:
        folder.mkdir()
        engine = PipelineEngine()
        engine.overflows = {1}
        losses = engine.train(3)
        losses += engine.eval_batch([torch.ones(1, 4)])
        engine.save_checkpoint(folder)
        engine.load_checkpoint(str(folder), tag="global_step3")
        return [losses + engine.train(2), engine.module.state_dict()["weight"].tolist()]

    without = train(tmp_path / "without")
    with traced(perfetto=False) as run:
        auto()
        assert train(tmp_path / "with") == without
        auto.remove()
    assert (dict(vars(DeepSpeedEngine)), dict(vars(PipelineEngine))) == before
    spans = run.trace.spans
    steps = [e for e in spans if (e.cat, e.name) == ("pipeline", "step")]
    assert [(e.args["step"], e.args["microbatches"]) for e in steps] == [
        *((0, 2), (1, 2), (2, 2)),
        *((10, 2), (11, 2)),  # the numbers of the checkpoint go on
    ]
    for step in steps:
        inside = [e for e in spans if step.ts_ns <= e.ts_ns < step.end_ns and e.cat == "compute"]
        names = Counter(e.name for e in inside)
        assert names == {"forward": 2, "backward": 2, "step": 1}
        assert {e.args["step"] for e in inside} == {step.args["step"]}
    assert [e.name for e in run.trace.of("i")] == ["step skipped"]
    (evaluation,) = [e for e in spans if e.name == "evaluate"]
    assert evaluation.args["stage"] == "validate"
    size = (tmp_path / "with" / "global_step3" / "model.pt").stat().st_size
    saved = {e.name: e.args["bytes"] for e in spans if e.cat == "checkpoint"}
    assert saved == dict.fromkeys(("capture", "capture.part", "restart", "restart.part"), size)


def custom_backward(output, grad):
    """As Megatron has it, for outputs of which only the graph is left."""
    assert output.numel() == 1
    grad = torch.ones(2, 1) if grad is None else grad
    torch.autograd.Variable._execution_engine.run_backward(
        (output,), (grad,), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def test_backward_passes_of_a_pipelines_schedule_are_seen(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One forward, one backward: two stages on one rank, which give up what they send."""
    name = "megatron.core.pipeline_parallel.schedules"
    schedules = ModuleType(name)
    schedules.custom_backward = custom_backward
    monkeypatch.setitem(sys.modules, name, schedules)
    stages = [nn.Linear(4, 4), nn.Linear(4, 1)]
    optimizer = torch.optim.SGD([p for stage in stages for p in stage.parameters()], 0.1)
    with traced(perfetto=False) as run:
        auto()
        for batches in (DataLoader(torch.ones(6, 4), batch_size=2) for _ in range(2)):
            for x in batches:
                sent = stages[0](x)
                received = sent.detach().requires_grad_()
                sent.data, out = torch.ones(1), stages[1](received)
                out.data = torch.ones(1)
                schedules.custom_backward(out, None)
                schedules.custom_backward(sent, received.grad)
            optimizer.step()
        auto.remove()
    assert schedules.custom_backward is custom_backward
    steps = [e for e in run.trace.spans if (e.cat, e.name) == ("pipeline", "step")]
    assert [(e.args["step"], e.args["microbatches"]) for e in steps] == [(0, 6), (1, 6)]
    names = Counter(e.name for e in run.trace.spans if e.cat == "compute")
    assert names == {"forward": 12, "backward": 12, "step": 2}


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
for name in ("torch", "tensorflow", "jax"):
    sys.modules[name] = None
from dftrace_ai.errors import DftraceError
from dftrace_ai.integrations import keras, lightning
for backend, call in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        os.environ["KERAS_BACKEND"] = backend
        try:
            eval(call)
        except DftraceError as error:
            print(json.dumps(str(error)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
OF_KERAS = "a callback of `fit` needs {}, which Keras computes with here"
OF_LIGHTNING = "a trainer's callback needs PyTorch, which Lightning computes with here"
NEEDS = [
    ("tensorflow", "keras.trace_callback()", OF_KERAS.format("TensorFlow"), "tensorflow"),
    ("jax", "keras.trace_callback()", OF_KERAS.format("JAX"), "jax"),
    ("torch", "keras.trace_callback()", OF_KERAS.format("PyTorch"), "keras"),
    ("torch", "lightning.trace_callback()", OF_LIGHTNING, "lightning"),
    ("torch", "lightning.trace_profiler()", OF_LIGHTNING, "lightning"),
]


def test_a_framework_without_what_it_computes_with_names_the_extra(run_script: RunScript) -> None:
    said = run_script(BACKENDS, args=[json.dumps([case[:2] for case in NEEDS])]).said
    mend = "; install it with: pip install 'dftrace-ai[{}]'"
    assert said == [told + mend.format(extra) for _, _, told, extra in NEEDS]


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
