"""When a collective has ended, in whatever thread or handler, and what is told again of its group."""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from conftest import Traced, read_all, trace_files
from device.stand_in import StandIn, now
from perfetto.trace_file import Trace
from rank_processes import on_ranks

import dftrace_ai
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.device.companions import use_clock
from dftrace_ai.integrations.auto import Auto
from dftrace_ai.run import emitting

pytest.importorskip("torch.distributed")

import torch
import torch.distributed as dist

from dftrace_ai.integrations.torch import collective_ends, collectives


class Work(Future):  # type: ignore[type-arg]
    """One that is its own future, and says when somebody else than the main thread asks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()

    def value(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.is_asked.set()
            self.may_answer.wait()


def followed(ends: collective_ends.Ends) -> Work:
    work = Work()
    span: Any = emitting.begin("all_reduce", {}, category="comm", track="collectives")
    ends.follow(span, work, work)
    return work


def test_a_run_ends_right_behind_a_collective(traced: Traced) -> None:
    ends = collective_ends.Ends()
    with traced(perfetto=False) as run:
        work = followed(ends)
        work.may_answer.clear()
        work.set_result(None)
        # By now the thread that looks at works has seen it, and has not ended the span.
        work.is_asked.wait()
        ends.settle()
    work.may_answer.set()
    ends.stop()
    assert [(one.name, one.ph) for one in run.trace.spans] == [("all_reduce", "X")]


class Patched(queue.SimpleQueue):  # type: ignore[type-arg]
    """Stands for a queue in which a greenlet may wait."""


def test_a_thread_waits_in_a_queue_of_its_own_kind(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    with traced(perfetto=False) as rec:
        ends = collective_ends.Ends()
        # As `gevent.monkey.patch_all()` does it behind `auto`, together with the making of threads.
        monkeypatch.setattr(queue, "SimpleQueue", Patched)
        work = followed(ends)
        waits_in = ends._calls
        work.set_result(None)
        ends.stop()
    assert isinstance(waits_in, Patched)
    assert rec.trace.names == {"all_reduce": 1}


def in_collectives(rank: int, folder: Path) -> int:
    """Interrupts collectives at each place of what follows them; returns how many there were.

    The second rank takes part in those of a round when the first is through with it: till then all of
    them are under way.
    """
    from interruption import Interruption
    from torch.distributed.distributed_c10d import _get_default_store

    dftrace_ai.initialize(log_file=folder / "trace", rank=rank, world_size=2)
    remove = collectives.install()
    store, modules = (
        _get_default_store(),
        {Path(collective_ends.__file__), Path(threading.__file__)},
    )
    works = []

    def reduce() -> None:
        works.append(dist.all_reduce(torch.ones(4), async_op=True))

    place = made = 0
    through = False
    while not through:
        place += 1
        if rank == 0:
            with Interruption(place, reduce, modules) as interruption:
                reduce()
            through = not interruption.came
            store.set(f"round {place}", "1" if through else "2")
        else:
            for _ in range(int(store.get(f"round {place}"))):
                reduce()
            through = len(works) == 1
        made += len(works)
        while works:
            works.pop().wait()
    remove()
    dftrace_ai.finalize()
    return made


def test_a_handler_has_collectives_wherever_it_comes(tmp_path: Path) -> None:
    """It does not wait for what its own thread is in the middle of, and each is recorded."""
    made = on_ranks(in_collectives, tmp_path)
    traces = read_all(trace_files(tmp_path))
    assert made[0] == made[1] > 10
    assert [t.names["all_reduce"] for t in traces] == made


MS = 1_000_000


class Busy(StandIn):
    """Comes to each event behind 5 ms of work more than to the one before."""

    def heard(self, what: str) -> None:
        super().heard(what)
        if what == "record":
            self.default.end_ns = (self.default.end_ns or now()) + 5 * MS


class Enqueued(dist.Work):
    """A work of a device, which has nobody wait but a stream."""

    def is_completed(self) -> bool:
        return False

    def wait(self, *_: Any) -> bool:
        return True


def test_a_stream_has_the_time_of_blocking_collectives_and_of_waits_for_others(
    traced: Traced, auto: Auto
) -> None:
    """As work of the current stream, and while it waits for that of another; none of a processor."""
    # It has functional collectives of tensors without memory make no call, whatever was imported before.
    import torch.distributed._functional_collectives
    import torch.testing._internal.distributed.fake_pg  # noqa: F401 - registers the backend

    use_clock(Busy())
    # A device without memory, and a backend that transfers nothing.
    dist.init_process_group("cpu:gloo,meta:fake", store=dist.HashStore(), rank=0, world_size=1)
    reduced = torch.ops._c10d_functional
    try:
        with traced(perfetto=False) as run:
            for device in (True, False):
                auto(parts="collectives", device=device)
                for _ in range(3):
                    dist.all_reduce(torch.ones(8, device="meta"))
                with dftrace_ai.ai.compute.backward:
                    dist.all_reduce(torch.ones(8), async_op=True).wait()
                    dist.all_reduce(torch.ones(8, device="meta"), async_op=True).wait()  # is over
                    assert dist.Work.wait(Enqueued())
                    for where in ("meta", "cpu"):
                        reduced.wait_tensor(
                            reduced.all_reduce(torch.ones(8, device=where), "sum", "0")
                        )
                dist.all_reduce(torch.ones(8))
                auto.remove()
    finally:
        dist.destroy_process_group()
        use_clock(None)
    found = [e for e in run.trace.spans if e.cat == "gpu.comm"]
    hosts = [e for e in run.trace.spans if e.cat == "comm"]
    blocking, waits = found[:3], found[3:]
    assert [(e.name, e.user["nth"], e.user["bytes"], e.user["stream"]) for e in blocking] == [
        ("all_reduce", nth, 32, 0) for nth in range(3)
    ]
    assert [e.p_idx for e in blocking] == [e.id for e in hosts[:3]]
    assert [(e.name, e.user["stream"]) for e in waits] == [("wait", 0)] * 2
    assert {e.p_idx for e in waits} == {run.trace.named("backward")[0].id}
    assert [round((e.dur_ns or 0) / MS, 2) for e in found] == [5] * 5
    assert len(hosts) == 14


LIMIT = 64 * 1024


def groups(trace: Trace) -> list[str]:
    told = [one.args["value"] for one in trace.of("M") if one.args.get("name") == "process_group"]
    return [json.loads(one)["name"] for one in told]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_file_bytes": LIMIT, "max_files": 3, "compression": "none"},
        {"flight_recorder": True, "spool_bytes": 1 << 20},
    ],
    ids=["parts", "flight recorder"],
)
def test_groups_are_told_again(traced: Traced, auto: Auto, settings: dict[str, Any]) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        pair, numbers = dist.new_group([0], group_desc="pair"), torch.ones(4)
        with traced(perfetto=False, **settings) as run:
            auto(parts="collectives")
            for _ in range(4000):
                dist.all_reduce(numbers)
                dist.all_reduce(numbers, group=pair)
            if "flight_recorder" in settings:
                dftrace_ai.dump()
            auto.remove()
    finally:
        dist.destroy_process_group()
    kept = [trace for trace in run.traces if trace.named("all_reduce")]
    assert kept
    for trace in kept:
        named = Counter(one.args["group"] for one in trace.named("all_reduce"))
        assert named.keys() <= set(groups(trace))
    assert sum(len(trace.named("all_reduce")) for trace in kept) < 8000
    if "max_files" in settings:
        assert len(kept) == 3
        assert [len(groups(trace)) for trace in kept] == [2, 2, 2]
        assert summarise([run.folder]).events == sum(one.footer["events"] for one in kept)
