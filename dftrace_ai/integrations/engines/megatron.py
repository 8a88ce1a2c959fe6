"""Megatron's schedules of pipelines: backward passes that go by torch's doors no more."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from dftrace_ai.integrations.wrapping.listening import once_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps

__all__ = ["install"]

PART = "megatron"
SCHEDULES = "megatron.core.pipeline_parallel.schedules"


def install(options: AutoOptions) -> Callable[[], None]:
    """Record the backward passes of stages whose outputs have been given up.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.
    """
    return once_imported(PART, SCHEDULES, functools.partial(_install, options))


def _install(options: AutoOptions, swaps: Swaps, schedules: ModuleType) -> None:
    # Torch is there by now, and was not when this was.
    from dftrace_ai.integrations.torch.backward import learning_backward

    swaps.swap(schedules, "custom_backward", functools.partial(learning_backward, options))
