"""Tables with more rows than are printed: the worst stay, and the rule is said with what is not.

A table by rank, host or process that is too long has one row for each name instead, over them all.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from dftrace_ai.cli.terminal import MOST_ROWS
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from _typeshed import SupportsRichComparison

    from dftrace_ai.analysis.summary.report import Row

T = TypeVar("T")

All = Annotated[
    bool,
    typer.Option("--all", help="All there is: every row, of tables that are too long as well."),
]


def left_out_told(left_out: int, rule: str) -> str:
    """Return what stands below a table without so many rows, with the rule for those in it."""
    return (
        f"{counted(left_out, 'row')} more; shown are {rule}; --all prints all, --json has them, too"
    )


def worst(
    rows: Sequence[T],
    worth: Callable[[T], SupportsRichComparison],
    *,
    every: bool = False,
    most: int = MOST_ROWS,
) -> Sequence[T]:
    """Return the rows that are shown: all in their order, or the worst of too many, these first."""
    if every or len(rows) <= most:
        return rows
    return heapq.nlargest(most, rows, key=worth)


class Spread(NamedTuple):
    """What spans of a name take in groups: ranks, hosts or processes."""

    cat: str
    name: str | None
    groups: int
    spans: int
    total_us: float
    least_us: float
    median_us: float
    greatest_us: float
    of: str  # the group with the greatest

    @property
    def beyond_us(self) -> float:
        """How much more the group with the greatest takes than the usual one."""
        return self.greatest_us - self.median_us


def spread_told(rows: int, by: str) -> str:
    """Return what stands below a table with a row for each name."""
    return (
        f"one row for each name in place of {counted(rows, 'row')}, those first in which a {by} "
        f"has most above the median {by}; --all prints all, --json and --csv have them, too"
    )


def spreads(rows: Iterable[Row]) -> list[Spread]:
    """Return a row for each name over the groups of rows, where they differ most first."""
    by_name: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row.cat, row.name].append(row)
    found = []
    for (cat, name), same in by_name.items():
        totals = [row.total_us for row in same]
        greatest = max(same, key=lambda row: row.total_us)
        found.append(
            Spread(
                *(cat, name, len(same), sum(row.count for row in same), sum(totals)),
                *(min(totals), median(totals), greatest.total_us, greatest.group or ""),
            )
        )
    return sorted(found, key=lambda one: -one.beyond_us)
