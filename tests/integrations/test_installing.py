"""Switching on and off: torch is as it was, nothing is doubled, and what goes wrong stops nobody."""

from __future__ import annotations

import gc
import logging
import pickle
import sys
import weakref
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from conftest import Traced
from torch import nn
from torch.utils.data import DataLoader, _utils, dataloader

import dftrace_ai
from dftrace_ai.errors import ConfigError
from dftrace_ai.integrations import registry
from dftrace_ai.integrations.auto import Auto
from dftrace_ai.integrations.registry import BUILT_IN, Part
from integrations.training_loops import LOOPS, net, plain

PLACES = [
    (nn.Module, "__call__"),
    *((torch.autograd, name) for name in ("backward", "grad")),
    *((torch.optim.Optimizer, name) for name in ("zero_grad", "_patch_step_function")),
    *((kind, "step") for kind in (torch.optim.SGD, torch.optim.AdamW, torch.amp.GradScaler)),
    (dataloader._BaseDataLoaderIter, "__init__"),
    (dataloader._BaseDataLoaderIter, "__next__"),
    (dataloader._MultiProcessingDataLoaderIter, "__init__"),
    (dataloader._DatasetKind, "create_fetcher"),
    (_utils.worker, "_worker_loop"),
    *((home, name) for home in (torch, torch.serialization) for name in ("save", "load")),
    *((torch.Tensor, name) for name in ("to", "cuda", "cpu")),
]
# No loader is chosen, and tensors go nowhere in a torch for processors alone.
CHANGED = len(PLACES) - 1 - (0 if torch.version.cuda else 3)


def snapshot() -> list[object]:
    return [vars(owner).get(name, "absent") for owner, name in PLACES]


def work() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in DataLoader(torch.randn(8, 4), batch_size=4):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(autouse=True)
def _known_optimizers() -> None:
    """Torch patches a class when its first instance is made."""
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        kind([nn.Parameter(torch.ones(1))], lr=0.1)


def test_torch_is_as_it_was_and_a_second_call_changes_nothing(traced: Traced, auto: Auto) -> None:
    with traced(perfetto=False) as run:
        before = snapshot()
        assert auto() is auto
        assert set(auto.parts) == set(BUILT_IN) - {"io", "gc"}  # one has to be asked for
        during = snapshot()
        assert sum(a is not b for a, b in zip(before, during)) == CHANGED
        assert auto() is auto
        assert all(a is b for a, b in zip(during, snapshot()))
        work()
        auto.remove()
        assert all(a is b for a, b in zip(before, snapshot()))
        work()
        auto.remove()
    assert [e.args["count"] for e in run.trace.spans if e.name == "fetch.iter"] == [1, 2]


def test_a_hundred_rounds_leave_nothing(traced: Traced, auto: Auto) -> None:
    with traced(perfetto=False):
        auto()
        work()
        auto.remove()
        gc.collect()
        before, alive = snapshot(), []
        counts = [sys.getrefcount(one) for one in before]
        for _ in range(100):
            auto()
            alive.append(weakref.ref(torch.autograd.backward))
            alive.append(weakref.ref(auto._options.training))
            auto.remove()
        gc.collect()
        assert all(a is b for a, b in zip(before, snapshot()))
        assert [sys.getrefcount(one) for one in before] == counts
        assert not [one for one in alive if one() is not None]


