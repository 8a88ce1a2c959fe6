"""TensorFlow's monitored sessions, with the hook and without."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf

import dftrace_ai
from dftrace_ai.integrations.tensorflow import trace_hook

OUT = Path(sys.argv[1])
v1 = tf.compat.v1


def train(folder: Path, *hooks, until: int | None = 4) -> list:
    """Until a step, or for as long as there are data."""
    done = []
    with tf.Graph().as_default():
        data = v1.data.make_one_shot_iterator(tf.data.Dataset.range(1, 4).repeat(until))
        weights = v1.get_variable("w", shape=(4,), initializer=v1.random_normal_initializer(seed=1))
        loss = tf.reduce_sum(weights * weights) * tf.cast(data.get_next(), tf.float32)
        step = v1.train.get_or_create_global_step()
        learn = v1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
        saves = v1.train.CheckpointSaverHook(str(folder), save_steps=2)
        stops = [] if until is None else [v1.train.StopAtStepHook(until)]
        with v1.train.MonitoredTrainingSession(
            hooks=[*hooks, *stops], chief_only_hooks=[saves]
        ) as session:
            while not session.should_stop():
                done.append([float(session.run([loss, learn])[0])])
    return done


def main() -> None:
    expected = train(OUT / "without"), train(OUT / "without-2", until=1)
    with dftrace_ai.tracing(log_file=OUT / "traced" / "trace"):
        hook = trace_hook()
        found = train(OUT / "saved", hook), train(OUT / "saved-2", hook, until=1)
        dftrace_ai.auto.remove()
    print(json.dumps({"same": found == expected, "without torch": "torch" not in sys.modules}))


main()
