"""The columns of events, and the choice of some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["COLUMNS", "checked_columns"]

COLUMNS: Final = ("file", "ph", "cat", "name", "id", "pid", "tid", "start_ns", "dur_ns", "args")
"""The columns of events, in their order; `TraceSet.batches` tells what they hold."""


def checked_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the names of columns.

    Raises:
        ValueError: there is no such column, or none is named.
    """
    wanted = tuple(columns)
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown or not wanted:
        what = f"no column is called {unknown[0]!r}" if unknown else "no column is named"
        raise ValueError(f"{what}; there are: {', '.join(COLUMNS)}")
    return wanted
