"""Handwritten digits with DDP on four ranks, one of which has a slow backward."""

import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images).float() / 16, torch.tensor(labels)
digits = TensorDataset(x[:1280], y[:1280])
train = DataLoader(digits, batch_size=16, sampler=DistributedSampler(digits))

torch.manual_seed(0)
torch.set_num_threads(1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def slow(gradient: torch.Tensor) -> torch.Tensor:
    if dist.get_rank() == 2:
        time.sleep(0.05)
    return gradient


for _ in range(3):
    for x, y in train:
        scores = model(x)
        scores.register_hook(slow)
        nn.functional.cross_entropy(scores, y).backward()
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
