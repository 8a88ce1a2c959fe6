"""All forms of annotation with ``device=True``, and what else is called so; `auto` with it."""

from __future__ import annotations

import asyncio
import pickle
import sys
import types
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest
from conftest import RunScript, Traced

import dftrace_ai
from device.stand_in import PROGRAM, StandIn
from device.test_intervals import on_device, without_time
from dftrace_ai import ai
from dftrace_ai.device.companions import stream_times, use_clock
from dftrace_ai.integrations.auto import Auto


def test_every_form_has_an_interval_for_each_of_its_spans(traced: Traced, gpu: StandIn) -> None:
    forward = ai.compute.forward(device=True)

    @forward
    def function(depth: int) -> int:
        return function(depth - 1) + 1 if depth else 0

    @ai.compute.backward(device=True)
    async def coroutine(first: asyncio.Event, then: asyncio.Event) -> None:
        first.set()
        await then.wait()

    @ai.compute.step(device=True)
    def generator() -> Iterator[int]:
        yield from range(3)

    @ai.data.item(device=True)
    async def stream() -> AsyncIterator[int]:
        for number in range(2):
            yield number

    class Layer:
        @ai.comm.send(device=True)
        def method(self) -> str:
            return "sent"

    async def interleaved() -> list[int]:
        a, b = asyncio.Event(), asyncio.Event()
        await asyncio.gather(coroutine(a, b), coroutine(b, a))
        async with ai.comm.bcast(device=True):
            await asyncio.sleep(0)
        return [number async for number in stream()]

    with traced(perfetto=False) as run:
        assert function(2) == 2
        assert asyncio.run(interleaved()) == [0, 1]
        assert list(generator()) == [0, 1, 2]
        assert Layer().method() == "sent"
        with ExitStack() as stack:
            stack.enter_context(ai.comm.gather(device=True))
            stack.enter_context(forward)
        hooks = ai.comm.scatter(device=True)
        hooks.start(step=3)
        hooks.start()
        hooks.stop()
        hooks.stop()
        hooks.stop()
        assert ai.comm.reduce(device=True).__enter__() is ai.comm.reduce(device=True)
        ai.comm.reduce(device=True).__exit__(None, None, None)
        with pytest.raises(KeyError), ai.comm.barrier(device=True):
            raise KeyError
        with ai.comm.receive(device=True, enable=False), ai.comm.receive(device=False):
            pass
    trace = run.trace
    host = [e for e in trace.spans if not e.cat.startswith("gpu.")]
    shown = on_device(trace)
    assert sorted(e.name for e in shown) == sorted(e.name for e in host if e.name != "receive")
    # Each is that of a span of its own, whatever order they ended in.
    assert sorted(e.p_idx for e in shown) == sorted(
        e.id for e in host if e.name != "receive" and e.id
    )
    assert {e.name: len([o for o in shown if o.name == e.name]) for e in shown} == {
        "forward": 4,
        "backward": 2,
        "step": 3,
        "item": 2,
        "send": 1,
        "bcast": 1,
        "gather": 1,
        "scatter": 2,
        "reduce": 1,
        "barrier": 1,
    }
    assert trace.footer["unmatched_stops"] == 1
    assert [e.args["error"] for e in host if e.name == "barrier"] == ["KeyError"]


def test_to_ask_whether_a_node_is_a_context_manager_ends_none_of_its_spans(
    traced: Traced, gpu: StandIn
) -> None:
    node = ai.compute.forward(device=True)
    with traced(perfetto=False) as run:
        assert hasattr(node, "__exit__")
        node.__enter__()
        with ai.compute.step:
            pass
        node.__exit__(None, None, None)
        leave = node.__exit__
        with ai.comm.reduce(device=True):
            node.__enter__()
        leave(None, None, None)
    trace = run.trace
    first, second = (e for e in trace.spans if (e.cat, e.name) == ("compute", "forward"))
    assert trace.one("step").args["p_idx"] == first.id
    assert [e.p_idx for e in on_device(trace) if e.name == "forward"] == [first.id, second.id]
    assert not trace.footer["unmatched_stops"]


def test_the_node_follows_the_tree_unless_it_has_arguments_of_its_own(
    traced: Traced, gpu: StandIn
) -> None:
    node, layer = ai.compute.forward(device=True), ai.compute.forward(device=True).derive("layer")
    fixed = ai.compute.forward(device=True, step=1)
    assert node is ai.compute.forward(device=True)
    assert node(device=True) is node
    assert pickle.loads(pickle.dumps(node)) is node
    assert pickle.loads(pickle.dumps(layer)) is layer
    copied = pickle.loads(pickle.dumps(fixed))
    with traced(perfetto=False) as run:
        ai.update(step=5)
        for one in (node, layer, fixed, copied, node(epoch=2)):
            with one:
                pass
        ai.compute.disable()
        with node:
            pass
        ai.compute.enable()
        with ai.device.transfer(device="cuda:0"):
            pass
    told = [(e.name, e.args.get("step"), e.args.get("epoch")) for e in on_device(run.trace)]
    assert told == [
        *[("forward", 5, None), ("forward.layer", 5, None)],
        *[("forward", 1, None), ("forward", 1, None), ("forward", 5, 2)],
    ]
    assert run.trace.one("transfer").args["device"] == "cuda:0"


