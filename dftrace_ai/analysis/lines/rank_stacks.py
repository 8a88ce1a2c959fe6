"""The samples of a rank and its workers: in which part, step and item each of them lies."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.lines.carrying import (
    HOLDS_ALL,
    MODULE,
    Carrier,
    Sampled,
    Times,
    carrier_of,
    carrier_of_excess,
    loop_holders,
    own_functions,
)
from dftrace_ai.analysis.lines.stack_samples import StackReader
from dftrace_ai.analysis.reading.stack_lines import has_samples
from dftrace_ai.analysis.robust_statistics import NORMAL_975
from dftrace_ai.analysis.steps.spans import places, union
from dftrace_ai.analysis.steps.timeline import PART_CODE, PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dftrace_ai.analysis.lines.carrying import Key, NotRun, Silence
    from dftrace_ai.analysis.lines.stack_samples import StackSamples, StackTree
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part, Process, Rank, Steps
    from dftrace_ai.analysis.steps.roles import Role

WORK: Final[tuple[Role, ...]] = ("item", "collate", "io", "data")
"""Roles of work on data; reading files lies within items, as a rule."""

WAITS_IN_LOOP: Final = "the loop waits for data there, as it does wherever data comes late"

OUTSIDE: Final = -1
"""The part of samples that lie in no step, and in no span."""


# Of functions that a rank is in for less of its steps nobody asks how long the others are.
LEAST_OF_RANK: Final = 0.01


@dataclass(frozen=True, repr=False)
class RankStacks:
    """Samples of the thread that trains, and of who loads for it."""

    main: StackSamples  # those of the thread
    part: Integers  # codes of `PART_CODE` of them, or `OUTSIDE`
    step: Integers  # their places among the steps; -1 outside of all
    steps: Steps
    # Those of workers, and of this process, with the spans that are work on data.
    loading: tuple[tuple[Process, StackSamples], ...]

    @classmethod
    def of(cls, rank: Rank, steps: Steps, notes: list[str] | None = None) -> RankStacks | None:
        """Return the samples of a rank; None where its thread has none.

        What could not be read is added to `notes`.
        """
        reader = StackReader()
        loading = []
        for process in (rank.process, *rank.workers):
            columns = process.spans.columns
            if has_samples(columns):
                found = reader.read([one.trace for one in columns])
                loading += [(process, one) for one in found if one.pid == process.pid]
        if notes is not None:
            notes += reader.notes
        own = [samples for process, samples in loading if process is rank.process]
        if not own:
            return None
        main = own[0].at(own[0].tid == steps.tid)
        step = steps.within(main.at_ns)
        part = _parts_of(main.at_ns, step, steps)
        return cls(main, part, step, steps, tuple(loading))

    @property
    def tree(self) -> StackTree:
        """All stacks."""
        return self.main.tree

    @cached_property
    def holders(self) -> frozenset[Key]:
        """The functions in which the thread does all that it does: those that hold the loop."""
        inside = self.step >= 0
        stacks = [self.main.stack[inside & (self.part == code)] for code in range(len(PARTS))]
        return loop_holders(self.tree, stacks)

    def of_parts(self, *parts: Part, steps: Integers | None = None) -> Sampled:
        """Return the samples of the thread in some parts; in steps of a mask, all without it."""
        chosen = np.isin(self.part, [PART_CODE[part] for part in parts])
        if steps is not None:
            chosen &= (self.step >= 0) & steps[np.maximum(self.step, 0)]
        return self.sampled(chosen)

    def phases(self, *, once: bool = False) -> Iterator[tuple[Part | Role, Sampled]]:
        """Yield the parts of the steps that have samples, and the kinds of work on data.

        With `once` no sample is of two: of the thread that trains work on data is no phase.
        """
        for code in np.unique(self.part[self.step >= 0]).tolist():
            part = PARTS[code]
            chosen = (self.step >= 0) & (self.part == code)
            yield part, self.sampled(chosen)
        for role in WORK:
            if (sampled := self.of_work(role, beside=once)) is not None:
                yield role, sampled

    def between_steps(self) -> Sampled:
        """Return those of the thread between steps, in nothing that is annotated."""
        begun, ended = self.steps.start_ns[0], self.steps.end_ns[-1]
        chosen = (self.part == OUTSIDE) & (self.main.at_ns >= begun) & (self.main.at_ns < ended)
        return self.sampled(chosen)

    def before(self, at_ns: int) -> Sampled:
        """Return those of the thread before a moment."""
        return self.sampled(self.main.at_ns < at_ns)

    def sampled(self, chosen: Integers) -> Sampled:
        """Return some of the thread's, of a mask: those of a step belong together."""
        # What lies between two steps is a group of its own.
        behind = places(self.steps.start_ns, self.main.at_ns, right=True)
        group = np.where(self.step >= 0, 2 * self.step + 1, 2 * behind)
        return Sampled(self.main.at(chosen), group[chosen], len(self.main))

    def of_work(self, *roles: Role, least_ns: int = 0, beside: bool = False) -> Sampled | None:
        """Return the samples in work on data, by whoever loads; None without any.

        Each stretch of it belongs together; shorter ones are left out. With `beside` those of the
        thread that trains are, too.
        """
        found: list[Sampled] = []
        groups = 0
        for process, samples in self.loading:
            spans = process.spans.of(*roles)
            for tid in np.unique(spans.tid).tolist():
                if beside and (samples.pid, tid) == (self.main.pid, self.steps.tid):
                    continue
                own = spans.at(spans.tid == tid)
                own = own.at(own.end_ns - own.start_ns >= least_ns)
                start, end = union(own.start_ns, own.end_ns)
                of_thread = samples.at(samples.tid == tid)
                at = places(start, of_thread.at_ns, right=True) - 1
                inside = at >= 0
                inside[inside] = end[at[inside]] > of_thread.at_ns[inside]
                busy = of_thread.at_ns[at >= 0] < (end[-1] if len(end) else 0)
                some = of_thread.at(inside)
                found.append(Sampled(some, at[inside] + groups, int(busy.sum())))
                groups += len(start)
        return _joined(found)

    def carrier(self, sampled: Sampled | None) -> Carrier | Silence:
        """Return the line that carries samples, see `carrier_of`."""
        return "no samples" if sampled is None else carrier_of(sampled, self.holders)

    def carrier_of_wait(self, steps: Integers) -> Carrier | Silence:
        """Return the line that carries the wait for data in steps of a mask.

        That of the loop says no more than that it waits, nor does what asks workers.
        """
        found = self.carrier(self.of_parts("wait", "data", steps=steps))
        if isinstance(found, str):
            return found
        by_workers = any(process is not self.loading[0][0] for process, _ in self.loading)
        return WAITS_IN_LOOP if found.is_line or (by_workers and found.within) else found

    def carrier_of_more(self, slow: Integers, usual: Integers) -> Carrier | NotRun | Silence:
        """Return the line that has most of what slow steps take more; both are masks."""
        inside = self.step >= 0
        sampled = Sampled(self.main.at(inside), self.step[inside], len(self.main))
        times = Times(slow, usual, self.steps.time_ns)
        found = carrier_of_excess(sampled, times, self.holders)
        if not isinstance(found, Carrier) or not found.is_line:
            return found
        part = self.part[inside][slow[sampled.group]]
        waits = np.isin(part, [PART_CODE["wait"], PART_CODE["data"]])
        return WAITS_IN_LOOP if 2 * int(waits.sum()) > len(waits) else found

    def functions(self, used: Integers) -> FunctionTimes:
        """Return how long a rank was in each function of the program, in steps of a mask.

        In its own thread, and in those that load for it while they work on data. Of a torn file
        steps may be left that begin behind the last sample: these are none of them.
        """
        used = used & (self.steps.start_ns <= self.main.at_ns.max(initial=-1))
        inside = (self.step >= 0) & used[np.maximum(self.step, 0)]
        own = self.main.at(inside)
        found: dict[tuple[str, str], FunctionTime] = {}
        self._add_functions(own, found)
        if (loading := self.of_work(*WORK, beside=True)) is not None:
            step = self.steps.within(loading.samples.at_ns)
            chosen = (step >= 0) & used[np.maximum(step, 0)]
            self._add_functions(loading.samples.at(chosen), found)
        least = LEAST_OF_RANK * len(own)
        some = {called: of for called, of in found.items() if of.samples >= least}
        period_ns = float(np.median(self.main.period_ns)) if len(self.main) else 0.0
        return FunctionTimes(some, int(used.sum()), len(own), period_ns)

    def _add_functions(
        self, samples: StackSamples, found: dict[tuple[str, str], FunctionTime]
    ) -> None:
        nodes, which = np.unique(samples.stack, return_inverse=True)
        each_ns = samples.period_ns.astype(float)
        times, ns, squares = (np.bincount(which, each_ns**power) for power in range(3))
        for at, node in enumerate(nodes.tolist()):
            count = int(times[at])
            for function, (depth, line) in own_functions(self.tree, node).items():
                called = self.tree.functions[function]
                of = found.setdefault((called.name, called.file), FunctionTime())
                of.add(FunctionTime(count, float(ns[at]), float(squares[at]), depth, {line: count}))


