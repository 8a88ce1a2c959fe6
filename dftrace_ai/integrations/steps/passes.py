"""A pass over a loader: how many batches came from it, and how many were used."""

from __future__ import annotations

import weakref
from typing import Final

from dftrace_ai.integrations.asking import asked
from dftrace_ai.run.emitting import PassState

__all__ = ["Pass", "epoch_of"]

# Of one around another: what stands for anything has a sampler without end.
MOST_SAMPLERS: Final = 8


class Pass(PassState):
    """A pass over a loader, from its first fetch on.

    Attributes:
        of: id of the loader's iterator.
        begun: when the first batch was asked for.
        last: when it was last used, as of now.
        number: of the epoch that it is; None for none.
        trained: something was learned from it.
        evaluated: a model was called in it.
        fetched: batches that it has given.
        used: of these, those that a backward pass or, in an evaluation, a forward was made for.
        told: a framework tells of its epochs, which need not be passes.
        drained: it gives no more, and some of its batches have been fetched ahead of their use.
    """

    __slots__ = ("evaluated", "iterator")

    def __init__(self, iterator: object, begun: int) -> None:
        self.of = id(iterator)
        self.iterator = weakref.ref(iterator)
        self.begun = self.last = begun
        self.evaluated = False

    @property
    def is_ahead(self) -> bool:
        """Whether batches have been fetched that are not used yet."""
        return self.fetched > self.used


def epoch_of(iterator: object) -> int | None:
    """Return the number that a sampler was told by `set_epoch`; None where it was told none."""
    for name in ("_index_sampler", "_sampler"):
        epoch = asked(_epoch_told, iterator, name)
        if epoch is not None:
            return epoch
    return None


def _epoch_told(iterator: object, name: str) -> int | None:
    sampler = getattr(iterator, name, None)
    for _ in range(MOST_SAMPLERS):
        if sampler is None:
            return None
        epoch = vars(sampler).get("epoch") if hasattr(sampler, "__dict__") else None
        if type(epoch) is int:
            return epoch
        sampler = getattr(sampler, "sampler", None)
    return None
