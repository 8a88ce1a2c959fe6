"""Code of the user that tracing calls, and that traces itself, or raises, forks, ends the run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import RunScript, Traced, read_all, trace_files

import dftrace_ai
from dftrace_ai import ai, dft_fn


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    yield
    ai.reset()


class Recording:
    """Records whenever it is asked what it is."""

    def __init__(self, record: Any) -> None:
        self.record = record
        self.asked = 0

    def __str__(self) -> str:
        self.asked += 1
        self.record()
        return "known"


def test_an_argument_that_records_with_the_node_it_is_in(traced: Traced) -> None:
    def record() -> None:
        with ai.compute.forward:
            pass

    value = Recording(record)
    ai.compute.forward.update(value=value, plain=7)
    with traced() as rec:
        for _ in range(3):
            with ai.compute.forward:
                pass
    t = rec.trace
    assert value.asked == 1
    # Inside of the question there is no answer yet.
    assert [e.user for e in t.named("forward")] == [
        {"value": "<Recording>", "plain": 7},
        *3 * [{"value": "known", "plain": 7}],
    ]
    assert t.footer["args_sanitised"] > 0
    assert t.footer["unfinished"] == 0


def test_arguments_that_record_in_every_other_way(traced: Traced) -> None:
    """Each would come back to itself: a new node each time, another node, marks, names."""

    def block() -> None:
        with ai.compute.step(turn=1):
            pass

    def decorated() -> None:
        ai.data.item(lambda: None)()

    def fn() -> None:
        with dft_fn("own", name="again", step=1) as b:
            b.update(value=value)

    ways = [
        block,
        decorated,
        fn,
        lambda: list(ai.dataloader.fetch.iter([1])),
        lambda: ai.instant("mark", args={"value": value}),
        lambda: ai.instant(value),  # type: ignore[arg-type]
        lambda: ai.counter(value, {"a": 1}),  # type: ignore[arg-type]
        lambda: dft_fn("m").log_metadata("key", value),  # type: ignore[arg-type]
        ai.comm.send.start,
    ]
    for way in ways:
        value = Recording(way)
        with traced(perfetto=False) as rec:
            ai.update(value=value)
            with ai.compute.forward:
                pass
        t = rec.trace
        assert value.asked <= 6, way
        assert len(t.events) < 60, way
        assert t.one("forward").user["value"] == "known"
        ai.comm.send.stop()
        ai.reset()


class Number:
    """A number whose value is asked for, and recorded."""

    def __float__(self) -> float:
        ai.counter("inner", {"n": self})  # type: ignore[dict-item]
        return 2.0


def test_a_counted_value_that_counts_itself(traced: Traced) -> None:
    with traced() as rec:
        ai.counter("outer", {"n": Number()})  # type: ignore[dict-item]
    assert [(e.name, e.args["n"]) for e in rec.trace.of("C") if e.args] == [("outer", 2.0)]
    assert rec.trace.footer["args_sanitised"] > 0


def test_an_update_by_the_value_itself_is_not_lost(traced: Traced) -> None:
    value = Recording(lambda: ai.compute.forward.update(asked=value.asked))
    with traced() as rec:
        ai.compute.forward.update(value=value)
        for _ in range(3):
            with ai.compute.forward:
                pass
        ai.compute.forward.update(value="gone")
        with ai.compute.forward:
            pass
    *during, after = [e.user for e in rec.trace.named("forward")]
    assert [e["value"] for e in during] == ["known"] * 3
    assert after == {"value": "gone", "asked": value.asked}


def test_values_that_raise_fork_or_end_the_run(tmp_path: Path) -> None:
    def exits() -> None:
        raise SystemExit(3)

    def recurses() -> None:
        recurses()

    def forks() -> None:
        if os.fork() == 0:
            with ai.compute.backward:
                pass
            os._exit(0)
        os.wait()

    for way in (exits, recurses, forks, dftrace_ai.finalize):
        ai.reset()
        folder = tmp_path / getattr(way, "__name__", "x")
        dftrace_ai.initialize(log_file=folder / "trace")
        with ai.compute.step:
            pass
        with ai.compute.forward(args={"value": Recording(way)}):
            pass
        with ai.compute.step:
            pass
        dftrace_ai.finalize()
        ours = next(t for t in read_all(trace_files(folder)) if "step" in t.names)
        ended = way is dftrace_ai.finalize
        assert ours.names == ({"step": 1} if ended else {"step": 2, "forward": 1})


def test_an_interrupt_during_the_conversion_of_an_argument_is_raised(traced: Traced) -> None:
    def interrupted() -> None:
        with ai.compute.forward(
            args={"value": Recording(lambda: signal.raise_signal(signal.SIGINT))}
        ):
            pass
        for _ in range(1000):
            pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with traced() as rec, pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
    assert rec.trace.names == {"forward": 1}


class Tensor:
    """What a tensor is known by, in the hands of somebody else."""

    device = "cpu"

    @property
    def shape(self) -> tuple[int, ...]:
        with ai.compute.step(args={"tensor": self}):
            return (2, 3)

    @property
    def dtype(self) -> str:
        raise RuntimeError("not yet")


class Mapping(dict[str, int]):
    """A dict that records when it is walked."""

    def items(self) -> Any:
        with ai.compute.step(args={"map": self}):
            return super().items()


def test_tensors_and_dicts_of_the_users_own(traced: Traced) -> None:
    with traced() as rec, ai.compute.forward(args={"t": Tensor(), "m": Mapping(a=1)}):
        pass
    t = rec.trace
    assert t.one("forward").user == {"t": "Tensor(shape=(2, 3), device=cpu)", "m": {"a": 1}}
    assert t.one("step").user == {"tensor": "<Tensor>"}


def test_a_thread_whose_name_records(traced: Traced) -> None:
    class Worker(threading.Thread):
        @property  # type: ignore[override]
        def name(self) -> str:
            with ai.data.item:
                return "worker"

        def run(self) -> None:
            with ai.compute.step:
                pass

    with traced() as rec:
        worker = Worker()
        worker.start()
        worker.join()
    t = rec.trace
    assert t.names["step"] == 1
    assert t.names["item"] < 10
    assert {e.tid for e in t.spans if e.name == "step"} == {t.one("step").tid}


def test_a_warning_whose_handler_records(run_script: RunScript) -> None:
    done = run_script("""
        import logging
        import dftrace_ai
        from dftrace_ai import ai

        class Handler(logging.Handler):
            def emit(self, record):
                with ai.other.log:
                    ai.comm.barrier.stop()

        logging.getLogger("dftrace_ai").addHandler(Handler())
        dftrace_ai.initialize()
        for _ in range(3):
            ai.comm.barrier.stop()
    """)
    t = done.trace()
    assert t.names == {"other.log": 1}
    assert t.footer["unmatched_stops"] == 4
