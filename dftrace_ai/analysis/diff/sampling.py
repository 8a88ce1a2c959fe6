"""What each place in the tree of spans took in each judged step of a run.

Apart from `comparing`: runs are read here, one at a time; what was sampled is compared there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.diff.model import RunFacts
from dftrace_ai.analysis.diff.sampled_run import (
    Cells,
    EachStep,
    HeldCells,
    Place,
    SampledRun,
    narrow,
)
from dftrace_ai.analysis.reading.event_columns import Label
from dftrace_ai.analysis.reading.set_aside import SetAside
from dftrace_ai.analysis.reading.stack_lines import has_samples
from dftrace_ai.analysis.steps import Process, measure
from dftrace_ai.analysis.steps.detection import is_within
from dftrace_ai.analysis.steps.measuring import steady_of
from dftrace_ai.analysis.steps.roles import GPU_ROLES, KINETO_STEP
from dftrace_ai.analysis.steps.spans import brief, rows_of, stretches, union
from dftrace_ai.analysis.steps.timeline import covered_within
from dftrace_ai.analysis.tracks import own_ns, parents_of, places_of, track_order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from dftrace_ai.analysis.lines.rank_stacks import FunctionTimes
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part, Rank, Steps
    from dftrace_ai.analysis.steps.blocking import Standstill
    from dftrace_ai.analysis.steps.job import Order
    from dftrace_ai.analysis.steps.spans import Spans

IN_NO_SPAN: Final = Label("none", "not annotated")
"""The time of a step in which the thread that trains was in no span at all."""

# So many are placed at once; what is calculated with them takes a hundred bytes for each.
SPANS_AT_ONCE: Final = 65_536
# Who makes a name for every step makes millions; the places with most time are compared.
MOST_PATHS: Final = 5_000


NEVER: Final = int(np.iinfo(np.int64).max)

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

    def order_from(
        self, first: int, rank: Order, codes: Mapping[Label, int], of_spans: Collection[int]
    ) -> None:
        """Have the places from one on seen as if all spans had been looked at together.

        That is by how deep they lie, then by what is around them and the numbers of their names;
        those in which only standstill is come last.
        """
        levels: dict[int, list[int]] = {}
        for number in range(first, len(self.places)):
            deep = len(self.places[number].path) if number in of_spans else NEVER
            levels.setdefault(deep, []).append(number)

        def order(number: int) -> tuple[int, int]:
            around = self.around[number]
            seen = self.seen[around].number if around >= 0 else around
            return seen, codes[self.places[number].label]

        behind = first
        for _, level in sorted(levels.items()):
            for number in sorted(level, key=order):
                self.seen[number] = _Seen(rank, behind)
                behind += 1

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
    parts: Mapping[Part, Integers]
    cells: HeldCells

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
            HeldCells([Cells.summed(list(columns), self.ranks + other.ranks)]),
        )

    @property
    def ranks(self) -> int:
        return self.cells.ranks


class Sampling:
    """The steps of some ranks of a run; of all of them it is the run.

    What is added, and merged, in whichever order, makes one and the same run.
    """

    def __init__(self) -> None:
        self.lost = 0
        self._tree = _Tree()
        self._labels = {IN_NO_SPAN}
        self._by_length: dict[int, _Alike] = {}
        self._functions: list[FunctionTimes] = []

    def add(self, member: Rank | Process) -> None:
        """Take in a rank, or another process, of which the names alone count."""
        processes = (member,) if isinstance(member, Process) else (member.process, *member.workers)
        self.lost += sum(process.dropped for process in processes)
        steps = None if isinstance(member, Process) else measure(member.process, whole=False)
        if steps is None or isinstance(member, Process):
            for process in processes:
                _label_codes(process, {}, self._labels)
            return
        steady, tree = steady_of(steps).mask, _Tree()
        if has_samples(member.process.spans.columns):
            # Late: most traces hold none.
            from dftrace_ai.analysis.lines.rank_stacks import RankStacks

            if stacks := RankStacks.of(member, steps):
                self._functions.append(stacks.functions(steady))
        cells = HeldCells(_cells_of(member, steps, tree, self._labels))
        alike = _Alike(member.order, steps.found_by, steady, steps.time_ns, steps.parts, cells)
        del steps, cells
        self._take(tree, {len(steady): alike})

    def merge(self, other: Sampling) -> None:
        """Take in the ranks of another."""
        self.lost += other.lost
        self._labels |= other._labels
        self._functions += other._functions
        self._take(other._tree, other._by_length)

    def _take(self, tree: _Tree, by_length: dict[int, _Alike]) -> None:
        numbers = self._tree.taken_in(tree)
        for length, alike in by_length.items():
            cells = (each._replace(place=narrow(numbers[each.place])) for each in alike.cells)
            moved = alike._replace(cells=HeldCells(cells))
            known = self._by_length.get(length)
            self._by_length[length] = known.merged(moved) if known else moved

    def run(self, name: str) -> SampledRun:
        """Return the judged steps: those of all ranks, without warm-up and first of loops."""
        order = self._tree.in_order()
        numbers = np.empty(len(order), np.int32)
        numbers[order] = np.arange(len(order), dtype=np.int32)
        groups = sorted(self._by_length.values(), key=lambda alike: alike.first)
        step_ns: list[Integers] = []
        cells: list[Cells] = []
        judged_of: list[Integers] = []
        often: defaultdict[int, list[EachStep]] = defaultdict(list)
        begin, aside = 0, SetAside()
        for alike in groups:
            # Ranks are slow together: a step of all of them is one sample.
            judged, ranks = rows_of(alike.steady), alike.ranks
            column = np.full(len(alike.steady), -1, np.int32)
            column[judged] = begin + np.arange(len(judged), dtype=np.int32)
            most = _in_most_steps(alike) if len(order) <= MOST_PATHS and len(judged) else ()
            for place in most:
                one = EachStep.of(place, alike.cells, column, begin, aside)
                often[int(numbers[place])].append(one)
            begin += len(judged)
            for each in alike.cells:
                rows = column[each.step] >= 0
                for place in most:
                    rows &= each.place != place
                few = rows_of(rows)
                few = few[np.argsort(numbers[each.place[few]], kind="stable")]
                cells.append(each.at(few, numbers, column))
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
            _often=dict(often),
            functions=_together(self._functions),
        )


def _in_most_steps(alike: _Alike) -> list[int]:
    """Return the places that are in more than half of the steps of some ranks."""
    counts = np.zeros(0, np.int64)
    for (places,) in alike.cells.columns("place"):
        found = np.bincount(places, minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    often: list[int] = np.flatnonzero(2 * counts > len(alike.steady)).tolist()
    return often


def _together(found: Sequence[FunctionTimes]) -> FunctionTimes | None:
    """Return what some ranks have; None where none has samples."""
    whole: FunctionTimes | None = None
    for one in found:
        whole = one if whole is None else whole.merged(one)
    return whole


def _mean_of(part: Part, groups: Sequence[_Alike], judged: Sequence[Integers]) -> float:
    pieces = [
        alike.parts[part][steps] / alike.ranks for alike, steps in zip(groups, judged, strict=True)
    ]
    return float(np.concatenate(pieces).mean())


def _with_most_time(groups: Sequence[Cells], places: int) -> tuple[tuple[Cells, ...], int]:
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
        Cells(cells.ranks, *(column[kept[cells.place]] for column in cells[1:])) for cells in groups
    ), left_out


def _cells_of(rank: Rank, steps: Steps, tree: _Tree, labels: set[Label]) -> Iterator[Cells]:
    """Yield what the places of a rank took, its workers' too, by step: pieces to be added up."""
    for one in (rank.process, *rank.workers):
        yield from _placed(rank, one, tree, labels, steps)
    # What the spans of the thread that trains leave of each step.
    rest = narrow(_rest_of(steps))
    number = tree.number(ROOT, IN_NO_SPAN, _Seen(rank.order, len(tree.places)))
    yield Cells(
        1,
        np.broadcast_to(np.min_scalar_type(number).type(number), len(rest)),
        np.arange(len(rest), dtype=np.int32),
        *(rest, rest, np.broadcast_to(np.uint8(1), len(rest))),
    )


