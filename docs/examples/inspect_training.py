"""Train a small transformer; look into its tensors as inspect_training.yaml says."""

from pathlib import Path

import torch
from small_transformer import SmallTransformer, batches, loss_of
from torch.utils.tensorboard import SummaryWriter

import dftrace_ai.inspect as debug_api
from dftrace_ai import ai, tracing

STEPS = 20

torch.manual_seed(0)
model = SmallTransformer()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

with tracing(log_file="out/train"), SummaryWriter("out/tensorboard") as writer:
    debug_api.initialize(
        Path(__file__).with_suffix(".yaml"),
        log_dir="out",
        tb_writer=writer,
        default_logging_enabled=True,
    )
    debug_api.attach(model, fp8={"name": "delayed"})
    debug_api.watch_nonfinite(model)
    for text, following in ai.pipeline.train.iter(batches(STEPS)):
        with ai.compute.forward:
            loss = loss_of(model, text, following)
        with ai.compute.backward:
            optimizer.zero_grad()
            loss.backward()
        with ai.compute.step:
            optimizer.step()
        debug_api.step()
    debug_api.end_debug()

print(f"loss {loss.item():.2f}")
