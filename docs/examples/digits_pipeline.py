"""Handwritten digits, learned by two stages of a pipeline, with a schedule of its own."""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dftrace_ai import ai

dist.init_process_group("gloo")
is_first = dist.get_rank() == 0
torch.manual_seed(0)
stage = nn.Sequential(nn.Linear(64, 32), nn.ReLU()) if is_first else nn.Linear(32, 10)
optimizer = torch.optim.SGD(stage.parameters(), lr=0.5)
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images).float() / 16, torch.tensor(labels)
train = DataLoader(TensorDataset(x[:384], y[:384]), batch_size=32)


sent = []


def forward_step(batch):
    """Compute the stage of a microbatch, from what the one before it has sent."""
    x, y = batch
    if is_first:
        x = stage(x)
        sent.append(dist.isend(x.detach(), 1))
        return x, x
    x = torch.empty(len(y), 32)
    dist.recv(x, 0)
    x.requires_grad_()
    return x, nn.functional.cross_entropy(stage(x), y) / 4


@ai.compute.backward
def run_backward(output, gradient):
    """Call the engine of autograd by itself, as schedules do that give up their outputs."""
    torch.autograd.Variable._execution_engine.run_backward(
        (output,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def backward_step(x, output):
    """Compute the gradients of a microbatch, and send them to the stage before."""
    if is_first:
        gradient = torch.empty_like(output)
        dist.recv(gradient, 1)
        run_backward(output, gradient)
    else:
        run_backward(output, torch.ones(()))
        sent.append(dist.isend(x.grad, 0))


for _ in range(2):
    batches = iter(train)
    for _ in range(3):
        # Each stage begins with as many forwards as there are stages behind it.
        ahead = [forward_step(next(batches))] if is_first else []
        for number in range(4):
            if number + len(ahead) < 4:
                ahead.append(forward_step(next(batches)))
            backward_step(*ahead.pop(0))
        while sent:
            sent.pop().wait()
        optimizer.step()
        optimizer.zero_grad()
    torch.save(stage.state_dict(), f"digits-{dist.get_rank()}.pt")
dist.destroy_process_group()