def test_what_somebody_lays_over_ours_stays(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    with traced(perfetto=False) as run:
        monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
        auto()
        ours = torch.autograd.backward

        def theirs(*args, **kwargs):
            called.append(1)
            return ours(*args, **kwargs)

        torch.autograd.backward = theirs
        work()
        auto.remove()
        assert torch.autograd.backward is theirs
        work()
    assert len(called) == 4
    assert [e.name for e in run.trace.spans].count("backward") == 2


def test_what_a_user_raises_goes_up_and_ends_its_spans(traced: Traced, auto: Auto) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    hooks = [
        model.register_forward_hook(lambda *_: 1 / 0),
        optimizer.register_step_post_hook(lambda *_: [].pop()),
    ]
    with traced(perfetto=False) as run:
        auto()
        with pytest.raises(ZeroDivisionError):
            plain(model, optimizer)
        hooks[0].remove()
        with pytest.raises(IndexError):
            plain(model, optimizer)
        hooks[1].remove()
        plain(model, optimizer, 2)
        auto.remove()
    errors = [(e.name, e.args["error"]) for e in run.trace.spans if "error" in e.args]
    assert errors == [("forward", "ZeroDivisionError"), ("step", "IndexError")]
    assert all(e.level == 1 for e in run.trace.spans if e.cat == "compute")


def test_an_optimizer_whose_scheduler_is_older_is_seen(traced: Traced, auto: Auto) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    with traced(perfetto=False) as run:
        auto()
        for _ in range(2):
            plain(model, optimizer, 1)
            scheduler.step()
        with pytest.raises(ZeroDivisionError):
            optimizer.step(lambda: 1 / 0)
        plain(model, optimizer, 1)
        auto.remove()
        optimizer.step()
    spans = [e for e in run.trace.spans if (e.cat, e.name) == ("compute", "step")]
    assert len(spans) == 3


def test_parts_steps_depth_and_modules(traced: Traced, auto: Auto) -> None:
    with traced(perfetto=False) as run:
        auto(parts=["-data", "-checkpoint"], steps="1:3", depth=2)
        assert not {"data", "checkpoint"} & set(auto.parts)
        LOOPS["in_place_relu"].train()
        auto.remove()
    named = [(e.name, e.args["step"]) for e in run.trace.spans if e.cat == "compute"]
    assert {step for _, step in named} == {1, 2}
    assert [name for name, _ in named].count("forward.2") == 2
    assert [e.args["step"] for e in run.trace.spans if e.cat == "pipeline"] == [1, 2]
    with traced(perfetto=False) as run:
        auto(parts="forward", modules="ReLU,4")
        LOOPS["in_place_relu"].train()
        auto.remove()
    names = {e.name for e in run.trace.spans}
    assert names == {"forward", "forward.1", "forward.3", "forward.4"}


def test_chosen_objects_alone(traced: Traced, auto: Auto) -> None:
    one, two = net(), net(1)
    mine, other = (torch.optim.SGD(m.parameters(), 0.1) for m in (one, two))
    loaders = [DataLoader(torch.randn(8, 4), batch_size=4) for _ in range(2)]
    with traced(perfetto=False) as run:
        auto(one, mine, loaders[0])
        plain(one, mine, 1)
        plain(two, other, 2)
        for loader in loaders:
            list(loader)
        auto.remove()
    names = [e.name for e in run.trace.spans if e.cat != "pipeline"]
    assert names.count("forward") == names.count("step") == 1
    assert names.count("step.zero_grad") == 1
    assert names.count("fetch.iter") == 2


def test_a_wrong_option_says_what_is_accepted(auto: Auto, tmp_path) -> None:
    for steps in ("3", "5:2", "a:b"):
        with pytest.raises(ConfigError, match="auto_steps.*10:20"):
            auto(steps=steps, log_file=tmp_path / "trace")
    assert auto.parts == ()


def test_a_part_that_fails_stops_nobody(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another version of torch, and parts of other packages, good and bad."""
    undone = []
    others = {
        "good": EntryPoint("good", "good_part:part", registry.GROUP),
        "bad": EntryPoint("bad", "no_such_module:part", registry.GROUP),
    }
    good = Part("good", lambda options: lambda: undone.append(options.gate.live))
    monkeypatch.setitem(sys.modules, "good_part", type(sys)("good_part"))
    sys.modules["good_part"].part = good
    monkeypatch.setattr(registry, "entry_points", lambda group: list(others.values()))
    monkeypatch.delattr(torch.optim.Optimizer, "_patch_step_function")
    monkeypatch.delattr(_utils.worker, "_worker_loop")
    before = snapshot()
    with traced(perfetto=False) as run, caplog.at_level(logging.WARNING):
        auto()
        assert set(auto.parts) == set(BUILT_IN) - {"io", "gc", "optimizer", "data"} | {"good"}
        model = net()
        F_loss = model(torch.randn(2, 16)).sum()
        F_loss.backward()
        auto.remove()
    assert undone == [True]
    assert all(a is b for a, b in zip(before, snapshot()))
    said = [line for r in caplog.records if (line := r.getMessage()).startswith("auto ")]
    assert len(said) == 3
    assert "optimizer" in said[0] or "_worker_loop" in said[0]
    assert {e.name for e in run.trace.spans} == {"forward", "backward"}


def test_a_compiled_model_stays_one_graph(traced: Traced, auto: Auto) -> None:
    graphs = []

    def backend(module, example):
        graphs.append(module)
        return module.forward

    torch._dynamo.reset()
    with traced(perfetto=False) as run:
        auto()
        model = net()
        plain(
            torch.compile(model, backend=backend, fullgraph=True),
            torch.optim.SGD(model.parameters(), 0.1),
            8,
        )
        auto.remove()
    assert len(graphs) == 1
    assert [e.name for e in run.trace.spans if e.cat == "compute"].count("forward") == 8


def test_functions_of_torch_are_pickled_as_they_are(traced: Traced, auto: Auto) -> None:
    """A data set may hold the function that loads its samples, and go to a spawned worker."""
    functions = (torch.load, torch.save, torch.autograd.backward)
    with traced(perfetto=False):
        auto()
        ours = (torch.load, torch.save, torch.autograd.backward)
        texts = [pickle.dumps(one) for one in ours]
        assert all(pickle.loads(text) is one for text, one in zip(texts, ours))
        auto.remove()
    assert all(pickle.loads(text) is one for text, one in zip(texts, functions))


def test_checkpoints_are_recorded_and_samples_are_not(
    traced: Traced, auto: Auto, tmp_path: Path
) -> None:
    torch.save(torch.ones(3), tmp_path / "sample.pt")

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return torch.load(tmp_path / "sample.pt")

    with traced(perfetto=False) as run:
        auto()
        list(DataLoader(Samples()))
        torch.save(net().state_dict(), f=tmp_path / "model.pt")
        torch.load(tmp_path / "model.pt")
        with pytest.raises(FileNotFoundError):
            torch.load(tmp_path / "none.pt")
        auto.remove()
    size = (tmp_path / "model.pt").stat().st_size
    found = [(e.name, e.args.get("bytes")) for e in run.trace.spans if e.cat == "checkpoint"]
    assert found == [("capture", size), ("restart", size), ("restart", None)]


class Meta:
    """A tensor that says where it is; moved, it is somewhere else."""

    def __init__(self, kind: str) -> None:
        self.device, self.nbytes = torch.device(kind), 12

    def to(self, kind: str) -> Meta:
        return Meta(kind)


def test_only_what_is_moved_is_a_transfer(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    plain_to = torch.Tensor.to
    with traced(perfetto=False) as run:
        auto(parts="transfer")
        assert torch.Tensor.to == plain_to
        assert torch.Tensor.to in {plain_to}
        assert pickle.loads(pickle.dumps(torch.Tensor.to)) is torch.Tensor.to
        here = torch.ones(3)
        assert here.to(torch.float64).dtype is torch.float64
        assert here.to("cpu") is here
        assert here.cpu() is here
        here.to("meta")
        to = vars(torch.Tensor)["to"].around(Meta.to)
        to(to(Meta("cuda"), "cpu"), "cuda:1")
        auto.remove()
    assert torch.Tensor.to is plain_to
    moved = [(e.name, e.args["bytes"], e.args["direction"]) for e in run.trace.spans]
    assert moved == [("transfer", 12, "cuda->cpu"), ("transfer", 12, "cpu->cuda")]


def test_a_part_of_another_package_needs_no_torch(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = []
    home = type(sys)("their_parts")
    for name in ("tensorflow", "keras"):

        def install(options, name=name):
            installed.append(name)
            return lambda: installed.remove(name)

        setattr(home, name, install)
        monkeypatch.setitem(sys.modules, name, type(sys)(name))
    monkeypatch.setitem(sys.modules, "their_parts", home)
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group: [
            EntryPoint(f"their-{name}", f"their_parts:{name}", group)
            for name in [group.rpartition(".")[2]]
            if name in ("tensorflow", "keras")
        ],
    )
    with traced(perfetto=False):
        auto(parts="steps,their-keras,their-tensorflow")
        assert set(auto.parts) == {"steps", "their-keras", "their-tensorflow"}
        assert sorted(installed) == ["keras", "tensorflow"]
        auto.remove()
    assert installed == []


def test_a_part_that_nobody_brings_is_named(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = "auto_parts: there is no part 'forwrad'; there are steps, io, gc, lightning"
    for parts in ("forwrad", ["steps", "-forwrad"]):
        with pytest.raises(ConfigError, match=said):
            auto(parts=parts)
    assert dftrace_ai.auto.options is None
    monkeypatch.setenv("DFTRACE_AUTO_PARTS", "steps,forwrad")
    with traced(perfetto=False):  # the environment stops no training
        assert auto().options is not None
    told = [one.getMessage() for one in caplog.records]
    assert [one[: len(said)] for one in told if one.startswith("auto_parts")] == [said]
