"""Spans that one thread begins and another ends."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from pathlib import Path

import pytest
from conftest import RunScript, Traced
from live.programs import program
from perfetto.trace_file import read_unfinished

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.live import find_stuck, snapshot
from dftrace_ai.run import emitting


def elsewhere(work: object) -> None:
    """Call something on another thread, which ends."""
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    thread.join()


def test_a_span_that_another_thread_ends(traced: Traced) -> None:
    with traced() as rec:
        with ai.compute.forward:
            span = emitting.begin("ask", {"node": "a", "bytes": 1}, category="io", track="requests")
            emitting.instant("meanwhile")
        assert span.is_open
        elsewhere(lambda: span.end({"bytes": 7, "status": "ok"}))
        emitting.instant("behind")
        assert not span.is_open
        span.end({"bytes": 8})
    (told,) = rec.trace.named("ask")
    (forward,) = rec.trace.named("forward")
    (meanwhile,), (behind,) = rec.trace.named("meanwhile"), rec.trace.named("behind")
    assert (told.ph, told.cat) == ("X", "io")
    assert told.user == {"node": "a", "bytes": 7, "status": "ok"}
    assert (told.args["p_idx"], told.args["level"]) == (forward.id, 2)
    assert forward.ts_ns < told.ts_ns < meanwhile.ts_ns < forward.end_ns
    assert forward.end_ns < told.end_ns < behind.ts_ns
    assert rec.trace.thread_names[told.tid] == "requests"
    # The thread that ended it did nothing else, and has no track.
    assert len({event.tid for event in rec.trace.events if event.ph in "Xi"}) == 2


def test_those_that_overlap_lie_beside_each_other(traced: Traced) -> None:
    with traced() as rec:
        spans = [emitting.begin(str(n), category="io", track="requests") for n in range(3)]
        other = emitting.begin("other", category="io", track="answers")
        for span in spans:
            span.end()
        emitting.begin("later", category="io", track="requests").end()
        other.end(None, ValueError)
    names = {event.name: rec.trace.thread_names[event.tid] for event in rec.trace.spans}
    assert names == {
        "0": "requests",
        "1": "requests 2",
        "2": "requests 3",
        "later": "requests",
        "other": "answers",
    }
    assert rec.trace.named("other")[0].args["error"] == "ValueError"
    assert all(event.args["p_idx"] == 0 for event in rec.trace.spans)


def test_what_nobody_ends(traced: Traced) -> None:
    class Cycle:
        span = None

    with traced() as rec:
        emitting.begin("dropped", {"n": 1}, category="io", track="t")
        cycle = Cycle()
        cycle.span = emitting.begin("in a cycle", {"me": cycle}, category="io", track="t")  # type: ignore[assignment]
        del cycle
        gc.collect()
        left = emitting.begin("left open", {"n": 2}, category="io", track="t")
        left_too = emitting.begin("left open", {"n": 3}, category="io", track="t")
    assert not left.is_open
    left.end()
    with traced() as after:
        left.end()
        left_too.end()
        with ai.compute.forward:
            pass
    ended = {event.name: event.user for event in rec.trace.spans}
    assert ended["dropped"] == {"n": 1, "dropped": True}
    assert ended["in a cycle"]["dropped"] is True
    unfinished = [event for event in rec.trace.events if event.ph == "B"]
    assert [event.user["n"] for event in unfinished] == [2, 3]
    assert {rec.trace.thread_names[event.tid] for event in unfinished} == {"t · open"}
    assert [event.name for event in after.trace.spans] == ["forward"]
    # Without a run it is nothing.
    nothing = emitting.begin("nothing", {"n": 1}, category="io", track="t")
    assert not nothing.is_open
    nothing.end({"n": 2})


def test_hostile_values_and_many_at_once(traced: Traced) -> None:
    class Ends:
        """Ends the span while it is told of the span's end."""

        def __str__(self) -> str:
            span.end()
            return "ended"

    with traced(max_arg_bytes=1000) as rec:
        span = emitting.begin("twice", category="io", track="t")
        span.end({"value": Ends()})
        many = [emitting.begin("many", {"n": n}, category="io", track="t") for n in range(500)]
        threads = [
            threading.Thread(target=lambda part=part: [one.end({"m": 1}) for one in part])
            for part in (many[0::2], many[1::2])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for n in range(200):
            emitting.begin("tracks", category="io", track=f"track {n}").end()
        with pytest.raises(TypeError, match="dict"):
            emitting.begin("x", category="io", track="t").end(["no dict"])  # type: ignore[arg-type]
    counts = Counter(event.name for event in rec.trace.spans)
    assert counts == {"twice": 1, "many": 500, "tracks": 200, "x": 1}
    assert sorted(event.user["n"] for event in rec.trace.named("many")) == list(range(500))
    assert rec.trace.footer["dropped"] == 0


def test_a_dump_tells_of_those_that_are_open_once(traced: Traced) -> None:
    with traced(flight_recorder=True) as rec:
        spans = [emitting.begin("open", {"n": n}, category="io", track="t") for n in range(3)]
        path = dftrace_ai.dump("first")
        assert path is not None
        told = [event for event in read_unfinished(Path(path)).events if event.name == "open"]
        assert [(event.ph, event.user["n"]) for event in told] == [("B", 0), ("B", 1), ("B", 2)]
        elsewhere(spans[0].end)
        dftrace_ai.dump("second")
        spans[1].end()
        spans[2].end({"n": "last"})
    assert sorted((e.ph, str(e.user["n"])) for e in rec.trace.named("open")) == [
        ("X", "0"),
        ("X", "1"),
        ("X", "last"),
    ]


SOURCE = """
    from dftrace_ai.run import emitting

    dftrace_ai.initialize(rank=1, world_size=2)
    first = emitting.begin("all_reduce", {"step": 3}, category="comm", track="collectives")
    second = emitting.begin("all_gather", {"step": 3}, category="comm", track="collectives")
    threading.Thread(target=second.end).start()
    while second.is_open:
        time.sleep(0.001)
    done()
"""


def test_one_that_is_open_is_seen_from_outside_and_after_a_kill(tmp_path: Path) -> None:
    with program(SOURCE, tmp_path) as running:
        (process,) = snapshot([tmp_path]).processes
        assert [span.label for span in process.place] == ["comm.all_reduce"]
        assert process.step == 3
        (thread,) = [one for one in process.threads if one.place]
        assert thread.name == "collectives"
        (job,) = find_stuck(snapshot([tmp_path]), 0.0).jobs
        assert [(one.what, one.place, one.thread) for one in job.findings if one.path] == [
            ("stuck", "comm.all_reduce", "collectives")
        ]
        running.kill()
    from dftrace_ai.spools.recovery import adopt_dead

    adopt_dead(tmp_path)
    (trace,) = [read_unfinished(path) for path in tmp_path.glob("*.pfw*")]
    assert [(e.ph, e.name) for e in trace.events if e.cat == "comm"] == [
        ("X", "all_gather"),
        ("B", "all_reduce"),
    ]
    assert trace.footer["ended"] == "died"
    assert "damaged" not in trace.footer


def test_a_forked_child_leaves_its_parents_spans_alone(run_script: RunScript) -> None:
    done = run_script(
        """
        import os
        import dftrace_ai
        from dftrace_ai import ai
        from dftrace_ai.run import emitting

        with dftrace_ai.tracing():
            span = emitting.begin("parent's", category="io", track="t")
            child = os.fork()
            if child == 0:
                span.end()
                own = emitting.begin("child's", category="io", track="t")
                own.end()
                dftrace_ai.finalize()
                os._exit(0)
            os.waitpid(child, 0)
            span.end()
        """
    )
    own, (child,) = done.split()
    assert [event.name for event in own.spans] == ["parent's"]
    assert [event.name for event in child.spans] == ["child's"]
