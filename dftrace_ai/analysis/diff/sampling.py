"""What each place in the tree of spans took in each judged step of a run.

Apart from `comparing`: runs are read here, one at a time; what was sampled is compared there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from dftrace_ai.analysis.diff.model import RunFacts
from dftrace_ai.analysis.reading.event_columns import Label
from dftrace_ai.analysis.steps import Process, measure
from dftrace_ai.analysis.steps.detection import is_within
from dftrace_ai.analysis.steps.measuring import brief, steady_of
from dftrace_ai.analysis.steps.roles import GPU_ROLES, KINETO_STEP
from dftrace_ai.analysis.steps.spans import stretches, union
from dftrace_ai.analysis.steps.timeline import covered_within
from dftrace_ai.analysis.tracks import own_ns, parents_of, places_of, track_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part, Rank, Steps
    from dftrace_ai.analysis.steps.blocking import Standstill
    from dftrace_ai.analysis.steps.job import Order
    from dftrace_ai.analysis.steps.spans import Spans

Path: TypeAlias = tuple[Label, ...]
"""What spans and those around them are called, from the outside in."""


class Place(NamedTuple):
    """A place in the tree of spans."""

    path: Path  # what its spans and those around them are called
    # They are of other threads and processes than the thread that trains, so that their time is not
    # the step's.
    beside: bool

    @property
    def label(self) -> Label:
        """What its spans are called."""
        return self.path[-1]


IN_NO_SPAN: Final = Label("none", "not annotated")
"""The time of a step in which the thread that trains was in no span at all."""

# So many are placed at once; what is calculated with them takes a hundred bytes for each.
SPANS_AT_ONCE: Final = 65_536
# Who makes a name for every step makes millions; the places with most time are compared.
MOST_PATHS: Final = 5_000


@dataclass(frozen=True, repr=False)
class SampledRun:
    """The judged steps of a run, and what each place in its tree took in each of them."""

    facts: RunFacts  # what it is
    step_ns: Integers  # what each judged step took; of ranks with as many steps the mean
    parts: dict[Part, float]  # what each part of a judged step took on average
    places: tuple[Place, ...]  # the places, by their numbers
    labels: frozenset[Label]  # names that are in the run, in judged steps or not
    left_out: int  # places beyond those with most time, which are in no row
    _cells: tuple[_Cells, ...]

    def __len__(self) -> int:
        return len(self.step_ns)

    def is_same(self, other: SampledRun) -> bool:
        """Return whether it is the same run: no other has the same times everywhere."""
        same = self.places == other.places and self.parts == other.parts
        return same and np.array_equal(self.step_ns, other.step_ns)

    def own(self, places: Iterable[int]) -> Integers:
        """Return what some places took, without what lies inside of them, by step, nanoseconds."""
        return self._sum(places, "own")

    def whole(self, places: Iterable[int]) -> Integers:
        """Return what some places took, with all that lies inside of them, by step."""
        return self._sum(places, "whole")

    def count(self, places: Iterable[int]) -> Integers:
        """Return how many spans of some places there are, by step."""
        return self._sum(places, "spans")

    def _sum(self, places: Iterable[int], name: Literal["own", "whole", "spans"]) -> Integers:
        total = np.zeros(len(self), float)
        for place in places:
            for cells in self._cells:
                rows = slice(*np.searchsorted(cells.place, [place, place + 1]))
                values: Integers = getattr(cells, name)
                total[cells.step[rows]] += values[rows] / cells.ranks
        return total


class _Cells(NamedTuple):
    """What places took in steps, those left out in which they have no span: by place and step.

    Of some ranks together, in the narrowest whole numbers that hold them.
    """

    ranks: int
    place: Integers
    step: Integers
    own: Integers
    whole: Integers
    spans: Integers

    @classmethod
    def summed(cls, rows: Sequence[Integers], ranks: int) -> _Cells:
        """Add up rows of places and steps, what they took, and how many spans these are."""
        place, step, *values = rows
        order = np.lexsort((step, place))
        place, step = place[order], step[order]
        anew = (place[1:] != place[:-1]) | (step[1:] != step[:-1])
        first = np.flatnonzero(np.append(True, anew)[: len(place)])
        sums = [
            np.add.reduceat(each[order], first, dtype=np.int64) if len(first) else each[:0]
            for each in values
        ]
        return cls(ranks, place[first], step[first], *map(_narrow, sums))

    def at(self, which: Integers, place: Integers, step: Integers) -> _Cells:
        """Return some of them, by other numbers of their places and steps."""
        some = (place[self.place[which]], step[self.step[which]])
        return _Cells(self.ranks, *some, self.own[which], self.whole[which], self.spans[which])


def _narrow(values: Integers) -> Integers:
    """Return whole numbers above 0 in the narrowest kind that holds them."""
    return values.astype(np.min_scalar_type(values.max(initial=0)))


# Around what nothing is: on the thread that trains, and elsewhere.
ROOT: Final = -1
ROOT_BESIDE: Final = -2


class _Seen(NamedTuple):
    """Where a place was first seen: in which rank, and as which of its places."""

    rank: Order
    number: int


@dataclass
class _Tree:
    """Numbers of the places that were seen so far, the one around each, and where it was seen."""

    numbers: dict[tuple[int, Label], int] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)
    around: list[int] = field(default_factory=list)
    seen: list[_Seen] = field(default_factory=list)

    def number(self, around: int, label: Label, seen: _Seen) -> int:
        """Return the number of a place by that of the place around it, or by its root."""
        number = self.numbers.setdefault((around, label), len(self.places))
        if number == len(self.places):
            outer = self.places[around] if around >= 0 else Place((), around == ROOT_BESIDE)
            self.places.append(Place((*outer.path, label), outer.beside))
            self.around.append(around)
            self.seen.append(seen)
        self.seen[number] = min(self.seen[number], seen)
        return number

    def taken_in(self, other: _Tree) -> Integers:
        """Take in the places of another; returns the number of each."""
        numbers = np.zeros(len(other.places), np.int32)
        for at, (place, around) in enumerate(zip(other.places, other.around, strict=True)):
            outer = int(numbers[around]) if around >= 0 else around
            numbers[at] = self.number(outer, place.label, other.seen[at])
        return numbers

    def in_order(self) -> list[int]:
        """Return the places in the order in which they are seen, rank by rank."""
        return sorted(range(len(self.places)), key=lambda number: self.seen[number])


class _Alike(NamedTuple):
    """Ranks with as many steps: their steps together, of which only those of all count."""

    first: Order
    found_by: str
    steady: Integers
    step_ns: Integers
    parts: dict[Part, Integers]
    cells: tuple[_Cells, ...]

    def merged(self, other: _Alike) -> _Alike:
        first = min(self, other, key=lambda one: one.first)
        pieces = [*self.cells, *other.cells]
        columns = (np.concatenate(column) for column in zip(*(p[1:] for p in pieces), strict=True))
        return _Alike(
            first.first,
            first.found_by,
            self.steady & other.steady,
            # Sums of whole numbers, which are exact in any order.
            np.add(self.step_ns, other.step_ns, dtype=float),
            {
                part: brief(np.add(ns, other.parts[part], dtype=float))
                for part, ns in self.parts.items()
            },
            (_Cells.summed(list(columns), self.ranks + other.ranks),),
        )

    @property
    def ranks(self) -> int:
        return self.cells[0].ranks


class Sampling:
    """The steps of some ranks of a run; of all of them it is the run.

    What is added, and merged, in whichever order, makes one and the same run.
    """

    def __init__(self) -> None:
        self.lost = 0
        self._tree = _Tree()
        self._labels = {IN_NO_SPAN}
        self._by_length: dict[int, _Alike] = {}

    def add(self, member: Rank | Process) -> None:
        """Take in a rank, or another process, of which the names alone count."""
        processes = (member,) if isinstance(member, Process) else (member.process, *member.workers)
        self.lost += sum(process.dropped for process in processes)
        steps = None if isinstance(member, Process) else measure(member.process)
        if steps is None or isinstance(member, Process):
            for process in processes:
                _label_codes(process, {}, self._labels)
            return
        # What each moment of the thread is part of is of no use any more, nor is its memory.
        steps = replace(steps, timeline=steps.timeline.only(np.zeros(0, np.int64)))
        steady, tree = steady_of(steps).mask, _Tree()
        cells = _cells_of(member, steps, tree, self._labels)
        alike = _Alike(member.order, steps.found_by, steady, steps.time_ns, steps.parts, cells)
        del steps, cells
        self._take(tree, {len(steady): alike})

    def merge(self, other: Sampling) -> None:
        """Take in the ranks of another."""
        self.lost += other.lost
        self._labels |= other._labels
        self._take(other._tree, other._by_length)

    def _take(self, tree: _Tree, by_length: dict[int, _Alike]) -> None:
        numbers = self._tree.taken_in(tree)
        for length, alike in by_length.items():
            cells = (each._replace(place=numbers[each.place]) for each in alike.cells)
            moved = alike._replace(cells=tuple(cells))
            known = self._by_length.get(length)
            self._by_length[length] = known.merged(moved) if known else moved

    def run(self, name: str) -> SampledRun:
        """Return the judged steps: those of all ranks, without warm-up and first of loops."""
        order = self._tree.in_order()
        numbers = np.empty(len(order), np.int32)
        numbers[order] = np.arange(len(order), dtype=np.int32)
        groups = sorted(self._by_length.values(), key=lambda alike: alike.first)
        step_ns: list[Integers] = []
        cells: list[_Cells] = []
        judged_of: list[Integers] = []
        begin = 0
        for alike in groups:
            # Ranks are slow together: a step of all of them is one sample.
            judged, ranks = np.flatnonzero(alike.steady), alike.ranks
            column = np.full(len(alike.steady), -1, np.int32)
            column[judged] = begin + np.arange(len(judged))
            begin += len(judged)
            for each in alike.cells:
                rows = np.flatnonzero(column[each.step] >= 0).astype(np.int32)
                rows = rows[np.argsort(numbers[each.place[rows]], kind="stable")]
                cells.append(each.at(rows, numbers, column))
            step_ns.append(alike.step_ns[judged] / ranks)
            judged_of.append(judged)
        kept, left_out = _with_most_time(cells, len(order))
        return SampledRun(
            facts=RunFacts(
                path=name,
                ranks=sum(alike.ranks for alike in groups),
                found_by=groups[0].found_by if groups else "",
                steps=sum(len(alike.steady) * alike.ranks for alike in groups),
                judged=begin,
            ),
            step_ns=np.concatenate(step_ns) if step_ns else np.zeros(0),
            parts={
                part: _mean_of(part, groups, judged_of)
                for part in (groups[0].parts if begin else ())
            },
            places=tuple(self._tree.places[number] for number in order),
            labels=frozenset(self._labels),
            left_out=left_out,
            _cells=kept,
        )


def _mean_of(part: Part, groups: Sequence[_Alike], judged: Sequence[Integers]) -> float:
    pieces = [
        alike.parts[part][steps] / alike.ranks for alike, steps in zip(groups, judged, strict=True)
    ]
    return float(np.concatenate(pieces).mean())


def _with_most_time(groups: Sequence[_Cells], places: int) -> tuple[tuple[_Cells, ...], int]:
    """Return the cells of the places with most time; say how many places are left out."""
    if places <= MOST_PATHS:
        return tuple(groups), 0
    total = np.zeros(places)
    for cells in groups:
        total += np.bincount(cells.place, cells.whole / cells.ranks, places)
    kept = np.zeros(places, bool)
    kept[np.argsort(-total, kind="stable")[:MOST_PATHS]] = True
    left_out = int((total[~kept] > 0).sum())
    return tuple(
        _Cells(cells.ranks, *(column[kept[cells.place]] for column in cells[1:]))
        for cells in groups
    ), left_out


def _cells_of(rank: Rank, steps: Steps, tree: _Tree, labels: set[Label]) -> tuple[_Cells, ...]:
    """Return what the places of a rank took, its workers' too, by step: pieces to be added up."""
    # What the spans of the thread that trains leave of each step.
    rest = _narrow(_rest_of(steps))
    pieces = [
        cells
        for one in (rank.process, *rank.workers)
        for cells in _placed(rank, one, tree, labels, steps)
    ]
    number = tree.number(ROOT, IN_NO_SPAN, _Seen(rank.order, len(tree.places)))
    pieces.append(
        _Cells(
            1,
            np.full(len(rest), number, np.int32),
            np.arange(len(rest), dtype=np.int32),
            *(rest, rest, np.ones(len(rest), np.uint8)),
        )
    )
    return tuple(pieces)


