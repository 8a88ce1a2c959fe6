"""Times of a real GPU: they fit what the host knows, nothing waits, and captures stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Traced

import dftrace_ai
from device.test_intervals import on_device, tracks, without_time
from device.waiting import nothing_may_wait
from dftrace_ai import ai
from dftrace_ai.device.companions import use_clock

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@pytest.fixture(autouse=True)
def _torch_s_clock() -> Iterator[None]:
    use_clock(None)
    yield
    use_clock(None)


def work() -> tuple[Any, Any]:
    x = torch.randn(2048, 2048, device="cuda")
    torch.mm(x, x)
    torch.cuda.synchronize()
    return x, torch.empty_like(x)


def test_intervals_lie_between_launch_and_the_end_of_the_work(traced: Traced) -> None:
    x, out = work()
    with traced() as run:
        for _ in range(40):
            with nothing_may_wait(), ai.compute.forward(device=True):
                for _ in range(10):
                    torch.mm(x, x, out=out)
            with ai.compute.step:
                torch.cuda.synchronize()
    found = on_device(run.trace)
    assert len(found) == 40
    assert not without_time(run.trace)
    assert {tracks(run.trace)[e.tid] for e in found} == {"GPU 0 stream 0"}
    for interval, waited in zip(found, run.trace.named("step"), strict=True):
        host = run.trace.by_id[interval.p_idx]
        error_ns = interval.args["error_us"] * 1000 + 1000
        assert host.ts_ns is not None
        assert interval.ts_ns is not None
        assert interval.ts_ns >= host.ts_ns - error_ns
        assert interval.end_ns <= waited.end_ns + error_ns
        assert interval.dur_ns


def test_a_capture_has_as_many_nodes_as_without_us(traced: Traced) -> None:
    x, out = work()

    def captured(**given: bool) -> int:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph), ai.compute.forward(**given):
            torch.mm(x, x, out=out)
        count = len(graph_nodes(graph))
        with ai.compute.step(device=True):
            graph.replay()
        torch.cuda.synchronize()
        return count

    with traced() as run:
        with ai.compute.backward(device=True):
            torch.mm(x, x, out=out)
        assert captured(device=True) == captured()
    assert [e.name for e in on_device(run.trace)] == ["backward", "step", "step"]


def graph_nodes(graph: Any) -> range:
    """The nodes of a graph, by CUDA's own count."""
    runtime = pytest.importorskip("cuda.bindings.runtime")
    _, _, count = runtime.cudaGraphGetNodes(runtime.cudaGraph_t(graph.raw_cuda_graph()))
    return range(count)


def test_streams_have_tracks_of_their_own(traced: Traced) -> None:
    x, out = work()
    side = torch.cuda.Stream()
    with traced() as run:
        with ai.compute.forward(device=True):
            torch.mm(x, x, out=out)
        with torch.cuda.stream(side), ai.comm.all_reduce(device=True):
            torch.mm(x, x)
    assert {(e.name, tracks(run.trace)[e.tid]) for e in on_device(run.trace)} == {
        ("forward", "GPU 0 stream 0"),
        ("all_reduce", "GPU 0 stream 1"),
    }


def test_collectives_have_their_time_on_the_stream_that_they_hold(traced: Traced) -> None:
    """With one rank: blocking ones begin when the stream has done what was before them, waits too."""
    distributed = pytest.importorskip("torch.distributed")
    operator = torch.ops.c10d.allreduce_.default
    if not distributed.is_nccl_available():
        pytest.skip("there is no NCCL")
    if not any(one.name in {"async_op", "asyncOp"} for one in operator._schema.arguments):
        pytest.skip(
            "this torch has its collectives on a stream of the backend's, also blocking ones"
        )
    x, out = work()
    numbers = torch.ones(1 << 24, device="cuda")
    distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        distributed.all_reduce(numbers)
        with traced() as run:
            dftrace_ai.auto(parts="collectives", device=True)
            with ai.compute.forward(device=True):
                torch.mm(x, x, out=out)
            with nothing_may_wait():
                distributed.all_reduce(numbers)
            for _ in range(20):  # what has to be done before the collective
                torch.mm(x, x, out=out)
            pending = distributed.all_reduce(numbers, async_op=True)
            with nothing_may_wait(), ai.compute.backward:
                pending.wait()
            torch.cuda.synchronize()
            pending.wait()  # for what is over
            dftrace_ai.auto.remove()
    finally:
        distributed.destroy_process_group()
    forward, reduced, waited = on_device(run.trace)
    assert (reduced.cat, reduced.name) == ("gpu.comm", "all_reduce")
    assert reduced.p_idx == run.trace.named("all_reduce")[0].id
    assert reduced.ts_ns is not None
    assert reduced.ts_ns >= forward.end_ns
    assert reduced.dur_ns
    assert tracks(run.trace)[reduced.tid] == "GPU 0 stream 0"
    assert (waited.cat, waited.name) == ("gpu.comm", "wait")
    assert waited.p_idx == run.trace.named("backward")[0].id
    assert waited.ts_ns is not None
    assert waited.ts_ns >= reduced.end_ns
    assert tracks(run.trace)[waited.tid] == "GPU 0 stream 0"
