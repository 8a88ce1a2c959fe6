"""Hugging Face's accelerate: the checkpoints that an `Accelerator` writes and reads."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.wrapping.checkpoints import recorded
from dftrace_ai.integrations.wrapping.listening import needed, once_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps

__all__ = ["install"]


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what an `Accelerator` saves and loads; it has no number of its steps to tell.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.
    """
    return once_imported(
        "accelerate", "accelerate.accelerator", functools.partial(_install, options)
    )


def _install(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    saves = functools.partial(recorded, options, beside(ai.checkpoint.capture))
    loads = functools.partial(recorded, options, beside(ai.checkpoint.restart))
    for name, make, place_of in (
        ("save_state", saves, lambda result, _, __: result),
        ("save_model", saves, lambda _, args, kwargs: kwargs.get("save_directory", *args[2:3])),
        ("load_state", loads, lambda _, args, kwargs: kwargs.get("input_dir", *args[1:2])),
    ):
        swaps.swap(needed(home, "Accelerator"), name, functools.partial(make, place_of))
