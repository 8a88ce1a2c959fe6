"""Handwritten digits, learned by Keras 3. No line of it knows of tracing."""

import keras
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
x, y = images.astype("float32") / 16, labels

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [keras.layers.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]
)
model.compile(
    optimizer=keras.optimizers.SGD(0.5),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(
    x[:384],
    y[:384],
    batch_size=32,
    epochs=2,
    shuffle=False,
    validation_data=(x[384:448], y[384:448]),
    callbacks=[keras.callbacks.ModelCheckpoint("digits.weights.h5", save_weights_only=True)],
    verbose=0,
)
print("accuracy", round(history.history["val_accuracy"][-1], 2))
