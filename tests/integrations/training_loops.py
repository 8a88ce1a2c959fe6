"""Trainings as users write them, and what is to be recorded of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(5)
X, Y = torch.randn(12, 8, 16), torch.randint(0, 4, (12, 8))
SGD, ADAM = torch.optim.SGD, torch.optim.Adam


class Loop(NamedTuple):
    """A training: it returns what was learned and all losses."""

    train: Callable[[], tuple[nn.Module, list[Any]]]
    events: dict[str, int]
    microbatches: list[int]


LOOPS: dict[str, Loop] = {}


def expected(microbatches: list[int], **events: int):
    """What is recorded: spans by name, dots as two underscores, and microbatches of each step."""

    def keep(train):
        names = {name.replace("__", "."): count for name, count in events.items()}
        LOOPS[train.__name__] = Loop(train, names, microbatches)
        return train

    return keep


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Linear(16, 32), nn.ReLU(inplace=True), nn.Linear(32, 32), nn.ReLU(inplace=True)),
        nn.Linear(32, 4),
    )


def plain(model, optimizer, steps=4):
    losses = []
    for i in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X[i]), Y[i])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


@expected([1] * 4, forward=4, backward=4, step=4, step__zero_grad=4)
def in_place_relu():
    model = net()
    return plain(model, SGD(model.parameters(), 0.1))


@expected([1] * 4, forward=4, backward=4, step=4)
def a_module_as_loss_and_the_model_clears():
    model, criterion = net(), nn.CrossEntropyLoss()
    optimizer, losses = SGD(model.parameters(), 0.1), []
    for i in range(4):
        model.zero_grad()
        loss = criterion(model(X[i]), Y[i])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


@expected([4, 4], forward=8, backward=8, step=2, step__zero_grad=2)
def accumulation():
    model = net()
    optimizer, losses = torch.optim.AdamW(model.parameters()), []
    for i in range(8):
        loss = F.cross_entropy(model(X[i]), Y[i]) / 4
        loss.backward()
        losses.append(loss.item())
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    return model, losses


@expected([1] * 4, forward=4, backward=4, step=3, step__zero_grad=4, step_skipped=1)
def a_scaler_that_skips():
    model = net()
    optimizer, losses = SGD(model.parameters(), 0.1), []
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for i in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(X[i]), Y[i])
        if i == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return model, losses


@expected([1] * 2, forward=8, backward=4, step=4, step__zero_grad=4, fetch__iter=2, item=16)
def two_networks_with_a_loader():
    generator, critic, bridge = net(), net(1), nn.Linear(4, 16)
    first, second = ADAM(generator.parameters()), ADAM(critic.parameters())
    losses = []
    for x in torch.utils.data.DataLoader(X[:2].flatten(0, 1), batch_size=8, collate_fn=torch.stack):
        for optimizer in (second, first):
            optimizer.zero_grad()
            loss = critic(F.linear(generator(x), bridge.weight)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return nn.ModuleList([generator, critic]), losses


@expected([1] * 3, forward=3, backward=3, backward__grad=3, step=3, step__zero_grad=3)
def gradient_penalty():
    model = net()
    optimizer, losses = SGD(model.parameters(), 0.1), []
    for i in range(3):
        x = X[i].clone().requires_grad_()
        out = model(x).sum()
        (gradient,) = torch.autograd.grad(out, x, create_graph=True)
        optimizer.zero_grad()
        loss = gradient.square().mean() + out
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.head, self.reentrant = net(), nn.Linear(4, 4), reentrant

    def forward(self, x):
        kept = checkpoint(self.inner, x.requires_grad_(), use_reentrant=self.reentrant)
        return self.head(kept)


@expected([1] * 3, forward=3, forward__recompute=3, backward=3, step=3, step__zero_grad=3)
def checkpointed():
    model = Checkpointed(reentrant=False)
    return plain(model, SGD(model.parameters(), 0.01), 3)


@expected([1] * 3, forward=3, forward__recompute=3, backward=3, step=3, step__zero_grad=3)
def checkpointed_reentrantly():
    model = Checkpointed(reentrant=True)
    return plain(model, SGD(model.parameters(), 0.01), 3)


class Ours(torch.optim.Adam):
    def step(self, closure=None):
        return super().step(closure)


@expected([1] * 4, forward=4, backward=4, step=4, step__zero_grad=4)
def an_optimizer_of_the_users():
    model = net()
    ADAM(model.parameters())
    return plain(model, Ours(model.parameters()))


@expected([], forward=2, backward__grad=2)
def functional():
    model, losses = net(), []
    parameters = {k: v.detach().clone() for k, v in model.named_parameters()}

    def loss_of(given):
        loss = F.cross_entropy(torch.func.functional_call(model, given, (X[0],)), Y[0])
        return loss

    for _ in range(2):
        slopes = torch.func.grad(loss_of)(parameters)
        losses += [float(one.sum()) for one in slopes.values()]
    return model, losses


@expected([4, 4, 4], forward=12, step=3, step__zero_grad=3)
def a_schedule_that_runs_the_engine():
    """As Megatron's, which has given up what a microbatch's output holds by then."""
    model = net()
    optimizer, losses = SGD(model.parameters(), 0.1), []
    for step in range(3):
        outputs = [F.cross_entropy(model(X[i]), Y[i]) / 4 for i in range(4 * step, 4 * step + 4)]
        for output in outputs:
            torch.autograd.Variable._execution_engine.run_backward(
                (output,), (torch.ones(()),), False, False, (), allow_unreachable=True,
                accumulate_grad=True,
            )  # fmt: skip
            losses.append(output.item())
        optimizer.step()
        optimizer.zero_grad()
    return model, losses


@expected([1] * 3, forward=4, forward__eval=2, backward=3, step=3, step__zero_grad=3)
def traced_by_jit():
    model = net()
    with warnings.catch_warnings(action="ignore"):
        compiled = torch.jit.trace(model, X[0])
    return plain(compiled, SGD(compiled.parameters(), 0.1), 3)
