"""The part `transfer`: tensors that go from one device to another."""

from __future__ import annotations

import functools
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import asked, beside, give_anew
from dftrace_ai.integrations.swapping import Swaps
from dftrace_ai.integrations.torch.inside import bytes_of, unheard

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.integrations.options import AutoOptions

DOORS = ("to", "cuda", "cpu")


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what moves tensors; a torch that was built for processors alone stays as it is."""
    with Swaps() as swaps:
        if _has_devices():
            for name in DOORS:
                swaps.swap(torch.Tensor, name, functools.partial(_Door, options))
    return swaps.restore


def _has_devices() -> bool:
    # Asked without a look at the devices: that would start a driver, and forked workers go without.
    version = torch.version
    built = any(getattr(version, name, None) for name in ("cuda", "hip", "xpu"))
    mps = getattr(torch.backends, "mps", None)
    return built or (mps is not None and bool(mps.is_built()))


def _way(tensor: Any, result: Any) -> str:
    """Return from where to where a tensor has gone; empty where it has not gone anywhere."""
    with unheard():
        before, after = tensor.device, result.device
    stayed = before == after or "meta" in {before.type, after.type}
    return "" if stayed else f"{before.type}->{after.type}"


class _Door:
    """A method of tensors, equal to torch's own."""

    # Classes that answer for tensors (`__torch_function__`) look torch's function up in tables, in
    # which they may have put ours.

    def __init__(self, options: AutoOptions, original: Any) -> None:
        self._original = original
        self._gate = options.gate
        functools.update_wrapper(self, original)
        self._method = self.around(original)

    def around(self, original: Any) -> Any:
        """Make a method of one that returns the tensor where it is then."""
        gate, is_compiling = self._gate, torch.compiler.is_compiling

        @functools.wraps(original)
        def method(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not gate.recording:
                return original(tensor, *args, **kwargs)
            node = beside(ai.device.transfer, copy=get_ident())
            span = node._begin()
            if span is None:
                return original(tensor, *args, **kwargs)
            try:
                result = original(tensor, *args, **kwargs)
                way = asked(_way, tensor, result)
                size = None if way == "" else bytes_of(result)
            except BaseException as error:
                span.end(type(error))
                raise
            if way == "":
                span.cancel()
            else:
                give_anew(node, {"bytes": size, "direction": way})
                span.end()
            return result

        return method

    def __get__(self, tensor: Any, kind: type | None = None) -> Any:
        return self if tensor is None else self._method.__get__(tensor, kind)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (torch.Tensor, self._original.__name__)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self._original

    def __hash__(self) -> int:
        return hash(self._original)
