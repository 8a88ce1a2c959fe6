"""What the statistics of tensors in the traces come to, by tensor and statistic; needs NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.reading.identity import recordings_of
from dftrace_ai.analysis.summary.event_reading import EventReading
from dftrace_ai.analysis.summary.rows import TensorRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dftrace_ai.analysis.reading.event_columns import EventColumns
    from dftrace_ai.analysis.reading.trace import Trace
    from dftrace_ai.analysis.reading.trace_file import SkippedFile
    from dftrace_ai.analysis.summary.figures import Summary
    from dftrace_ai.analysis.where import Where

__all__ = ["TENSOR_STATS", "summarise_tensors"]

TENSOR_STATS: Final = "tensor_stats"

# What an event says beside its statistics.
ABOUT: Final = frozenset(
    {
        *("hhash", "p_idx", "level", "iteration", "rank", "feature", "epoch", "step"),
        *("n", "n_nan", "n_inf", "n_zero"),
    }
)
TEXT: Final = "_str"
MOST_ROWS: Final = 100_000


_Moment = tuple[int, int]
"""A step, and when it was."""


@dataclass
class _Values:
    """The values of a statistic so far."""

    count: int = 0
    nonfinite: int = 0
    first: tuple[_Moment, float] | None = None
    last: tuple[_Moment, float] | None = None
    least: float | None = None
    greatest: float | None = None
    broken: _Moment | None = None

    def add(self, moment: _Moment, value: float | None) -> None:
        self.count += 1
        if value is None:
            self.nonfinite += 1
            self.broken = moment if self.broken is None else min(self.broken, moment)
            return
        if self.first is None or moment < self.first[0]:
            self.first = moment, value
        if self.last is None or moment >= self.last[0]:
            self.last = moment, value
        self.least = value if self.least is None else min(self.least, value)
        self.greatest = value if self.greatest is None else max(self.greatest, value)


def summarise_tensors(
    traces: Sequence[Trace], skipped: Sequence[SkippedFile], where: Where | None = None
) -> tuple[Summary, tuple[TensorRow, ...]]:
    """Return what the statistics of tensors come to, by name, and what is said of the files."""
    reading = EventReading()
    reading.files.skipped += skipped
    values: dict[tuple[str, str], _Values] = {}
    for parts in recordings_of(traces).values():
        process = reading.process(parts)
        for columns in process.blocks():
            for name, moment, args in _events(columns, where):
                for statistic, value in _statistics(args):
                    if len(values) < MOST_ROWS or (name, statistic) in values:
                        values.setdefault((name, statistic), _Values()).add(moment, value)
        process.end()
    rows = tuple(_row(*key, values[key]) for key in sorted(values))
    return reading.summary(), rows


def _events(
    columns: EventColumns, where: Where | None
) -> Iterator[tuple[str, _Moment, Mapping[str, object]]]:
    wanted = [label.cat == TENSOR_STATS for label in columns.labels]
    rows = (columns.ph == ord("i")) & np.array(wanted, bool)[columns.label]
    if where is not None and rows.any():
        rows &= where.rows(columns)
    for row in np.flatnonzero(rows).tolist():
        args = columns.args(row)
        step = args.get("iteration")
        whole = step if type(step) is int else 0
        name = columns.labels[int(columns.label[row])].name
        yield name, (whole, int(columns.start_ns[row])), args


def _statistics(args: Mapping[str, object]) -> Iterator[tuple[str, float | None]]:
    for name, value in args.items():
        if name in ABOUT:
            continue
        if value is None and f"{name}{TEXT}" in args:
            yield name, None
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


def _row(name: str, statistic: str, values: _Values) -> TensorRow:
    return TensorRow(
        name,
        statistic,
        values.count,
        values.nonfinite,
        first=values.first[1] if values.first else None,
        last=values.last[1] if values.last else None,
        min=values.least,
        max=values.greatest,
        first_nonfinite_step=values.broken[0] if values.broken else None,
    )
