"""Tensors that stand for objects in compiled code, which passes tensors on and nothing else."""

from __future__ import annotations

import itertools
import sys
import weakref
from typing import Any

import torch
from torch import Tensor

__all__ = ["held_by", "token_of"]

_numbers = itertools.count(1)


class _Holder(bytearray):
    """The memory of a token; it lives as long as the tensor, and the object as long as it."""

    held: Any = None


_holders: weakref.WeakValueDictionary[int, _Holder] = weakref.WeakValueDictionary()


def token_of(held: object) -> Tensor:
    """Return a tensor that stands for an object, and keeps it alive."""
    number = next(_numbers)
    holder = _Holder(number.to_bytes(8, sys.byteorder))
    holder.held = held
    _holders[number] = holder
    with torch.inference_mode(mode=False):
        return torch.frombuffer(holder, dtype=torch.int64)


def held_by(token: Tensor) -> Any:
    """Return the object that a token stands for, None where there is none any more."""
    holder = _holders.get(int(token))
    return None if holder is None else holder.held
