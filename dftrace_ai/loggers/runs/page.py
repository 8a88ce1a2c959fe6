"""Runs as one page of HTML, which needs no network.

It is one subject: what the page shows is gathered while their logs are read, dots and some of the
media, and how much of it is kept goes by what the page has room for.
"""

from __future__ import annotations

import math
import re
import time
from array import array
from base64 import b64encode
from bisect import insort
from fnmatch import fnmatchcase
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from dftrace_ai.conditions import MISSING
from dftrace_ai.loggers.runs.comparing import Comparison, compared, duration, figure, moment
from dftrace_ai.loggers.runs.lines import AXES, value_text
from dftrace_ai.loggers.runs.log_files import kept_bytes
from dftrace_ai.loggers.runs.reading import FIGURES, Runs, read_run
from dftrace_ai.page.palette import DASHES, LINES
from dftrace_ai.page.shell import Figure, html_page, swatch, table
from dftrace_ai.page.svg import (
    Axis,
    Box,
    Place,
    cross,
    frame,
    line_and_band,
    svg_of,
    text,
    tip,
    told,
)
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dftrace_ai.loggers.runs.lines import MediaLine, MetricsLine
    from dftrace_ai.loggers.runs.log_files import RunFolder
    from dftrace_ai.loggers.runs.reading import LocalRun, Writer

MOST_RUNS = 1000
FEW_RUNS = 50
"""More have fewer plots and dots each, so that a page, and what is held for it, stays as large."""
MOST_PLOTS = 300
MOST_DOTS = 500
"""Of one line; steps that are closer are put together."""
LEAST_DOTS = 40
MOST_BESIDE = 8
"""More runs do not stand side by side but below each other, in a table that sorts."""
MOST_NUMBER = 1e300
MOST_COLUMNS = 24
"""Of params, and of metrics, in that table."""
MOST_OF_ONE = 4
"""Histograms, or pictures, of one name in one run: the first, the last and some between."""
MOST_SHOWN = 400
MOST_OTHERS = 1000
MOST_BINS = 4096
MOST_HELD = 16
FILE_LETTERS = 8192

MOST_NAMES = 1000
"""Of hyper-parameters, and of metrics, in a table."""
PICTURE_BYTES: Final = 16 << 20
PAGE_BYTES: Final = 64 << 20
MOST_PIXELS: Final = 1 << 26
PNG, GIF = b"\x89PNG\r\n\x1a\n", b"GIF8"

WIDTH, HEIGHT = 560, 230
PLOT: Final = Box(64, 10, WIDTH - 12, HEIGHT - 26)
BARS_WIDTH, BARS_HEIGHT = 260, 120

# Alike in both themes, as another run's colour is the first of a dark page.
COLOURS: Final = ("#0072b2", *LINES[1:], "#7f7f7f")

STYLE: Final = """
.plots { gap: 1rem; }
svg .cross { fill: none; stroke-width: 1.6; } svg .bar { fill: #0072b2; }
body { max-width: 1240px; }
.failed, .killed { color: var(--loud); } .running { color: var(--link); }
.finished { color: var(--good); }
@media (max-width: 680px) { #statuses td.key, #beside td.key { min-width: 11.5rem; } }
img { max-width: 320px; max-height: 320px; image-rendering: pixelated; min-width: 64px; }
"""

TITLES: Final = {"iteration": "over iterations", "epoch": "over epochs", "time": "over seconds"}

HEAD: Final = re.compile(r"<h2 id=s-(\w+)>([\w ]+)</h2>")

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


NUMBERS = len(_Row._fields)


def _step_of(row: _Row) -> float:
    return row.x


