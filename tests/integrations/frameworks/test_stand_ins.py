"""Frameworks that are too large for these tests, by stand-ins that call the hooks as those do."""

from __future__ import annotations

import sys
from collections import Counter
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from conftest import RunScript, Traced
from perfetto.trace_file import read

from dftrace_ai.integrations import keras, tensorflow
from dftrace_ai.integrations.auto import Auto
from dftrace_ai.integrations.registry import OF_FRAMEWORKS


class OutOfRangeError(Exception):
    """As TensorFlow calls the end of the data."""


def module_of(name: str, **names: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(names, __spec__=ModuleSpec(name, None))
    return made


def keras_on(backend: str) -> ModuleType:
    """Keras as `fit` calls its callbacks and the functions that it has compiled."""

    class Callback:
        params = None

    class CallbackList:
        def __init__(self, callbacks: list, steps: int | None) -> None:
            self.params = {"steps": steps}
            self.callbacks = callbacks
            for one in callbacks:
                one.params = self.params

        def on_epoch_begin(self, epoch, logs=None):
            for one in self.callbacks:
                one.on_epoch_begin(epoch, logs)

        def on_epoch_end(self, epoch, logs=None):
            for one in self.callbacks:
                one.on_epoch_end(epoch, logs)

        def on_train_batch_begin(self, batch, logs=None):
            for one in self.callbacks:
                one.on_train_batch_begin(batch, logs)

        def on_train_end(self, logs=None):
            for one in self.callbacks:
                one.on_train_end(logs)

    class Model:
        train_function = test_function = predict_function = None
        jit_compile = backend == "torch"

        def make_train_function(self, force=False):
            if self.train_function is None:
                self.train_function = lambda batches: next(batches) ** 2

        def make_test_function(self, force=False):
            self.test_function = lambda batches: next(batches)

        def make_predict_function(self, force=False):
            self.predict_function = lambda batches: next(batches)

        def fit(self, batches, epochs, steps=None, callbacks=()):
            listed = CallbackList(list(callbacks), steps)
            self.make_train_function()
            done = []
            for epoch in range(epochs):
                listed.on_epoch_begin(epoch)
                given = iter(batches)
                for batch in range(len(batches) + 1):
                    listed.on_train_batch_begin(batch)
                    try:
                        done.append(self.train_function(given))
                    except StopIteration:
                        break
                self.evaluate([1, 2])
                listed.on_epoch_end(epoch)
            listed.on_train_end()
            return done

        def evaluate(self, batches):
            self.make_test_function()
            return [self.test_function(iter([one])) for one in batches]

        def predict(self, batches):
            self.make_predict_function()
            return [self.predict_function(iter([one])) for one in batches]

        save = save_weights = load_weights = lambda self, filepath: None

    return module_of(
        "keras",
        KerasTensor=type("KerasTensor", (), {}),
        Model=Model,
        backend=SimpleNamespace(backend=lambda: backend),
        callbacks=module_of("keras.callbacks", Callback=Callback, CallbackList=CallbackList),
        optimizers=module_of("keras.optimizers", Optimizer=type("Optimizer", (), {"apply": list})),
    )


@pytest.mark.parametrize("by_callback", [False, True])
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_keras_that_compiles_its_steps_has_a_compute_for_each_batch(
    backend: str,
    by_callback: bool,
    traced: Traced,
    auto: Auto,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    stand_in = keras_on(backend)
    monkeypatch.setitem(sys.modules, "keras", stand_in)
    keras._callback_class.cache_clear()
    model = stand_in.Model()
    before = dict(vars(stand_in.Model))
    with traced(perfetto=False) as run:
        callbacks = [keras.trace_callback()] if by_callback else []
        auto()
        # The steps of a framework alone: its epoch's number times its batches, and the batch.
        assert model.fit([1, 2, 3], 2, steps=3, callbacks=callbacks) == [1, 4, 9] * 2
        assert model.predict([5]) == [5]
        (tmp_path / "m.weights").write_text("four")
        model.save_weights(filepath=tmp_path / "m.weights")
        ours = model.train_function
        auto.remove()
        assert model.train_function is not ours
        assert model.fit([1], 1, steps=1) == [1]
    assert dict(vars(stand_in.Model)) == before
    keras._callback_class.cache_clear()
    spans = run.trace.spans
    assert Counter(f"{e.cat} {e.name}" for e in spans) == {
        "pipeline step": 6,
        "pipeline epoch": 2,
        "pipeline evaluate": 3,
        "compute compute": 6,
        "compute forward.eval": 5,
        "checkpoint capture": 1,
    }
    steps = [e for e in spans if e.name == "step"]
    assert [(e.args["step"], e.args["epoch"]) for e in steps] == [(n, n // 3) for n in range(6)]
    computed = [e for e in spans if e.name == "compute"]
    assert [e.args["step"] for e in computed] == list(range(6))
    for step, one in zip(steps, computed):
        assert step.ts_ns <= one.ts_ns <= one.end_ns <= step.end_ns
    stages = [e.args["stage"] for e in spans if e.name == "evaluate"]
    assert stages == ["validate", "validate", "predict"]
    assert [e.args["bytes"] for e in spans if e.cat == "checkpoint"] == [4]


class Session:
    """Runs as a monitored session of TensorFlow does, which tells its hooks of each."""

    def __init__(self, hooks: list) -> None:
        self.hooks = hooks
        self.step, self.asked = 0, 0

    def run(self, what: object) -> object:
        self.asked += 1
        return self.step

    def all_of(self, runs: list[Exception | None]) -> None:
        context = SimpleNamespace(session=self)
        for hook in self.hooks:
            hook.begin()
        for raised in runs:
            for hook in self.hooks:
                assert hook.before_run(context) is None
            if isinstance(raised, OutOfRangeError):
                break  # as the session's `run` does
            if raised is not None:
                raise raised
            self.step += 1
            for hook in self.hooks:
                hook.after_run(context, None)
        for hook in self.hooks:
            hook.end(self)


def tensorflow_1() -> tuple[ModuleType, SimpleNamespace]:
    class Saver:
        def save(self, session, save_path):
            for suffix in (".index", ".data-00000-of-00001"):
                Path(f"{save_path}{suffix}").write_text("four")
            return save_path

        def restore(self, session, save_path):
            pass

    class Checkpoint:
        save = write = lambda self, path: Saver().save(None, path)
        restore = read = lambda self, save_path, options=None: None

    v1 = SimpleNamespace(
        SessionRunHook=type("SessionRunHook", (), {}),
        Saver=Saver,
        get_global_step=lambda: "global step",
    )
    made = module_of(
        "tensorflow",
        compat=SimpleNamespace(v1=SimpleNamespace(train=v1)),
        train=SimpleNamespace(Checkpoint=Checkpoint),
    )
    return made, v1


def test_a_hook_of_sessions_tells_steps_epochs_and_compute(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made, v1 = tensorflow_1()
    monkeypatch.setitem(sys.modules, "tensorflow", made)
    tensorflow._hook_class.cache_clear()
    with traced(perfetto=False) as run:
        hook = tensorflow.trace_hook(steps="1:6")
        session = Session([hook])
        session.all_of([None, None, None, OutOfRangeError()])
        assert session.asked == 4
        v1.get_global_step = lambda: None  # then they are counted
        session = Session([hook])
        with pytest.raises(ZeroDivisionError):
            session.all_of([None, None, ZeroDivisionError()])
        assert session.asked == 0
        v1.Saver().save(None, save_path=str(tmp_path / "model"))
        v1.Saver().restore(None, str(tmp_path / "model"))
        made.train.Checkpoint().save(str(tmp_path / "other"))
        auto.remove()
        Session([hook]).all_of([None])
    tensorflow._hook_class.cache_clear()
    spans = run.trace.spans
    steps = [(e.args["step"], e.args["epoch"]) for e in spans if e.name == "step"]
    assert steps == [(1, 0), (2, 0), (3, 1), (4, 1)]
    computed = [e for e in spans if e.cat == "compute"]
    assert [e.args["step"] for e in computed[:-1]] == [1, 2, 3, 4]
    # The run that raised has been left open, and holds what came next.
    assert [e.cat for e in run.trace.children(computed[-1])] == ["checkpoint"] * 3
    assert [e.args["epoch"] for e in spans if e.name == "epoch"] == [0, 1]
    saved = [(e.name, e.args["bytes"]) for e in spans if e.cat == "checkpoint"]
    assert saved == [("capture", 8), ("restart", 8), ("capture", 8), ("capture.part", 8)]


WITHOUT_TORCH = """
import sys, types
sys.modules["torch"] = None  # an import of it fails
tensorflow = types.ModuleType("tensorflow")
import dftrace_ai, json
from dftrace_ai import ai
dftrace_ai.auto()
from dftrace_ai.integrations.auto import auto
print(json.dumps(list(auto.parts)))
dftrace_ai.auto.remove()
sys.modules["tensorflow"] = tensorflow
dftrace_ai.auto()
print(json.dumps(list(auto.parts)))
dftrace_ai.auto.remove()
"""


def test_torch_is_not_needed_where_another_framework_is_there(run_script: RunScript) -> None:
    outcome = run_script(WITHOUT_TORCH)
    # One is asked for, the other is none that tests have on.
    assert outcome.said == [[], [name for name in OF_FRAMEWORKS if name not in {"io", "gc"}]]


def test_a_package_of_ones_own_that_is_called_torch_is_told_of_once(run_script: RunScript) -> None:
    outcome = run_script(
        """
        import pathlib, sys
        pathlib.Path("torch").mkdir()
        pathlib.Path("torch/__init__.py").write_text("mine = True")
        sys.path.insert(0, "")
        import dftrace_ai, torch
        dftrace_ai.auto()
        """
    )
    lines = [line for line in outcome.stderr.splitlines() if line.startswith("auto ")]
    assert lines == [
        "auto records nothing of the module torch, not PyTorch: " + lines[0].split()[-1]
    ]
    assert lines[0].endswith("torch/__init__.py")


RAY = """
import json, os, pickle, subprocess, sys, types

ray, train = types.ModuleType("ray"), types.ModuleType("ray.train")
train.reported = []
train.report = lambda metrics, checkpoint=None: train.reported.append(metrics)
sys.modules |= {"ray": ray, "ray.train": train}

def loop(config):
    import torch
    from torch import nn
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), config["lr"])
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    os.makedirs("saved", exist_ok=True)
    open("saved/model", "w").write("four")
    train.report({"loss": 1}, checkpoint=types.SimpleNamespace(path="saved"))
    train.report({"loss": 0})
    if config["fails"]:
        raise LookupError("of the user")

if len(sys.argv) == 1:
    import inspect
    from dftrace_ai.integrations.ray import trace_loop
    os.environ["DFTRACE_COMPRESSION"] = "none"
    traced = trace_loop(loop, log_file="out/trace")
    print(json.dumps(len(inspect.signature(traced).parameters)))
    open("pickled", "wb").write(pickle.dumps(traced))
    del os.environ["DFTRACE_COMPRESSION"]
    os.mkdir("elsewhere")
    subprocess.run([sys.executable, os.path.abspath(__file__), "work"], cwd="elsewhere", check=True)
else:
    before = train.report
    traced = pickle.load(open("../pickled", "rb"))
    for rank in "01":  # one worker behind the other; Ray starts them side by side
        os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
        try:
            traced({"lr": 0.1, "fails": True})
            assert False
        except LookupError as error:
            assert error.__cause__ is None
        assert train.report is before
        traced({"lr": 0.1, "fails": False})  # tried again, as Ray does where a worker fails
    assert train.reported == [{"loss": 1}, {"loss": 0}] * 4
"""


def test_a_loop_of_ray_traces_itself_in_its_workers(run_script: RunScript) -> None:
    outcome = run_script(RAY)
    assert outcome.said == [1]
    traces = [trace for trace in map(read, outcome.files)]
    assert len({trace.header["run"] for trace in traces}) == 1
    found = sorted((trace.header["rank"], trace.header["world_size"]) for trace in traces)
    assert found == [(0, 2)] * 2 + [(1, 2)] * 2
    for trace in traces:
        assert trace.path.suffix == ".pfw"
        names = Counter(f"{e.cat} {e.name}" for e in trace.spans)
        assert names == {
            "pipeline step": 2,
            "compute forward": 2,
            "compute backward": 2,
            "compute step": 2,
            "checkpoint capture.report": 1,
        }
        (saved,) = [e for e in trace.spans if e.cat == "checkpoint"]
        assert saved.args["bytes"] == 4


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


def test_an_eager_loop_by_tapes_has_its_waits_forwards_and_backwards(
    traced: Traced, auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_graph = []
    iterators = module_of(ITERATORS, OwnedIterator=Batches)
    tensorflow, _ = tensorflow_1()
    vars(tensorflow).update(GradientTape=Tape, inside_function=lambda: bool(in_graph))
    stand_in = keras_on("tensorflow")
    kind_of_model, Optimizer = stand_in.Model, stand_in.optimizers.Optimizer
    kind_of_model.__call__ = lambda self, x: x
    Optimizer.apply = lambda self, gradient: None
    symbol = stand_in.KerasTensor
    for one in (iterators, tensorflow, stand_in):
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
