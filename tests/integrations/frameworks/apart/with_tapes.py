"""Loops of one's own by tf.GradientTape, eager and as a function of a graph, with us and without."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import dftrace_ai

OUT = Path(sys.argv[1])


def train(*, compiled: bool = False, penalty: bool = False, judged: bool = False) -> list:
    keras.utils.set_random_seed(0)
    numbers = np.random.default_rng(0)
    x, y = numbers.random((24, 16), dtype="float32"), numbers.integers(0, 4, 24)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(4)]
    model = keras.Sequential([keras.layers.Input((16,)), *layers])
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.1)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
            if penalty:
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    answer = tf.reduce_sum(model(x, training=True))
                loss += tf.reduce_mean(inner.gradient(answer, x) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss

    call = tf.function(step) if compiled else step
    losses = []
    for _ in range(2):
        losses += [float(call(x, y)) for x, y in batches]
        losses += [float(tf.reduce_sum(model(x))) for x, _ in batches.take(3)] if judged else []
    return [losses, [one.tolist() for one in model.get_weights()]]


def that_raises() -> list:
    """What raises within a tape ends its span, and one tape may be asked twice."""
    weight = tf.Variable(2.0)
    try:
        with tf.GradientTape():
            raise LookupError
    except LookupError:
        pass
    with tf.GradientTape(persistent=True) as tape:
        loss = weight * weight
    return [float(tape.gradient(loss, weight)), float(tape.gradient(loss, weight))]


WAYS = {
    "eager": (train, {}),
    "graph": (train, {"compiled": True}),
    "penalty": (train, {"penalty": True}),
    "judged": (train, {"judged": True}),
    "raises": (that_raises, {}),
}

said = {}
places = (
    (tf.GradientTape, ("__enter__", "__exit__", "gradient")),
    (keras.optimizers.Optimizer, ("apply",)),
    (keras.Model, ("__call__",)),
)
before = [getattr(owner, name) for owner, names in places for name in names]
for name, (work, how) in WAYS.items():
    expected = work(**how)
    with dftrace_ai.tracing(log_file=OUT / name / "trace"):
        dftrace_ai.auto()
        said[name] = work(**how) == expected
        dftrace_ai.auto.remove()
after = [getattr(owner, name) for owner, names in places for name in names]
said["as it was"] = all(one is other for one, other in zip(before, after))
said["without torch"] = "torch" not in sys.modules
print(json.dumps(said))