def test_without_a_device_there_are_the_spans_of_the_host_and_one_warning(
    traced: Traced, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def with_torch(torch: types.SimpleNamespace | None) -> int:
        use_clock(None)
        caplog.clear()
        with monkeypatch.context() as patched:
            patched.delitem(sys.modules, "torch", raising=False)
            if torch is not None:
                patched.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
            with traced(perfetto=False) as run:
                for _ in range(3):
                    with ai.compute.forward(device=True):
                        pass
        assert len(run.trace.spans) == 3
        assert not without_time(run.trace)
        use_clock(None)
        return sum("no time on a device" in r.getMessage() for r in caplog.records)

    def built_with(kind: str | None, **modules: object) -> types.SimpleNamespace:
        device = None if kind is None else types.SimpleNamespace(type=kind)
        accelerator = types.SimpleNamespace(current_accelerator=lambda: device)
        return types.SimpleNamespace(accelerator=accelerator, **modules)

    def refuse() -> None:
        raise RuntimeError("Cannot have CUDA with other accelerators.")  # as torch says it

    unused = dict.fromkeys(("Event", "Stream", "current_stream", "current_device"))
    cuda = types.SimpleNamespace(is_initialized=lambda: False, **unused)
    old = types.SimpleNamespace(version=types.SimpleNamespace(cuda=None, hip=None))
    assert with_torch(None) == 0  # it may come
    assert with_torch(built_with(None)) == 1
    assert with_torch(old) == 1
    assert with_torch(built_with("mps", mps=types.SimpleNamespace())) == 1
    assert with_torch(types.SimpleNamespace(accelerator=types.SimpleNamespace())) == 1
    torn = built_with(None)
    torn.accelerator.current_accelerator = refuse
    assert with_torch(torn) == 1
    # Not used yet: to ask for more would keep the process from being forked.
    assert with_torch(built_with("cuda", cuda=cuda)) == 0


def test_the_clock_of_another_accelerator_is_asked_as_that_of_cuda(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = StandIn()

    class Graph:
        def capture_begin(self) -> None:
            with ai.compute.backward(device=True):
                pass

        def capture_end(self) -> None: ...

    module = types.SimpleNamespace(
        Event=lambda enable_timing: inner.event() if enable_timing else None,
        Stream=lambda device, priority: inner.side_stream(device),
        current_stream=lambda: inner.stream,
        current_device=lambda: inner.stream.device,
        is_initialized=lambda: True,
        CUDAGraph=Graph,
    )
    device = types.SimpleNamespace(type="xpu")
    accelerator = types.SimpleNamespace(current_accelerator=lambda: device)
    torch = types.SimpleNamespace(accelerator=accelerator, xpu=module)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    use_clock(None)
    with traced(perfetto=False) as run:
        with ai.compute.forward(device=True):
            pass
        graph = Graph()
        graph.capture_begin()
        graph.capture_end()
        with ai.compute.step(device=True):
            pass
    assert stream_times() is not None
    use_clock(None)
    names = {e.tid: e.args["name"] for e in run.trace.of("M") if e.name == "thread_name"}
    assert [(e.name, names[e.tid]) for e in on_device(run.trace)] == [
        ("forward", "XPU 0 stream 1"),
        ("step", "XPU 0 stream 1"),
    ]


def test_a_forked_child_has_none_of_its_parent_s_events(run_script: RunScript) -> None:
    outcome = run_script(
        PROGRAM
        + """
dftrace_ai.initialize()
around = ai.compute.step(device=True)
around.start()
with ai.compute.forward(device=True):
    pass
if (child := os.fork()) == 0:
    gpu.usable = False  # as torch says of a device that the parent has used
    gpu.calls.clear()
    around.stop()
    with ai.compute.backward(device=True):
        pass
    dftrace_ai.finalize()
    os._exit(1 if gpu.calls else 0)
assert os.waitpid(child, 0)[1] == 0
around.stop()
dftrace_ai.finalize()
"""
    )
    own, (child,) = outcome.split(perfetto=False)
    assert sorted(e.name for e in on_device(own)) == ["forward", "step"]
    assert [e.name for e in child.spans] == ["backward"]


@pytest.fixture
def auto() -> Iterator[Auto]:
    """`dftrace_ai.auto`, which is off before and after."""
    dftrace_ai.auto.remove()
    yield dftrace_ai.auto
    dftrace_ai.auto.remove()


def test_computing_has_intervals_with_the_step_that_it_belongs_to(
    traced: Traced, gpu: StandIn, auto: Auto
) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.ones(1, 2)

    def train() -> None:
        for _ in range(2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    with traced(perfetto=False) as run:
        auto(device=True, depth=2)
        train()
        auto.remove()
        auto()
        train()
    first, *told = [(e.name, e.args.get("step")) for e in on_device(run.trace)]
    # A loop over a loader may follow the first clearing, which has no step on the host, either.
    assert first == ("step.zero_grad", None)
    (cleared, *_) = run.trace.named("step.zero_grad", "compute")
    assert "step" not in cleared.args
    names = ("forward", "forward.0", "backward", "step")
    wanted = [("step.zero_grad", 1), *((name, step) for step in (0, 1) for name in names)]
    assert sorted(told) == sorted(wanted)
    # Without it there are the spans of the host alone.
    assert len(run.trace.named("backward", "compute")) == 4
