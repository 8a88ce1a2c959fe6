"""Members of arguments, which are taken while a file is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NO_NUMBER: Final = -(2**63)
"""In place of a number, where arguments have none."""


ARGUMENTS: Final = "args"
"""What the column of arguments is called."""


class Wanted(NamedTuple):
    """Members of arguments that are taken with the columns, of events of some names.

    Without any members it is the arguments as they are written, as texts called `ARGUMENTS`.
    """

    of: Callable[[str, str], bool]  # by category and name
    whole: tuple[str, ...] = ()  # whole numbers
    micros: tuple[str, ...] = ()  # microseconds, as nanoseconds
    texts: tuple[str, ...] = ()  # places in `Members.texts`; -1 where there is none
    phase: str = ""  # of this phase alone

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns are called."""
        return (*self.whole, *self.micros, *self.texts) or (ARGUMENTS,)


@dataclass(frozen=True, repr=False)
class Members:
    """Members of arguments of events of some names; `NO_NUMBER` where there is none."""

    rows: NDArray[Any]  # the events, in order
    columns: dict[str, NDArray[Any]]  # by the name of the member
    texts: tuple[str, ...]  # each once

    def of(self, rows: NDArray[Any]) -> NDArray[Any] | None:
        """Return where rows that rise stand among these; None where one is none of them."""
        at = np.searchsorted(self.rows, rows)
        if not len(rows) or (at[-1] < len(self.rows) and np.array_equal(self.rows[at], rows)):
            return at
        return None