def _rest_of(steps: Steps) -> Integers:
    stood, thread = steps.standstill, steps.thread
    counts = np.zeros(len(thread), bool)
    for first in range(0, len(thread), SPANS_AT_ONCE):
        here = slice(first, first + SPANS_AT_ONCE)
        start, end = thread.start_ns[here], thread.end_ns[here]
        counts[here] = _step_of(steps, start, end, np.ones(len(start), bool)) >= 0
    cut = stretches(thread, SPANS_AT_ONCE, counts)
    begins = [-1, *(int(thread.start_ns[here.start]) for here in cut[1:]), NEVER]
    covered = np.zeros(len(steps), np.int64)
    for here, (low, high) in zip(cut, pairwise(begins), strict=True):
        some = counts[here]
        start, end = thread.start_ns[here][some], thread.end_ns[here][some]
        # What stands still for others is theirs, in a span or in none.
        before = np.searchsorted(stood.end_ns, low, side="right")
        beside = slice(before, np.searchsorted(stood.start_ns, high))
        taken = union(
            np.append(start, np.maximum(stood.start_ns[beside], low)),
            np.append(end, np.minimum(stood.end_ns[beside], high)),
        )
        if len(taken[0]):
            before = np.searchsorted(steps.end_ns, taken[0][0], side="right")
            near = slice(before, np.searchsorted(steps.start_ns, taken[1][-1]))
            covered[near] += covered_within(*taken, steps.start_ns[near], steps.end_ns[near])
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
    most = len(known) + sum(len(columns.labels) for columns in spans.columns)
    codes = np.zeros(len(spans), np.min_scalar_type(most))
    # Of each file which of its names there are, and then their numbers.
    present = [np.zeros(len(columns.labels), bool) for columns in spans.columns]
    tables = [np.zeros(len(there), codes.dtype) for there in present]
    for numbered in (False, True):
        for first in range(0, len(spans), SPANS_AT_ONCE):
            some = spans.at(slice(first, first + SPANS_AT_ONCE))
            for place in np.flatnonzero(np.bincount(some.place)).tolist():
                here = np.flatnonzero(some.place == place)
                of_file = spans.columns[place].label[some.row[here]]
                if numbered:
                    codes[first + here] = tables[place][of_file]
                else:
                    present[place][of_file] = True
        for columns, there, table in zip(spans.columns, present, tables, strict=True):
            for code in () if numbered else np.flatnonzero(there).tolist():
                label = columns.labels[code]
                if process.source == "kineto":
                    label = Label(label.cat, KINETO_STEP.sub(r"\1", label.name))
                labels.add(label)
                table[code] = known.setdefault(label, len(known))
    return codes


