"""Checkpoints of accelerate, which takes no callback."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.checkpoints import recorded
from dftrace_ai.integrations.nodes import beside
from dftrace_ai.integrations.swapping import needed, once_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps


def install(options: AutoOptions) -> Callable[[], None]:
    """Record what an `Accelerator` saves and loads; it has no number of its steps to tell."""
    return once_imported(
        "accelerate", "accelerate.accelerator", functools.partial(_accelerate, options)
    )


def _accelerate(options: AutoOptions, swaps: Swaps, home: ModuleType) -> None:
    capture, restart = beside(ai.checkpoint.capture), beside(ai.checkpoint.restart)
    for name, node, place_of in (
        ("save_state", capture, lambda call: call.result),
        ("save_model", capture, lambda call: call.given(2, "save_directory")),
        ("load_state", restart, lambda call: call.given(1, "input_dir")),
    ):
        make = functools.partial(recorded, options, node, place_of)
        swaps.swap(needed(home, "Accelerator"), name, make)
