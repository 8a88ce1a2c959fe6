"""Trainings in threads of one process: each has steps, epochs and numbers of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier, Lock, Thread
from typing import Any

import torch
from conftest import Traced
from perfetto.trace_file import Event
from torch import nn
from torch.utils.data import DataLoader

from dftrace_ai.analysis.why import why
from dftrace_ai.integrations.auto import Auto

DATA = torch.arange(32.0).reshape(16, 2)
BATCHES = 4


def train(
    seed: int,
    epochs: int = 2,
    turns: Barrier | None = None,
    model: Any = None,
    gradients: Any = nullcontext(),
    last: int = BATCHES,
) -> list[bytes]:
    """A training that takes turns with others at each batch, and may leave its loop."""
    if model is None:
        model = nn.Linear(2, 1)
        nn.init.constant_(model.weight, 0.1 * seed)
        nn.init.constant_(model.bias, 0)
    optimizer = torch.optim.SGD(model.parameters(), 0.0001)
    for _ in range(epochs):
        for number, x in enumerate(DataLoader(DATA, batch_size=4), 1):
            if turns is not None:
                turns.wait(100)
            # torch guards no gradients of a model that threads share.
            with gradients:
                optimizer.zero_grad()
                model(x).square().mean().backward()
            if turns is not None:
                turns.wait(100)
            optimizer.step()
            if number == last:
                break
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def judge() -> None:
    model = nn.Linear(2, 1).eval()
    with torch.no_grad():
        for x in DataLoader(DATA, batch_size=4):
            model(x)


def at_once(*functions: Any) -> None:
    threads = [Thread(target=one) for one in functions]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def steps_by_track(spans: list[Event]) -> dict[int, list[Event]]:
    """Steps of each track, which are counted from 0 and follow each other."""
    tracks = defaultdict(list)
    for span in spans:
        if (span.cat, span.name) == ("pipeline", "step"):
            tracks[span.tid].append(span)
    for steps in tracks.values():
        assert [e.args["step"] for e in steps] == list(range(len(steps)))
        assert all(one.end_ns <= other.ts_ns for one, other in zip(steps, steps[1:]))
    return tracks


def lies_in(work: list[Event], steps: list[Event]) -> bool:
    """Whether steps are made of it, and it says so."""
    around = [[s for s in steps if s.ts_ns <= e.ts_ns and e.end_ns <= s.end_ns] for e in work]
    told = [(e.args["step"], e.args["microbatch"]) for e in work]
    return [[(s.args["step"], 0) for s in found] for found in around] == [[one] for one in told]


def test_the_steps_of_one_of_two_trainings_at_once_are_judged(traced: Traced, auto: Auto) -> None:
    def training() -> Iterator[None]:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.0001)
        while True:
            loss = model(DATA).square().mean()
            yield
            loss.backward()
            yield
            optimizer.step()
            yield

    def begin(turns: list[int]) -> None:
        """Two trainings in threads of their own that take turns."""
        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
            works = [(one, training()), (other, training())]
            for which in turns:
                thread, work = works[which]
                thread.submit(next, work).result()

    for again in (False, True):
        with traced(perfetto=False) as run:
            auto()
            begin([0] * 3 + [0, 1] * 72)
            if again:
                begin([0, 1] * 36)
            auto.remove()
        verdict = why([run.folder])
        # Nobody else trains while one begins a step: not one is given to another thread.
        assert verdict.steps.count == 25
        assert "between-steps" not in {finding.kind for finding in verdict.findings}
        (told,) = [
            note for note in verdict.notes if "as well: the steps judged are those of" in note
        ]
        assert told.startswith(f"{3 if again else 1} other thread")


def test_a_span_has_the_numbers_of_its_thread_whichever_was_told_last(
    traced: Traced, auto: Auto
) -> None:
    def training() -> Iterator[None]:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.0001)
        for x in DataLoader(DATA, batch_size=2):
            loss = model(x).square().mean()
            yield
            loss.backward()
            yield
            optimizer.step()
            yield

    with (
        traced(perfetto=False) as run,
        ThreadPoolExecutor(1) as one,
        ThreadPoolExecutor(1) as other,
    ):
        auto()
        ahead, behind = training(), training()
        order = [(one, ahead)] * 6 + [(other, behind)] * 3 + [(one, ahead), (other, behind)] * 12
        for thread, work in order:
            thread.submit(next, work).result()
        auto.remove()
    told = defaultdict(list)
    for span in sorted(run.trace.spans, key=lambda e: e.ts_ns):
        if span.cat == "compute":
            told[span.tid].append((span.name, span.args["step"]))
    names = ("forward", "backward", "step")
    wanted = [[(name, step) for step in range(steps) for name in names] for steps in (6, 5)]
    assert list(told.values()) == wanted


def test_threads_that_train_at_once_have_their_own_steps_and_epochs(
    traced: Traced, auto: Auto
) -> None:
    expected = [train(seed) for seed in range(3)]
    turns, learned = Barrier(3), {}
    with traced(perfetto=True) as run:
        auto()
        at_once(
            *(
                lambda seed=seed: learned.update({seed: train(seed, turns=turns)})
                for seed in range(3)
            )
        )
        auto.remove()
    assert [learned[seed] for seed in range(3)] == expected
    spans = run.trace.spans
    tracks = steps_by_track(spans)
    assert [len(steps) for steps in tracks.values()] == [2 * BATCHES] * 3
    epochs = defaultdict(list)
    for span in spans:
        if span.name == "epoch":
            epochs[span.tid].append(span.args["epoch"])
    assert list(epochs.values()) == [[0, 1]] * 3
    # All of a thread's work lies in the steps of one track, and has their numbers.
    by_thread = defaultdict(list)
    for span in spans:
        if span.cat == "compute":
            by_thread[span.tid].append(span)
    assert len(by_thread) == 3
    assert all(
        any(lies_in(work, steps) for steps in tracks.values()) for work in by_thread.values()
    )


def test_threads_come_and_go(traced: Traced, auto: Auto) -> None:
    """A pool, a loop that is left with its thread, a thread that judges, one after the other."""
    shared = {"model": nn.Linear(2, 1), "gradients": Lock()}
    with traced(perfetto=True) as run:
        auto()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(train, range(5)))
        at_once(lambda: train(0, last=2), lambda: train(1, **shared), lambda: train(2, **shared))
        at_once(judge, lambda: train(3))
        train(4)
        auto.remove()
    spans = run.trace.spans
    steps = steps_by_track(spans)
    trained = 5 * 8 + 2 * 2 + 2 * 8 + 8 + 8
    assert sum(map(len, steps.values())) == trained
    assert sum(e.name == "step" and e.cat == "compute" for e in spans) == trained
    assert sum(e.name == "epoch" for e in spans) == 5 * 2 + 2 + 4 + 2 + 2
    assert sum(e.name == "evaluate" for e in spans) == 1