def _placed(
    rank: Rank, process: Process, tree: _Tree, labels: set[Label], steps: Steps
) -> Iterator[Cells]:
    """Yield what the places of a process took in steps, of a stretch of its spans at a time."""
    trains = process is rank.process
    spans = process.spans
    known: dict[Label, int] = {}
    code = _label_codes(process, known, labels)
    stood = steps.standstill if trains else steps.standstill.only(slice(0))
    by_span = np.argsort(stood.span, kind="stable")
    span_of, names = stood.span[by_span], list(known)

    known_before, of_spans = len(tree.places), set[int]()

    def number(around: int, name: int) -> int:
        return tree.number(around, names[name], _Seen(rank.order, len(tree.places)))

    none = np.zeros(0, np.int64)
    open_ones, first, low = _Open(none.astype(np.int32), none, none), 0, -1
    while first < len(spans):
        # What has to be looked at again is at most as much as what is new.
        last = min(first + max(SPANS_AT_ONCE, len(open_ones.row)), len(spans)) - 1
        behind = int(np.searchsorted(spans.start_ns, spans.start_ns[last], side="right"))
        high = int(spans.start_ns[behind]) if behind < len(spans) else NEVER
        some = spans.at(np.append(open_ones.row, np.arange(first, behind, dtype=np.int32)))
        stretch = _Stretch(
            some,
            code[first:behind] if not first else np.append(code[open_ones.row], code[first:behind]),
            some.has(*GPU_ROLES) | (some.tid != steps.tid) | (not trains),
            (low, high),
            stood.only(by_span[slice(*np.searchsorted(span_of, (first, behind)))]),
            stood.only(slice(*np.searchsorted(stood.start_ns, (low, high)))),
        )
        cells, open_ones = _placed_within(
            stretch, code, process.near_ns, steps, open_ones, first, number, of_spans
        )
        yield cells
        if first and behind == len(spans):
            tree.order_from(known_before, rank.order, known, of_spans)
        first, low = behind, high


class _Open(NamedTuple):
    """Spans that reach beyond a stretch of time, or are around such: in the order of all spans."""

    row: Integers  # the number of each
    own: Integers  # what of its time was its own so far
    whole: Integers  # all of its time, without standstill


