"""`dftrace convert --to otlp`: what OpenTelemetry's own messages read is what the lines say."""

from __future__ import annotations

import base64
import gzip
import json
import os
import tracemalloc
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from analysis.trace_lines import TIME_BASE_US, TraceLines, small_trace
from google.protobuf import json_format
from live.otlp_receiver import Told, by_key, receiver, told_in
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData
from safety.commands import invoke

from dftrace_ai.analysis.reading import open_traces

RUN = "0123456789abcdef0123456789abcdef"


def in_base64(value: Any) -> Any:
    """OTLP has ids in hexadecimal digits where protobuf's own JSON has base64."""
    if isinstance(value, dict):
        return {
            key: base64.b64encode(bytes.fromhex(one)).decode()
            if key in {"traceId", "spanId", "parentSpanId"}
            else in_base64(one)
            for key, one in value.items()
        }
    return [in_base64(one) for one in value] if isinstance(value, list) else value


def converted(out: Path, *words: object) -> list[Told]:
    done = invoke("convert", *words, "--to", "otlp", "--out", out, "--force")
    assert done.status == 0, done.err
    text = out.read_bytes()
    lines = (gzip.decompress(text) if out.suffix == ".gz" else text).splitlines()
    # What is no field of the messages is an error.
    data = (json_format.ParseDict(in_base64(json.loads(line)), TracesData()) for line in lines)
    told = [one for each in data for one in told_in(each)]
    assert f"{len(told):,} spans in 1 file" in done.err
    return told


def test_steps_of_all_ranks_are_traces_with_every_span_in_its_place(tmp_path: Path) -> None:
    made = tmp_path / "made"
    words = ("--ranks", 3, "--steps", 5, "--layers", 2, "--per-host", 2)
    assert invoke("generate", made, *words).status == 0
    told = converted(tmp_path / "out.jsonl.gz", made)
    spans = by_key(told)
    (run,) = {trace.said.run for trace in open_traces([made])}
    whole = [one for one in told if one.span.trace_id == bytes.fromhex(run)]
    # Nothing is outside of steps: of the run there are its processes.
    assert sorted(one.span.name for one in whole) == ["rank 0", "rank 1", "rank 2"]
    process = {one.resource["dftrace.rank"]: one for one in whole}

    steps: dict[bytes, list[Told]] = defaultdict(list)
    for one in told:
        steps[one.span.trace_id].append(one)
    del steps[bytes.fromhex(run)]
    assert len(steps) == 5
    for step in steps.values():
        roots = [one for one in step if not one.span.parent_span_id]
        assert [one.span.name for one in roots] == ["pipeline.step"] * 3
        assert {one.resource["dftrace.rank"] for one in roots} == {0, 1, 2}
        assert {one.attributes["dftrace.step"] for one in step} == {
            roots[0].attributes["dftrace.step"]
        }
        for root in roots:
            assert root.attributes["dftrace.rank"] == root.resource["dftrace.rank"]
            (link,) = root.span.links
            assert (link.trace_id, link.span_id) == process[root.resource["dftrace.rank"]].key

    for trace in open_traces([made]):
        header = trace.said
        lines = [event for _, event in trace.events() if event.get("ph") == "X"]
        here = {
            (one.span.start_time_unix_nano, one.span.name, one.attributes["thread.id"]): one
            for one in told
            if one.resource["dftrace.rank"] == header.rank and "thread.id" in one.attributes
        }
        assert len(here) == len(lines)
        of_id = {}
        for event in lines:
            start = header.time_base_us * 1000 + round(event["ts"] * 1000)
            name = f"{event['cat']}.{event['name']}"
            one = of_id[event["id"]] = here[start, name, event["tid"]]
            assert one.span.end_time_unix_nano - start == round(event["dur"] * 1000)
            args = {k: v for k, v in event["args"].items() if k not in ("hhash", "p_idx", "level")}
            assert (
                args.items()
                <= {
                    key.removeprefix("dftrace."): value for key, value in one.attributes.items()
                }.items()
            )
            assert (
                one.resource
                | {
                    "service.name": "train",
                    "host.name": header.host,
                    "process.pid": header.pid,
                    "dftrace.rank": header.rank,
                    "dftrace.world_size": 3,
                    "dftrace.run": run,
                }
                == one.resource
            )
        for event in lines:
            one = of_id[event["id"]]
            if event["args"]["p_idx"]:
                assert one.above == of_id[event["args"]["p_idx"]].key
            elif one.span.parent_span_id:
                assert spans[one.above].span.name == "pipeline.step"
        threads = {one.attributes["thread.name"] for one in here.values()}
        assert {"MainThread", "steps", "collectives"} <= threads
    # A second conversion gives the same ids.
    assert by_key(converted(tmp_path / "out.jsonl", made)).keys() == spans.keys()


