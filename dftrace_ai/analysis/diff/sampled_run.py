"""What was sampled of a run: its judged steps, and what each place took in each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from dftrace_ai.analysis.reading.event_columns import Label
from dftrace_ai.analysis.reading.set_aside import ColumnAside, SetAside
from dftrace_ai.analysis.steps.spans import brief

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dftrace_ai.analysis.diff.model import RunFacts
    from dftrace_ai.analysis.lines.rank_stacks import FunctionTimes
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part

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


@dataclass(frozen=True, repr=False)
class SampledRun:
    """The judged steps of a run, and what each place in its tree took in each of them."""

    facts: RunFacts  # what it is
    step_ns: Integers  # what each judged step took; of ranks with as many steps the mean
    parts: dict[Part, float]  # what each part of a judged step took on average
    places: tuple[Place, ...]  # the places, by their numbers
    labels: frozenset[Label]  # names that are in the run, in judged steps or not
    left_out: int  # places beyond those with most time, which are in no row
    _cells: tuple[Cells, ...]
    # How often threads that train were in each function of the program, by samples of stacks.
    functions: FunctionTimes | None = None
    # What places take in each step, of those that are in most; they are in no cells.
    _often: Mapping[int, Sequence[EachStep]] = field(default_factory=dict)

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
            for each in self._often.get(place, ()):
                some = getattr(each, name).values
                total[each.first : each.first + len(some)] += some / each.ranks
            for cells in self._cells:
                rows = cells.of(place)
                values: Integers = getattr(cells, name)
                total[cells.step[rows]] += values[rows] / cells.ranks
        return total


class Cells(NamedTuple):
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
    def summed(cls, rows: Sequence[Integers], ranks: int) -> Cells:
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
        return cls(ranks, narrow(place[first]), step[first], *map(narrow, sums))

    def of(self, place: int) -> slice:
        """Return which of them are of a place."""
        if place > np.iinfo(self.place.dtype).max:
            return slice(0)
        # As a number of theirs: else all of them would be made such as this one is.
        number = self.place.dtype.type(place)
        return slice(
            *(int(np.searchsorted(self.place, number, side)) for side in ("left", "right"))
        )

    def at(self, which: Integers, place: Integers, step: Integers) -> Cells:
        """Return some of them, by other numbers of their places and steps."""
        some = (narrow(place[self.place[which]]), step[self.step[which]])
        return Cells(self.ranks, *some, self.own[which], self.whole[which], self.spans[which])


class HeldCells:
    """Cells in one piece or more, set aside; none is held while the next is made."""

    def __init__(self, pieces: Iterable[Cells]) -> None:
        aside = SetAside()
        self._pieces = [
            (ranks, [ColumnAside.of(column, aside) for column in columns])
            for ranks, *columns in pieces
        ]

    @property
    def ranks(self) -> int:
        """Of how many ranks together they are."""
        return self._pieces[0][0]

    def __iter__(self) -> Iterator[Cells]:
        """Yield each piece, read now."""
        for ranks, columns in self._pieces:
            yield Cells(ranks, *(column.values for column in columns))

    def columns(self, *names: str) -> Iterator[list[Integers]]:
        """Yield some columns of each piece."""
        at = [Cells._fields.index(name) - 1 for name in names]
        for _, columns in self._pieces:
            yield [columns[one].values for one in at]


class EachStep(NamedTuple):
    """What a place took in steps that follow each other, 0 where it has no span."""

    ranks: int
    first: int
    own: ColumnAside
    whole: ColumnAside
    spans: ColumnAside

    @classmethod
    def of(
        cls, place: int, cells: HeldCells, column: Integers, first: int, aside: SetAside
    ) -> EachStep:
        """Return that of a place, from the cells of all steps; `column` has which each becomes."""
        found = []
        count = int(column.max()) + 1 - first
        for name in ("own", "whole", "spans"):
            sums = np.zeros(count, np.int64)
            for places, steps, values in cells.columns("place", "step", name):
                rows = places == place
                step = column[steps[rows]]
                judged = step >= 0
                sums[step[judged] - first] += values[rows][judged].astype(np.int64)
            found.append(ColumnAside.of(brief(narrow(sums)), aside))
        return cls(cells.ranks, first, *found)


def narrow(values: Integers) -> Integers:
    """Return whole numbers above 0 in the narrowest kind that holds them."""
    return values.astype(np.min_scalar_type(values.max(initial=0)))
