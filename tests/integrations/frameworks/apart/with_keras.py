"""Keras on TensorFlow: the same training without us, traced, and by a callback."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import keras
import numpy as np

import dftrace_ai
from dftrace_ai.integrations.keras import trace_callback

OUT = Path(sys.argv[1])


def train(folder: Path, *callbacks, eager: bool = False, together: int = 1) -> list:
    folder.mkdir(exist_ok=True)
    keras.utils.set_random_seed(0)
    numbers = np.random.default_rng(0)
    x, y = numbers.random((48, 16), dtype="float32"), numbers.integers(0, 4, 48)
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(4)]
    model = keras.Sequential([keras.layers.Input((16,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.1)
    compiling = {"run_eagerly": eager, "steps_per_execution": together}
    model.compile(optimizer=optimizer, loss=loss, **compiling)
    judged = {"validation_data": (x[:8], y[:8]), "validation_batch_size": 4}
    fit = model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=list(callbacks), **judged)
    model.save_weights(folder / "m.weights.h5")
    model.load_weights(folder / "m.weights.h5")
    model.predict(x[:8], batch_size=4, verbose=0)
    return [fit.history["loss"], [one.tolist() for one in model.get_weights()]]


def until_the_data_ends(folder: Path) -> list:
    model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    model.fit(((np.ones((4, 16)), np.ones((4, 1))) for _ in range(5)), epochs=1, verbose=0)
    return []


said = {}
for name, how in {"graph": {}, "eager": {"eager": True}, "together": {"together": 3}}.items():
    expected = train(OUT / "without", **how)
    with dftrace_ai.tracing(log_file=OUT / name / "trace"):
        dftrace_ai.auto()
        said[name] = train(OUT / name, **how) == expected
        dftrace_ai.auto.remove()
expected = train(OUT / "without")
with dftrace_ai.tracing(log_file=OUT / "callback" / "trace"):
    said["callback"] = train(OUT / "callback", trace_callback()) == expected
    dftrace_ai.auto.remove()
with dftrace_ai.tracing(log_file=OUT / "generator" / "trace"):
    dftrace_ai.auto()
    until_the_data_ends(OUT / "generator")
    dftrace_ai.auto.remove()
said["without torch"] = "torch" not in sys.modules
print(json.dumps(said))
