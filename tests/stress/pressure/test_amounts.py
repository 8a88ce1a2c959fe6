"""Much of everything: threads, arguments, nodes, long names, deep nesting, open spans."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from conftest import Outcome
from perfetto.trace_file import plain

if TYPE_CHECKING:
    from stress.pressure.program import Pressed


MIB = 1 << 20

# The pages of the spool are not among them: of these the spool's own size tells.
PRIVATE = """
def private_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) << 10
"""


def lines_of(done: Outcome) -> list[dict[str, Any]]:
    """The lines of a trace that is too long or too deep for the strict reader."""
    from dftrace_ai.analysis.validating import validate_traces

    (path,) = done.files
    found = validate_traces([path], limit=5)
    assert found.fault_count == 0, [str(fault) for fault in found.first_faults(5)]
    return [orjson.loads(line) for line in plain(path).splitlines()[1:]]


def test_a_million_argument_sets(pressed: Pressed) -> None:
    """Each is forgotten when it is written: the spool and the process stay as they are.

    What is not written yet takes room, and on a busy machine that may be much: the program waits for
    the writer now and then.
    """
    done = pressed(
        PRIVATE
        + """
with dftrace_ai.tracing(compression="none", overflow="wait") as run:
    for step in range(1_000_000):
        ai.compute.forward.update(step=step)
        with ai.compute.forward:
            pass
        if step % 10_000 == 9_999:
            run.flush()
        if step % 100_000 == 99_999:
            say(private=private_bytes(), spool=run.stats()["spool_bytes"])
"""
    )
    marks = done.said
    assert max(mark["spool"] for mark in marks) <= 16 * MIB
    assert marks[-1]["private"] - marks[2]["private"] < 4 * MIB
    # A million lines are too many for the strict reader: it has its say over the other traces.
    (path,) = done.files
    steps, footer = 0, {}
    with path.open("rb") as lines:
        assert next(lines) == b"[\n"
        for line in lines:
            event = orjson.loads(line)
            if event["ph"] == "X":
                assert event["args"]["step"] == steps
                steps += 1
            footer = event["args"]
    assert steps == footer["spans"] == footer["events"] == 1_000_000
    assert footer["dropped"] == footer["args_sanitised"] == 0
    path.unlink()


def test_a_hundred_thousand_nodes(pressed: Pressed) -> None:
    """Names are kept, so they cost memory: about a kilobyte each."""
    done = pressed(
        PRIVATE
        + """
with dftrace_ai.tracing(overflow="wait") as run:
    before = private_bytes()
    for n in range(100_000):
        with ai.compute.forward.derive(name=f"part {n}"):
            pass
    say(private=private_bytes() - before, spool=run.stats()["spool_bytes"])
"""
    )
    assert done.said[0]["private"] < 256 * MIB
    assert done.said[0]["spool"] < 64 * MIB
    lines = lines_of(done)
    names = [line["name"] for line in lines if line["ph"] == "X"]
    assert names == [f"forward.part {n}" for n in range(100_000)]
    assert lines[-1]["args"]["dropped"] == 0


def test_arguments_wait_for_room_as_events_do(pressed: Pressed) -> None:
    done = pressed(
        """
with dftrace_ai.tracing(overflow="wait", spool_bytes=1 << 20, flush_interval_ms=1000) as run:
    for step in range(40_000):
        with ai.compute.forward(step=step, loss=step / 2):
            pass
        ai.comm.update(args={"text": str(step) * 20})
        with ai.comm.all_reduce:
            pass
"""
    )
    lines = lines_of(done)
    spans = [line["args"] for line in lines if line["ph"] == "X"]
    assert [args["step"] for args in spans[::2]] == list(range(40_000))
    assert [args["loss"] for args in spans[::2]] == [step / 2 for step in range(40_000)]
    assert [args["text"] for args in spans[1::2]] == [str(step) * 20 for step in range(40_000)]
    assert lines[-1]["args"]["args_sanitised"] == 0


def test_what_a_full_spool_has_no_room_for_is_dropped_whole(pressed: Pressed) -> None:
    """An event is there with all that it says of itself, or it is counted as dropped, once."""
    made_by_thread, threads, tasks = 8 * 4_000, 3, 500
    done = pressed(
        f"""
import asyncio
from dftrace_ai.run.emitting import begin

