"""The part `steps`: steps, epochs and evaluations become spans when they are over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.integrations.options import AutoOptions

__all__ = ["install"]


def install(options: AutoOptions) -> Callable[[], None]:
    """Have steps recorded, as the other parts tell of them.

    Args:
        options: of `auto`.

    Returns:
        What takes it out again.
    """
    training = options.training
    training.recorded = True

    def remove() -> None:
        training.end()
        training.recorded = False

    return remove
