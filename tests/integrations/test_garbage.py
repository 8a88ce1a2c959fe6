"""The part `gc`: collections of garbage that last, whatever happens in them."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch  # noqa: F401 - the parts wait for it
from conftest import RunScript, Traced, read_all, trace_files
from safety.commands import invoke

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.integrations.auto import Auto

LEAST_NS = 1_000_000


class Slow:
    """Garbage that takes two milliseconds to be collected."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        until = time.perf_counter_ns() + 2 * LEAST_NS
        while time.perf_counter_ns() < until:
            pass


@pytest.fixture(autouse=True)
def _by_hand() -> Iterator[None]:
    """Nothing is collected but what a test collects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def in_a_span() -> Iterator[None]:
    with ai.compute.forward:
        yield


def test_a_collection_that_lasts_is_a_span_of_what_it_was_in(traced: Traced, auto: Auto) -> None:
    before = list(gc.callbacks)
    with traced() as rec:
        auto(parts="gc")
        with ai.pipeline.train(step=3):
            Slow()
            gc.collect()
            for _ in range(1000):
                gc.collect(0)
            ai.host.gc.disable()
            Slow()
            gc.collect()
            ai.host.gc.enable()
            ai.host.update(epoch=7)
            Slow()
            gc.collect(1)
        auto.remove()
        assert gc.callbacks == before
        Slow()
        gc.collect()
    train = rec.trace.one("train")
    found = rec.trace.named("gc", "host")
    assert 2 <= len(found) < 500
    assert all(e.dur_ns is not None and e.dur_ns >= LEAST_NS for e in found)
    assert {rec.trace.parent(e) for e in found} == {train}
    assert {e.tid for e in found} == {train.tid}
    first, last = found[0], found[-1]
    assert first.user["generation"] == 2
    assert first.user["collected"] >= 1
    assert last.user == {"epoch": 7, "generation": 1, "collected": last.user["collected"]}


def test_what_spans_do_in_a_collection(traced: Traced, auto: Auto) -> None:
    """Others' callbacks that collect, record and raise nothing; a generator in a span that is lost."""
    heard = []

    def other(phase: str, _info: dict[str, int]) -> None:
        with ai.data.item:
            heard.append((phase, gc.collect()))

    class Recording(Slow):
        def __del__(self) -> None:
            with ai.compute.backward:
                super().__del__()

    # What is recorded in a collection is drawn below it, and belongs to what that was in.
    with traced(perfetto=False) as rec:
        auto(parts="gc")
        with ai.pipeline.train:
            gc.callbacks.append(other)
            Recording()
            gc.collect()
            gc.callbacks.remove(other)
            lost = in_a_span()
            next(lost)
            holder = Slow()
            holder.lost = lost
            del lost, holder
            gc.collect()
            gc.freeze()
            gc.unfreeze()
    assert heard == [("start", 0), ("stop", 0)]
    nested, beside = rec.trace.named("gc")
    backward, forward = rec.trace.one("backward"), rec.trace.one("forward")
    assert nested.ts_ns < backward.ts_ns < backward.end_ns < nested.end_ns
    assert nested.tid == backward.tid == forward.tid
    assert forward.ts_ns < beside.ts_ns < forward.end_ns < beside.end_ns
    assert beside.tid != forward.tid  # they do not nest


def test_runs_that_begin_and_end_in_a_collection(auto: Auto, tmp_path: Path) -> None:
    class Ending(Slow):
        def __del__(self) -> None:
            super().__del__()
            dftrace_ai.finalize()
            dftrace_ai.initialize(log_file=tmp_path / "second")

    auto(parts="gc", log_file=tmp_path / "first")
    Ending()
    gc.collect()
    Slow()
    gc.collect()
    dftrace_ai.finalize()
    Slow()
    gc.collect()
    (second,) = read_all(trace_files(tmp_path))
    assert second.path.name.startswith("second")
    assert second.names == {"gc": 1}


@pytest.mark.parametrize("records", [False, True])
def test_what_a_launcher_collects_is_no_trace_by_itself(
    auto: Auto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: bool
) -> None:
    monkeypatch.setenv("DFTRACE_LAUNCH", "0123")
    auto(parts="gc", log_file=tmp_path / "t")
    if records:
        with ai.compute.forward:
            pass
    Slow()
    gc.collect()
    dftrace_ai.finalize()
    names = [trace.names for trace in read_all(trace_files(tmp_path))]
    assert names == ([{"forward": 1, "gc": 1}] if records else [])


