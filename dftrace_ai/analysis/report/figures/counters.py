"""Counters over time: a series for each number of each counter of each process."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.report.figures.envelopes import briefly_named, envelope
from dftrace_ai.analysis.report.figures.facts import process_name, rows_of
from dftrace_ai.analysis.report.series_model import CounterChart, CounterLine

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from numpy.typing import NDArray

    from dftrace_ai.analysis.report.figures.facts import Turn
    from dftrace_ai.analysis.steps import Process

__all__ = ["CounterCharts", "CounterSeries", "number_of", "series_of"]

MOST_CHARTS: Final = 36
MOST_LINES: Final = 6
GROUPS: Final = 240

NON_FINITE: Final = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
# What the machine has to say is looked at first.
FIRST: Final = ("cpu", "memory", "gpu")


class CounterSeries(NamedTuple):
    """A number of a counter over the time of a process."""

    counter: str  # name of the counter
    key: str  # name of the number
    process: str  # whose: ``rank 0``, or ``pid 4711``
    at_ns: NDArray[Any]  # nanoseconds since 1970, ascending
    values: NDArray[Any]  # the numbers; NaN and infinities where the trace has these


def number_of(value: object) -> float | None:
    """Return a number of a trace's arguments, also one that JSON has no number for."""
    if isinstance(value, str):
        return NON_FINITE.get(value)
    if value is None:
        return np.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def series_of(process: Process) -> Iterator[CounterSeries]:
    """Yield each number of each counter of a process."""
    points: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for columns, mask in rows_of(process):
        rows = np.flatnonzero(mask & (columns.ph == ord("C")) & (columns.start_ns >= 0))
        for row, args in zip(rows.tolist(), columns.all_args(rows), strict=True):
            name, at = columns.labels[int(columns.label[row])].name, int(columns.start_ns[row])
            for key, value in args.items():
                number = None if key == "hhash" else number_of(value)
                if number is not None:
                    points[name, key].append((at, number))
    for (name, key), pairs in points.items():
        pairs.sort(key=lambda pair: pair[0])
        at_ns = np.array([at for at, _ in pairs], np.int64)
        values = np.array([value for _, value in pairs], float)
        yield CounterSeries(name, key, process_name(process), at_ns, values)


class _Lines(NamedTuple):
    """A number of a counter in several processes: of those whose turn is first the values."""

    processes: int
    values: int
    finite: bool
    first: list[tuple[Turn, CounterSeries]]

    def merged(self, other: _Lines) -> _Lines:
        first = sorted([*self.first, *other.first], key=lambda each: each[0])[:MOST_LINES]
        counts = self.processes + other.processes, self.values + other.values
        return _Lines(*counts, self.finite and other.finite, first)


class CounterCharts:
    """What is drawn of the counters of some processes; those of others are merged into it."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _Lines] = {}

    def add(self, turn: Turn, series: Iterable[CounterSeries]) -> None:
        """Take in the series of a process."""
        for one in series:
            finite = bool(np.isfinite(one.values).all())
            lines = _Lines(1, len(one.values), finite, [(turn, one)])
            self._take((one.counter, one.key), lines)

    def merge(self, other: CounterCharts) -> None:
        """Take in those of others."""
        for name, lines in other._lines.items():
            self._take(name, lines)

    def _take(self, name: tuple[str, str], lines: _Lines) -> None:
        known = self._lines.get(name)
        self._lines[name] = known.merged(lines) if known else lines

    def charts(self, first_ns: int, without: Container[str] = ()) -> tuple[list[CounterChart], int]:
        """Return what is drawn of counters, and how many are not."""
        names = sorted(
            (name for name in self._lines if name[0] not in without),
            key=lambda name: _importance(name, self._lines[name]),
        )
        charts = [_chart(name, self._lines[name], first_ns) for name in sorted(names[:MOST_CHARTS])]
        return charts, len(names) - len(charts)


def _importance(name: tuple[str, str], lines: _Lines) -> tuple[Any, ...]:
    machine = any(word in name[0].lower() for word in FIRST)
    return not machine, lines.finite, -lines.values, name


def _chart(name: tuple[str, str], lines: _Lines, first_ns: int) -> CounterChart:
    drawn = [
        CounterLine(
            one.process,
            len(one.values),
            envelope((one.at_ns - first_ns) / 1e9, one.values, by_place=True, most=GROUPS),
        )
        for _, one in lines.first
    ]
    counter, key = map(briefly_named, name)
    return CounterChart(counter, key, drawn, lines.processes - len(drawn))