class Series:
    """The values of a metric in one run, by steps that are put together where they are many.

    By halving their number until there are few enough, so that no second look is needed.
    """

    __slots__ = (
        *("_finite", "_high", "_last", "_low", "_mean", "_most", "_rows", "_shift", "_steps"),
        "_values",
    )

    def __init__(self, most: int = MOST_DOTS) -> None:
        self._most = most
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
        if len(self._rows) >= 2 * self._most * NUMBERS:
            self.close_up()

    def close_up(self) -> None:
        """Put together what belongs to one place."""
        self._end_row()
        found = [_Row(*self._rows[at : at + NUMBERS]) for at in range(0, len(self._rows), NUMBERS)]
        found = self._together(sorted(found, key=_step_of))
        while len(found) > self._most:
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
        for at in range(0, len(self._rows), NUMBERS):
            row = _Row(*self._rows[at : at + NUMBERS])
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
        folders = list(folders)
        share = max(FEW_RUNS, min(len(folders), MOST_RUNS)) / FEW_RUNS
        self.most_plots = int(MOST_PLOTS / share)
        self._dots = max(LEAST_DOTS, int(MOST_DOTS / share))
        self.plots: Firsts[tuple[int, str], dict[str, Series]] = Firsts(self.most_plots)
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
        return None if by_run is None else by_run.setdefault(run.key, Series(self._dots))

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


class Line(NamedTuple):
    """What is drawn of a run: its number among the runs, its name, and dots by ascending step."""

    number: int
    name: str
    dots: Sequence[Dot]


def page_of(title: str, found: RunsOnPage) -> str:
    """Make the page of runs, in their order: statuses, params, metrics, plots, pictures."""
    runs = list(found.runs)[:MOST_RUNS]
    side = compared(runs, found.metrics)
    notes = list(found.runs.notes)
    if len(found.runs) > MOST_RUNS:
        notes.insert(0, f"{counted(len(found.runs) - MOST_RUNS, 'run')} more are not shown")
    shown = "".join(
        [
            _statuses(runs),
            *((_params(side), _figures(side)) if len(runs) <= MOST_BESIDE else _rows_of(side)),
            *_plots(runs, found),
            _histograms(found),
            _pictures(found),
        ]
    )
    links = (f'<a href="#s-{name}">{title}</a>' for name, title in HEAD.findall(shown))
    body = [
        *(f"<p class=note>{told(note)}</p>" for note in notes),
        f"<nav>{' '.join(links)}</nav>",
        shown,
    ]
    about = f"<p>{counted(len(runs), 'run')}, {moment(time.time())}</p>"
    return html_page(title, about, body, tab=title, style=STYLE, mark="", figures="")


def _statuses(runs: Sequence[LocalRun]) -> str:
    heads = ("run", "status", "project", "group", "tags", "started", "duration", "step", "rows")
    rows: list[list[str | Figure]] = []
    for number, run in enumerate(runs):
        name = swatch(COLOURS[number % len(COLOURS)]) + told(run.key)
        step = None if run.step < 0 else run.step
        rows.append(
            [
                *(name, f"<span class={run.status}>{run.status}</span>"),
                *map(told, (run.project, run.group, ", ".join(run.tags), moment(run.started_s))),
                Figure(told(duration(run.duration_s)), run.duration_s),
                Figure("" if step is None else str(step), step),
                Figure(f"{run.rows:,}", run.rows),
            ]
        )
    # A column in which nobody has anything is not there.
    empty = {at for at in range(2, 6) if not any(row[at] for row in rows)}
    kept = [at for at in range(len(heads)) if at not in empty]
    rows = [[row[at] for at in kept] for row in rows]
    return _titled("Runs", "statuses", [heads[at] for at in kept], rows, figures=3)


def _params(side: Comparison) -> str:
    if len(side.runs) == 1:
        params = {name: [value] for name, value in sorted(side.runs[0].params.items())}
    else:
        params = side.params
    rows = [
        [told(name), *("" if value is MISSING else told(value_text(value)) for value in values)]
        for name, values in list(params.items())[:MOST_NAMES]
    ]
    heads = ("", *(told(run.key) for run in side.runs))
    return _titled("Params", "params", heads, rows) + _alike(side)


def _alike(side: Comparison) -> str:
    if not side.alike or len(side.runs) < 2:
        return ""
    shared = side.runs[0].params
    names = sorted(set(shared) - set(side.params))[:MOST_NAMES]
    same = table("alike", (), ([told(name), told(value_text(shared[name]))] for name in names))
    return (
        f"<details><summary>{counted(side.alike, 'param')} alike in all</summary>{same}</details>"
    )


