"""Handwritten digits, learned by Lightning. No line of it knows of tracing."""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images).float() / 16, torch.tensor(labels)
train = DataLoader(TensorDataset(x[:384], y[:384]), batch_size=32)
judge = DataLoader(TensorDataset(x[384:448], y[384:448]), batch_size=32)


class Digits(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


torch.manual_seed(0)
trainer = pl.Trainer(
    max_epochs=2,
    accumulate_grad_batches=4,
    accelerator="cpu",
    default_root_dir="digits",
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Digits(), train, judge)
print("accuracy", round(float(trainer.callback_metrics["accuracy"]), 2))
