"""What is particular to a tracker: what it keeps in which form, and a program that reads it back."""

from __future__ import annotations

from trackers.readers import (
    aim,
    comet,
    local,
    mlflow,
    neptune,
    swanlab,
    tensorboard,
    trackio,
    wandb,
)

READERS = (aim, comet, local, mlflow, neptune, swanlab, tensorboard, trackio, wandb)
# Who writes in the training's own process is killed with it, and has written no end.
IN_PROCESS = (local, tensorboard)
