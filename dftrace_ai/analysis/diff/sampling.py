"""What each place in the tree of spans took in each judged step of a run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from dftrace_ai.analysis.diff.model import RunFacts
from dftrace_ai.analysis.reading.event_columns import Label
from dftrace_ai.analysis.steps import measure
from dftrace_ai.analysis.steps.finding import is_within
from dftrace_ai.analysis.steps.roles import GPU_ROLES, KINETO_STEP
from dftrace_ai.analysis.steps.spans import union
from dftrace_ai.analysis.steps.steady import steady_of
from dftrace_ai.analysis.steps.timeline import covered_within
from dftrace_ai.analysis.tracks import own_ns, parents_of, places_of, track_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Job, Part, Process, Rank, Steps

__all__ = ["IN_NO_SPAN", "Path", "Place", "SampledRun", "sampled"]

Path: TypeAlias = tuple[Label, ...]
"""What spans and those around them are called, from the outside in."""


class Place(NamedTuple):
    """A place in the tree of spans.

    Attributes:
        path: what its spans and those around them are called.
        beside: they are of other threads and processes than the thread that trains, so that
            their time is not the step's.
    """

    path: Path
    beside: bool

    @property
    def label(self) -> Label:
        """What its spans are called."""
        return self.path[-1]


IN_NO_SPAN: Final = Label("none", "not annotated")
"""The time of a step in which the thread that trains was in no span at all."""

# Who makes a name for every step makes millions; the places with most time are compared.
MOST_PATHS: Final = 5_000


@dataclass(frozen=True, repr=False)
class SampledRun:
    """The judged steps of a run, and what each place in its tree took in each of them.

    Attributes:
        facts: what it is.
        step_ns: what each judged step took; of ranks with as many steps the mean.
        parts: of each judged step by its parts.
        places: the places, by their numbers.
        labels: names that are in the run, in judged steps or not.
        left_out: places beyond those with most time, which are in no row.
    """

    facts: RunFacts
    step_ns: Integers
    parts: dict[Part, Integers]
    places: tuple[Place, ...]
    labels: frozenset[Label]
    left_out: int
    _cells: _Cells

    def __len__(self) -> int:
        return len(self.step_ns)

    def own(self, places: Iterable[int]) -> Integers:
        """Return what some places took, without what lies inside of them, by step, nanoseconds."""
        return self._sum(self._cells.own, places)

    def whole(self, places: Iterable[int]) -> Integers:
        """Return what some places took, with all that lies inside of them, by step."""
        return self._sum(self._cells.whole, places)

    def count(self, places: Iterable[int]) -> Integers:
        """Return how many spans of some places there are, by step."""
        return self._sum(self._cells.spans, places)

    def _sum(self, values: Integers, places: Iterable[int]) -> Integers:
        total = np.zeros(len(self), float)
        for place in places:
            low, high = np.searchsorted(self._cells.place, [place, place + 1])
            total[self._cells.column[low:high]] += values[low:high]
        return total


class _Cells(NamedTuple):
    """Values of places by step, those that are zero left out: sorted by place."""

    place: Integers
    column: Integers
    own: Integers
    whole: Integers
    spans: Integers


# Around what nothing is: on the thread that trains, and elsewhere.
ROOT: Final = -1
ROOT_BESIDE: Final = -2


@dataclass
class _Tree:
    """Numbers of the places that were seen so far."""

    numbers: dict[tuple[int, Label], int] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)

    def number(self, around: int, label: Label) -> int:
        """Return the number of a place by that of the place around it, or by its root."""
        found = self.numbers.setdefault((around, label), len(self.places))
        if found == len(self.places):
            outer = self.places[around] if around >= 0 else Place((), around == ROOT_BESIDE)
            self.places.append(Place((*outer.path, label), outer.beside))
        return found


class _Measured(NamedTuple):
    """A rank with steps: its spans by place and step."""

    steps: Steps
    steady: Integers
    path: Integers
    step: Integers
    own: Integers
    whole: Integers


def sampled(job: Job, name: str) -> SampledRun:
    """Return the judged steps of a run: those of all ranks, without warm-up and first of loops.

    Args:
        job: what `read_job` has returned.
        name: what the run is called.
    """
    tree, labels = _Tree(), {IN_NO_SPAN}
    ranks = []
    for rank in job.ranks:
        found = _measured(rank, tree, labels)
        ranks += [found] if found else []
    for process in job.others:
        _label_codes(process, {}, labels)
    by_length: dict[int, list[_Measured]] = defaultdict(list)
    for one in ranks:
        by_length[len(one.steps)].append(one)
    whole: list[Integers] = []
    parts: dict[Part, list[Integers]] = defaultdict(list)
    cells: list[_Cells] = []
    begin = 0
    for group in by_length.values():
        # Ranks are slow together: a step of all of them is one sample.
        judged = np.flatnonzero(np.logical_and.reduce([one.steady for one in group]))
        column = np.full(len(group[0].steps), -1, np.int32)
        column[judged] = begin + np.arange(len(judged))
        begin += len(judged)
        cells.append(_summed(group, column))
        whole.append(np.mean([one.steps.time_ns[judged] for one in group], axis=0))
        for part in group[0].steps.parts:
            parts[part].append(np.mean([one.steps.parts[part][judged] for one in group], axis=0))
    kept, left_out = _with_most_time(cells, len(tree.places))
    return SampledRun(
        facts=RunFacts(
            path=name,
            ranks=len(ranks),
            found_by=ranks[0].steps.found_by if ranks else "",
            steps=sum(len(one.steps) for one in ranks),
            judged=begin,
        ),
        step_ns=np.concatenate(whole) if whole else np.zeros(0),
        parts={part: np.concatenate(values) for part, values in parts.items()},
        places=tuple(tree.places),
        labels=frozenset(labels),
        left_out=left_out,
        _cells=kept,
    )


def _summed(group: Sequence[_Measured], column: Integers) -> _Cells:
    """Add up the spans of ranks by place and step, a mean of the ranks.

    Args:
        group: ranks with as many steps.
        column: by step the number of the judged one; -1 for others.
    """
    rows = [np.flatnonzero(column[one.step] >= 0) for one in group]

    def of_all(values: Iterable[Integers]) -> Integers:
        return np.concatenate([each[row] for each, row in zip(values, rows, strict=True)])

    width = int(column.max(initial=-1)) + 1
    keys = of_all(one.path for one in group).astype(np.int64) * width
    keys += of_all(column[one.step] for one in group)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))

    def mean(values: Iterable[Integers]) -> Integers:
        of_cells = np.add.reduceat(of_all(values)[order], first) if len(first) else np.zeros(0)
        found: Integers = of_cells / len(group)
        return found

    keys = keys[first]
    return _Cells(
        keys // max(width, 1),
        (keys % max(width, 1)).astype(np.int32),
        mean(one.own for one in group),
        mean(one.whole for one in group),
        np.diff(first, append=len(order)) / len(group),
    )


def _with_most_time(groups: Sequence[_Cells], places: int) -> tuple[_Cells, int]:
    """Put together the cells of the places with most time; say how many places are left out."""
    total = np.zeros(places)
    for cells in groups:
        total += np.bincount(cells.place, cells.whole, places)
    kept = np.zeros(places, bool)
    kept[np.argsort(-total, kind="stable")[:MOST_PATHS]] = True
    left_out = int((total[~kept] > 0).sum())
    some = [
        cells if kept.all() else _Cells(*(v[kept[cells.place]] for v in cells)) for cells in groups
    ]
    if len(some) == 1:
        return some[0], left_out
    together = [np.concatenate(v) for v in zip(*some, strict=True)] or [np.zeros(0, np.int64)] * 5
    order = np.argsort(together[0], kind="stable")
    return _Cells(*(values[order] for values in together)), left_out


def _measured(rank: Rank, tree: _Tree, labels: set[Label]) -> _Measured | None:
    steps = measure(rank.process)
    if steps is None:
        for process in (rank.process, *rank.workers):
            _label_codes(process, {}, labels)
        return None
    pieces = [_placed(rank.process, tree, labels, steps, trains=True)]
    pieces += [_placed(worker, tree, labels, steps, trains=False) for worker in rank.workers]
    path, step, own, whole = (np.concatenate(values) for values in zip(*pieces, strict=True))
    # What the spans of the thread that trains leave of each step.
    rest = _rest_of(steps)
    number = tree.number(ROOT, IN_NO_SPAN)
    return _Measured(
        steps,
        steady_of(steps).mask,
        np.concatenate([path, np.full(len(rest), number, np.int32)]),
        np.concatenate([step, np.arange(len(rest), dtype=np.int32)]),
        np.concatenate([own, rest]),
        np.concatenate([whole, rest]),
    )


def _rest_of(steps: Steps) -> Integers:
    thread, stood = steps.thread, steps.standstill
    held = thread.at(
        _step_of(steps, thread.start_ns, thread.end_ns, np.ones(len(thread), bool)) >= 0
    )
    # What stands still for others is theirs, in a span or in none.
    taken = union(
        np.concatenate([held.start_ns, stood.start_ns]),
        np.concatenate([held.end_ns, stood.end_ns]),
    )
    covered = covered_within(*taken, steps.start_ns, steps.end_ns)
    rest: Integers = np.maximum(steps.time_ns - covered, 0)
    return rest


def _step_of(steps: Steps, start: Integers, end: Integers, on_thread: Integers) -> Integers:
    """Return in which step each span begins; -1 for none, and for those that hold steps."""
    step = np.searchsorted(steps.start_ns, start, side="right") - 1
    step[(step >= 0) & (steps.end_ns[np.maximum(step, 0)] <= start)] = -1
    step[is_within(steps.evaluation, start)] = -1
    later = np.minimum(step + 1, len(steps) - 1)
    step[on_thread & (step < later) & (end >= steps.end_ns[later])] = -1
    return step


def _label_codes(process: Process, known: dict[Label, int], labels: set[Label]) -> Integers:
    """Return the number of each span's name; new names are added to `known` and `labels`."""
    spans = process.spans
    codes = np.zeros(len(spans), np.int64)
    for place, columns in enumerate(spans.columns):
        here = spans.place == place
        of_file = columns.label[spans.row[here]]
        table = np.zeros(len(columns.labels), np.int64)
        for code in np.unique(of_file).tolist():
            label = columns.labels[code]
            if process.source == "kineto":
                label = Label(label.cat, KINETO_STEP.sub(r"\1", label.name))
            labels.add(label)
            table[code] = known.setdefault(label, len(known))
        codes[here] = table[of_file]
    return codes