@ai.data.preprocess(n=-1)
def preprocess(n):
    pass

def work(thread):
    for n in range(4_000):
        with ai.compute.forward(n=n, thread=thread):
            ai.instant("mark", args={{"n": n, "pad": "x" * (n % 700)}})
        ai.comm.update(args={{"n": n, "text": f"{{n}}" * (n % 50)}})
        with ai.comm.all_reduce:
            ai.data.item.start(n=n)
            ai.data.item.stop()
            ai.comm.update(args={{"n": n, "late": n}})  # the open span ends with this
        ai.counter("count", values={{"n": n}})
        ai.instant("odd", args={{"n": n, "odd": float("nan")}})
        begin("save", {{"n": n}}, category="checkpoint", track="saves").end({{"late": n}} if n % 2 else None)
        preprocess(n=n)

async def task(n):
    with ai.device.transfer(n=n):
        await asyncio.sleep(0)

async def tasks():
    await asyncio.gather(*[task(n) for n in range({tasks})])

with dftrace_ai.tracing(
    spool_bytes=1 << 20, flush_interval_ms=1000, compression="none", max_arg_bytes=8 << 20
) as run:
    ai.instant("too large for any spool", args={{"text": "x" * (4 << 20)}})
    others = [threading.Thread(target=work, args=(n,)) for n in range(1, {threads})]
    for other in others:
        other.start()
    work(0)
    asyncio.run(tasks())
    for other in others:
        other.join()
"""
    )
    *lines, end = lines_of(done)
    events = [line for line in lines if line["ph"] != "M"]
    footer = end["args"]
    assert footer["dropped"] > 0
    assert len(events) + footer["dropped"] == 1 + threads * made_by_thread + tasks
    names = Counter(line["name"] for line in events)
    assert [line["name"] for line in events if "n" not in line["args"]] == [
        "too large for any spool"
    ]
    assert footer["args_sanitised"] == names["odd"] + 1
    assert footer["unmatched_stops"] == 0


def test_a_start_that_finds_no_place_for_its_thread_is_what_its_stop_ends(
    pressed: Pressed,
) -> None:
    done = pressed(
        """
here, go = threading.Barrier(301), threading.Event()

def hold():
    ai.instant("there")
    here.wait()
    go.wait()

with dftrace_ai.tracing(spool_bytes=1 << 20, flush_interval_ms=20) as run:
    others = [threading.Thread(target=hold) for _ in range(300)]
    for other in others:
        other.start()
    here.wait()
    for _ in range(3):
        ai.data.item.start(n=1)
    refused = run.stats()["dropped"]
    go.set()
    for other in others:
        other.join()
    before = refused - 1
    while run.stats()["dropped"] != before:  # until one is taken
        before = run.stats()["dropped"]
        ai.instant("again")
    for _ in range(3):
        ai.data.item.stop()
    say(refused=refused)
