"""What a program may do that hardly any does: it runs as without `auto`, and at no cost of frames."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Traced
from torch import nn
from torch.utils.data import DataLoader

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.integrations.auto import Auto
from dftrace_ai.integrations.torch.inside import compiler_flags, compiler_of_thread


class Inner(nn.Module):
    """Does what it is given with what it is called with."""

    def __init__(self, does: Callable[..., Any]) -> None:
        super().__init__()
        self.does = does

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.does(*args, **kwargs)


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


# In a program of its own: torch goes on running all frames of one in which a compilation has failed.
FRAMES = """
import sys
import threading
import dftrace_ai

def frames_of_ours(*_):
    frame, count = sys._getframe(), 0
    while frame is not None:
        count += frame.f_globals["__name__"].startswith("dftrace_ai.")
        frame = frame.f_back
    return count

def failing(graph, inputs):
    raise NotImplementedError

def compiled_elsewhere(x):
    x = x + 1
    meeting.wait()
    return x

with dftrace_ai.tracing(log_file=sys.argv[1] + "/t"):
    dftrace_ai.auto(parts=["forward", "compilations"])
    import torch

    class Inner(torch.nn.Module):
        def forward(self):
            return frames_of_ours()

    class Outer(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.inner = inner

        def forward(self):
            return self.inner()

    alone, deep = Outer(Inner()), Outer(Outer(Outer(Inner())))
    print(alone(), deep())
    assert "torch._dynamo" not in sys.modules
    try:
        torch.compile(torch.sin, backend=failing)(torch.ones(2))
    except Exception:
        print(alone(), deep())
    meeting = threading.Barrier(2)
    compiled = torch.compile(compiled_elsewhere, backend="eager")
    compiling = threading.Thread(target=compiled, args=[torch.ones(2)])
    compiling.start()
    while not meeting.n_waiting:
        pass
    print(alone(), deep())
    meeting.wait()
    compiling.join()
"""


def test_a_module_has_no_frame_of_ours_and_the_compiler_is_not_imported_for_it(
    tmp_path: Path,
) -> None:
    """Nor behind a compilation that failed, and while another thread is compiled."""
    done = subprocess.run(
        [sys.executable, "-c", FRAMES, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (alone, deep), *compiling = (map(int, line.split()) for line in done.stdout.splitlines())
    assert alone == deep == (0 if compiler_flags() else alone)
    assert len(compiling) == 2
    for alone, deep in compiling:
        # A torch that does not say for which thread it runs frames may want to see all of them.
        assert deep == alone + (0 if compiler_of_thread() else 2)
    (trace,) = open_traces([tmp_path])
    spans = Counter(event["name"] for _, event in trace.events() if event["ph"] == "X")
    assert (spans["forward"], spans["compile"] > 0) == (6, True)


def test_a_module_within_modules_is_called_as_torch_calls_it(traced: Traced, auto: Auto) -> None:
    heard = []
    inner = Inner(lambda *args, **kwargs: (args, kwargs))
    model = Outer(inner)
    model.inner.register_forward_hook(lambda *given: heard.append(given))
    raising, compiled, own = (Outer(Inner(lambda x: x / 0)) for _ in range(3))
    compiled.inner._compiled_call_impl = lambda *args, **kwargs: ("compiled", args, kwargs)
    own.inner._call_impl = lambda *args, **kwargs: ("own", args, kwargs)  # type: ignore[assignment]
    with traced(perfetto=False) as run:
        auto(parts="forward")
        assert model(1, 2, a=3) == ((1, 2), {"a": 3})
        assert model() == ((), {})
        assert compiled(1, a=2) == ("compiled", (1,), {"a": 2})
        assert own(1, a=2) == ("own", (1,), {"a": 2})
        with pytest.raises(ZeroDivisionError):
            raising(1)
        # By the class, too, as those call it that lay their own over it.
        model.inner = Inner(lambda *args: nn.Module.__call__(inner, *args))
        assert model(5) == ((5,), {})
        with pytest.raises(TypeError):
            Outer(Inner(lambda: nn.Module.__call__()))()  # type: ignore[call-arg]
        auto.remove()
    assert [given[1] for given in heard] == [(1, 2), (), (5,)]
    assert [e.args.get("error") for e in run.trace.spans] == [
        *(None, None, None, None, "ZeroDivisionError", None, "TypeError"),
    ]


def test_a_module_that_is_compiled_within_one_that_is_not(traced: Traced, auto: Auto) -> None:
    graphs = []

    def backend(module: Any, _: Any) -> Any:
        graphs.append(module)
        return module.forward

    torch._dynamo.reset()
    with traced(perfetto=False) as run:
        auto(parts="forward")
        inner = Outer(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        model = Outer(inner)
        expected = model(torch.ones(2, 4))
        inner.compile(backend=backend, fullgraph=True)
        found = [model(torch.ones(2, 4)) for _ in range(3)]
        auto.remove()
    assert len(graphs) == 1
    assert all(torch.equal(one, expected) for one in found)
    assert len(run.trace.spans) == 4


class Recursive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        return self.last(x) if times <= 0 else self(x, times - 1)  # type: ignore[no-any-return]


def room_of(model: nn.Module) -> int:
    """How often it can call itself in some room."""
    before, least, most = sys.getrecursionlimit(), 1, 200
    sys.setrecursionlimit(len(inspect.stack()) + 300)
    try:
        while least < most:
            times = (least + most + 1) // 2
            try:
                model(torch.ones(2), times)
            except RecursionError:
                most = times - 1
            else:
                least = times
    finally:
        sys.setrecursionlimit(before)
    return least


@pytest.mark.parametrize(
    "options", [{}, {"depth": 2}, {"depth": 100, "nvtx": True}, {"modules": "last"}]
)
def test_a_model_may_call_itself_as_often_as_without(
    traced: Traced, auto: Auto, options: dict[str, Any]
) -> None:
    model = Recursive()
    without = room_of(model)
    with traced(perfetto=False) as run:
        auto(**options)
        assert without <= room_of(model)
        auto.remove()
    assert without == room_of(model)
    assert run.trace.named("forward")
    if "modules" in options:
        assert run.trace.named("forward.last")


class Unhashable(nn.Module):
    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)  # type: ignore[no-any-return]


class WithoutMode(Unhashable):
    __hash__ = object.__hash__

    @property
    def training(self) -> bool:  # type: ignore[override]
        raise RuntimeError("neither is asked for here")

    @training.setter
    def training(self, mode: bool) -> None:
        pass


@pytest.mark.parametrize("kind", [Unhashable, WithoutMode])
def test_a_model_that_cannot_be_asked_is_recorded(
    traced: Traced, auto: Auto, kind: type[nn.Module]
) -> None:
    model, x = kind(), torch.ones(2)
    expected = model(x)
    with traced(perfetto=False) as run:
        auto(parts="forward")
        assert torch.equal(model(x), expected)
        auto.remove()
    assert [span.name for span in run.trace.spans] == ["forward"]


class Interrupted(WithoutMode):
    @property
    def training(self) -> bool:  # type: ignore[override]
        raise KeyboardInterrupt

    @training.setter
    def training(self, mode: bool) -> None:
        pass


def test_an_interrupt_meanwhile_is_not_lost(traced: Traced, auto: Auto) -> None:
    model = Interrupted()
    with traced(perfetto=False):
        auto(parts="forward")
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(2))
        auto.remove()


def of_loader(yielded: Any) -> Any:
    batches = iter(DataLoader([torch.zeros(1)] * 3))
    batches._num_yielded = yielded
    try:
        return next(batches).tolist(), batches._num_yielded
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("yielded", [2**70, 2**63 - 1, -5, 0.5, None])
def test_a_loader_counts_as_it_likes(traced: Traced, auto: Auto, yielded: Any) -> None:
    expected = of_loader(yielded)
    with traced(perfetto=False) as run:
        auto(parts="data")
        assert of_loader(yielded) == expected
        auto.remove()
    assert "fetch.iter" in {span.name for span in run.trace.spans}


CALLS: list[Callable[[torch.optim.Optimizer], object]] = [
    lambda optimizer: torch.optim.Optimizer.zero_grad(self=optimizer),
    lambda optimizer: torch.optim.SGD.zero_grad(optimizer, set_to_none=False),
    lambda _: torch.optim.SGD.zero_grad(),  # type: ignore[call-arg]
]


@pytest.mark.parametrize("call", CALLS)
def test_a_method_takes_its_arguments_by_their_names(
    traced: Traced, auto: Auto, call: Callable[[torch.optim.Optimizer], object]
) -> None:
    def called() -> object:
        try:
            return call(torch.optim.SGD(nn.Linear(1, 1).parameters()))
        except TypeError as error:
            return str(error)

    expected = called()
    with traced(perfetto=False) as run:
        auto(parts="optimizer")
        assert called() == expected
        auto.remove()
    spans = [span.name for trace in run.traces for span in trace.spans]
    assert spans == ["step.zero_grad"] * (expected is None)


def test_a_step_of_an_optimizer_that_is_not_meant_was_not_left_out(
    traced: Traced, auto: Auto
) -> None:
    model = nn.Linear(1, 1)
    meant, other = (torch.optim.SGD(model.parameters()) for _ in range(2))
    scaler = torch.amp.GradScaler("cpu")
    with traced(perfetto=False) as run:
        auto(optimizer=meant)
        scaler.scale(model(torch.ones(1)).sum()).backward()
        for optimizer in (meant, other):
            scaler.step(optimizer)
        auto.remove()
    assert [event.name for event in run.trace.events if event.ph == "i"] == []
