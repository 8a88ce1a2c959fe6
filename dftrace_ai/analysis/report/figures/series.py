"""Counters over the time of processes, and statistics of tensors over iterations, by layer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from dftrace_ai.analysis.reading.argument_members import ARGUMENTS
from dftrace_ai.analysis.reading.event_columns import decoded
from dftrace_ai.analysis.report.figures.facts import (
    briefly_named,
    envelope,
    process_name,
    rounded,
    rows_of,
)
from dftrace_ai.analysis.report.model import (
    ConstantMap,
    CounterChart,
    CounterLine,
    HeatMap,
    NonFiniteMark,
    TensorFigures,
)
from dftrace_ai.analysis.steps.calls import OF_COUNTERS, OF_EVENTS
from dftrace_ai.analysis.steps.spans import integer

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from dftrace_ai.analysis.reading.event_columns import EventColumns, Integers
    from dftrace_ai.analysis.report.figures.facts import Turn
    from dftrace_ai.analysis.steps import Process
    from dftrace_ai.trace_format.json_types import Json

MOST_CHARTS: Final = 36
MOST_LINES: Final = 6
GROUPS: Final = 240
ALIKE: Final = 4096

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
    moments: dict[tuple[str, str], list[int]] = defaultdict(list)
    numbers: dict[tuple[str, str], list[float]] = defaultdict(list)
    for columns, mask in rows_of(process):
        written = columns.arguments.members[OF_EVENTS.index(OF_COUNTERS)]
        chosen = mask[written.rows] & (columns.start_ns[written.rows] >= 0)
        rows, texts = written.rows[chosen], written.columns[ARGUMENTS][chosen]
        # Many are written alike, others each otherwise, and not all of these are held.
        told = lru_cache(ALIKE)(partial(_numbers_of, written.texts))
        at_ns, labels = columns.start_ns[rows].tolist(), columns.label[rows].tolist()
        for at, label, text in zip(at_ns, labels, texts.tolist(), strict=True):
            name = columns.labels[label].name
            for key, number in told(text):
                moments[name, key].append(at)
                numbers[name, key].append(number)
    for (name, key), times in moments.items():
        at_ns = np.array(times, np.int64)
        order = np.argsort(at_ns, kind="stable")
        values = np.array(numbers[name, key], float)[order]
        yield CounterSeries(name, key, process_name(process), at_ns[order], values)


def _numbers_of(texts: Sequence[str], text: int) -> list[tuple[str, float]]:
    args = decoded(texts[text])
    found = [(key, number_of(value)) for key, value in args.items() if key != "hhash"]
    return [(key, number) for key, number in found if number is not None]


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
            key=lambda name: _chart_importance(name, self._lines[name]),
        )
        charts = [_chart(name, self._lines[name], first_ns) for name in sorted(names[:MOST_CHARTS])]
        return charts, len(names) - len(charts)


def _chart_importance(name: tuple[str, str], lines: _Lines) -> tuple[Any, ...]:
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


CATEGORY: Final = "tensor_stats"
MARK_CATEGORY: Final = "nonfinite"
# Members of the arguments that are no statistics.
ABOUT: Final = frozenset(
    {"hhash", "p_idx", "level", "iteration", "rank", "feature", "epoch", "step"}
    | {"n", "n_nan", "n_inf", "n_zero"}
)
TOLD: Final = "_str"
TEXTS: Final = {**NON_FINITE, "nan": np.nan, "inf": np.inf, "-inf": -np.inf}

MOST_MAPS: Final = 12
MOST_CELLS: Final = 60_000
"""Of all maps together."""
MOST_CONSTANT: Final = 100
MOST_HEAT_ROWS: Final = 200
MOST_COLUMNS: Final = 96
DIGITS: Final = 4
MOST_MARKS: Final = 50
MOST_STATISTICS: Final = 100

# What is looked at first, by the end of the statistic's name.
PREFERRED: Final = ("cur_amax", "l2_norm", "underflows%", "overflows%", "std", "mse", "max", "mean")

Key: TypeAlias = "tuple[str, str]"
SeriesKey: TypeAlias = "tuple[str, str, str, int | None]"


class TensorSeries(NamedTuple):
    """A statistic of a tensor over the iterations of a rank."""

    layer: str  # name of the layer
    tensor: str  # which tensor of it
    statistic: str  # its name
    rank: int | None  # whose; of statistics that ranks share, of the rank that wrote them
    iterations: NDArray[Any]  # ascending
    values: NDArray[Any]  # the statistic; NaN and infinities as they were found


class _Points(NamedTuple):
    """A statistic of a tensor in one process, which has it as one of so many."""

    turn: Turn
    number: int
    iterations: NDArray[Any]
    values: NDArray[Any]


class TensorPoints:
    """What tensor inspection wrote in some processes; that of others is merged into it."""

    def __init__(self) -> None:
        self._points: dict[SeriesKey, list[_Points]] = defaultdict(list)
        self._marks: list[tuple[int, Turn, int, NonFiniteMark]] = []
        self._stopped = 0

    def add(self, turn: Turn, process: Process) -> None:
        """Take in a process."""
        points: dict[SeriesKey, list[tuple[int, float]]] = defaultdict(list)
        for columns, mask in rows_of(process):
            for row, args in _instants(columns, mask, CATEGORY):
                iteration = integer(args.get("iteration"))
                if iteration is None or abs(iteration) >= 1 << 62:
                    continue
                name = columns.labels[int(columns.label[row])].name
                layer, _, tensor = name.rpartition(":")
                rank = integer(args.get("rank"))
                for key, value in args.items():
                    number = None if key in ABOUT else _number(args, key, value)
                    if number is not None:
                        points[layer, tensor, key, rank].append((iteration, number))
        for number, (series, pairs) in enumerate(points.items()):
            iterations = np.array([iteration for iteration, _ in pairs], np.int64)
            values = np.array([value for _, value in pairs], float)
            self._points[series].append(_Points(turn, number, iterations, values))
        marks = list(_marks_of(process))
        numbered = [(at_ns, turn, number, mark) for number, (at_ns, mark) in enumerate(marks)]
        self._take_marks(numbered, len(marks))

    def merge(self, other: TensorPoints) -> None:
        """Take in those of others."""
        for key, points in other._points.items():
            self._points[key] += points
        self._take_marks(other._marks, other._stopped)

    def _take_marks(self, marks: list[tuple[int, Turn, int, NonFiniteMark]], count: int) -> None:
        first = sorted([*self._marks, *marks], key=lambda each: each[:3])
        self._marks, self._stopped = first[:MOST_MARKS], self._stopped + count

    @property
    def series(self) -> list[TensorSeries]:
        """All series, layers in the order in which they are seen, process by process."""
        found = []
        for key, points in self._points.items():
            ordered = sorted(points, key=lambda each: each[:2])
            iterations = np.concatenate([each.iterations for each in ordered])
            order = np.argsort(iterations, kind="stable")
            values = np.concatenate([each.values for each in ordered])[order]
            found.append((ordered[0][:2], TensorSeries(*key, iterations[order], values)))
        return [series for _, series in sorted(found, key=lambda each: each[0])]

    def figures(self, series: Sequence[TensorSeries]) -> TensorFigures | None:
        """Return what is shown of tensors; None where nothing was written of any."""
        marks = [mark for *_, mark in self._marks]
        return _figures(series, marks, self._stopped)


def _instants(
    columns: EventColumns, mask: Integers, category: str
) -> Iterator[tuple[int, dict[str, Json]]]:
    """Yield the rows of instants of a category, with their arguments."""
    wanted = np.array([label.cat == category for label in columns.labels], bool)
    rows = np.flatnonzero(mask & (columns.ph == ord("i")) & wanted[columns.label])
    yield from zip(rows.tolist(), columns.all_args(rows), strict=True)


def _number(args: dict[str, Json], key: str, value: Json) -> float | None:
    told = args.get(f"{key}{TOLD}")
    if value is None and isinstance(told, str):
        return TEXTS.get(told, np.nan)
    # The text beside a number that JSON has not got.
    if isinstance(value, str) and key.endswith(TOLD):
        return None
    return number_of(value)


def _marks_of(process: Process) -> Iterator[tuple[int, NonFiniteMark]]:
    """Yield when tensors stopped being finite."""
    for columns, mask in rows_of(process):
        for row, args in _instants(columns, mask & (columns.start_ns >= 0), MARK_CATEGORY):
            at_ns, name = int(columns.start_ns[row]), columns.labels[int(columns.label[row])].name
            layer, _, tensor = map(briefly_named, name.rpartition(":"))
            iteration, n_nan, n_inf = (
                integer(args.get(key)) for key in ("iteration", "n_nan", "n_inf")
            )
            at = f"{max(0.0, process.ts_us(at_ns)) / 1e6:.6f}s"
            yield (
                at_ns,
                NonFiniteMark(process_name(process), layer, tensor, iteration, n_nan, n_inf, at),
            )


def _figures(
    series: Sequence[TensorSeries], marks: list[NonFiniteMark], stopped: int
) -> TensorFigures | None:
    if not series and not marks:
        return None
    moving, still = _moving(series)
    maps: list[HeatMap] = []
    cells = 0
    for key, lines in moving[:MOST_MAPS]:
        heat = _heat_map(*key, lines)
        cells += len(heat.layers) * len(heat.first)
        if maps and cells > MOST_CELLS:
            break
        maps.append(heat)
    odd = [(one, np.flatnonzero(~np.isfinite(one.values))) for one in series]
    first = min(
        ((int(one.iterations[at[0]]), number) for number, (one, at) in enumerate(odd) if len(at)),
        default=None,
    )
    return TensorFigures(
        layers=len({one.layer for one in series}),
        statistics=sorted({briefly_named(one.statistic) for one in series})[:MOST_STATISTICS],
        non_finite=sum(len(at) for _, at in odd),
        first_non_finite="" if first is None else _told_first(series[first[1]], first[0]),
        maps=maps,
        maps_left_out=len(moving) - len(maps),
        stopped=marks,
        stopped_left_out=stopped - len(marks),
        constant=[
            replace(one, statistic=briefly_named(one.statistic), tensor=briefly_named(one.tensor))
            for one in still[:MOST_CONSTANT]
        ],
    )


def _moving(
    series: Sequence[TensorSeries],
) -> tuple[list[tuple[Key, list[TensorSeries]]], list[ConstantMap]]:
    """Return what changes, by statistic and tensor, that which matters most first; and the rest."""
    by_map: dict[Key, list[TensorSeries]] = defaultdict(list)
    for one in series:
        by_map[one.statistic, one.tensor].append(one)
    still = [found for key, lines in by_map.items() if (found := _constant(*key, lines))]
    for same in still:
        del by_map[same.statistic, same.tensor]
    return sorted(by_map.items(), key=lambda each: _importance(*each)), still


def further_maps(series: Sequence[TensorSeries], drawn: int) -> Iterator[HeatMap]:
    """Yield the heat maps behind those that a report draws, which are so many."""
    for key, lines in _moving(series)[0][drawn:]:
        yield _heat_map(*key, lines)


def _constant(statistic: str, tensor: str, lines: Sequence[TensorSeries]) -> ConstantMap | None:
    """Return what is said of lines that stay where they are, each for itself; None if one moves."""
    values: list[float] = []
    for one in lines:
        first = float(one.values[0])
        if not np.isfinite(first) or len(one.iterations) < 2 or (one.values != first).any():
            return None
        values.append(first)
    layers = len({one.layer for one in lines})
    return ConstantMap(statistic, tensor, layers, min(values), max(values))


def _told_first(one: TensorSeries, iteration: int) -> str:
    statistic, layer, tensor = map(briefly_named, (one.statistic, one.layer, one.tensor))
    return f"{statistic} of {layer}:{tensor} at iteration {iteration}"


def _importance(key: Key, lines: Sequence[TensorSeries]) -> tuple[Any, ...]:
    statistic, tensor = key
    rank = next(
        (at for at, name in enumerate(PREFERRED) if statistic.endswith(name)), len(PREFERRED)
    )
    odd = any(not np.isfinite(one.values).all() for one in lines)
    return not odd, rank, -len(lines), statistic, tensor


def _heat_map(statistic: str, tensor: str, lines: Sequence[TensorSeries]) -> HeatMap:
    by_layer: dict[str, list[TensorSeries]] = {}
    for one in lines:
        by_layer.setdefault(one.layer, []).append(one)
    layers = list(by_layer)
    if len(layers) > MOST_HEAT_ROWS:
        # What is not finite is on the picture, whatever else has no room.
        odd = {
            layer
            for layer in layers
            if any(not np.isfinite(one.values).all() for one in by_layer[layer])
        }
        chosen = {*[layer for layer in layers if layer in odd][:MOST_HEAT_ROWS]}
        for layer in layers:
            if len(chosen) >= MOST_HEAT_ROWS:
                break
            chosen.add(layer)
        layers = [layer for layer in layers if layer in chosen]
    iterations = np.unique(np.concatenate([one.iterations for one in lines]))
    starts = np.unique(
        np.linspace(0, len(iterations), min(MOST_COLUMNS, len(iterations)) + 1).astype(int)[:-1]
    )
    first = iterations[starts]
    last = iterations[np.append(starts[1:], len(iterations)) - 1]
    return HeatMap(
        briefly_named(statistic),
        briefly_named(tensor),
        [briefly_named(layer) for layer in layers],
        first.tolist(),
        last.tolist(),
        [_row(by_layer[layer], first) for layer in layers],
        len(by_layer) - len(layers),
    )


def _row(lines: Sequence[TensorSeries], first: NDArray[Any]) -> list[Any]:
    row: list[float | None] = [None] * len(first)
    for one in lines:
        column = np.searchsorted(first, one.iterations, side="right") - 1
        starts = np.flatnonzero(np.concatenate([[True], column[1:] != column[:-1]]))
        weight = _weight(one.values)
        for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(column)], strict=True):
            value = float(one.values[begin + int(np.argmax(weight[begin:end]))])
            other = row[int(column[begin])]
            if other is None or _weight(np.array([value]))[0] > _weight(np.array([other]))[0]:
                row[int(column[begin])] = value
    return [None if value is None else _told(value) for value in row]


def _weight(values: NDArray[Any]) -> NDArray[Any]:
    """Return what says which of several values is shown: NaN before infinities, then size."""
    size = np.minimum(np.abs(values), np.finfo(float).max)
    return np.where(np.isnan(values), np.inf, size)


def _told(value: float) -> float | str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return rounded(value, DIGITS)
