"""Counters over time: a series for each number of each counter of each process."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.report.figures.envelopes import briefly_named, envelope
from dftrace_ai.analysis.report.figures.flame import processes_of, rows_of
from dftrace_ai.analysis.report.series_model import CounterChart, CounterLine

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from numpy.typing import NDArray

    from dftrace_ai.analysis.steps import Job, Process

__all__ = ["CounterSeries", "counter_charts", "counter_series", "number_of", "process_name"]

MOST_CHARTS: Final = 36
MOST_LINES: Final = 6
GROUPS: Final = 240

NON_FINITE: Final = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
# What the machine has to say is looked at first.
FIRST: Final = ("cpu", "memory", "gpu")


class CounterSeries(NamedTuple):
    """A number of a counter over the time of a process.

    Attributes:
        counter: name of the counter.
        key: name of the number.
        process: whose: ``rank 0``, or ``pid 4711``.
        at_ns: nanoseconds since 1970, ascending.
        values: the numbers; NaN and infinities where the trace has these.
    """

    counter: str
    key: str
    process: str
    at_ns: NDArray[Any]
    values: NDArray[Any]


def number_of(value: object) -> float | None:
    """Return a number of a trace's arguments, also one that JSON has no number for."""
    if isinstance(value, str):
        return NON_FINITE.get(value)
    if value is None:
        return np.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def process_name(process: Process) -> str:
    """Return what a process is called beside others."""
    header = process.header
    if header is not None and header.rank is not None:
        return f"rank {header.rank}"
    return f"pid {process.pid}"


def counter_series(job: Job, without: Container[str] = ()) -> list[CounterSeries]:
    """Return all series.

    Args:
        job: the processes.
        without: names of counters that are left out.
    """
    found: list[CounterSeries] = []
    for _, process in processes_of(job):
        points: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        for columns, mask in rows_of(process):
            chosen = mask & (columns.ph == ord("C")) & (columns.start_ns >= 0)
            for row in np.flatnonzero(chosen).tolist():
                name = columns.labels[int(columns.label[row])].name
                if name in without:
                    continue
                at = int(columns.start_ns[row])
                for key, value in columns.args(row).items():
                    number = None if key == "hhash" else number_of(value)
                    if number is not None:
                        points[name, key].append((at, number))
        for (name, key), pairs in points.items():
            pairs.sort(key=lambda pair: pair[0])
            at_ns = np.array([at for at, _ in pairs], np.int64)
            values = np.array([value for _, value in pairs], float)
            found.append(CounterSeries(name, key, process_name(process), at_ns, values))
    return found


def counter_charts(
    series: Sequence[CounterSeries], first_ns: int
) -> tuple[list[CounterChart], int]:
    """Return what is drawn of counters, and how many are not.

    Args:
        series: of all processes, ranks first.
        first_ns: from where seconds count.
    """
    by_name: dict[tuple[str, str], list[CounterSeries]] = defaultdict(list)
    for one in series:
        by_name[one.counter, one.key].append(one)
    names = sorted(by_name, key=lambda name: _importance(name, by_name[name]))
    charts = [_chart(name, by_name[name], first_ns) for name in sorted(names[:MOST_CHARTS])]
    return charts, len(names) - len(charts)


def _importance(name: tuple[str, str], lines: Sequence[CounterSeries]) -> tuple[Any, ...]:
    odd = not all(np.isfinite(one.values).all() for one in lines)
    machine = any(word in name[0].lower() for word in FIRST)
    return not machine, not odd, -sum(len(one.values) for one in lines), name


def _chart(name: tuple[str, str], lines: Iterable[CounterSeries], first_ns: int) -> CounterChart:
    ordered = list(lines)
    drawn = [
        CounterLine(
            one.process,
            len(one.values),
            envelope((one.at_ns - first_ns) / 1e9, one.values, by_place=True, most=GROUPS),
        )
        for one in ordered[:MOST_LINES]
    ]
    counter, key = map(briefly_named, name)
    return CounterChart(counter, key, drawn, len(ordered) - len(drawn))
