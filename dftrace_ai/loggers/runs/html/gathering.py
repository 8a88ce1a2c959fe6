"""What the page shows of runs, gathered while their logs are read: dots, and some of the media."""

from __future__ import annotations

import math
from array import array
from bisect import insort
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from dftrace_ai.loggers.runs.lines import AXES
from dftrace_ai.loggers.runs.reading import Runs, read_run
from dftrace_ai.page.svg import told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dftrace_ai.loggers.runs.folders import RunFolder
    from dftrace_ai.loggers.runs.lines import MediaLine, MetricsLine
    from dftrace_ai.loggers.runs.model import LocalRun
    from dftrace_ai.loggers.runs.statuses import Writer

__all__ = [
    "MOST_DOTS",
    "MOST_PLOTS",
    "MOST_RUNS",
    "MOST_SHOWN",
    "Dot",
    "Histogram",
    "Picture",
    "RunsOnPage",
]

MOST_RUNS = 50
MOST_PLOTS = 300
MOST_DOTS = 500
"""Of one line; steps that are closer are put together."""
MOST_OF_ONE = 4
"""Histograms, or pictures, of one name in one run: the first, the last and some between."""
MOST_SHOWN = 400
MOST_OTHERS = 1000
MOST_BINS = 4096
MOST_HELD = 16
FILE_LETTERS = 8192

AXIS_NAMES = tuple(AXES.values())

Key = TypeVar("Key", bound="tuple[Any, ...]")
Value = TypeVar("Value")


class Dot(NamedTuple):
    """What the finite values of a step, or of several, come to; and how many are not finite."""

    x: float
    y: float | None
    low: float | None
    high: float | None
    non_finite: int


class Picture(NamedTuple):
    """A picture or a clip: its kind, its file in the run's directory, its caption as HTML."""

    kind: str
    file: str
    caption: str


class Histogram(NamedTuple):
    """Edges of bins, and how many values are in each."""

    edges: Sequence[float]
    counts: Sequence[int]


