"""Launches at little cost to the host: the current stream, and what Triton has compiled before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Launcher", "is_current", "raw_stream"]

_ALIGNED = 16  # bytes of an address, and what Triton looks for in whole numbers
_OTHER_BOUND = 8  # which older versions look for, too

Key = tuple[object, ...]

# What torch's own compiled code asks; a torch without CUDA has neither.
_ask_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)


class Launcher:
    """A kernel on one device."""

    # Triton compiles a kernel anew where an address is aligned, a whole number is 1, can be divided
    # by 16 or needs 64 bits, and looks at each argument in each launch to find out. What it has
    # compiled can be launched without that, in half the time of the host. The kernel's constants
    # stand behind all other arguments.

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._compiled: dict[Key, Any] = {}
        self._is_direct = True

    def __call__(
        self, programs: int, given: tuple[Any, ...], constants: Mapping[str, Any], *, warps: int
    ) -> None:
        """Launch the kernel on the current stream of the current device, which is the kernel's."""
        key = (*map(_kind, given), *constants.values(), warps)
        compiled = self._compiled.get(key)
        if compiled is not None:
            compiled[(programs, 1, 1)](*given, *constants.values())
            return
        compiled = self._kernel[(programs,)](*given, **constants, num_warps=warps)
        if compiled is None or not self._is_direct:
            return
        try:
            # Once more, with the same result: whether this version takes the arguments so.
            compiled[(programs, 1, 1)](*given, *constants.values())
        except TypeError:
            self._is_direct = False
        else:
            self._compiled[key] = compiled


def _kind(argument: object) -> object:
    """Return all that Triton may ask of an argument before it takes what it has compiled."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % _ALIGNED == 0
    if isinstance(argument, int):
        if argument == 1:
            return 1
        return argument % _ALIGNED == 0, argument % _OTHER_BOUND == 0, argument.bit_length() > 31
    return float


def is_current(device: torch.device) -> bool:
    """Return whether a CUDA device is the current one."""
    return device.index is None or device.index == torch.cuda.current_device()


def raw_stream(device: torch.device) -> int:
    """Return the address of a CUDA device's current stream."""
    if _ask_stream is None:
        stream: Any = torch.cuda.current_stream(device)
        return int(stream.cuda_stream)
    index = torch.cuda.current_device() if device.index is None else device.index
    return _ask_stream(index)
