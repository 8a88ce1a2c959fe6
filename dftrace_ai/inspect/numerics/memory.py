"""Tensors as stretches of memory that the native kernels can read."""

from __future__ import annotations

import torch
from torch import Tensor

from dftrace_ai.inspect.errors import InspectTypeError

SHARED_ELEMENTS = 256 * 1024
"""Smaller tensors are not worth waking a thread for; the native module has the same bound."""

ELEMENTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}
"""The formats that the kernels read, by the numbers that they have there."""

_PLAIN_CLASSES = frozenset({Tensor, torch.nn.Parameter})


def is_plain_cpu(tensor: Tensor) -> bool:
    """Return whether a tensor's elements lie where `data_ptr` says, as they are."""
    return (
        tensor.is_cpu
        and type(tensor) in _PLAIN_CLASSES
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not may_be_negated(tensor)
    )


def may_be_negated(tensor: Tensor) -> bool:
    """Return whether the elements in memory may have the other sign."""
    # The imaginary part of a conjugate is such a tensor. Its elements lie apart, so that nothing
    # need be asked of others: `is_neg` lets other threads run, which is slow, and which ends the
    # process where a daemon thread does it while the interpreter ends.
    lies_apart = tensor.numel() == 1 or not tensor.is_contiguous()
    return lies_apart and tensor.is_neg()


def local_part(tensor: Tensor) -> Tensor:
    """Return the elements that this process holds, as a plain tensor without gradient."""
    # Sharded tensors give their shard, sparse ones all their elements, zeros included, quantised
    # ones the numbers that they stand for. What a collective still brings is waited for, by the
    # device.
    to_local = getattr(tensor, "to_local", None)
    if to_local is not None:
        tensor = to_local()
    arrived = getattr(tensor, "trigger_wait", None)
    if arrived is not None:
        tensor = arrived()
    if tensor.layout is torch.jagged:
        _check_rows(tensor)
    tensor = tensor.detach()
    if tensor.is_quantized:
        _check_memory(tensor)
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided:
        tensor = _strided(tensor)
    if type(tensor) not in _PLAIN_CLASSES:
        tensor = _plain(tensor)
    _check_memory(tensor)
    return tensor.resolve_neg()


def _plain(tensor: Tensor) -> Tensor:
    cause = None
    try:
        plain = tensor.as_subclass(Tensor)
        if type(plain) is Tensor:
            return plain
    except RuntimeError as error:  # how torch before 2.5 refuses
        cause = error
    raise InspectTypeError(f"the elements of a {type(tensor).__name__} cannot be read") from cause


def _strided(tensor: Tensor) -> Tensor:
    return tensor.values() if tensor.layout is torch.jagged else tensor.to_dense()


def _check_rows(tensor: Tensor) -> None:
    """Raise where rows end early: where, may be known to the device only, and is lost by detach."""
    lengths: Tensor | None = tensor.lengths()  # type: ignore[attr-defined]
    if lengths is not None:
        raise InspectTypeError("a nested tensor with room between its rows has no statistics")


def _unreadable(error: RuntimeError) -> InspectTypeError:
    return InspectTypeError(f"the elements of this tensor cannot be read: {error}")


def _check_memory(tensor: Tensor) -> None:
    """Raise where memory of a tensor has been freed; even torch's own operations do not look."""
    if not tensor.numel():
        return
    try:
        held = tensor.untyped_storage().nbytes()
    except RuntimeError as error:
        raise _unreadable(error) from error
    # A view may begin behind what is left of the memory that it is a part of.
    reach = tensor.numel()
    if not tensor.is_nested:  # whose rows lie one behind the other
        last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        reach = int(tensor.storage_offset()) + int(last) + 1
    if held < reach * tensor.element_size():
        part = " in part, or is elsewhere" if held else ""
        raise InspectTypeError(f"the memory of this tensor has been freed{part}")


def address_of(tensor: Tensor) -> int:
    """Return where the elements of a tensor begin."""
    # They fill a stretch of memory.
    _check_memory(tensor)
    try:
        address = tensor.data_ptr()
    except RuntimeError as error:
        raise _unreadable(error) from error
    if tensor.numel() and not address:
        raise InspectTypeError("the memory of this tensor is elsewhere")
    return address


def in_memory_order(tensor: Tensor) -> Tensor:
    """Return the tensor itself where its elements fill a stretch of memory, else a copy that does.

    A transposed matrix, or channels that lie last, fill it in another order than their indices':
    that is all the same to whatever takes the elements one by one.
    """
    if tensor.is_contiguous() or _is_permuted(tensor):
        return tensor
    _check_memory(tensor)
    return tensor.contiguous()


def _is_permuted(tensor: Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def threads_for(count: int, threads: int | None) -> int:
    """Return how many threads share so many elements."""
    if count < SHARED_ELEMENTS:
        return 1
    return torch.get_num_threads() if threads is None else threads
