"""A span has the arguments that hold at its end, whoever gave them and in what form."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from conftest import RunScript, Traced, trace_files
from given_values import arguments, merged, shown
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.trace_file import Trace, read

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.spools.recovery import adopt_dead


@dataclass
class Model:
    """What a node has, as plain Python."""

    args: dict[str, object] = field(default_factory=dict)
    child: Model | None = None

    def update(self, more: Mapping[str, object]) -> None:
        """Merge into the node and all below it."""
        self.args.update(more)
        if self.child:
            self.child.update(more)

    def reset(self) -> None:
        """Drop everything, here and below."""
        self.args.clear()
        if self.child:
            self.child.reset()


# (what is done, to which of the nodes that are known by then, with what, and what is done inside)
step = st.tuples(
    st.sampled_from(["update", "with", "with", "with", "call", "keep", "start", "reset", "derive"]),
    st.integers(0, 9),
    arguments,
)
steps = st.recursive(
    st.lists(st.tuples(step, st.just([])), max_size=6),
    lambda inner: st.lists(st.tuples(step, inner), max_size=4),
    max_leaves=8,
)


class Player:
    """Does what a list of steps says to nodes of its own and to their models at once."""

    def __init__(self, node: Any, model: Model) -> None:
        self.known: list[tuple[Any, Model]] = [(node, model)]
        self.wanted: list[str] = []

    def play(self, steps: Sequence[Any]) -> None:
        """Do the steps, and note what each span is to be recorded with."""
        for (what, which, given_now), inside in steps:
            node, model = self.known[which % len(self.known)]
            getattr(self, f"_{what}")(node, model, given_now, inside)

    def _update(self, node: Any, model: Model, given: dict[str, object], inside: Any) -> None:
        assert node.update(**given) is node
        model.update(merged(given))
        self.play(inside)

    def _instance(self, node: Any, model: Model, given: dict[str, object]) -> tuple[Any, Model]:
        given = {k: v for k, v in given.items() if k != "metadata"}
        made = node(**given), Model({**model.args, **merged(given)})
        self.known.append(made)
        return made

    def _with(self, node: Any, model: Model, given: dict[str, object], inside: Any) -> None:
        made, of_made = self._instance(node, model, given)
        with made as entered:
            assert entered is made
            self.play(inside)
        self.wanted.append(shown(of_made.args))

    def _call(self, node: Any, model: Model, given: dict[str, object], inside: Any) -> None:
        made, of_made = self._instance(node, model, given)
        made(lambda: self.play(inside))()
        self.wanted.append(shown(of_made.args))

    def _keep(self, node: Any, model: Model, given: dict[str, object], inside: Any) -> None:
        self._instance(node, model, given)
        with node:
            self.play(inside)
        self.wanted.append(shown(model.args))

    def _start(self, node: Any, model: Model, given: dict[str, object], inside: Any) -> None:
        given = {k: v for k, v in given.items() if k != "metadata"}
        of_one = {**model.args, **merged(given)} if merged(given) else model.args
        node.start(**given)
        self.play(inside)
        node.stop()
        self.wanted.append(shown(of_one))

    def _reset(self, node: Any, model: Model, given: dict[str, object], inside: Any) -> None:
        node.reset()
        model.reset()
        self.play(inside)

    def _derive(self, node: Any, model: Model, given: dict[str, object], inside: Any) -> None:
        below = node.derive("below")
        if model.child is None:
            model.child = Model(dict(model.args))
        self.known.append((below, model.child))
        self.play(inside)


def recorded(trace: Trace, name: str) -> list[str]:
    """What the spans of a node and of those derived from it have, in the order of their ends."""
    mine = [e for e in trace.spans if e.name == name or e.name.startswith(f"{name}.")]
    mine.sort(key=lambda e: e.end_ns)
    return [json.dumps(e.user) for e in mine]


@settings(max_examples=80, derandomize=True, database=None)
@given(first=arguments, programs=st.lists(steps, min_size=1, max_size=3))
def test_the_last_write_wins(first: dict[str, object], programs: list[Any]) -> None:
    ai.reset()
    ai.update(**first)
    top = Model(merged(first))
    players = [
        Player(ai.compute.forward.derive(f"own{n}"), Model(dict(top.args)))
        for n in range(len(programs))
    ]
    with TemporaryDirectory() as folder:
        with dftrace_ai.tracing(log_file=f"{folder}/t", compression="none"):
            threads = [
                threading.Thread(target=player.play, args=(program,))
                for player, program in zip(players, programs, strict=True)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        found = [read(path) for path in trace_files(Path(folder))]
    for n, player in enumerate(players):
        got = recorded(found[0], f"forward.own{n}") if found else []
        assert got == player.wanted


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    yield
    ai.reset()


def test_no_object_is_kept_that_a_call_was_given(traced: Traced) -> None:
    """Neither the node of a `with`, nor what its node was updated with, outlives its use."""
    import gc
    import weakref

    class Value:
        def __str__(self) -> str:
            return "shown"

    with traced() as rec:
        value = Value()
        gone = [weakref.ref(value)]
        ai.compute.update(args={"value": value}, step=1)
        with ai.compute.forward(step=2) as made:
            gone.append(weakref.ref(made))
        del value, made
        ai.compute.reset()
        assert [one() for one in gone] == [None, None]
        for epoch in range(3):
            ai.update(epoch=epoch)
            with ai.compute.forward(step=epoch) as made:
                made.me = made
            gone.append(weakref.ref(made))
        del made
        gc.collect()
        assert not any(one() for one in gone)
    assert [e.user for e in rec.trace.spans] == [
        {"value": "shown", "step": 2},
        *({"epoch": n, "step": n} for n in range(3)),
    ]


def test_what_is_not_finite_or_too_long_is_counted_as_often_as_it_is_stored(
    traced: Traced,
) -> None:
    """Numbers over such values are new snapshots, as each update is."""
    with traced(max_arg_bytes=64) as rec:
        ai.compute.update(loss=float("nan"), text="x" * 100)
        for step in range(3):
            with ai.compute.forward(step=step):
                pass
            with ai.compute.backward(step=step):
                pass
    seen = [e.user for e in rec.trace.spans]
    assert [e["step"] for e in seen] == [0, 0, 1, 1, 2, 2]
    assert {(e["loss"], e["text"]) for e in seen} == {("NaN", "x" * 64)}
    assert rec.trace.footer["args_sanitised"] == 6


def test_runs_and_limits_change_below_the_same_arguments(traced: Traced) -> None:
    ai.compute.update(text="x" * 100, step=0)
    kept = ai.compute.forward(step=1)
    for longest in (64, 1 << 20):
        with traced(max_arg_bytes=longest) as rec:
            for node in (kept, ai.compute.forward(step=1), ai.compute.forward(epoch=2)):
                with node:
                    pass
        text = "x" * min(longest, 100)
        assert [e.user for e in rec.trace.spans] == [
            {"text": text, "step": 1},
            {"text": text, "step": 1},
            {"text": text, "step": 0, "epoch": 2},
        ]


def test_killed_in_the_middle_of_calls(run_script: RunScript) -> None:
    """What has ended and what is open has its own numbers, in the rest that recovery writes."""
    done = run_script(
        """
        import os, signal, threading
        import dftrace_ai
        from dftrace_ai import ai

        dftrace_ai.initialize(flush_interval_ms=60_000)
        ai.update(phase="train", step=-1)

        def work():
            for i in range(1500):
                with ai.data.item(step=i, worker=1):
                    pass

        thread = threading.Thread(target=work)
        thread.start()
        with ai.pipeline.epoch(epoch=4) as outer:
            for i in range(1500):
                with ai.compute.forward(step=i):
                    ai.compute.update(microbatch=i % 3)
                    with ai.compute.backward(epoch=1, step=i):
                        pass
            thread.join()
            ai.compute.step.start(step=7, microbatch=2)
            with ai.compute.backward(step=8):
                os.kill(os.getpid(), signal.SIGKILL)
        """,
        status=-signal.SIGKILL,
    )
    assert not adopt_dead(done.folder).failed
    trace = done.trace()
    common = {"phase": "train"}
    assert [e.user for e in trace.named("item")] == [
        {**common, "step": i, "worker": 1} for i in range(1500)
    ]
    ended = [e for e in trace.spans if e.name in ("forward", "backward")]
    forward = [e.user for e in ended if e.name == "forward"]
    assert forward == [
        {**common, "step": i, **({"microbatch": (i - 1) % 3} if i else {})} for i in range(1500)
    ]
    backward = [e.user for e in ended if e.name == "backward"]
    assert backward == [{**common, "step": i, "microbatch": i % 3, "epoch": 1} for i in range(1500)]
    still_open = {e.name: e.user for e in trace.of("B")}
    assert still_open == {
        "epoch": {**common, "step": -1, "epoch": 4, "unfinished": True},
        "step": {**common, "step": 7, "microbatch": 2, "unfinished": True},
        "backward": {**common, "step": 8, "microbatch": 2, "unfinished": True},
    }