"""
    )
    *lines, end = lines_of(done)
    footer = end["args"]
    there = sum(line["name"] == "there" for line in lines)
    assert there + done.said[0]["refused"] == 300 + 3
    assert [line["name"] for line in lines if line["ph"] == "i"][there:] == ["again"]
    assert not [line for line in lines if line["ph"] == "X"]
    assert footer["unmatched_stops"] == 0


def test_names_of_a_megabyte(pressed: Pressed) -> None:
    done = pressed(
        """
        long = "n" * 1_000_000
        with dftrace_ai.tracing():
            for n in range(5):
                with ai.compute.derive(name=f"{n}{long}"):
                    ai.instant(f"instant {n}{long}")
                    ai.counter(f"counter {n}{long}", values={f"series {long}": n})
            spans(10)
        """
    )
    trace = done.trace(perfetto=False)
    assert trace.footer["events"] == 25
    for kind in ("X", "i", "C"):
        assert sum(len(e.name) > 1_000_000 for e in trace.of(kind)) == 5


def test_ten_thousand_levels(pressed: Pressed) -> None:
    lines = lines_of(
        pressed(
            """
            with dftrace_ai.tracing():
                for _ in range(10_000):
                    ai.compute.forward.start()
                ai.instant("deepest")
                for _ in range(10_000):
                    ai.compute.forward.stop()
            """
        )
    )
    spans = [line for line in lines if line["ph"] == "X"]
    (deepest,) = [line for line in lines if line["ph"] == "i"]
    assert [line["args"]["level"] for line in spans] == list(range(10_000, 0, -1))
    assert (deepest["args"]["level"], deepest["args"]["p_idx"]) == (10_001, spans[0]["id"])
    for inner, outer in itertools.pairwise(spans):
        assert inner["args"]["p_idx"] == outer["id"]
        assert outer["ts"] < inner["ts"]
        assert inner["ts"] + inner["dur"] < outer["ts"] + outer["dur"] + 0.0005
    assert lines[-1]["args"]["events"] == 10_001


@pytest.mark.parametrize("threads", [1, 20])
def test_a_hundred_thousand_spans_open_at_the_end(pressed: Pressed, threads: int) -> None:
    """Of one thread, or of several that have ended: all are told, each inside of the one before."""
    each = 100_000 // threads
    lines = lines_of(
        pressed(
            f"""
            def work():
                for _ in range({each}):
                    ai.compute.forward.start()

            with dftrace_ai.tracing(flush_interval_ms=5):
                for _ in range({threads}):
                    thread = threading.Thread(target=work)
                    thread.start()
                    thread.join()
            """
        )
    )
    opened = [line for line in lines if line["ph"] == "B"]
    assert lines[-1]["args"]["unfinished"] == len(opened) == 100_000
    by_thread: dict[int, list[dict[str, Any]]] = {}
    for line in opened:
        by_thread.setdefault(line["tid"], []).append(line["args"])
    assert len(by_thread) == threads
    for of_thread in by_thread.values():
        # Levels are told up to 65535.
        assert [args["level"] for args in of_thread] == [min(n, 65535) for n in range(1, each + 1)]
    parents = [line["args"]["p_idx"] for line in opened]
    assert parents.count(0) == threads
    assert len(set(parents)) == 100_000 - threads + 1


def test_a_thousand_threads_come_and_go(pressed: Pressed) -> None:
    """Their units are used again: neither the spool nor the process grows with their number."""
    done = pressed(
        PRIVATE
        + """
with dftrace_ai.tracing(flush_interval_ms=5) as run:
    for wave in range(25):
        threads = [
            threading.Thread(target=spans, args=(5,), name=f"wave {wave} of {n}") for n in range(40)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run.flush()
        say(private=private_bytes(), spool=run.stats()["spool_bytes"])
"""
    )
    waves = done.said
    # 64 KiB for each of forty; twice as many while the ones before are still being written.
    assert max(wave["spool"] for wave in waves) <= 6 * MIB
    assert waves[-1]["private"] - waves[4]["private"] < 4 * MIB
    trace = done.trace(perfetto=False)
    assert trace.names == {"forward": 5000}
    assert trace.footer["dropped"] == 0
    by_track = Counter(e.tid for e in trace.spans)
    assert set(trace.thread_names.values()) >= {
        f"wave {w} of {n}" for w in range(25) for n in range(40)
    }
    assert all(count % 5 == 0 for count in by_track.values())


def test_a_thousand_threads_alive_at_once(pressed: Pressed) -> None:
    """Each is inside a span while all the others are."""
    done = pressed(
        """
        threading.stack_size(256 << 10)
        inside, all_inside = threading.Barrier(1001), threading.Barrier(1001)

        def work():
            with ai.pipeline.train:
                inside.wait()
                spans(5)
                all_inside.wait()

        with dftrace_ai.tracing(flush_interval_ms=5) as run:
            threads = [threading.Thread(target=work) for _ in range(1000)]
            for thread in threads:
                thread.start()
            inside.wait()
            all_inside.wait()
            for thread in threads:
                thread.join()
            spool = run.stats()["spool_bytes"]
        say(spool=spool)
        """
    )
    assert done.said[0]["spool"] <= 80 * MIB
    trace = done.trace(perfetto=False)
    assert trace.names == {"train": 1000, "forward": 5000}
    assert trace.footer["dropped"] == 0
    assert len({e.tid for e in trace.spans}) == 1000
    for train in trace.named("train"):
        assert [(c.name, c.tid) for c in trace.children(train)] == 5 * [("forward", train.tid)]
    # Not before the last of them was in did the first leave.
    trains = trace.named("train")
    assert max(e.ts_ns or 0 for e in trains) < min(e.end_ns for e in trains)
