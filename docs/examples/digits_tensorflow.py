"""Handwritten digits, learned by a loop of TensorFlow 2. No line of it knows of tracing."""

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
digits = tf.data.Dataset.from_tensor_slices((images.astype("float32") / 16, labels))
train, judge = digits.take(384).batch(32), digits.skip(384).take(64).batch(32)

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [keras.layers.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]
)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(0.5)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)

for epoch in range(2):
    for x, y in train:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    right = sum(int(tf.reduce_sum(tf.cast(tf.argmax(model(x), 1) == y, "int32"))) for x, y in judge)
    checkpoint.write(f"digits/{epoch}")
print("accuracy", round(right / 64, 2))