@dataclass(repr=False)
class FunctionTime:
    """How often, and for how long, a function of the program was on the stack of a thread."""

    samples: int = 0
    ns: float = 0.0
    squares: float = 0.0  # of the times that the samples stand for
    depth: int = 0
    lines: dict[int, int] = field(default_factory=dict)

    def add(self, more: FunctionTime) -> None:
        """Take in other samples."""
        self.samples += more.samples
        self.ns += more.ns
        self.squares += more.squares
        self.depth = max(self.depth, more.depth)
        for line, count in more.lines.items():
            self.lines[line] = self.lines.get(line, 0) + count


class FunctionTimes(NamedTuple):
    """How often threads were in each function, by name and file, in so many steps."""

    functions: dict[tuple[str, str], FunctionTime]
    steps: int
    samples: int
    period_ns: float

    def merged(self, other: FunctionTimes) -> FunctionTimes:
        """Return both together: of steps of two ranks."""
        found: dict[tuple[str, str], FunctionTime] = {}
        for functions in (self.functions, other.functions):
            for called, of in functions.items():
                found.setdefault(called, FunctionTime()).add(of)
        steps, samples = self.steps + other.steps, self.samples + other.samples
        return FunctionTimes(found, steps, samples, max(self.period_ns, other.period_ns))

    def holds(self, called: tuple[str, str]) -> bool:
        """Return whether all else happens in a function: it holds the loop."""
        of = self.functions.get(called)
        return of is not None and of.samples >= HOLDS_ALL * self.samples

    def ns(self, called: tuple[str, str]) -> tuple[float, float]:
        """Return how long a function took in a step, and how far off that may be."""
        of = self.functions.get(called, FunctionTime())
        steps = max(1, self.steps)
        return of.ns / steps, NORMAL_975 * sqrt(of.squares + self.period_ns**2) / steps


