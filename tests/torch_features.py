"""What the torch that is here can do, asked of torch itself: for tests that need it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import pytest


def found(name: str, *homes: str) -> Any:
    """What has a name in the first module that has it; the test is skipped where none has."""
    for home in homes:
        try:
            return getattr(importlib.import_module(home), name)
        except (ImportError, AttributeError):
            continue
    pytest.skip(f"this torch has no {name}")


def has_fully_shard() -> bool:
    """Whether there is FSDP2's function, and works on a CPU: at first it needed streams of a GPU."""
    import torch

    public = hasattr(importlib.import_module("torch.distributed.fsdp"), "fully_shard")
    return public and hasattr(torch.cpu.Stream, "record_event")


def fully_shard() -> Any:
    """FSDP2's function; the test is skipped where it does not work on a CPU."""
    if not has_fully_shard():
        pytest.skip("FSDP2 of this torch needs a GPU")
    return found("fully_shard", "torch.distributed.fsdp")


def from_dtensor(name: str) -> Any:
    """Something of the module of DTensor, which was no public one at first."""
    return found(name, "torch.distributed.tensor", "torch.distributed._tensor")


def compiles(step: Callable[..., Any], *given: Any, backend: str = "eager") -> bool:
    """Whether torch makes one graph of a program in which nothing is ours."""
    import torch

    try:
        torch.compile(step, backend=backend, fullgraph=True)(*given)
    except Exception:  # noqa: BLE001 - each version has errors of its own
        return False
    finally:
        torch._dynamo.reset()
    return True


@functools.cache
def compiles_its_own_modules() -> bool:
    """Whether torch compiles what its own modules do; else they are operators of the graph."""
    import torch

    kinds: list[str] = []

    def backend(graph: Any, _: Any) -> Any:
        kinds.extend(node.op for node in graph.graph.nodes)
        return graph.forward

    torch.compile(torch.nn.Linear(1, 1), backend=backend)(torch.ones(1))
    torch._dynamo.reset()
    return "call_module" not in kinds
