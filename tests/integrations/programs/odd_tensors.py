"""Tensors of every kind, also of those that raise at whatever they are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map


class NoFunction(torch.Tensor):
    """Answers for no function of torch's."""

    @classmethod
    def __torch_function__(cls, func: Any, *_: Any) -> Any:
        raise RuntimeError(f"{func.__name__} is not for this one")


class MovesAlone(torch.Tensor):
    """Can be moved, and is asked nothing else."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in {"to", "cpu", "cuda"}:
            return super().__torch_function__(func, types, args, kwargs or {})
        raise RuntimeError(f"{func.__name__} is not for this one")


class Wrapping(torch.Tensor):
    """Stands for another one, as those that quantize do."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_map(
            lambda one: one.inner if isinstance(one, cls) else one, (args, kwargs or {})
        )
        result = func(*given[0], **given[1])
        return tree_map(lambda one: cls(one) if isinstance(one, torch.Tensor) else one, result)


class NoDispatch(torch.Tensor):
    """Answers for no operator: not for its sizes, its device or its layout either."""

    @staticmethod
    def __new__(cls) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            *(cls, (4, 4)),
            dispatch_sizes_strides_policy="sizes",
            dispatch_device=True,
            dispatch_layout=True,
        )

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        raise RuntimeError(f"{func} is not for this one")


class NoFacts(torch.Tensor):
    """Has properties that raise."""

    def _raise(self) -> Any:
        raise RuntimeError("it does not say")

    device = nbytes = layout = is_sparse = is_cpu = shape = property(_raise)
    numel = element_size = __len__ = __bool__ = __str__ = __repr__ = __format__ = _raise

    def __eq__(self, other: object) -> Any:
        raise RuntimeError("it cannot be compared")

    __hash__ = torch.Tensor.__hash__


def _faked() -> Any:
    with FakeTensorMode():
        return torch.empty(4, 4)


def _symbolic() -> Any:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(5, 4), static_shapes=False)


def _distributed() -> Any:
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    return distribute_tensor(torch.eye(4), init_device_mesh("cpu", (1,)), [Shard(0)])


TENSORS: dict[str, Callable[[], Any]] = {
    "dense": lambda: torch.eye(4),
    "sparse coo": lambda: torch.eye(4).to_sparse(),
    "sparse csr": lambda: torch.eye(4).to_sparse_csr(),
    "sparse csc": lambda: torch.eye(4).to_sparse_csc(),
    "sparse bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "sparse bsc": lambda: torch.eye(4).to_sparse_bsc((2, 2)),
    "nested": lambda: torch.nested.nested_tensor([torch.eye(4), torch.ones(2, 4)]),
    "jagged": lambda: torch.nested.nested_tensor(
        [torch.eye(4), torch.ones(2, 4)], layout=torch.jagged
    ),
    "mkldnn": lambda: torch.eye(4).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8),
    "meta": lambda: torch.empty(4, 4, device="meta"),
    "fake": _faked,
    "symbolic": _symbolic,
    "distributed": _distributed,
    "no function": lambda: torch.eye(4).as_subclass(NoFunction),
    "moves alone": lambda: torch.eye(4).as_subclass(MovesAlone),
    "wrapping": lambda: Wrapping(torch.eye(4)),
    "no dispatch": NoDispatch,
    "no facts": lambda: torch.eye(4).as_subclass(NoFacts),
}
"""By name what makes one; `distributed` needs a process group."""

BYTES = {
    "dense": 64,
    "sparse coo": 80,
    "sparse csr": 88,
    "sparse csc": 88,
    "sparse bsr": 72,
    "sparse bsc": 72,
    "nested": 96,
    "jagged": 96,
    "mkldnn": 64,
    "quantized": 16,
    "meta": 64,
    "fake": 64,
    "symbolic": None,
    "distributed": 64,
    "no function": 64,
    "moves alone": 64,
    "wrapping": 64,
    "no dispatch": None,
    "no facts": None,
}
"""By name what it takes; of a sparse one its places and values. None where nobody can know."""