class More(NamedTuple):
    """A function in which steps are longer than others are, nanoseconds of a step."""

    name: str
    file: str
    line: int
    depth: int
    own_ns: float
    others_ns: float
    low_ns: float  # what they have more, at least


def more_than(own: FunctionTimes, others: Sequence[FunctionTimes], least_ns: float) -> More | None:
    """Return the deepest function that surely takes so much longer than in most of the others."""
    found: list[More] = []
    for called, of in own.functions.items():
        if called[0] == MODULE or any(one.holds(called) for one in others):
            continue
        own_ns, error = own.ns(called)
        theirs = sorted(one.ns(called) for one in others if one.steps)
        others_ns, others_error = theirs[len(theirs) // 2] if theirs else (0.0, 0.0)
        low_ns = own_ns - others_ns - error - others_error
        if theirs and low_ns > least_ns:
            line = min(of.lines, key=lambda one: (-of.lines[one], one))
            found.append(More(*called, line, of.depth, own_ns, others_ns, low_ns))
    most_ns = max((one.low_ns for one in found), default=0.0)
    # What nobody else does says more than a helper that all of them call.
    alone = [one for one in found if not one.others_ns and 2 * one.low_ns >= most_ns]
    return max(alone or found, key=lambda one: (one.depth, one.own_ns, one.name), default=None)


def _parts_of(at_ns: Integers, step: Integers, steps: Steps) -> Integers:
    """Return in which part each moment of the thread lies; in steps what no part has is none."""
    none, outside = PART_CODE["none"], OUTSIDE
    part = np.where(step >= 0, none, outside).astype(np.int16)
    if not len(at_ns):
        return part
    for line in steps.line.lines(int(at_ns[0]), int(at_ns[-1]) + 1):
        if not len(line.start_ns):
            continue
        low = np.searchsorted(at_ns, line.start_ns[0])
        high = np.searchsorted(at_ns, line.end_ns[-1])
        moments = at_ns[low:high]
        piece = places(line.start_ns, moments, right=True) - 1
        inside = line.end_ns[piece] > moments
        part[low:high][inside] = line.part[piece[inside]]
    return part


def _joined(found: Iterable[Sampled]) -> Sampled | None:
    some = [one for one in found if len(one.samples)]
    if not some:
        return None
    first = some[0].samples
    columns = map(np.concatenate, zip(*(one.samples.columns for one in some), strict=True))
    whole = type(first)(first.pid, first.tree, *columns)
    group = np.concatenate([one.group for one in some])
    return Sampled(whole, group, sum(one.of_threads for one in some))
