"""Handwritten digits, learned by a graph as in TensorFlow 1, with a hook that traces it."""

import tensorflow as tf
from sklearn.datasets import load_digits

from dftrace_ai.integrations.tensorflow import trace_hook

v1 = tf.compat.v1
images, labels = load_digits(return_X_y=True)

with tf.Graph().as_default():
    digits = v1.data.Dataset.from_tensor_slices((images[:384].astype("float32") / 16, labels[:384]))
    x, y = v1.data.make_one_shot_iterator(digits.batch(32).repeat(2)).get_next()
    draw = v1.random_normal_initializer(stddev=0.1, seed=0)
    inner = tf.nn.relu(x @ v1.get_variable("inner", (64, 32), initializer=draw))
    loss = v1.losses.sparse_softmax_cross_entropy(
        y, inner @ v1.get_variable("outer", (32, 10), initializer=draw)
    )
    learn = v1.train.GradientDescentOptimizer(0.5).minimize(
        loss, global_step=v1.train.get_or_create_global_step()
    )
    hooks = [trace_hook(log_file="out/trace")]
    saves = [v1.train.CheckpointSaverHook("digits", save_steps=12)]
    with v1.train.MonitoredTrainingSession(hooks=hooks, chief_only_hooks=saves) as session:
        while not session.should_stop():
            session.run(learn)