def _rest_of(steps: Steps) -> Integers:
    stood = steps.standstill
    held: list[tuple[Integers, Integers]] = []
    for here in stretches(steps.thread.start_ns, steps.thread.end_ns, SPANS_AT_ONCE):
        start, end = steps.thread.start_ns[here], steps.thread.end_ns[here]
        some = _step_of(steps, start, end, np.ones(len(start), bool)) >= 0
        held.append(union(start[some], end[some]))
    # What stands still for others is theirs, in a span or in none.
    taken = union(
        np.concatenate([*(start for start, _ in held), stood.start_ns]),
        np.concatenate([*(end for _, end in held), stood.end_ns]),
    )
    covered = covered_within(*taken, steps.start_ns, steps.end_ns)
    rest: Integers = np.maximum(steps.time_ns - covered, 0)
    return rest


def _step_of(steps: Steps, start: Integers, end: Integers, on_thread: Integers) -> Integers:
    """Return in which step each span begins; -1 for none, and for those that hold steps."""
    step = steps.within(start)
    step[is_within(steps.evaluation, start)] = -1
    later = np.minimum(step + 1, len(steps) - 1)
    step[on_thread & (step < later) & (end >= steps.end_ns[later])] = -1
    return step


def _label_codes(process: Process, known: dict[Label, int], labels: set[Label]) -> Integers:
    """Return the number of each span's name; new names are added to `known` and `labels`."""
    spans = process.spans
    codes = np.zeros(len(spans), np.int32)
    for place, columns in enumerate(spans.columns):
        here = spans.place == place
        of_file = columns.label[spans.row[here]]
        table = np.zeros(len(columns.labels), np.int32)
        for code in np.unique(of_file).tolist():
            label = columns.labels[code]
            if process.source == "kineto":
                label = Label(label.cat, KINETO_STEP.sub(r"\1", label.name))
            labels.add(label)
            table[code] = known.setdefault(label, len(known))
        codes[here] = table[of_file]
    return codes


