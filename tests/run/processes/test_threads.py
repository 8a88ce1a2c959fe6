"""Threads: every thread its own track, its own parents, and nothing lost."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from conftest import RunScript, Traced

from dftrace_ai import ai


def test_eight_threads_on_one_node(traced: Traced) -> None:
    threads, each = 8, 2000
    gate = threading.Barrier(threads)
    tids: dict[str, int] = {}

    def work(n: int) -> None:
        tids[threading.current_thread().name] = threading.get_native_id()
        gate.wait()
        for i in range(each):
            with (
                ai.compute.forward(args={"thread": n, "i": i})
                if i % 100 == 0
                else (ai.compute.forward),
                ai.compute.step,
            ):
                pass

    with traced(overflow="wait") as rec:
        pool = [
            threading.Thread(target=work, args=(n,), name=f"worker-{n}") for n in range(threads)
        ]
        for t in pool:
            t.start()
        for t in pool:
            t.join()

    t = rec.trace
    assert t.names == {"forward": threads * each, "step": threads * each}
    assert Counter(e.tid for e in t.spans) == {tid: 2 * each for tid in tids.values()}
    names = t.thread_names
    assert {names[tid]: tid for tid in tids.values()} == tids
    for step in t.named("step"):
        up = t.parent(step)
        assert up is not None
        assert up.name == "forward"
        assert up.tid == step.tid
    for n in range(threads):
        mine = [e for e in t.named("forward") if e.user.get("thread") == n]
        assert [e.user["i"] for e in mine] == list(range(0, each, 100))
        assert {e.tid for e in mine} == {tids[f"worker-{n}"]}


def test_a_new_thread_starts_outermost_whatever_its_starter_has_open(traced: Traced) -> None:
    def work() -> None:
        with ai.data.item:
            pass

    with traced() as rec, ai.pipeline.train:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    item = rec.trace.one("item")
    assert (item.p_idx, item.level) == (0, 1)


def test_the_first_span_of_a_thread_runs_no_python_in_which_a_signal_would_be_handled(
    traced: Traced,
) -> None:
    called: list[str] = []

    def work() -> None:
        node = ai.data.item
        sys.setprofile(lambda frame, event, _: called.append(f"{event} {frame.f_code.co_name}"))
        with node:
            pass
        sys.setprofile(None)

    with traced() as rec:
        thread = threading.Thread(target=work, name="reader")
        thread.start()
        thread.join()
    assert [one for one in called if one.startswith(("call", "return"))] == []
    assert called  # it was listened to
    assert set(rec.trace.thread_names.values()) >= {"reader"}


def test_spans_of_two_threads_interleave_freely(traced: Traced) -> None:
    """A enters, B enters, A leaves, B leaves, on two threads: both whole, both outermost."""
    a_in, b_in, a_out = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with ai.compute.forward:
            a_in.set()
            b_in.wait()
        a_out.set()

    def second() -> None:
        a_in.wait()
        with ai.compute.forward:
            b_in.set()
            a_out.wait()

    with traced() as rec:
        pool = [threading.Thread(target=f) for f in (first, second)]
        for t in pool:
            t.start()
        for t in pool:
            t.join()
    one, two = rec.trace.spans
    assert one.tid != two.tid
    assert (one.level, two.level) == (1, 1)
    assert one.ts_ns is not None
    assert two.ts_ns is not None
    assert one.ts_ns < two.ts_ns < one.end_ns < two.end_ns


def test_hundreds_of_short_threads(traced: Traced) -> None:
    def work(i: int) -> None:
        with ai.data.item(image_idx=i), ai.data.preprocess:
            pass

    with traced() as rec:
        for start in range(0, 300, 20):
            pool = [threading.Thread(target=work, args=(i,)) for i in range(start, start + 20)]
            for t in pool:
                t.start()
            for t in pool:
                t.join()
    t = rec.trace
    assert sorted(e.user["image_idx"] for e in t.named("item")) == list(range(300))
    assert all(t.tree(e) == [["preprocess", []]] for e in t.named("item"))


def test_a_pool_that_outlives_two_runs_writes_to_both(traced: Traced) -> None:
    def work(i: int) -> None:
        with ai.data.item(image_idx=i):
            pass

    with ThreadPoolExecutor(3) as pool:
        with traced() as one:
            list(pool.map(work, range(30)))
        list(pool.map(work, range(5)))
        with traced() as two:
            list(pool.map(work, range(100, 120)))
    assert sorted(e.user["image_idx"] for e in one.trace.spans) == list(range(30))
    assert sorted(e.user["image_idx"] for e in two.trace.spans) == list(range(100, 120))


def test_a_thread_inside_a_span_when_the_run_ends(traced: Traced) -> None:
    """Its open span is in the file as unfinished; leaving it later harms nothing."""
    inside, over = threading.Event(), threading.Event()

    def work() -> None:
        with ai.data.item:
            with ai.data.preprocess:
                pass
            inside.set()
            over.wait()

    with traced() as rec:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        inside.wait()
    over.set()
    thread.join()
    t = rec.trace
    item = t.one("item")
    assert (item.ph, item.args["unfinished"]) == ("B", True)
    assert t.tree() == [["item", [["preprocess", []]]]]
    assert t.footer["unfinished"] == 1
    with traced() as later, ai.data.item:
        pass
    assert later.trace.tree() == [["item", []]]


def test_daemon_threads_still_tracing_while_the_interpreter_ends(run_script: RunScript) -> None:
    done = run_script("""
        import threading
        import dftrace_ai
        from dftrace_ai import ai

        dftrace_ai.initialize()
        began = threading.Barrier(5)

        def work():
            with ai.data.preprocess:
                pass
            began.wait()
            while True:
                with ai.data.item:
                    pass

        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        began.wait()
        with ai.pipeline.train:
            pass
    """)
    t = done.trace(perfetto=False)
    assert t.names["preprocess"] == 4
    assert t.names["train"] == 1
