"""Handwritten digits, learned by a loop with accelerate. No line of it knows of tracing."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images).float() / 16, torch.tensor(labels)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
model, optimizer, train, judge = accelerator.prepare(
    net,
    torch.optim.SGD(net.parameters(), lr=0.5),
    DataLoader(TensorDataset(x[:384], y[:384]), batch_size=32),
    DataLoader(TensorDataset(x[384:448], y[384:448]), batch_size=32),
)

for _ in range(2):
    model.train()
    for x, y in train:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in judge:
            right += accelerator.gather_for_metrics(model(x).argmax(1) == y).sum().item()
    accelerator.save_state("digits")
print("accuracy", round(right / 64, 2))
