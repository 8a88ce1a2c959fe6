"""The rows of summaries: of names and categories, of other events, of places, and of tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dftrace_ai.trace_format.header_and_footer import KINDS, SAMPLE
from dftrace_ai.trace_format.names_and_phases import LoopPart, loop_part

Figures = tuple[int, int, "int | None", int, int, float, float, float, "int | None"]
"""Count, total, self, least, greatest, p50, p95, p99, wall time; times in ns.

Self and wall time are None where they are not known."""

FileGroup = Literal["rank", "host", "process"]
"""What files of one group have in common."""

EventGroup = Literal["thread", "step", "epoch"]
"""What events of one group have in common: the thread, or what their arguments say."""

# A table of more names says nothing, and whoever makes a name for every step may make millions. Of
# these a command shows fewer: `MOST_ROWS` of `dftrace_ai.cli.terminal`.
MOST_SUMMARY_ROWS = 100_000
MOST_NAME_LETTERS = 64 * 1024 * 1024

# Finished spans have rows of their own.
OTHER_KINDS = {kind.ph: kind.noun for kind in (*KINDS, SAMPLE) if kind.ph != "X"}


@dataclass(frozen=True)
class Row:
    """Finished spans that are added up in one row; durations in microseconds.

    Attributes:
        group: the rank, the host, host and number of the process, these with number and name of
            the thread, epoch and step with a slash between, or the epoch; null where rows are
            by name or category.
        cat: the category.
        name: the name; null for a row of a whole category.
        count: how many there are.
        total_us: sum of their durations.
        self_us: the part of it that no spans take which lie inside of them on the same
            track; null where too many spans stand in disorder to be sorted. Steps, epochs and
            evaluations that lie beside a thread have none: they are around what the thread does.
        share: self_us, of wall_us; null where one of these is not known, or there was no time.
            Of what several threads did at once it may be above 1.
        wall_us: the wall time of the processes that have such spans, added up: of each from its
            first event to its last. By thread, step and epoch from the first of the spans of the
            group to the last, in each process; null where it is not known.
        mean_us: mean of the durations.
        min_us: the shortest.
        p50_us: median.
        p95_us: 95th percentile.
        p99_us: 99th percentile.
        max_us: the longest.
        loop: ``wait`` for the waits for a loop's items, ``body`` for what is done with
            them, which is no work of the category; null for other spans.
    """

    group: str | None
    cat: str
    name: str | None
    count: int
    total_us: float
    self_us: float | None
    # What blocks say of the time is not held against their lines.
    share: float | None = field(compare=False)
    wall_us: float | None = field(compare=False)
    mean_us: float
    min_us: float
    p50_us: float
    p95_us: float
    p99_us: float
    max_us: float
    loop: LoopPart | None


@dataclass(frozen=True)
class NotAnnotated:
    """What the main threads did in no span of theirs; microseconds.

    Attributes:
        us: with the self times of their spans all of wall_us; of a main thread without: another's.
        share: of wall_us; null where there was no time.
        wall_us: how long these processes went, added up.
        processes: how many: programs and ranks, without what they started.
    """

    us: float
    # What blocks say of the time is not held against their lines.
    share: float | None = field(compare=False)
    wall_us: float = field(compare=False)
    processes: int


@dataclass(frozen=True)
class OtherRow:
    """How many events of another kind there are of one category and name."""

    kind: str
    cat: str
    name: str
    count: int


@dataclass(frozen=True)
class TreeRow:
    """The finished spans of one place in the tree; durations in microseconds.

    Attributes:
        path: category and name with a dot between of each span around them, from the outside
            in, and their own.
        cat: their category.
        name: their name.
        count: how many there are, of all ranks and threads; 0 where only spans inside of them
            were asked for.
        total_us: sum of their durations.
        self_us: the part of it that no spans take which lie inside of them.
        share: self_us, of wall_us; null without any, or where that is not known.
        wall_us: the wall time of the processes that have spans of this place, added up: of each
            from its first event to its last; null where it is not known.
        mean_us: mean of the durations; null without any.
        min_us: the shortest.
        p50_us: median.
        p95_us: 95th percentile.
        p99_us: 99th percentile.
        max_us: the longest.
    """

    path: tuple[str, ...]
    cat: str
    name: str
    count: int
    total_us: float
    self_us: float
    share: float | None
    wall_us: float | None
    mean_us: float | None
    min_us: float | None
    p50_us: float | None
    p95_us: float | None
    p99_us: float | None
    max_us: float | None


@dataclass(frozen=True)
class TensorRow:
    """A statistic of a tensor, over all steps and ranks at which it was seen.

    Attributes:
        name: layer and tensor.
        statistic: which one.
        count: how often it was taken.
        nonfinite: how often it was no finite number.
        first: the first finite value; null where there is none.
        last: the last finite value.
        min: the least.
        max: the greatest.
        first_nonfinite_step: the step at which it was not finite for the first time, as its
            event has it; null where it was always.
    """

    name: str
    statistic: str
    count: int
    nonfinite: int
    first: float | None
    last: float | None
    min: float | None
    max: float | None
    first_nonfinite_step: int | None


@dataclass(frozen=True)
class LineRow:
    """A line of the program, of all processes and threads together; times in microseconds.

    Attributes:
        function: that it is in, with its class; ``<module>`` outside of any.
        file: that it is in, relative; empty where files were left out.
        line: its number; 0 where lines were left out.
        samples: that have it on their stack.
        total_us: how long that was: the period of each of them.
        self_us: the part of it in which nothing else of the program was called from there.
        share: self_us, of that of all samples.
        cpu_us: what threads used of processors meanwhile, of self_us; what a sample stands for may
            hold other lines, too.
    """

    function: str
    file: str
    line: int
    samples: int
    total_us: float
    self_us: float
    share: float
    cpu_us: float


def kind_of(ph: str) -> str:
    """Return what events of a phase are called."""
    return OTHER_KINDS.get(ph, f"ph {ph!r}")


def share_of(self_us: float | None, wall_us: float | None) -> float | None:
    """Return which part of wall time a self time is; None where one of them is not known."""
    if self_us is None or not wall_us:
        return None
    return self_us / wall_us


def row_of(cat: str, name: str | bool, figures: Figures, group: str | None = None) -> Row:
    """Return the row of what spans come to; `name` of a whole category: of bodies of its loops."""
    count, total, own, least, greatest, p50, p95, p99, wall = figures
    self_us = None if own is None else own / 1000
    wall_us = None if wall is None else wall / 1000
    if isinstance(name, bool):
        loop: LoopPart | None = "body" if name else None
    else:
        loop = loop_part(name)
    return Row(
        group,
        cat,
        None if isinstance(name, bool) else name,
        count,
        total_us=total / 1000,
        self_us=self_us,
        share=share_of(self_us, wall_us),
        wall_us=wall_us,
        mean_us=total / 1000 / count,
        min_us=least / 1000,
        p50_us=p50 / 1000,
        p95_us=p95 / 1000,
        p99_us=p99 / 1000,
        max_us=greatest / 1000,
        loop=loop,
    )


Moment = tuple[int, int]
"""A step, and when it was."""


@dataclass
class TensorValues:
    """The values of a statistic so far."""

    count: int = 0
    nonfinite: int = 0
    first: tuple[Moment, float] | None = None
    last: tuple[Moment, float] | None = None
    least: float | None = None
    greatest: float | None = None
    broken: Moment | None = None

    def add(self, moment: Moment, value: float | None) -> None:
        """Take in a value, None for one that is not finite."""
        self.count += 1
        if value is None:
            self.nonfinite += 1
            self.broken = moment if self.broken is None else min(self.broken, moment)
            return
        if self.first is None or moment < self.first[0]:
            self.first = moment, value
        if self.last is None or moment >= self.last[0]:
            self.last = moment, value
        self.least = value if self.least is None else min(self.least, value)
        self.greatest = value if self.greatest is None else max(self.greatest, value)

    def take(self, more: TensorValues) -> None:
        """Take in what came behind these."""
        self.count += more.count
        self.nonfinite += more.nonfinite
        if more.first and (self.first is None or more.first[0] < self.first[0]):
            self.first = more.first
        if more.last and (self.last is None or more.last[0] >= self.last[0]):
            self.last = more.last
        if more.least is not None and more.greatest is not None:
            self.least = more.least if self.least is None else min(self.least, more.least)
            most = more.greatest
            self.greatest = most if self.greatest is None else max(self.greatest, most)
        if more.broken is not None:
            self.broken = more.broken if self.broken is None else min(self.broken, more.broken)
