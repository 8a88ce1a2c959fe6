"""Eager loops of TensorFlow by stand-ins that are called as its tapes, iterators and optimizers are."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from conftest import Traced

from dftrace_ai.integrations.auto import Auto

ITERATORS = "tensorflow.python.data.ops.iterator_ops"


class Batches:
    """An iterator as those of `tf.data`."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


class Tape:
    def __enter__(self) -> Tape:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        pass

    def gradient(self, target: float) -> float:
        return 2 * target

    jacobian = batch_jacobian = gradient


class Optimizer:
    def apply(self, gradient: float) -> None:
        pass


def kind_with(*methods: str) -> type:
    """A class with methods that do nothing."""
    return type("Kind", (), dict.fromkeys(methods, list))


def test_an_eager_loop_by_tapes_has_its_waits_forwards_and_backwards(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_graph = []
    iterators, tensorflow, keras = (ModuleType(name) for name in (ITERATORS, "tensorflow", "keras"))
    vars(iterators).update(OwnedIterator=Batches)
    saver = kind_with("save", "restore")
    train = SimpleNamespace(Checkpoint=kind_with("save", "write", "restore", "read"))
    v1 = SimpleNamespace(train=SimpleNamespace(Saver=saver))
    vars(tensorflow).update(
        GradientTape=Tape,
        inside_function=lambda: bool(in_graph),
        train=train,
        compat=SimpleNamespace(v1=v1),
    )
    hooks = ("on_epoch_begin", "on_train_batch_begin", "on_epoch_end", "on_train_end")
    made = [f"make_{name}_function" for name in ("train", "test", "predict")]
    model = ("fit", "evaluate", "predict", "save", "save_weights", "load_weights", *made)
    symbol = kind_with()
    kind_of_model = type("Model", (kind_with(*model),), {"__call__": lambda self, x: x})
    vars(keras).update(
        KerasTensor=symbol,
        Model=kind_of_model,
        backend=SimpleNamespace(backend=lambda: "tensorflow"),
        callbacks=SimpleNamespace(CallbackList=kind_with(*hooks)),
        optimizers=SimpleNamespace(Optimizer=Optimizer),
    )
    for one in (iterators, tensorflow, keras):
        monkeypatch.setitem(sys.modules, one.__name__, one)
    changed = (Batches, Tape, Optimizer, kind_of_model)
    before = [dict(vars(kind)) for kind in changed]
    model_of_theirs = kind_of_model()

    def step(batch: int) -> None:
        with Tape() as tape:
            loss = model_of_theirs(batch) * 0.5
            with Tape() as inner:
                loss += inner.gradient(loss)
        Optimizer().apply(tape.gradient(loss))

    with traced(perfetto=False) as run:
        auto()
        for _ in range(2):
            for batch in iter(Batches(3).__next__, None):
                step(batch)
                if not batch:
                    break
        batches = Batches(2)
        assert [model_of_theirs(next(batches)) for _ in range(2)] == [1, 0]
        with pytest.raises(StopIteration):
            next(batches)
        model_of_theirs(symbol())
        in_graph.append(1)
        step(0)
        model_of_theirs(1)
        next(Batches(1))
        in_graph.clear()
        with pytest.raises(LookupError), Tape():
            raise LookupError
        auto.remove()
        step(0)
    assert [dict(vars(kind)) for kind in changed] == before
    steps = [e for e in run.trace.spans if (e.cat, e.name) == ("pipeline", "step")]
    assert [e.args["step"] for e in steps] == list(range(6))
    for number, one in enumerate(steps):
        inside = [e for e in run.trace.spans if one.ts_ns <= e.ts_ns and e.end_ns <= one.end_ns]
        inside = [e for e in inside if e.cat != "pipeline"]
        names = ["fetch.iter", "forward", "backward.grad", "backward", "step"]
        assert [e.name for e in inside] == names
        assert inside[0].args["count"] == number % 3 + 1
    # What is computed outside of a tape teaches nothing; shapes and graphs are no computing.
    (judged,) = [e for e in run.trace.spans if e.name == "evaluate"]
    outside = [e for e in run.trace.spans if e.name == "forward.eval"]
    assert len(outside) == 2
    assert all(judged.ts_ns <= e.ts_ns and e.end_ns <= judged.end_ns for e in outside)
    forwards = [e for e in run.trace.spans if e.name == "forward"]
    assert [e.args.get("error") for e in forwards] == [None] * 6 + ["LookupError"]
