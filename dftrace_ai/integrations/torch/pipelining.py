"""The part `pipelining`: which microbatch a schedule of torch's is at, and what messages are of."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any, Final

from dftrace_ai.integrations.nodes import asked
from dftrace_ai.integrations.swapping import Swaps, needed, once_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions

COMPUTING: Final = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")
"""What a stage computes of a microbatch, whose number is the first argument, as in all below."""

MESSAGES: Final = {
    "get_fwd_recv_ops": "forward",
    "get_fwd_send_ops": "forward",
    "get_bwd_recv_ops": "backward",
    "get_bwd_send_ops": "backward",
}
"""What gives a stage its messages, and the pass that they are of."""


def install(options: AutoOptions) -> Callable[[], None]:
    """Hear of microbatches from the stages of `torch.distributed.pipelining`, once it is there."""
    return once_imported(
        "pipelining", "torch.distributed.pipelining.stage", functools.partial(_stages, options)
    )


def _stages(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    stage = needed(home, "_PipelineStageBase")
    for name in COMPUTING:
        if hasattr(stage, name):  # those of weights have come later
            swaps.swap(stage, name, functools.partial(_computing, options))
    for name, of_pass in MESSAGES.items():
        swaps.swap(stage, name, functools.partial(_communicating, options, of_pass))
    swaps.then(_sent.clear)


def _computing(options: AutoOptions, original: Any) -> Any:
    training = options.training

    @functools.wraps(original)
    def computed(self: Any, *args: Any, **kwargs: Any) -> Any:
        number = _microbatch_of(*args, **kwargs)
        if number is None or not options.gate.live:
            return original(self, *args, **kwargs)
        training.at_microbatch(number)
        try:
            return original(self, *args, **kwargs)
        finally:
            training.at_microbatch(None)

    return computed


def _communicating(options: AutoOptions, of_pass: str, original: Any) -> Any:
    @functools.wraps(original)
    def communicates(self: Any, *args: Any, **kwargs: Any) -> Any:
        operations = original(self, *args, **kwargs)
        number = _microbatch_of(*args, **kwargs)
        if number is not None and options.gate.recording:
            asked(_note, operations, {"pass": of_pass, "microbatch": number}, self)
        return operations

    return communicates


def _microbatch_of(*args: Any, **kwargs: Any) -> int | None:
    number = args[0] if args else next(iter(kwargs.values()), None)
    return number if type(number) is int else None


# By identity of the tensor that is sent, or received into.
_sent: dict[int, tuple[weakref.ref[Any], dict[str, int | str]]] = {}


def _note(operations: list[Any], told: dict[str, int | str], stage: Any) -> None:
    told["stage_index"] = stage.stage_index
    for operation in operations:
        key = id(operation.tensor)
        gone = functools.partial(_forget, key)
        _sent[key] = weakref.ref(operation.tensor, gone), told


def _forget(key: int, _: object) -> None:
    _sent.pop(key, None)


def told_of(tensor: object) -> dict[str, int | str]:
    """Return what is known of a message by its tensor: nothing of one that no stage made."""
    known = _sent.get(id(tensor))
    return known[1] if known is not None and known[0]() is tensor else {}
