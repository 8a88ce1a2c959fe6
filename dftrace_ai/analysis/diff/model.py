"""What `dftrace diff` says of two runs, as values; their JSON is `schemas/diff.schema.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from dftrace_ai.trace_format.json_types import JsonObject

FORMAT: Final = 1

By = Literal["category", "name", "tree"]
"""What has a row: a category, a name in its category, or a place in the tree of spans."""

Kind = Literal["slower", "faster", "new", "gone", "unsure", "same", "small"]
"""What became of a row; `unsure` where it may be another by chance, `small` where it takes too
little of a step to be judged."""

Measure = Literal["median", "mean", "each"]
"""What times are of judged steps: the median, the mean, or the median time of one span where
steps have it."""


@dataclass(frozen=True)
class Change:
    """Times in two runs, nanoseconds.

    Attributes:
        kind: what became of it.
        measure: what the times are.
        before_ns: in the first run.
        after_ns: in the second.
        low_ns: what the second has more, at least; the lower end of a 99.9 % interval. Null
            where nothing was judged.
        high_ns: at most.
    """

    kind: Kind
    measure: Measure
    before_ns: float
    after_ns: float
    low_ns: float | None = None
    high_ns: float | None = None

    @property
    def added_ns(self) -> float:
        """What the second run has more than the first."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True)
class Row:
    """Spans of two runs that are compared; times are own ones, without spans inside.

    Attributes:
        cat: their category.
        name: their name; null for a whole category.
        path: where they are, from the outside in, each as category and name with a dot
            between; empty where rows are not by tree. As in the second run, where it is there.
        path_before: the same of the first run where it was elsewhere there; else null.
        beside: they are of other threads and processes than the thread that trains, so that
            their time is not the step's.
        change: of what they take.
        mean_added_ns: what a step of the second run has more of them, on average.
        count_before: how many there are in a step, on average.
        count_after: the same of the second run.
    """

    cat: str
    name: str | None
    path: tuple[str, ...]
    path_before: tuple[str, ...] | None
    beside: bool
    change: Change
    mean_added_ns: float
    count_before: float
    count_after: float


@dataclass(frozen=True)
class GrownLine:
    """A line of the program that has most of what a step takes longer or shorter.

    Attributes:
        function: that it is in, with its class.
        file: that it is in, relative; empty where files are left out.
        line: its number: of the function that which was at work most often.
        before_ns: how long a step of the first run was in the function, by samples of stacks.
        after_ns: one of the second.
        low_ns: by how much these differ, at least.
        text: it in a sentence.
    """

    function: str
    file: str
    line: int
    before_ns: float
    after_ns: float
    low_ns: float
    text: str


@dataclass(frozen=True)
class RunFacts:
    """A run that is compared.

    Attributes:
        path: as it was given.
        ranks: how many ranks have steps.
        found_by: how their steps were found; empty where none were.
        steps: how many, of all ranks.
        judged: of these, samples that are compared: without warm-up and the first of each
            loop, and one for all ranks together.
    """

    path: str
    ranks: int
    found_by: str
    steps: int
    judged: int


@dataclass(frozen=True)
class Judged:
    """A condition and what became of it.

    Attributes:
        condition: as it was given.
        met: whether it is met for sure; null where it cannot be judged.
        value: what is held against the limit; null where there is none.
        low: the lower end of its 99.9 % interval.
        high: the upper end.
        unit: of these: ``%``, ``ns`` or empty.
        why: why it cannot be judged; else empty.
    """

    condition: str
    met: bool | None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    why: str = ""


@dataclass(frozen=True)
class Diff:
    """What became of a run.

    Attributes:
        verdict: what became of the steps; ``none`` where that is not clear, ``abstained``
            where there is too little to say that.
        before: the first run.
        after: the second.
        step: the time of a step; null without steps in both.
        categories: rows of categories, those that changed first, by what they add or save.
        names: likewise of names.
        tree: likewise of places in the tree.
        rows_left_out: places with the least time, which are in no row.
        conditions: what became of those that were given.
        abstained: why nothing is said; empty where something is.
        notes: what a reader has to know beside.
        lines: the line of the program that has most of what steps take longer or shorter; none
            where runs hold no samples of stacks, or none surely has half of it.
    """

    verdict: Literal["slower", "faster", "none", "abstained"]
    before: RunFacts
    after: RunFacts
    step: Change | None
    categories: tuple[Row, ...] = ()
    names: tuple[Row, ...] = ()
    tree: tuple[Row, ...] = ()
    rows_left_out: int = 0
    conditions: tuple[Judged, ...] = ()
    abstained: str = ""
    notes: tuple[str, ...] = ()
    lines: tuple[GrownLine, ...] = ()
    kind: Literal["dftrace diff"] = "dftrace diff"
    format: Literal[1] = FORMAT

    def rows(self, by: By) -> tuple[Row, ...]:
        """Return the rows of one kind."""
        return {"category": self.categories, "name": self.names, "tree": self.tree}[by]

    def to_dict(self) -> JsonObject:
        """Return everything as plain values, fit for JSON."""
        return asdict(self)


def diff_adapter() -> TypeAdapter[Diff]:
    """Return what checks the values and makes their schema."""
    from pydantic import TypeAdapter

    return TypeAdapter(Diff)
