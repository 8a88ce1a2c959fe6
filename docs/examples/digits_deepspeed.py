"""Handwritten digits, learned by DeepSpeed. No line of it knows of tracing."""

import deepspeed
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

deepspeed.init_distributed("gloo")
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images).float() / 16, torch.tensor(labels)
digits = TensorDataset(x[:384], y[:384])
train = DataLoader(digits, batch_size=16, sampler=DistributedSampler(digits, shuffle=False))
judge = DataLoader(TensorDataset(x[384:448], y[384:448]), batch_size=32)

torch.manual_seed(0)
engine, *_ = deepspeed.initialize(
    model=nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
    config={
        "train_micro_batch_size_per_gpu": 16,
        "gradient_accumulation_steps": 4,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
    },
)
for epoch in range(2):
    engine.train()
    for x, y in train:
        engine.backward(nn.functional.cross_entropy(engine(x), y))
        engine.step()
    engine.eval()
    with torch.no_grad():
        right = sum((engine(x).argmax(1) == y).sum().item() for x, y in judge)
    engine.save_checkpoint("digits", tag=f"epoch-{epoch}")
if engine.global_rank == 0:
    print("accuracy", round(right / 64, 2))
torch.distributed.destroy_process_group()