def _placed(
    process: Process, tree: _Tree, labels: set[Label], steps: Steps, *, trains: bool
) -> tuple[Integers, ...]:
    """Return place, step, own and whole time of the spans of a process that are in its steps."""
    spans = process.spans
    known: dict[Label, int] = {}
    code = _label_codes(process, known, labels)
    order = track_order(spans.tid, spans.start_ns, spans.end_ns, spans.id)
    start, end, tid, code = (
        spans.start_ns[order],
        spans.end_ns[order],
        spans.tid[order],
        code[order],
    )
    beside = spans.has(*GPU_ROLES)[order] | (tid != steps.tid) | (not trains)
    which = order[:0]
    if trains and len(steps.standstill.span):
        row = np.empty(len(order), np.int32)
        row[order] = np.arange(len(order), dtype=np.int32)
        which = row[steps.standstill.span]
        del row
    del order
    parents = parents_of(tid, start, end, process.near_ns)
    del tid
    names = list(known)
    roots = np.where(beside, ROOT_BESIDE, ROOT)
    path = places_of(parents, code, roots, lambda around, name: tree.number(around, names[name]))
    path = path.astype(np.int32)
    own, whole = own_ns(parents, start, end), end - start
    step = _step_of(steps, start, end, ~beside).astype(np.int32)
    if len(which):
        stood = steps.standstill
        length = stood.end_ns - stood.start_ns
        around = _innermost(np.flatnonzero(~beside), start, end, parents, stood.start_ns)
        held = around >= 0
        # It is the thread's that stands still, not that of whom it is in, nor beside it.
        for rows, ns in ((which, length), (around[held], length[held])):
            np.subtract.at(own, rows, ns)
        np.subtract.at(whole, which, length)
        own, whole = np.maximum(own, 0), np.maximum(whole, 0)
        outer = np.where(held, path[np.maximum(around, 0)], ROOT).astype(np.int64)
        pairs, kind = np.unique(outer * len(names) + code[which], return_inverse=True)
        numbers = [
            tree.number(*(int(out), names[name]))
            for out, name in zip(*np.divmod(pairs, len(names)), strict=True)
        ]
        in_steps = _step_of(steps, stood.start_ns, stood.end_ns, np.zeros(len(length), bool))
        path = np.concatenate([path, np.array(numbers, np.int32)[kind]])
        step = np.concatenate([step, in_steps.astype(np.int32)])
        own, whole = np.concatenate([own, length]), np.concatenate([whole, length])
    del code, roots, parents
    inside = step >= 0
    return path[inside], step[inside], own[inside], whole[inside]


def _innermost(
    rows: Integers, start: Integers, end: Integers, parents: Integers, at_ns: Integers
) -> Integers:
    """Return which span of a thread is the innermost around each moment; -1 for none.

    Args:
        rows: of the thread's spans, by their start.
        start: of all spans.
        end: of the same.
        parents: which span is around each; -1 for none.
        at_ns: the moments.
    """
    index = np.searchsorted(start[rows], at_ns, side="right") - 1
    around = np.where(index >= 0, rows[np.maximum(index, 0)] if len(rows) else -1, -1)
    while (over := (around >= 0) & (end[around] <= at_ns)).any():
        around[over] = parents[around[over]]
    return around