class Written(TraceLines):
    """Lines of a process whose spans have the ids and parents that are given."""

    def of(self, number: int, parent: int, name: str, start: int, end: int, **args: Any) -> None:
        self.last_id = number - 1
        cat, name = name.split("/")
        self.span(name, cat, start, end - start, p_idx=parent, **args)


def shape(told: list[Told]) -> dict[str, str]:
    """The path of each span from its root on, by the argument `k`, and in which trace that is."""
    spans = by_key(told)
    traces: dict[bytes, int] = {bytes.fromhex(RUN): 0}
    found = {}
    for one in sorted(told, key=lambda one: one.span.start_time_unix_nano):
        path, at = [], one
        while at.span.parent_span_id:
            at = spans[at.above]
            path.append(at.attributes.get("dftrace.k", at.span.name))
        number = traces.setdefault(one.span.trace_id, len(traces))
        if "dftrace.k" in one.attributes:
            found[one.attributes["dftrace.k"]] = " < ".join([*path, f"trace {number}"])
    return found


def loop(trace: TraceLines, steps: int) -> None:
    """A loop over a loader in an epoch in a training; threads beside are written later."""
    late = []
    for step in range(steps):
        at, first = 1000 * step + 100, 10 * step + 10
        trace.of(first, 2, "dataloader/fetch.iter", at, at + 50, count=step + 1, k=f"wait{step}")
        trace.of(first + 2, first + 1, "compute/forward", at + 60, at + 200, k=f"forward{step}")
        trace.of(
            *(first + 1, 2, "dataloader/fetch.block", at + 50, at + 500),
            count=step + 1,
            k=f"b{step}",
        )
        # One ends behind the step that has begun it, another begins without it.
        late += [
            (first + 3, first + 2, at + 900, f"kernel{step}"),
            (first + 4, 0, at + 300, f"read{step}"),
        ]
        trace.of(first + 5, 2, "checkpoint/save", at + 550, at + 600, k=f"save{step}")
    for number, parent, at, name in late:
        trace.of(number, parent, "gpu.compute/k", at, at + 20, tid=7, k=name)
    trace.of(2, 1, "pipeline/epoch", 50, 90_000, k="epoch")
    trace.of(1, 0, "pipeline/train", 10, 95_000, k="train")


@pytest.mark.parametrize("steps", [3, 30])
def test_bodies_of_a_loop_are_steps_and_what_is_around_them_is_of_the_run(
    tmp_path: Path, steps: int
) -> None:
    trace = Written(run=RUN, rank=1, world_size=2)
    loop(trace, steps)
    trace.footer()
    trace.write(tmp_path / "run" / "t-host-100.pfw.gz", 4)
    found = shape(converted(tmp_path / "o.jsonl", tmp_path / "run"))
    for step in range(steps):
        of_step = f"trace {step + 1}"
        assert found[f"b{step}"] == of_step
        assert found[f"wait{step}"] == found[f"read{step}"] == f"b{step} < {of_step}"
        assert found[f"forward{step}"] == f"b{step} < {of_step}"
        assert found[f"kernel{step}"] == f"forward{step} < b{step} < {of_step}"
        assert found[f"save{step}"] == "epoch < train < rank 1 < trace 0"
    assert found["epoch"] == "train < rank 1 < trace 0"


def test_epochs_and_starts_of_a_rank_have_steps_of_their_own(tmp_path: Path) -> None:
    for pid, rank, restarts, epochs in ((1, 0, 0, 2), (2, 1, 0, 2), (3, 0, 1, 1)):
        trace = Written(pid, run=RUN, rank=rank, world_size=2, restarts=restarts)
        number = 0
        for epoch in range(epochs):
            # Rank 0 alone looks at two batches more.
            for step in (*range(3), *([0, 1] if rank == 0 else [])):
                number += 1
                at = 1000 * number
                trace.of(number, 0, "pipeline/step", at, at + 500, epoch=epoch, step=step)
        trace.footer()
        trace.write(tmp_path / "run" / f"t-host-{pid}.pfw.gz")
    told = converted(tmp_path / "o.jsonl", tmp_path / "run")
    ranks = defaultdict(list)
    for one in told:
        if one.span.name == "pipeline.step":
            at = one.attributes["dftrace.epoch"], one.attributes["dftrace.step"]
            ranks[one.span.trace_id].append((one.resource["process.pid"], at))
    by_all = [both for both in ranks.values() if len(both) > 1]
    # Both ranks of the first start, the same step.
    assert len(by_all) == 6
    assert all({pid for pid, _ in both} == {1, 2} for both in by_all)
    assert all(len({at for _, at in both}) == 1 for both in by_all)
    assert Counter(len(each) for each in ranks.values()) == {2: 6, 1: 4 + 5}


