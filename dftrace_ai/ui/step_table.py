"""The steps of all ranks of a run as columns on disk, and what a window of them looks like.

What is looked at is read, and not mapped: whoever reads the map of a file that has become shorter
is ended by the system.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dftrace_ai.analysis.robust_statistics import odd_ranks
from dftrace_ai.analysis.steps.measuring import STEP_PARTS
from dftrace_ai.analysis.steps.timeline import covered_within
from dftrace_ai.ui.kept import WHOLE_HEAT, WHOLE_STEPS, packed_map

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dftrace_ai.analysis.steps import Part, Steps
    from dftrace_ai.ui.answers import HeatHead, RankGroup, StepsAnswer

Values = NDArray[Any]

MOST_COLUMNS: Final = 4000
MOST_ROWS: Final = 1024
BINS: Final = 60
PERCENTS: Final = (0, 50, 95, 99, 100)
SLOWEST: Final = 5
# A rank differs whose median is so many scaled deviations and such a part off that of all.
MOST_ODD: Final = 16
# A cell of a heat map: from a quarter to four times of what is usual, and nothing there.
SHADES: Final = 200
OCTAVES: Final = 2.0
NOTHING: Final = 255

FACTS: Final = "steps.json"
# What a wide window is shown first is made beforehand: the whole run in so many columns and cells.
WHOLE_COLUMNS: Final = 900
WHOLE_CELLS: Final = 640
WHOLE_MEASURE: Final = "own"
OUTSIDE: Final = ("evaluation", "checkpoint")
"""What is told of the time between the steps of the rank that is shown, beside the rest."""


@dataclass(frozen=True)
class TableFacts:
    """What the columns are of: ranks, where each begins among the rows, and parts."""

    ranks: list[int]
    hosts: list[str]
    offsets: list[int]
    parts: list[str]
    # Of the times outside of steps it is known for this one what was done.
    shown: int
    # What each column is made of, and how long it is; some have several rows.
    columns: dict[str, tuple[str, int]]


@dataclass(frozen=True, repr=False)
class StepColumns:
    """What is kept of the steps of a rank when the rank has been let go."""

    host: str
    start_ns: Values
    end_ns: Values
    time_ns: Values
    number: Values
    parts: Mapping[Part, Values]


def write_table(
    folder: Path, ranks: Mapping[int, StepColumns], shown: tuple[int, Steps], origin_ns: int
) -> None:
    """Write the columns of ranks that have steps."""
    # Times count from the begin of the run. Of the rank that is `shown` it is also told what it did
    # between its steps.
    numbers = sorted(ranks)
    steps = [ranks[number] for number in numbers]
    offsets = np.cumsum([0, *(len(one.number) for one in steps)]).tolist()
    parts: list[Part] = [part for part in STEP_PARTS if any(one.parts[part].any() for one in steps)]
    number, of_shown = shown
    between = (of_shown.evaluation, of_shown.timeline.of("checkpoint"))
    columns = {
        "start": np.concatenate([one.start_ns for one in steps]) - origin_ns,
        "end": np.concatenate([one.end_ns for one in steps]) - origin_ns,
        "time": np.maximum(np.concatenate([one.time_ns for one in steps]), 0),
        # What another thread did meanwhile may leave less than nothing.
        "parts": np.maximum([np.concatenate([one.parts[p] for one in steps]) for p in parts], 0),
        **{kind: np.stack(each) - origin_ns for kind, each in zip(OUTSIDE, between, strict=True)},
    }
    if any((one.number != np.arange(len(one.number))).any() for one in steps):
        columns["number"] = np.concatenate([one.number for one in steps])
    kinds = {name: _save(folder, name, values) for name, values in columns.items()}
    hosts = [one.host for one in steps]
    facts = TableFacts(numbers, hosts, offsets, [str(part) for part in parts], number, kinds)
    (folder / FACTS).write_text(json.dumps(asdict(facts)), encoding="utf-8")


def _save(folder: Path, name: str, values: Values) -> tuple[str, int]:
    # Half of the size, as long as nothing takes more than four seconds.
    brief = values.min(initial=0) >= 0 and values.max(initial=0) < 2**32
    kind = np.dtype(np.uint32 if brief else np.int64)
    (folder / f"steps.{name}").write_bytes(values.astype(kind).ravel().data)
    return kind.str, values.shape[-1]


class StepTable:
    """The steps of a run as `write_table` has written them; an OSError where it has not."""

    # A ValueError where they are not whole, or are so no more.

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        told = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        try:
            self.facts = TableFacts(**told)
        except TypeError as error:
            raise ValueError(folder) from error

    def _column(self, name: str, rows: slice = slice(None), line: int = 0) -> Values:
        """Read some rows of a column; of one that has several lines of one of them."""
        told, length = self.facts.columns[name]
        kind = np.dtype(told)
        low, high, _ = rows.indices(length)
        file, offset = self._folder / f"steps.{name}", (line * length + low) * kind.itemsize
        column: Values = np.fromfile(file, kind, high - low, offset=offset)
        if len(column) < high - low:
            raise ValueError(file)
        return column

    @property
    def measures(self) -> list[str]:
        """What ranks are compared by."""
        return ["own", "time", *self.facts.parts]

    def _rows(self, rank: int) -> slice:
        at = self.facts.ranks.index(rank)
        return slice(self.facts.offsets[at], self.facts.offsets[at + 1])

    def write_whole(self, wall_s: float) -> None:
        """Write what is asked for first of a run that takes so long."""
        told = self.steps(self.facts.shown, 0.0, wall_s, WHOLE_COLUMNS)
        (self._folder / WHOLE_STEPS).write_text(json.dumps(told), encoding="ascii")
        if len(self.facts.ranks) > 1:
            ranks = self.heat(WHOLE_MEASURE, 0.0, wall_s, WHOLE_CELLS)
            (self._folder / WHOLE_HEAT).write_bytes(packed_map(*ranks))

    def times_us(self) -> Values:
        """Return what all steps of all ranks took."""
        times: Values = self._column("time") / 1000
        return times

    def steps(self, rank: int, a_s: float, b_s: float, columns: int) -> StepsAnswer:
        """Return the steps of a rank that lie in a window, in so many columns at most."""
        rows = self._rows(rank)
        start, end = self._column("start", rows), self._column("end", rows)
        a_ns, b_ns = round(a_s * 1e9), round(b_s * 1e9)
        low = int(np.searchsorted(end, a_ns, "right"))
        high = max(low, int(np.searchsorted(start, b_ns, "left")))
        count = high - low
        groups = min(max(1, columns), MOST_COLUMNS, count)
        cuts = low + np.arange(groups + 1) * count // max(groups, 1)
        first, last = cuts[:-1], cuts[1:] - 1
        window = slice(rows.start + low, rows.start + high)
        time = self._column("time", window)
        here = np.asarray(time, np.int64)
        at, sizes = first - low, np.diff(cuts)
        slow = self._slowest(here)
        numbers = self._numbers(rows, window)
        sums = np.add.reduceat if groups else _nothing
        parts = {}
        for number, part in enumerate(self.facts.parts):
            means = sums(self._column("parts", window, number).astype(np.int64), at) / np.maximum(
                sizes, 1
            )
            if means.any():
                parts[part] = _us(means)
        told = (numbers[slow].tolist(), _seconds(start[low:high][slow]), _us(time[slow]))
        return {
            "rank": rank, "count": count, "total": len(start),
            "per": round(count / groups, 2) if groups else 0.0,
            "number": numbers[at].tolist(), "first": first.tolist(),
            "t": _seconds(start[first]), "te": _seconds(end[last]),
            "low": _us(np.minimum.reduceat(here, at) if groups else here),
            "mid": _us(_medians(here, at, sizes)),
            "high": _us(np.maximum.reduceat(here, at) if groups else here),
            "parts": parts,
            "worst": [{"step": n, "t": t, "us": us} for n, t, us in zip(*told, strict=True)],
            "p": np.round(np.percentile(here, PERCENTS) / 1e6, 6).tolist() if count else None,
            "hist": histogram(here / 1000),
            "outside": self._outside(rank, (a_ns, b_ns), start[low:high], end[low:high]),
        }  # fmt: skip

    @staticmethod
    def _slowest(time: Values) -> Values:
        most = min(SLOWEST, len(time))
        if not most:
            return np.zeros(0, np.int64)
        some = np.argpartition(-time, most - 1)[:most]
        slowest: Values = some[np.lexsort((some, -time[some]))]
        return slowest

    def _numbers(self, rows: slice, window: slice) -> Values:
        if "number" in self.facts.columns:
            return self._column("number", window)
        numbers: Values = np.arange(window.start, window.stop) - rows.start
        return numbers

    def _outside(
        self, rank: int, window_ns: tuple[int, int], start: Values, end: Values
    ) -> dict[str, float]:
        """Return the seconds of a window that are in no step, by what was done in them."""
        edges = np.array(window_ns, np.int64)
        begin = np.concatenate([edges[:1], np.asarray(end, np.int64)])
        until = np.concatenate([np.asarray(start, np.int64), edges[1:]])
        begin, until = np.clip(begin, *window_ns), np.clip(until, *window_ns)
        some = until > begin
        begin, until = begin[some], until[some]
        left = int((until - begin).sum())
        told: dict[str, float] = {}
        for kind in OUTSIDE if rank == self.facts.shown else ():
            first, last = (self._column(kind, line=line).astype(np.int64) for line in (0, 1))
            inside = int(covered_within(first, last, begin, until).sum())
            if inside:
                told[kind] = inside / 1e9
                left -= inside
        if left > 0:
            told["between"] = left / 1e9
        return told

    def heat(self, what: str, a_s: float, b_s: float, columns: int) -> tuple[HeatHead, bytes]:
        """Return ranks by time, a byte a cell: the greatest of a moment against the median rank."""
        # Ranks that differ stand first; of very many the others share rows.
        value, starts, ends = self._measured(what), self._column("start"), self._column("end")
        columns = min(max(1, columns), MOST_COLUMNS)
        a_ns, b_ns = round(a_s * 1e9), max(round(b_s * 1e9), round(a_s * 1e9) + 1)
        grid = np.full((len(self.facts.ranks), columns), np.nan)
        medians = np.full(len(self.facts.ranks), np.nan)
        width = (b_ns - a_ns) / columns
        for row, (low, high) in enumerate(pairwise(self.facts.offsets)):
            first = low + int(np.searchsorted(ends[low:high], a_ns, "right"))
            last = low + int(np.searchsorted(starts[low:high], b_ns, "left"))
            if first >= last:
                continue
            values = value[first:last]
            medians[row] = np.median(values)
            begin = starts[first:last].astype(np.int64) - a_ns
            end = ends[first:last].astype(np.int64) - a_ns
            _fill(
                grid[row],
                np.clip(begin / width, 0, columns - 1).astype(np.int64),
                np.clip((end - 1) / width, 0, columns - 1).astype(np.int64),
                values,
            )
        odd, usual = _odd_ranks(medians)
        rest = np.setdiff1d(np.arange(len(medians)), odd)
        groups = self._groups(rest) if len(medians) > MOST_ROWS else []
        members = [np.array([row]) for row in odd] + (
            groups or [rest[[at]] for at in range(len(rest))]
        )
        rows = [one[np.argmax(np.nan_to_num(medians[one], nan=-1.0))] for one in members]
        usual_of = [None if np.isnan(one) else round(one / 1000, 2) for one in medians[rows]]
        shades = _shades(grid, members)
        head: HeatHead = {
            "what": what, "cols": columns, "a": a_s, "b": b_s,
            "ranks": len(medians), "rows": [self.facts.ranks[row] for row in rows],
            "odd": len(odd), "groups": list(map(self._told_group, groups)), "median_us": usual_of,
            "mid_us": None if usual is None else round(usual / 1000, 2),
        }  # fmt: skip
        return head, shades.tobytes()

    def _groups(self, rows: Values) -> list[Values]:
        """Put ranks together: by host where there are several, else as they follow each other."""
        most = MOST_ROWS - MOST_ODD
        hosts = np.array(self.facts.hosts)[rows]
        found, first, which = np.unique(hosts, return_index=True, return_inverse=True)
        if 1 < len(found) <= most:
            return [rows[which == at] for at in np.argsort(first)]
        return np.array_split(rows, -(-len(rows) // -(-len(rows) // most)))

    def _told_group(self, rows: Values) -> RankGroup:
        ranks, hosts = self.facts.ranks, {self.facts.hosts[row] for row in rows}
        return {
            "host": hosts.pop() if len(hosts) == 1 else "",
            "first": ranks[rows[0]], "last": ranks[rows[-1]], "count": len(rows),
        }  # fmt: skip

    def _measured(self, what: str) -> Values:
        if what in {"own", "time"}:
            value = self._column("time").astype(np.float64)
            if what == "own" and "comm" in self.facts.parts:
                # In a synchronous job all steps take equally long: what is a rank's own does not.
                value -= self._column("parts", line=self.facts.parts.index("comm"))
            return value
        return self._column("parts", line=self.facts.parts.index(what)).astype(np.float64)


def _fill(row: Values, first: Values, last: Values, values: Values) -> None:
    """Put the greatest value of each column into a row; a step lies in all that it lasts for."""
    counts = last - first + 1
    begin = np.cumsum(counts) - counts
    column = np.repeat(first - begin, counts) + np.arange(int(counts.sum()))
    np.fmax.at(row, column, np.repeat(values, counts))


def _shades(grid: Values, members: list[Values]) -> Values:
    """Return the bytes of rows that some rows of a grid share, by their greatest values."""
    usual = np.full(grid.shape[1], np.nan)
    some = ~np.isnan(grid).all(axis=0)
    usual[some] = np.nanmedian(grid[:, some], axis=0)
    sizes = [len(one) for one in members]
    grid = grid[np.concatenate([*members, np.zeros(0, np.int64)]).astype(np.int64)]
    grid = np.fmax.reduceat(grid, np.cumsum([0, *sizes[:-1]]), axis=0) if members else grid
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log2(grid / np.where(usual > 0, usual, np.nan))
    shade = np.clip(np.round((ratio + OCTAVES) / (2 * OCTAVES) * SHADES), 0, SHADES)
    shades: Values = np.where(np.isnan(ratio), NOTHING, shade).astype(np.uint8)
    return shades


def _odd_ranks(medians: Values) -> tuple[list[int], float | None]:
    """Return which rows differ from the others, the oddest first; and what is usual."""
    known = medians[~np.isnan(medians)]
    if not len(known):
        return [], None
    usual = float(np.median(known))
    odd = np.flatnonzero(odd_ranks(medians))
    off = np.abs(medians[odd] - usual)
    return odd[np.argsort(-off, kind="stable")][:MOST_ODD].tolist(), usual


def _nothing(values: Values, _: Values) -> Values:
    return values[:0]


def _medians(values: Values, at: Values, sizes: Values) -> Values:
    """Return the median of each group; of these there are two sizes at most."""
    middle = np.zeros(len(at))
    for size in np.unique(sizes).tolist():
        chosen = sizes == size
        middle[chosen] = np.median(values[at[chosen][:, None] + np.arange(size)], axis=1)
    return middle


def histogram(times_us: Values, edges_us: Values | None = None) -> dict[str, list[float]] | None:
    """Return how many times are in each of bins that grow by a factor; None without any."""
    if not len(times_us):
        return None
    edges = common_edges([times_us]) if edges_us is None else edges_us
    counts, _ = np.histogram(np.clip(times_us, edges[0], edges[-1]), edges)
    return {"edges_us": np.round(edges, 3).tolist(), "n": counts.tolist()}


def common_edges(times_us: Sequence[Values]) -> Values:
    """Return the edges of bins for several lists of times, none of which is empty."""
    low = max(min(float(each.min()) for each in times_us), 0.001)
    high = max(float(each.max()) for each in times_us)
    edges: Values = np.geomspace(low, max(high, low * 1.01), BINS + 1)
    return edges


def _seconds(ns: Values) -> list[float]:
    return list(np.round(np.asarray(ns, np.float64) / 1e9, 6).tolist())


def _us(ns: Values) -> list[float]:
    return list(np.round(np.asarray(ns, np.float64) / 1000, 2).tolist())
