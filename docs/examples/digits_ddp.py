"""Handwritten digits, learned by the ranks of torchrun with DDP. No line of it knows of tracing."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images).float() / 16, torch.tensor(labels)
digits = TensorDataset(x[:384], y[:384])
train = DataLoader(digits, batch_size=16, sampler=DistributedSampler(digits, shuffle=False))
judge = DataLoader(TensorDataset(x[384:448], y[384:448]), batch_size=32)

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(2):
    model.train()
    for number, (x, y) in enumerate(train, 1):
        steps = number % 4 == 0
        with nullcontext() if steps else model.no_sync():
            nn.functional.cross_entropy(model(x), y).div(4).backward()
        if steps:
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in judge)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "digits.pt")
if dist.get_rank() == 0:
    print("accuracy", round(right / 64, 2))
dist.destroy_process_group()
