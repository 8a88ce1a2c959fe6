"""Ray Train with two workers, whose loops trace themselves, and without us."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}

import ray  # noqa: E402
import torch  # noqa: E402
from ray import train  # noqa: E402
from ray.train.torch import (  # noqa: E402
    TorchConfig,
    TorchTrainer,
    prepare_data_loader,
    prepare_model,
)
from torch import nn  # noqa: E402

from dftrace_ai.integrations.ray import trace_loop  # noqa: E402

OUT = Path(sys.argv[1])


def loop(config):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = prepare_model(nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randint(0, 3, (32,)))
    loader = prepare_data_loader(torch.utils.data.DataLoader(data, batch_size=4))
    losses = []
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder) / "model.pt")
            checkpoint = train.Checkpoint.from_directory(folder)
            train.report({"losses": losses, "rank": os.environ["RANK"]}, checkpoint=checkpoint)


def trained(name: str, each_worker) -> list[float]:
    fitted = TorchTrainer(
        each_worker,
        train_loop_config={},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(storage_path=str(OUT / "storage"), name=name),
        torch_config=TorchConfig(backend="gloo"),
    ).fit()
    return fitted.metrics["losses"]


ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", configure_logging=False)
expected = trained("without", loop)
found = trained("traced", trace_loop(loop, log_file=str(OUT / "traces" / "trace")))
ray.shutdown()
print(json.dumps({"same": found == expected}))
