"""A training that knows nothing of tracing, but for its first lines."""

import sys
from pathlib import Path

import dftrace_ai

OUT = Path(sys.argv[1])
dftrace_ai.auto(log_file=OUT / "trace")

import torch  # noqa: E402 - the same behind it
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

torch.manual_seed(0)
train, judge = (TensorDataset(torch.randn(n, 8), torch.randn(n, 1)) for n in (32, 16))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters())

for _ in range(2):
    model.train()
    for x, y in DataLoader(train, batch_size=8):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for x, _ in DataLoader(judge, batch_size=8):
            model(x)
    torch.save(model.state_dict(), OUT / "model.pt")