def test_what_is_odd_is_told_and_nothing_gets_lost(tmp_path: Path) -> None:
    odd = Written(run="00ff", launch="x")
    odd.of(5, 5, "a/itself", 100, 200)
    odd.of(6, 7, "a/circle", 300, 400)
    odd.of(7, 6, "a/circle", 300, 400)
    odd.of(8, 99, "pipeline/step", 250, 500, step=2**63, text="ü😀" * 3, none=None)
    odd.of(
        9,
        8,
        "a/b",
        600,
        700,
        big=-(2**63),
        real=0.5,
        yes=True,
        many=[1, {"a": "b"}],
        error="E",
        category="x",
    )
    odd.add('{"name":"n","cat":"c","pid":100,"tid":1,"ts":5.5,"dur":1,"ph":"X"}')
    odd.add('{"name":"n","cat":"c","pid":100,"tid":1,"ts":5.5,"dur":1,"ph":"X"}')
    odd.last_id = 20
    odd.unfinished("open", "c", 10)
    odd.write(tmp_path / "run" / "t-host-100.pfw")
    small_trace(101).write(tmp_path / "run" / "t-host-101.pfw.zst")
    told = converted(tmp_path / "o.jsonl", tmp_path / "run")
    spans = {one.span.name: one for one in told}
    assert len({one.key for one in told}) == len(told) == 8 + 1 + 5 + 1
    (step, of_step) = spans["pipeline.step"], spans["a.b"]
    assert step.attributes["dftrace.step"] == str(2**63)
    assert "dftrace.none" not in step.attributes
    assert step.attributes["dftrace.text"] == "ü😀" * 3
    assert of_step.above == step.key
    assert of_step.span.status == Status(code=Status.STATUS_CODE_ERROR, message="E")
    assert of_step.attributes["error.type"] == "E"
    assert [of_step.attributes[f"dftrace.{key}"] for key in ("big", "real", "yes", "many")] == [
        -(2**63),
        0.5,
        True,
        '[1,{"a":"b"}]',
    ]
    assert of_step.attributes["dftrace.category"] == "a"
    assert of_step.attributes["dftrace.args.category"] == "x"
    still = spans["c.open"]
    assert still.attributes["dftrace.unfinished"] is True
    # It lasted as long as anything is known of its process.
    base = TIME_BASE_US * 1000
    assert (still.span.start_time_unix_nano, still.span.end_time_unix_nano) == (
        base + 10,
        base + 6500,
    )
    assert still.span.kind == Span.SPAN_KIND_INTERNAL


def test_long_values_are_told_a_few_at_once_and_not_kept(tmp_path: Path) -> None:
    trace = TraceLines(run=RUN)
    for number in range(50):
        trace.span("forward", "compute", 1000 * number, 500, v=f"{number}" + "x" * 1_000_000)
    trace.footer()
    trace.write(tmp_path / "run" / "t-host-100.pfw.gz", 100)
    out = tmp_path / "o.jsonl"
    tracemalloc.start()
    try:
        assert invoke("convert", tmp_path / "run", "--to", "otlp", "--out", out).status == 0
        _, most = tracemalloc.get_traced_memory()
        with receiver() as server:
            assert invoke("export", tmp_path / "run", "--to", server.address).status == 0
            assert len(by_key(server.told)) == 51
        del server
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Of 50 MB.
    assert most < 90e6
    assert kept < 20e6
    with out.open("rb") as lines:
        assert max(map(len, lines)) < 4e6


def test_the_environment_names_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_trace(run=RUN).write(tmp_path / "run" / "t-host-100.pfw.gz")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=a%20b,service.name=c,=x,y")
    first, *_ = converted(tmp_path / "o.jsonl", tmp_path / "run")
    assert (first.resource["team"], first.resource["service.name"]) == ("a b", "c")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "d")
    first, *_ = converted(tmp_path / "o.jsonl", tmp_path / "run")
    assert first.resource["service.name"] == "d"
    # Bytes that are no UTF-8.
    monkeypatch.setenv("OTEL_SERVICE_NAME", os.fsdecode(b"a\xffb"))
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", os.fsdecode(b"team=c\xff,t\xff=d"))
    first, *_ = converted(tmp_path / "o.jsonl", tmp_path / "run")
    assert [first.resource[name] for name in ("service.name", "team", "t?")] == ["a?b", "c?", "d"]
