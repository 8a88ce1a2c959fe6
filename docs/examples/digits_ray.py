"""Handwritten digits, learned by Ray Train in two workers, whose loop is traced."""

import tempfile
from pathlib import Path

import torch
from ray import train
from ray.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dftrace_ai.integrations.ray import trace_loop


def learn(config):
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images).float() / 16, torch.tensor(labels)
    batches = prepare_data_loader(DataLoader(TensorDataset(x[:384], y[:384]), batch_size=16))
    torch.manual_seed(0)
    model = prepare_model(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for _ in range(2):
        model.train()
        for images, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(x[384:448]).argmax(1) == y[384:448]).sum().item()
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder, "model.pt"))
            checkpoint = train.Checkpoint.from_directory(folder)
            train.report({"accuracy": right / 64}, checkpoint=checkpoint)


if __name__ == "__main__":
    fitted = TorchTrainer(
        trace_loop(learn, log_file="out/trace"),
        train_loop_config={"lr": 0.5},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(Path("digits").absolute()), name="run"),
        torch_config=TorchConfig(backend="gloo"),
    ).fit()
    print("accuracy", round(fitted.metrics["accuracy"], 2))
