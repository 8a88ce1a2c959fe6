"""DeepSpeed's engine with and without us, gone on from a checkpoint, with gradients that overflow."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

PLACE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
os.environ.update(PLACE, DS_ACCELERATOR="cpu", MASTER_PORT="0", TORCHELASTIC_USE_AGENT_STORE="")

import deepspeed  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import dftrace_ai  # noqa: E402

OUT = Path(sys.argv[1])
torch.distributed.init_process_group(
    "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
)


def train(folder: Path, stage: int) -> list:
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randint(0, 3, (32,)))
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
    }
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    engine, *_ = deepspeed.initialize(model=model, config=config)
    loader, losses = torch.utils.data.DataLoader(data, batch_size=4), []
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(engine(x), y)
            losses.append(loss.item())
            engine.backward(loss)
            engine.step()
        engine.save_checkpoint(folder, tag=f"of-{epoch}")
    engine.load_checkpoint(folder, tag="of-0")
    for x, y in list(loader)[:2]:
        engine.backward(nn.functional.cross_entropy(engine(x), y))
        engine.step()
    return [losses, [one.tolist() for one in engine.module.state_dict().values()]]


said = {}
for stage in (0, 2):
    expected = train(OUT / f"without-{stage}", stage)
    with dftrace_ai.tracing(log_file=OUT / str(stage) / "trace"):
        dftrace_ai.auto()
        said[str(stage)] = train(OUT / f"saved-{stage}", stage) == expected
        dftrace_ai.auto.remove()
print(json.dumps(said))
torch.distributed.destroy_process_group()
