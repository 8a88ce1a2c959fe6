"""Backward passes of Megatron's pipelines, which take no callback."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from dftrace_ai.integrations.swapping import once_imported

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dftrace_ai.integrations.options import AutoOptions
    from dftrace_ai.integrations.swapping import Swaps


SCHEDULES = "megatron.core.pipeline_parallel.schedules"


def install(options: AutoOptions) -> Callable[[], None]:
    """Record backward passes of stages whose outputs were given up: they use no door of torch's."""
    return once_imported("megatron", SCHEDULES, functools.partial(_megatron, options))


def _megatron(options: AutoOptions, swaps: Swaps, schedules: ModuleType) -> None:
    # Torch is there by now, and was not when this was.
    from dftrace_ai.integrations.torch.backward import learning_backward

    swaps.swap(schedules, "custom_backward", functools.partial(learning_backward, options))