class _Stretch(NamedTuple):
    """Spans that begin in a stretch of time, behind those that were open before."""

    spans: Spans
    code: Integers  # number of the name of each
    beside: Integers  # which are not of the thread that trains
    window: tuple[int, int]  # from when to when it is
    of_spans: Standstill  # that ended by spans that begin in it
    inside: Standstill  # that began in it


def _placed_within(
    stretch: _Stretch,
    codes: Integers,
    near_ns: int,
    steps: Steps,
    before: _Open,
    first: int,
    number: Callable[[int, int], int],
    of_spans: set[int],
) -> tuple[Cells, _Open]:
    """Return what the places of spans took in steps, and the spans that go on behind a stretch.

    `codes` numbers the names of all spans of the process, of which the first that begins in the
    stretch has the number `first`; `number` numbers a place by that of the place around it and the
    number of its name, and those that spans have are added to `of_spans`.
    """
    spans, held = stretch.spans, len(before.row)
    order = track_order(spans.tid, spans.start_ns, spans.end_ns, spans.id)
    start, end, tid, code, beside = (
        column[order]
        for column in (spans.start_ns, spans.end_ns, spans.tid, stretch.code, stretch.beside)
    )
    rows = np.append(before.row, np.arange(first, first + len(order) - held, dtype=np.int32))[order]
    at = np.empty(len(order), np.int32)
    at[order] = np.arange(len(order), dtype=np.int32)
    parents = parents_of(tid, start, end, near_ns)
    roots = np.where(beside, ROOT_BESIDE, ROOT)
    path = places_of(parents, code, roots, number)
    of_spans.update(np.unique(path).tolist())
    # Of what reaches beyond the stretch, its own time in it.
    own = own_ns(parents, start.clip(*stretch.window), end.clip(*stretch.window))
    whole, again = end - start, at[:held]
    own[again] += before.own
    whole[again] = before.whole
    step = _step_of(steps, start, end, ~beside).astype(np.int32)
    which, length = stretch.of_spans.span, stretch.of_spans.end_ns - stretch.of_spans.start_ns
    which = at[held + which - first]
    # It is the thread's that stands still, not that of whom it is in, nor beside it.
    np.subtract.at(own, which, length)
    np.subtract.at(whole, which, length)
    stood = stretch.inside
    length = stood.end_ns - stood.start_ns
    inner = _innermost(np.flatnonzero(~beside), start, end, parents, stood.start_ns)
    np.subtract.at(own, inner[inner >= 0], length[inner >= 0])
    goes_on = _going_on(parents, end >= stretch.window[1])
    kept = np.flatnonzero(goes_on)[np.argsort(rows[goes_on])]
    open_ones = _Open(rows[kept], own[kept], whole[kept])
    done = (step >= 0) & ~goes_on
    columns = [path[done], step[done], np.maximum(own[done], 0), np.maximum(whole[done], 0)]
    if len(length):
        outer = np.where(inner >= 0, path[np.maximum(inner, 0)], ROOT).astype(np.int64)
        names = int(codes.max()) + 1
        pairs, kind = np.unique(outer * names + codes[stood.span], return_inverse=True)
        numbers = [number(*map(int, divmod(pair, names))) for pair in pairs.tolist()]
        in_steps = _step_of(steps, stood.start_ns, stood.end_ns, np.zeros(len(length), bool))
        some = in_steps >= 0
        more = (np.array(numbers, np.int32)[kind], in_steps.astype(np.int32), length, length)
        columns = [np.append(one, other[some]) for one, other in zip(columns, more, strict=True)]
    return Cells.summed([*columns, np.ones(len(columns[0]), np.uint8)], 1), open_ones


def _going_on(parents: Integers, beyond: Integers) -> Integers:
    """Return which spans reach beyond a stretch, or are around such, as rounding may have it."""
    found = beyond
    while len(outer := parents[found]) and not found[outer[outer >= 0]].all():
        found = found.copy()
        found[outer[outer >= 0]] = True
    return found


def _innermost(
    rows: Integers, start: Integers, end: Integers, parents: Integers, at_ns: Integers
) -> Integers:
    """Return which of a thread's spans, by start, is the innermost around moments; -1 for none."""
    index = np.searchsorted(start[rows], at_ns, side="right") - 1
    around = np.where(index >= 0, rows[np.maximum(index, 0)] if len(rows) else -1, -1)
    while (over := (around >= 0) & (end[around] <= at_ns)).any():
        around[over] = parents[around[over]]
    return around
