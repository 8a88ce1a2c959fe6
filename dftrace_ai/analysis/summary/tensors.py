"""Statistics of tensors that were inspected, added up by tensor and statistic; needs NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai.analysis.summary.adding import Added
from dftrace_ai.analysis.summary.event_reading import EventReading
from dftrace_ai.analysis.summary.rows import MOST_SUMMARY_ROWS, TensorRow, TensorValues

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.reading.event_columns import EventColumns
    from dftrace_ai.analysis.summary.adding import Some
    from dftrace_ai.analysis.summary.rows import Moment
    from dftrace_ai.analysis.where import Where
    from dftrace_ai.trace_format.json_types import Json

TENSOR_STATS: Final = "tensor_stats"

# What an event says beside its statistics.
ABOUT: Final = frozenset(
    {
        *("hhash", "p_idx", "level", "iteration", "rank", "feature", "epoch", "step"),
        *("n", "n_nan", "n_inf", "n_zero"),
    }
)
TEXT: Final = "_str"


class TensorSums:
    """Adds up the statistics of tensors in the events of processes, by tensor and statistic."""

    def __init__(self, where: Where | None = None, most: int = MOST_SUMMARY_ROWS) -> None:
        self.reading = EventReading()
        self._where = where
        self._most = most
        self._values: dict[tuple[str, str], TensorValues] = {}

    def add_all(self, some: Some) -> None:
        """Add these processes."""
        for _, parts in some.processes:
            process = self.reading.process(parts)
            for columns in process.blocks():
                for name, moment, args in _events(columns, self._where):
                    for statistic, value in _statistics(args):
                        if (values := self._of((name, statistic))) is not None:
                            values.add(moment, value)
            process.end()

    def _of(self, key: tuple[str, str]) -> TensorValues | None:
        if len(self._values) < self._most or key in self._values:
            return self._values.setdefault(key, TensorValues())
        return None

    def added(self) -> Added:
        """Return all of it, for another process."""
        files, others = self.reading.files, self.reading.others
        return Added(files, others, self.reading.chosen_events, values=self._values)

    def take(self, added: Added) -> None:
        """Add what another process has added up."""
        self.reading.take(added)
        for key, more in added.values.items():
            if (values := self._of(key)) is not None:
                values.take(more)

    def rows(self) -> tuple[TensorRow, ...]:
        """Return a row for each statistic of each tensor."""
        return tuple(_tensor_row(*key, self._values[key]) for key in sorted(self._values))


def _events(
    columns: EventColumns, where: Where | None
) -> Iterator[tuple[str, Moment, dict[str, Json]]]:
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


def _statistics(args: dict[str, Json]) -> Iterator[tuple[str, float | None]]:
    for name, value in args.items():
        if name in ABOUT:
            continue
        if value is None and f"{name}{TEXT}" in args:
            yield name, None
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


def _tensor_row(name: str, statistic: str, values: TensorValues) -> TensorRow:
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