class Firsts(Generic[Key, Value]):
    """Values by key, of so many keys only as come first in their order."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: list[Key] = []
        self._values: dict[Key, Value] = {}

    def at(self, key: Key, new: Callable[[], Value]) -> Value | None:
        """Return the value of a key, a new one at first; None where the key is not among them."""
        value = self._values.get(key)
        if value is None:
            if len(self._keys) == self._most:
                if key > self._keys[-1]:
                    return None
                del self._values[self._keys.pop()]
            insort(self._keys, key)
            value = self._values[key] = new()
        return value

    def __iter__(self) -> Iterator[tuple[Key, Value]]:
        return ((key, self._values[key]) for key in self._keys)


class Some(Generic[Value]):
    """Some of what comes at ascending places: the first, the last, and such as lie between."""

    def __init__(self) -> None:
        self._count = 0
        self._every = 1
        self._held: list[tuple[int, float, int, Value]] = []
        self._first: tuple[int, float, int, Value] | None = None
        self._last: tuple[int, float, int, Value] | None = None

    def add(self, step: int, time_s: float, value: Value) -> None:
        """Take one more."""
        one = (step, time_s, self._count, value)
        if self._first is None or one[:3] < self._first[:3]:
            self._first = one
        if self._last is None or one[:3] > self._last[:3]:
            self._last = one
        if self._count % self._every == 0:
            self._held.append(one)
        if len(self._held) > MOST_HELD:
            self._held = self._held[::2]
            self._every *= 2
        self._count += 1

    def chosen(self) -> list[tuple[int, Value]]:
        """Return a few of them with their steps, evenly from the first to the last."""
        ends = {one[2]: one for one in (self._first, self._last) if one is not None}
        found = sorted(({one[2]: one for one in self._held} | ends).values(), key=_place)
        last = len(found) - 1
        if last >= MOST_OF_ONE:
            parts = MOST_OF_ONE - 1
            # The first at or beyond each of the marks that divide the way evenly.
            found = [found[-(-part * last // parts)] for part in range(MOST_OF_ONE)]
        return [(step, value) for step, _, _, value in found]


def _place(one: tuple[int, float, int, Any]) -> tuple[int, float, int]:
    return one[:3]


class _Row(NamedTuple):
    """What the values of some steps come to: mean step, counts of all and of finite values."""

    x: float
    values: float
    finite: float
    mean: float
    low: float
    high: float

    def and_(self, more: _Row) -> _Row:
        values, finite = self.values + more.values, self.finite + more.finite
        # So it stays between the two, and where it was if they are one.
        x = self.x + (more.x - self.x) * (more.values / values)
        if not self.finite or not more.finite:
            one = self if self.finite else more
            return _Row(x, values, finite, one.mean, one.low, one.high)
        # Neither sum nor difference of two values need be finite.
        mean = self.mean * (self.finite / finite) + more.mean * (more.finite / finite)
        return _Row(x, values, finite, mean, min(self.low, more.low), max(self.high, more.high))


WIDTH = len(_Row._fields)


def _step_of(row: _Row) -> float:
    return row.x


class Series:
    """The values of a metric in one run, by steps that are put together where they are many.

    By halving their number until there are few enough, so that no second look is needed.
    """

    __slots__ = (
        *("_finite", "_high", "_last", "_low", "_mean", "_rows", "_shift", "_steps", "_values"),
    )

    def __init__(self) -> None:
        self._rows = array("d")
        self._shift = 0
        # The row that is being added to, and its place.
        self._last: int | None = None
        self._steps = self._values = self._finite = 0
        self._mean = self._low = self._high = math.nan

    def add(self, step: int, value: float) -> None:
        """Take a value; steps may come in any order."""
        place = step >> self._shift
        if place != self._last:
            self._end_row()
            self._last = step >> self._shift
        self._steps += step
        self._values += 1
        if value - value == 0:
            self._finite = finite = self._finite + 1
            if finite == 1:
                self._mean = self._low = self._high = value
            else:
                # Neither sum nor difference of two values need be finite.
                self._mean = self._mean * ((finite - 1) / finite) + value / finite
                if value < self._low:
                    self._low = value
                elif value > self._high:
                    self._high = value

    def _end_row(self) -> None:
        if self._last is None:
            return
        x = self._steps / self._values
        self._rows.extend((x, self._values, self._finite, self._mean, self._low, self._high))
        self._last = None
        self._steps = self._values = self._finite = 0
        if len(self._rows) >= 2 * MOST_DOTS * WIDTH:
            self.close_up()

    def close_up(self) -> None:
        """Put together what belongs to one place."""
        self._end_row()
        found = [_Row(*self._rows[at : at + WIDTH]) for at in range(0, len(self._rows), WIDTH)]
        found = self._together(sorted(found, key=_step_of))
        while len(found) > MOST_DOTS:
            self._shift += 1
            found = self._together(found)
        self._rows = array("d", (number for row in found for number in row))

    def _together(self, rows: list[_Row]) -> list[_Row]:
        found: list[_Row] = []
        last = None
        for row in rows:
            place = math.floor(row.x) >> self._shift
            if place == last:
                found[-1] = found[-1].and_(row)
            else:
                found.append(row)
                last = place
        return found

    def dots(self) -> list[Dot]:
        """Return what is drawn, by ascending step."""
        self.close_up()
        dots = []
        for at in range(0, len(self._rows), WIDTH):
            row = _Row(*self._rows[at : at + WIDTH])
            y, low, high = (row.mean, row.low, row.high) if row.finite else (None, None, None)
            dots.append(Dot(row.x, y, low, high, int(row.values - row.finite)))
        return dots


class RunsOnPage:
    """Reads runs in their order, and keeps of them what a page has room for, however long they are.

    Metrics are patterns of the names that are plotted; without any, all are.
    """

    def __init__(self, folders: Iterable[RunFolder], metrics: Sequence[str] = ()) -> None:
        self.metrics = tuple(metrics)
        self.runs = Runs()
        self.plots: Firsts[tuple[int, str], dict[str, Series]] = Firsts(MOST_PLOTS)
        self.histograms: Firsts[tuple[str, str], Some[Histogram]] = Firsts(MOST_SHOWN)
        self.pictures: Firsts[tuple[str, str], Some[Picture]] = Firsts(MOST_SHOWN)
        self.others: Firsts[tuple[str, str, str], list[int]] = Firsts(MOST_OTHERS)
        self._plotted: dict[tuple[str, str], bool] = {}
        # Of the run that is being read.
        self._series: dict[str, dict[str, Series | None]] = {}
        for folder in folders:
            self._series = {axis: {} for axis in AXIS_NAMES}
            self.runs.append(read_run(folder, self if len(self.runs) < MOST_RUNS else None))
            for series in (one for found in self._series.values() for one in found.values()):
                if series is not None:
                    series.close_up()
        self._series.clear()

    @property
    def plot_count(self) -> int:
        """How many plots there would be, were there room for all."""
        return sum(self._plotted.values())

    def take_metrics(self, run: LocalRun, writer: Writer, line: MetricsLine) -> None:
        """Take the numbers of a line."""
        step, by_name = line.step, self._series[line.axis]
        for name, value in line.values.items():
            if name in by_name:
                series = by_name[name]
            elif name in run.metrics:
                series = by_name[name] = self._new_series(run, line.axis, name)
            else:
                continue  # one of more names than are counted
            if series is not None:
                series.add(step, value)

    def _new_series(self, run: LocalRun, axis: str, name: str) -> Series | None:
        wanted = self._plotted.get((axis, name))
        if wanted is None:
            wanted = not self.metrics or any(fnmatchcase(name, one) for one in self.metrics)
            self._plotted[axis, name] = wanted
        if not wanted:
            return None
        by_run = self.plots.at((AXIS_NAMES.index(axis), name), dict)
        return None if by_run is None else by_run.setdefault(run.key, Series())

    def take_media(self, run: LocalRun, writer: Writer, line: MediaLine) -> None:
        """Take what is no number."""
        key = (line.name, run.key)
        if line.kind == "histogram":
            bins = _bins(line.facts)
            of_name = None if bins is None else self.histograms.at(key, Some)
            if of_name is not None and bins is not None:
                of_name.add(line.step, line.time_s, bins)
        elif line.kind in ("image", "video"):
            pictures = self.pictures.at(key, Some)
            if pictures is not None:
                caption = told(line.facts.get("caption") or "")
                picture = Picture(line.kind, line.file[:FILE_LETTERS], caption)
                pictures.add(line.step, line.time_s, picture)
        else:
            other = self.others.at((run.key, line.kind, line.name), lambda: [0, line.step])
            if other is not None:
                other[0] += 1
                other[1] = max(other[1], line.step)


def _bins(facts: Any) -> Histogram | None:
    """Return edges and counts, where they are such."""
    edges, counts = facts.get("edges"), facts.get("counts")
    if not isinstance(edges, list) or not isinstance(counts, list):
        return None
    if not 0 < len(counts) <= MOST_BINS or len(edges) != len(counts) + 1:
        return None
    if not all(type(edge) in (int, float) and math.isfinite(edge) for edge in edges):
        return None
    if not all(type(count) is int and 0 <= count < 1 << 63 for count in counts):
        return None
    return Histogram(array("d", edges), array("q", counts))
