"""What `dftrace summary` says, as values; their JSON is `schemas/summary.schema.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.reading.trace_file import SkippedFile  # noqa: TC001 - pydantic needs it
from dftrace_ai.analysis.summary.figures import (  # noqa: TC001 - pydantic needs them
    FileFacts,
    OtherRow,
    Summary,
)
from dftrace_ai.trace_format.vocabulary import LoopPart  # noqa: TC001 - pydantic evaluates it

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import TypeAdapter

    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = ["Report", "Row", "report_adapter", "report_of"]

FORMAT: Final = 1


@dataclass(frozen=True)
class Row:
    """Finished spans that are added up in one row; durations in microseconds.

    Attributes:
        cat: the category.
        name: the name.
        count: how many there are.
        total_us: sum of their durations.
        self_us: the part of it that no spans take which lie inside of them on the same
            track; null where too many spans stand in disorder to be sorted.
        share: self_us, of the sum of self_us over all rows; null where one of these is not
            known.
        mean_us: mean of the durations.
        min_us: the shortest.
        p50_us: median.
        p95_us: 95th percentile.
        p99_us: 99th percentile.
        max_us: the longest.
        loop: ``wait`` for the waits for a loop's items, ``body`` for what is done with
            them, which is no work of the category; null for other spans.
    """

    cat: str
    name: str
    count: int
    total_us: float
    self_us: float | None
    share: float | None
    mean_us: float
    min_us: float
    p50_us: float
    p95_us: float
    p99_us: float
    max_us: float
    loop: LoopPart | None


@dataclass(frozen=True)
class Report:
    """What `dftrace summary --json` prints.

    Attributes:
        format: version of this form; it grows when a member goes or means something else.
        spans: rows of finished spans, in the order of the table.
        others: unfinished spans, instants, counters, flows and custom metadata.
        files: the facts of each file.
        events: lines counted, without names, headers and footers.
        unreadable_lines: lines that hold no event and are not counted above.
        skipped: files of the directories that were given which cannot be read.
        names_left_out: names beyond the 100,000 with the greatest totals; their events
            are counted, and have no row.
        warnings: a line for each loss and fault.
    """

    format: int
    spans: tuple[Row, ...]
    others: tuple[OtherRow, ...]
    files: tuple[FileFacts, ...]
    events: int
    unreadable_lines: int
    skipped: tuple[SkippedFile, ...]
    names_left_out: int
    warnings: tuple[str, ...]

    def to_dict(self) -> JsonObject:
        """Return everything as plain values, fit for JSON."""
        return asdict(self)


def report_of(found: Summary) -> Report:
    """Return what is said of a summary: its rows with the share of each.

    Args:
        found: what `summarise` returned.

    Example::

        for row in report_of(summarise(["out/"])).spans:
            print(row.name, row.share)
    """
    base_us = sum_of_self(row.self_us for row in found.spans)
    return Report(
        format=FORMAT,
        spans=tuple(Row(share=share_of(row.self_us, base_us), **vars(row)) for row in found.spans),
        others=found.others,
        files=found.files,
        events=found.events,
        unreadable_lines=found.unreadable_lines,
        skipped=found.skipped,
        names_left_out=found.names_left_out,
        warnings=tuple(found.warnings()),
    )


def sum_of_self(times_us: Iterable[float | None]) -> float | None:
    """Return the sum of self times; None where one of them is not known."""
    total = 0.0
    for time_us in times_us:
        if time_us is None:
            return None
        total += time_us
    return total


def share_of(self_us: float | None, base_us: float | None) -> float | None:
    """Return which part of a sum of self times one of them is; None where that is not known."""
    if self_us is None or not base_us:
        return None
    return self_us / base_us


def report_adapter() -> TypeAdapter[Report]:
    """Return what checks reports and makes their schema."""
    from pydantic import TypeAdapter

    return TypeAdapter(Report)