def _placed(
    rank: Rank, process: Process, tree: _Tree, labels: set[Label], steps: Steps
) -> Iterator[_Cells]:
    """Yield what the places of a process took in steps, of a stretch of its spans at a time."""
    trains = process is rank.process
    spans = process.spans
    known: dict[Label, int] = {}
    code = _label_codes(process, known, labels)
    names = list(known)
    stood = steps.standstill if trains else steps.standstill.only(slice(0))

    def number(around: int, name: int) -> int:
        return tree.number(around, names[name], _Seen(rank.order, len(tree.places)))

    # None lies within one of another stretch, nor at its end.
    for here in stretches(spans.start_ns, spans.end_ns, SPANS_AT_ONCE, touching=False):
        inside = stood.only((stood.span >= here.start) & (stood.span < here.stop))
        which = inside.span - here.start
        some = spans.at(here)
        beside = some.has(*GPU_ROLES) | (some.tid != steps.tid) | (not trains)
        yield _placed_within(
            some, code[here], beside, process.near_ns, steps, inside._replace(span=which), number
        )


def _placed_within(
    spans: Spans,
    code: Integers,
    beside: Integers,
    near_ns: int,
    steps: Steps,
    stood: Standstill,
    number: Callable[[int, int], int],
) -> _Cells:
    """Return what the places of spans took in steps, those of others than the thread beside them.

    `stood` has the indices of these spans, `code` numbers their names, and `number` a place by that
    of the place around it and the number of its name.
    """
    order = track_order(spans.tid, spans.start_ns, spans.end_ns, spans.id)
    start, end, tid, code = (
        column[order] for column in (spans.start_ns, spans.end_ns, spans.tid, code)
    )
    beside = beside[order]
    row = np.empty(len(order), np.int32)
    row[order] = np.arange(len(order), dtype=np.int32)
    which = row[stood.span]
    parents = parents_of(tid, start, end, near_ns)
    roots = np.where(beside, ROOT_BESIDE, ROOT)
    path = places_of(parents, code, roots, number).astype(np.int32)
    own, whole = own_ns(parents, start, end), end - start
    step = _step_of(steps, start, end, ~beside).astype(np.int32)
    if len(which):
        length = stood.end_ns - stood.start_ns
        around = _innermost(np.flatnonzero(~beside), start, end, parents, stood.start_ns)
        held = around >= 0
        # It is the thread's that stands still, not that of whom it is in, nor beside it.
        for rows, ns in ((which, length), (around[held], length[held])):
            np.subtract.at(own, rows, ns)
        np.subtract.at(whole, which, length)
        own, whole = np.maximum(own, 0), np.maximum(whole, 0)
        outer = np.where(held, path[np.maximum(around, 0)], ROOT).astype(np.int64)
        names = int(code.max()) + 1
        pairs, kind = np.unique(outer * names + code[which], return_inverse=True)
        numbers = [number(*map(int, divmod(pair, names))) for pair in pairs.tolist()]
        in_steps = _step_of(steps, stood.start_ns, stood.end_ns, np.zeros(len(length), bool))
        path = np.concatenate([path, np.array(numbers, np.int32)[kind]])
        step = np.concatenate([step, in_steps.astype(np.int32)])
        own, whole = np.concatenate([own, length]), np.concatenate([whole, length])
    inside = step >= 0
    columns = [column[inside] for column in (path, step, own, whole)]
    return _Cells.summed([*columns, np.ones(len(columns[0]), np.uint8)], 1)


def _innermost(
    rows: Integers, start: Integers, end: Integers, parents: Integers, at_ns: Integers
) -> Integers:
    """Return which of a thread's spans, by start, is the innermost around moments; -1 for none."""
    index = np.searchsorted(start[rows], at_ns, side="right") - 1
    around = np.where(index >= 0, rows[np.maximum(index, 0)] if len(rows) else -1, -1)
    while (over := (around >= 0) & (end[around] <= at_ns)).any():
        around[over] = parents[around[over]]
    return around