def _rows_of(side: Comparison) -> Iterator[str]:
    """Show a row for each run: the params in which they differ, and the last of each metric."""
    params = list(side.params.items())[:MOST_COLUMNS]
    metrics = list(side.metrics.items())[:MOST_COLUMNS]
    rows: list[list[str | Figure]] = []
    for number, run in enumerate(side.runs):
        lasts = (of_runs[number] for _, of_runs in metrics)
        rows.append(
            [
                swatch(COLOURS[number % len(COLOURS)]) + told(run.key),
                *(_param(values[number]) for _, values in params),
                *(Figure("", None) if one is None else _last(one.last) for one in lasts),
            ]
        )
    heads = ["run", *(told(name) for name, _ in (*params, *metrics))]
    yield _titled("Params and metrics", "beside", heads, rows, figures=len(metrics))
    if len(side.params) > len(params):
        left = counted(len(side.params) - len(params), "param")
        yield f"<p>{left} more; dftrace runs --json has all</p>"
    if len(side.metrics) > len(metrics):
        left = counted(len(side.metrics) - len(metrics), "metric")
        yield f"<p>{left} more; --metric chooses</p>"
    yield _alike(side)


def _param(value: Any) -> str | Figure:
    shown = "" if value is MISSING else told(value_text(value))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Figure(shown, value) if number and abs(value) < MOST_NUMBER else shown


def _last(value: float) -> Figure:
    return Figure(told(figure(value)), value if math.isfinite(value) else None)


def _figures(side: Comparison) -> str:
    rows = []
    for name, of_runs in list(side.metrics.items())[:MOST_NAMES]:
        for number, which in enumerate(FIGURES):
            cells = ("" if one is None else figure(getattr(one, which)) for one in of_runs)
            rows.append([told(name) if not number else "", which, *map(told, cells)])
    heads = ("", "", *(told(run.key) for run in side.runs))
    return _titled("Metrics", "figures", heads, rows, figures=len(side.runs))


def _titled(
    title: str,
    name: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str | Figure]],
    figures: int = 0,
) -> str:
    sorts = len(rows) > 1 and name in {"statuses", "beside"}
    shown = table(name, heads, rows, figures, sorts=sorts)
    return f"<h2 id=s-{name}>{title}</h2>{shown}" if rows else ""


def _plots(runs: Sequence[LocalRun], found: RunsOnPage) -> Iterable[str]:
    for axis, plots in groupby(found.plots, lambda plot: plot[0][0]):
        title = TITLES[AXIS_NAMES[axis]]
        yield f"<h2 id=s-{AXIS_NAMES[axis]}>{title.capitalize()}</h2><div class=plots>"
        for (_, name), by_run in plots:
            drawn = [
                Line(number, run.key, by_run[run.key].dots())
                for number, run in enumerate(runs)
                if run.key in by_run
            ]
            yield (
                f"<figure><figcaption>{told(name)} <small>{title}</small></figcaption>"
                f"{lines(name, drawn)}</figure>"
            )
        yield "</div>"
    if found.plot_count > found.most_plots:
        left = counted(found.plot_count - found.most_plots, "plot")
        yield f"<p>{left} more; --metric chooses</p>"