THREADS_AND_CHILDREN = """
import gc, os, threading, time
gc.disable()
import torch
import dftrace_ai
from dftrace_ai import ai

class Slow:
    def __init__(self, then=None):
        self.itself = self
        self.then = then
    def __del__(self):
        until = time.perf_counter_ns() + 2_000_000
        while time.perf_counter_ns() < until:
            pass
        if self.then is not None:
            self.then()

def fork():
    global child
    child = os.fork()

dftrace_ai.auto(parts="gc")
with ai.pipeline.train:
    # A thread that has recorded nothing yet.
    def collects():
        Slow()
        gc.collect()
    thread = threading.Thread(target=collects, name="collector")
    thread.start()
    thread.join()
    Slow(fork)
    gc.collect()
    if not child:
        Slow()
        gc.collect()
        dftrace_ai.finalize()
        os._exit(0)
    os.waitpid(child, 0)
# Collected while the interpreter ends.
ended = Slow()
gc.enable()
"""


def test_threads_children_and_the_end_of_the_interpreter(run_script: RunScript) -> None:
    done = run_script(THREADS_AND_CHILDREN)
    assert done.stderr == ""
    own, (child,) = done.split()
    train = own.one("train")
    first, second = own.named("gc")
    assert own.thread_names[first.tid] == "collector"
    assert first.user["generation"] == second.user["generation"] == 2
    assert (own.parent(first), own.parent(second)) == (None, train)
    assert child.names == {"gc": 1}  # the one in which it was forked is the parent's


def test_a_step_is_made_of_the_same_with_collections_in_it(traced: Traced, auto: Auto) -> None:
    """The time is that of whatever encloses it."""
    from dftrace_ai.analysis.why import why

    with traced(compression="none") as rec:
        for _ in ai.dataloader.fetch.iter(range(12)):
            with ai.compute.forward:
                sum(range(20_000))
            with ai.compute.backward:
                sum(range(30_000))
    lines = rec.trace.path.read_text().splitlines()
    made = []
    for line in lines:
        event = json.loads(line.strip("[")) if line != "[" else {}
        if event.get("ph") == "X" and event["name"] in {"forward", "backward", "fetch.iter"}:
            ts, dur = event["ts"], event["dur"]
            if dur < 0.003:
                made.append(line)  # it has no thirds
                continue
            inside = {**event, "id": 10_000 + event["id"], "name": "gc", "cat": "host"}
            inside["args"] = {**event["args"], "p_idx": event["id"], "level": 9}
            text = json.dumps(inside, separators=(",", ":"))
            # From its first third to its second.
            for old, new in (
                (f'"ts":{json.dumps(ts)}', f'"ts":{ts + dur / 3:.3f}'),
                (f'"dur":{json.dumps(dur)}', f'"dur":{dur / 3:.3f}'),
            ):
                text = text.replace(old, new)
            made.append(text)
        made.append(line)
    assert len(made) >= len(lines) + 24
    with_them = rec.folder / "with.pfw"
    with_them.write_text("\n".join(made) + "\n")
    found, expected = (why([path]) for path in (with_them, rec.trace.path))
    assert expected.steps.count == 12
    assert found.steps == expected.steps
    assert found.parts == expected.parts
    assert found.findings == expected.findings

    # Where garbage is a part, a colour, a row or a finding: whatever reads a run reads this one.
    page = rec.folder / "page.html"
    for words in (
        ["summary"],
        *(["summary", "--by", by] for by in ("step", "rank", "process", "tree")),
        ["why", "--json"],
        ["why", "--lines"],
        ["ranks"],
        ["whatif", "--json"],
        ["report", "--out", page],
        ["diff", rec.trace.path],
        ["info"],
        ["sql", "SELECT name, count(*) FROM events GROUP BY name"],
        ["convert", "--to", "perfetto", "--out", rec.folder / "converted.json.gz"],
    ):
        name, *options = words
        done = invoke(name, with_them, *options)
        assert done.status == 0, (words, done)
    assert "host: gc" in page.read_text()
