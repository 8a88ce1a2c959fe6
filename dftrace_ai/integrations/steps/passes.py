"""A pass over a loader: how many batches came from it, and how many were used."""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["Pass", "epoch_of"]


class Pass:
    """A pass over a loader, from its first fetch on.

    Attributes:
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

    __slots__ = (
        *("begun", "drained", "evaluated", "fetched", "iterator", "last", "number"),
        *("told", "trained", "used"),
    )

    def __init__(self, iterator: object, begun: int) -> None:
        self.iterator = weakref.ref(iterator)
        self.begun = self.last = begun
        self.number: int | None = None
        self.trained = self.evaluated = self.drained = self.told = False
        self.fetched = self.used = 0

    @property
    def is_ahead(self) -> bool:
        """Whether batches have been fetched that are not used yet."""
        return self.fetched > self.used


def epoch_of(iterator: Any) -> int | None:
    """Return the number that a sampler was told by `set_epoch`; None where it was told none."""
    for name in ("_index_sampler", "_sampler"):
        sampler = getattr(iterator, name, None)
        while sampler is not None:
            epoch = vars(sampler).get("epoch") if hasattr(sampler, "__dict__") else None
            if type(epoch) is int:
                return epoch
            sampler = getattr(sampler, "sampler", None)
    return None
