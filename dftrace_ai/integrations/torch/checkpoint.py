"""The part `checkpoint`: what saves and loads a model, where it does not load data."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.swapping import Swaps
from dftrace_ai.integrations.torch.depth import depth
from dftrace_ai.integrations.torch.opened_checkpoints import record_opened
from dftrace_ai.integrations.torch.sharded_checkpoints import record_sharded
from dftrace_ai.integrations.wrapping.checkpoints import recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dftrace_ai.annotation.node import ProfilerNode
    from dftrace_ai.integrations.options import AutoOptions

__all__ = ["install"]


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what is saved and loaded.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.

    Raises:
        NotInThisVersion: torch lacks what is needed.
    """
    with Swaps() as swaps:
        for name, node, place in (
            ("save", beside(ai.checkpoint.capture), 1),
            ("load", beside(ai.checkpoint.restart), 0),
        ):
            make = functools.partial(_recorded, options, node, place)
            is_one = getattr(torch, name, None) is getattr(torch.serialization, name, None)
            if is_one:  # the one that pickle looks up, as for a function that loads samples
                swaps.swap(torch.serialization, name, make)
                make = functools.partial(_as_in_its_home, name)
            swaps.swap(torch, name, make)
        swaps.then(record_sharded(options))
        swaps.then(record_opened(options))
    return swaps.restore


def _recorded(options: AutoOptions, node: ProfilerNode, place: int, original: Any) -> Any:
    record = recorded(options, node, lambda _, args, kwargs: _file(place, args, kwargs), original)

    @functools.wraps(original)
    def unless_waiting(*args: Any, **kwargs: Any) -> Any:
        # Samples that a data set loads are no checkpoints.
        return (original if depth.waiting else record)(*args, **kwargs)

    return unless_waiting


def _file(place: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return kwargs.get("f", args[place] if len(args) > place else None)


def _as_in_its_home(name: str, original: object) -> Any:
    return getattr(torch.serialization, name)
