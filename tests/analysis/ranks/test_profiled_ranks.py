"""Files of torch.profiler: their collectives on a GPU and of gloo say who is late, in ranks and whatif."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from dftrace_ai.analysis import ranks, whatif, why
from dftrace_ai.analysis.ranks import measured
from dftrace_ai.analysis.ranks.job import read_ranks
from dftrace_ai.analysis.ranks.partials import Group
from dftrace_ai.analysis.reading import open_traces

RANKS, STEPS, LATE, MORE_US = 4, 40, 2, 30_000
STEP_US, FORWARD_US, MEET_US = 20_000, 8_000, 2_000
BASE_NS = 1_790_000_000_000_000_000
Event = dict[str, Any]


def span(cat: str, name: str, tid: int, at: float, us: float, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": at, "dur": us,
            "args": args}  # fmt: skip


def recorded(number: int, ranks_of: Any = "[0, 1, 2, 3]") -> dict[str, Any]:
    """What torch tells of a collective, as its tests have it."""
    return {
        "Collective name": "allreduce",
        "In msg nelems": 1 << 20,
        "Out msg nelems": 1 << 20,
        "Group size": RANKS,
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": ranks_of,
        "dtype": "BFloat16",
        "Seq": number,
    }


def on_gpu(step: int, begin: float, own: float, end: float, *, by_launch: bool) -> Iterable[Event]:
    """A kernel that computes, and one that waits inside; the host is far ahead of both."""
    told, number = recorded(step), 1000 + step
    yield span("cpu_op", "aten::linear", 1, begin + 100, 2000)
    yield span(
        "cpu_op", "record_param_comms", 1, begin + 2200, 20, **told, **{"External id": number}
    )
    yield span("kernel", "sgemm", 7, begin, own)
    mine = {} if by_launch else told
    kernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    yield span(
        "kernel", kernel, 20, begin + own, end - begin - own, **mine, **{"External id": number}
    )


def of_gloo(step: int, begin: float, own: float, end: float) -> Iterable[Event]:
    """A call that waits while a thread of gloo does it."""
    del step
    yield span("cpu_op", "aten::linear", 1, begin + 10, own - 50)
    yield span("cpu_op", "c10d::allreduce_", 1, begin + own - 30, 20)
    yield span("user_annotation", "gloo:all_reduce", 33, begin + own, end - begin - own)
    yield span("user_annotation", "Optimizer.step#SGD.step", 1, end + 20, 400)


def of_gloo_seen_late(step: int, begin: float, own: float, end: float) -> Iterable[Event]:
    """The same: the thread of gloo ends some time after it has woken who waits, and that one late."""
    for one in of_gloo(step, begin, own, end):
        is_call = one["name"].startswith("gloo")
        seen = 400 if is_call else 0
        woken = 3_000 if one["name"].startswith("Optimizer") and step % 4 == 3 else 0
        yield {**one, "dur": one["dur"] + seen, "ts": one["ts"] + woken}


HOW: dict[str, Callable[[int, float, float, float], Iterable[Event]]] = {
    "a GPU": lambda *told: on_gpu(*told, by_launch=False),
    "a GPU, told by what launched it": lambda *told: on_gpu(*told, by_launch=True),
    "gloo": of_gloo,
    "gloo, seen late": of_gloo_seen_late,
    "gloo, in no span": lambda *told: (
        one for one in of_gloo(*told) if one["cat"] != "cpu_op" or one["name"].startswith("c10d")
    ),
}


def profiles(
    folder: Path,
    how: str,
    late: int | None = LATE,
    *,
    between_us: float = 50,
    once: int | None = None,
) -> list[Path]:
    paths = []
    for rank in range(RANKS):
        events: list[Event] = []
        at = 1000.0
        for step in range(STEPS):
            more = MORE_US if late is not None and once is None else 0
            more += 30 * MORE_US if step == once else 0
            own = FORWARD_US + 40 * ((rank + step) % 3) + (more if rank == late else 0)
            end = at + FORWARD_US + 80 + more + MEET_US
            whole = end + 500 - at + (3000 if how.endswith("late") else 0)
            events.append(span("user_annotation", f"ProfilerStep#{step + 5}", 1, at, whole))
            events += HOW[how](step, at, own, end)
            at += whole + between_us
        paths.append(folder / f"rank{rank}.json")
        told = {"rank": rank, "world_size": RANKS, "backend": "nccl"}
        text = json.dumps(
            {
                "schemaVersion": 1,
                "host_name": f"node{rank // 2}" if "GPU" in how else "node0",
                "distributedInfo": told,
                "baseTimeNanoseconds": BASE_NS,
                "traceEvents": events,
            }
        )
        paths[-1].write_text(text, encoding="utf-8")
    return paths


@pytest.mark.parametrize("how", HOW)
def test_the_late_rank_of_profiles_is_named(tmp_path: Path, how: str) -> None:
    paths = profiles(tmp_path, how)
    verdict = ranks(paths)
    (finding,) = verdict.findings
    assert (finding.kind, finding.ranks) == ("worker", (LATE,))
    assert finding.late_ns == pytest.approx(1000 * MORE_US, rel=0.02)
    assert verdict.steps.common == STEPS
    (row,) = verdict.collectives
    assert (row.name, row.count) == ("all_reduce", STEPS - 1)
    assert (row.root[0].rank, round(row.root[0].share, 1)) == (LATE, 1.0)
    assert row.transfer_ns.p50 == pytest.approx(1000 * MEET_US, rel=0.25)
    if "GPU" in how:
        assert (row.group, row.ranks, row.bytes) == ("0", (0, 1, 2, 3), 2 << 20)
        assert row.algbw_gbs == pytest.approx((2 << 20) / (1000 * MEET_US), rel=0.1)
    assert not any("enqueued" in one.why for one in verdict.abstained)
    even = whatif(paths)
    assert (even.cause.kind, even.cause.ranks) == ("worker", (LATE,))
    without = even.by_rank[LATE].without
    late_us = 3000 if how.endswith("late") else 0
    assert without == pytest.approx(
        (FORWARD_US + MORE_US + MEET_US + late_us) / (FORWARD_US + MEET_US + late_us), rel=0.1
    )
    assert finding.without == pytest.approx(without, rel=0.1)
    told = why(paths)
    assert told.findings[0].kind == "late-rank"
    assert told.findings[0].cost == pytest.approx(finding.cost, rel=0.01)


def test_time_between_steps_counts_as_time(tmp_path: Path) -> None:
    between_us = 60_000
    paths = profiles(tmp_path, "gloo", between_us=between_us)
    (finding,), even = ranks(paths).findings, whatif(paths)
    (told,) = (one for one in why(paths).findings if one.kind == "late-rank")
    whole_us = FORWARD_US + 80 + MORE_US + MEET_US + 500 + between_us
    assert finding.cost == pytest.approx(MORE_US / whole_us, rel=0.02)
    assert finding.without == pytest.approx(even.by_rank[LATE].without, rel=0.02)
    assert told.share_of == "training"
    assert told.cost == pytest.approx(finding.cost, rel=0.01)


def test_who_was_late_once_comes_before_what_is_in_no_span(tmp_path: Path) -> None:
    verdict = why(profiles(tmp_path, "gloo, in no span", once=20))
    late, unnamed = verdict.findings
    assert (late.kind, late.cause, late.ranks, late.confidence) == (
        *("late-rank", "once", (LATE,), "low"),
    )
    assert (unnamed.kind, unnamed.severity) == ("not-annotated", "critical")
    assert unnamed.cost < late.cost


def test_what_a_profile_computes_beside_a_collective_is_no_wait(tmp_path: Path) -> None:
    events: list[Event] = []
    for step in range(STEPS):
        at = 1000.0 + step * STEP_US
        events += [
            span("user_annotation", f"ProfilerStep#{step}", 1, at, STEP_US - 50),
            span("cpu_op", "c10d::allreduce_", 1, at + 100, 20),
            span("user_annotation", "gloo:all_reduce", 33, at + 150, 9_000),
            *(span("cpu_op", "aten::mm", 1, at + 200 + 3000 * k, 2_900) for k in range(6)),
        ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    parts = why([path]).parts
    assert parts["comm"].share < 0.01 < 0.8 < parts["compute"].share


@pytest.mark.parametrize("how", HOW)
def test_of_even_profiles_nobody_is_late(tmp_path: Path, how: str) -> None:
    paths = profiles(tmp_path, how, late=None)
    assert ranks(paths).verdict == "none"
    assert whatif(paths).cause.kind == "none"


def test_groups_are_each_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many groups as calls: comparing each with all others would be most of the reading."""
    many = 200
    paths = profiles(tmp_path, "a GPU")
    for path in paths:
        said = json.loads(path.read_text())
        told = [{**recorded(0), "Process Group Name": f"g{one % many}"} for one in range(2 * many)]
        said["traceEvents"] += [
            span("kernel", "ncclDevKernel_AllReduce_Sum_f32", 21, 5000 + 10 * at, 5, **one)
            for at, one in enumerate(told)
        ]
        path.write_text(json.dumps(said))
    compared = 0

    class Compared(Group):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return tuple(self) == other

        __hash__ = Group.__hash__

    monkeypatch.setattr(measured, "Group", Compared)
    job = read_ranks(open_traces(paths))
    for rank in job.ranks:
        names = [group.name for group in rank.groups]
        assert names[0] == ""
        assert sorted(names[1:]) == sorted(["0", *(f"g{one}" for one in range(many))])
        # Two calls of each, and a step's of all.
        groups = [int(one) for chunk in rank.chunks.values() for one in chunk.calls.group]
        counts = {names[group]: groups.count(group) for group in set(groups)}
        assert counts == {"0": STEPS, **{f"g{one}": 2 for one in range(many)}}
    assert compared < 10 * many