def lines(name: str, drawn: Sequence[Line]) -> str:
    """Draw a metric over its steps, a line for each run, with crosses for what is not finite."""
    dots = [dot for line in drawn for dot in line.dots]
    across = Axis([dot.x for dot in dots], PLOT.left, PLOT.right)
    up = Axis([y for dot in dots for y in (dot.low, dot.high)], PLOT.bottom, PLOT.top)
    parts = [frame(PLOT, across, up)]
    for line in drawn:
        colour = COLOURS[line.number % len(COLOURS)]
        dash = DASHES[line.number // len(COLOURS) % len(DASHES)]
        last = next((dot.y for dot in reversed(line.dots) if dot.y is not None), None)
        parts.append(f"<g {tip(line.name, '' if last is None else f'last {figure(last)}')}>")
        parts += line_and_band(_places(line.dots, across, up), colour, dash)
        parts += [
            cross(
                across.at(dot.x),
                PLOT.top + 3,
                f'class="cross" stroke="{colour}"',
                f"{dot.non_finite} not finite at {dot.x:.0f}",
            )
            for dot in line.dots
            if dot.non_finite
        ]
        parts.append("</g>")
    return svg_of('class="plot"', name, parts, width=WIDTH, height=HEIGHT)


def _places(dots: Sequence[Dot], across: Axis, up: Axis) -> Iterator[Place | None]:
    for dot in dots:
        if dot.y is None or dot.low is None or dot.high is None or not math.isfinite(dot.y):
            yield None
        else:
            yield Place(across.at(dot.x), up.at(dot.low), up.at(dot.y), up.at(dot.high))


def bars(name: str, edges: Sequence[float], counts: Sequence[int]) -> str:
    """Draw how many values lie in each bin; there is one ascending edge more than counts."""
    across = Axis(edges, 4, BARS_WIDTH - 4)
    floor, most = BARS_HEIGHT - 16, max(max(counts, default=0), 1)
    parts = []
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        x, height = across.at(low), count / most * (floor - 4)
        width = max(across.at(high) - x, 0.5)
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{floor - height:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}"><title>{count} from {low:.4g} to {high:.4g}</title></rect>'
        )
    for x, anchor, edge in ((4, "start", edges[0]), (BARS_WIDTH - 4, "end", edges[-1])):
        parts.append(text(x, BARS_HEIGHT - 3, f"{edge:.4g}", "", anchor))
    return svg_of('class="bars"', name, parts, width=BARS_WIDTH, height=BARS_HEIGHT)


def _histograms(found: RunsOnPage) -> str:
    """Draw the histograms of runs."""
    parts = [
        f"<figure><figcaption>{told(name)} <small>{told(run)}, step {step}</small></figcaption>"
        f"{bars(name, *bins)}</figure>"
        for (name, run), some in found.histograms
        for step, bins in some.chosen()
    ][:MOST_SHOWN]
    return (
        f"<h2 id=s-histograms>Histograms</h2><div class=plots>{''.join(parts)}</div>"
        if parts
        else ""
    )


def _pictures(found: RunsOnPage) -> str:
    """Show the pictures and animations of runs, and name what else was kept with them."""
    folders = {run.key: run.path for run in found.runs}
    chosen = [
        (name, run, step, picture)
        for (name, run), some in found.pictures
        for step, picture in some.chosen()
    ][:MOST_SHOWN]
    parts: list[str] = []
    left = PAGE_BYTES
    for name, run, step, picture in chosen:
        data = kept_bytes(folders[run], picture.file, min(PICTURE_BYTES, left))
        source = None if data is None else _source(data)
        left -= len(data or b"")
        if source is None:
            shown = f"<p>{told(picture.kind)}: {told(picture.file)}</p>"
        else:
            shown = f'<img alt="{told(name)}" src="{source}">'
        parts.append(
            f"<figure><figcaption>{told(name)} <small>{told(run)}, step {step} {picture.caption}"
            f"</small></figcaption>{shown}</figure>"
        )
    others = _others(found)
    return (
        f"<h2 id=s-pictures>Pictures</h2><div class=plots>{''.join(parts)}</div>" if parts else ""
    ) + others


def _others(found: RunsOnPage) -> str:
    items = "".join(
        f"<li>{told(run)}: {told(kind)} {told(name)}, {counted(count, 'time')}, last at step "
        f"{step}</li>"
        for (run, kind, name), (count, step) in found.others
    )
    return f"<h2 id=s-others>What else was kept</h2><ul>{items}</ul>" if items else ""


def _source(data: bytes) -> str | None:
    """Return the address that holds a picture whole; None where it is none, or vast."""
    if data.startswith(PNG) and len(data) > 24:
        kind = "png"
        width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    elif data.startswith(GIF) and len(data) > 10:
        kind = "gif"
        width, height = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    else:
        return None
    if width * height > MOST_PIXELS:
        return None
    return f"data:image/{kind};base64,{b64encode(data).decode()}"
