"""The run as a graph: how long it takes with the times that were measured, and with any others.

The first step of a stretch is its run-in: in the graph all ranks begin it at once, as they did not.
From its end on time is counted, in the graph as in what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.whatif.graph import CircleError
from dftrace_ai.analysis.whatif.host import host_operations
from dftrace_ai.analysis.whatif.operations import Operations, Weighed, weigh
from dftrace_ai.analysis.whatif.pipelines import are_of_operations, pipeline_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.whatif.gathering import Gathered

# So many fit into the caches.
VARIANTS_AT_ONCE: Final = 8


class StepTimes(NamedTuple):
    """Steps that are counted, by their index; and what each took."""

    step: Integers
    time_ns: Integers


@dataclass(frozen=True, repr=False)
class Run:
    """A run as operations in a graph."""

    gathered: Gathered  # what it was made of
    operations: Operations  # all of them
    weighed: Weighed  # the graph, and what each takes
    counted: int  # how many steps are
    measured_ns: int  # what these took together
    replay_ns: int  # what they take in the graph
    alone: bool  # each step begins anew
    _last: _Rows  # operations before no others
    _run_in: _Rows | None  # those of the first step of each stretch

    @classmethod
    def of(
        cls, gathered: Gathered, operations: Operations, uncertainty_ns: int, *, alone: bool
    ) -> Run:
        """Make the graph of operations."""
        if alone and gathered.stretches < len(gathered.numbers):
            operations = _steps_alone(operations)
        weighed = weigh(operations, uncertainty_ns)
        last = np.ones(len(operations), bool)
        last[operations.before] = False
        stretch = operations.stretch_of[operations.step]
        run_in = None if alone else _rows(_is_first(operations)[operations.step], stretch)
        made = cls(
            gathered=gathered,
            operations=operations,
            weighed=weighed,
            counted=len(gathered.numbers) - (0 if alone else gathered.stretches),
            measured_ns=0,
            replay_ns=0,
            alone=alone,
            _last=_rows(last, stretch),
            _run_in=run_in,
        )
        measured = int(made.measured_steps().time_ns.sum())
        return replace(made, measured_ns=measured, replay_ns=made.time_ns(weighed.times))

    @property
    def error(self) -> float:
        """By how much of the measured time the replay differs from it."""
        return self.replay_ns / max(self.measured_ns, 1) - 1

    def time_ns(self, times: Integers) -> int:
        """Return what the counted steps take together when operations take so long."""
        return self.times_ns([times])[0]

    def times_ns(
        self,
        variants: Iterable[Integers],
        progress: Callable[[int], None] | None = None,
    ) -> list[int]:
        """Return what the counted steps take, for each of several times of operations."""
        found: list[int] = []
        some: list[Integers] = []

        def work_out() -> None:
            rows = self._last.rows
            if self._run_in is not None:
                rows = np.concatenate((rows, self._run_in.rows))
            columns = np.stack(some, axis=1)
            some.clear()
            ends = self.weighed.graph.ends(columns, rows)
            total = self._last.latest(ends[: len(self._last.rows)]).sum(0)
            if self._run_in is not None:
                total = total - self._run_in.latest(ends[len(self._last.rows) :]).sum(0)
            found.extend(total.tolist())
            if progress is not None:
                progress(len(found))

        for times in variants:
            some.append(times)
            if len(some) == VARIANTS_AT_ONCE:
                work_out()
        if some:
            work_out()
        return found

    def step_times(self, times: Integers) -> StepTimes:
        """Return what each counted step takes when operations take so long."""
        one = self.operations
        ends = self.weighed.graph.ends(times[:, None])[:, 0]
        last = np.zeros(len(one.stretch_of), np.int64)
        np.maximum.at(last, one.step, ends)
        return self._differences(last)

    def measured_steps(self) -> StepTimes:
        """Return what each counted step took."""
        one = self.gathered
        offset = one.steps.chain * one.axis_ns
        ends = np.zeros(len(one.numbers), np.int64)
        np.maximum.at(ends, one.step, one.steps.end - offset)
        if not self.alone:
            return self._differences(ends)
        begins = np.full(len(ends), np.iinfo(np.int64).max)
        np.minimum.at(begins, one.step, one.steps.at - offset)
        return StepTimes(np.arange(len(ends)), ends - begins)

    def _differences(self, ends: Integers) -> StepTimes:
        """Return what steps take that end then: each from the end of that before it."""
        if self.alone:
            return StepTimes(np.arange(len(ends)), ends)
        later = np.flatnonzero(~_is_first(self.operations))
        return StepTimes(later, ends[later] - ends[later - 1])


class _Rows(NamedTuple):
    """Some operations, stretch by stretch."""

    rows: Integers
    first: Integers  # where those of each stretch begin

    def latest(self, ends: Integers) -> Integers:
        """Return the last end of each stretch, ``(stretches, variants)``."""
        found: Integers = np.maximum.reduceat(ends, self.first, axis=0)
        return found


def _rows(some: Integers, stretch: Integers) -> _Rows:
    rows = np.flatnonzero(some)
    rows = rows[np.argsort(stretch[rows], kind="stable")]
    return _Rows(rows, np.unique(stretch[rows], return_index=True)[1])


def _is_first(operations: Operations) -> Integers:
    """Return which steps are the first of their stretch."""
    return np.concatenate(([True], np.diff(operations.stretch_of) != 0))


def best_run(gathered: Gathered, uncertainty_ns: int, near: float) -> Run:
    """Return the run as a graph, in the form that its traces have."""
    alone = gathered.stretches == len(gathered.numbers)
    tried: list[Run] = []
    circle: CircleError | None = None
    forms = [(host_operations, alone)]
    if are_of_operations(gathered):
        forms[:0] = [(pipeline_operations, each) for each in dict.fromkeys((alone, True))]
    for operations_of, each in forms:
        try:
            run = Run.of(gathered, operations_of(gathered), uncertainty_ns, alone=each)
        except CircleError as error:
            circle = circle or error
            continue
        if abs(run.error) <= near:
            return run
        tried.append(run)
    if circle is not None and not tried:
        raise circle
    return min(tried, key=lambda run: abs(run.error))


def odd_steps(run: Run) -> Integers:
    """Return which steps of which ranks have other operations than is usual, ``(ranks, steps)``."""
    one = run.operations
    ranks, steps = len(run.gathered.places), len(one.stretch_of)
    # Pieces of a host's thread are cut by waiting and differ anyway: communication is counted.
    counted = one.is_comm if one.form == "host" else np.ones(len(one), bool)
    odd = np.zeros((ranks, steps), bool)
    at = one.rank * steps + one.step
    for kind in np.unique(one.kind[counted]).tolist():
        some = counted & (one.kind == kind)
        count = np.bincount(at[some], minlength=ranks * steps).reshape(ranks, steps)
        usual = np.sort(count, axis=1)[:, steps // 2]
        odd |= count != usual[:, None]
    return odd


def _steps_alone(operations: Operations) -> Operations:
    same = operations.step[operations.before] == operations.step[operations.after]
    return replace(
        operations,
        before=operations.before[same],
        after=operations.after[same],
        stretch_of=np.arange(len(operations.stretch_of)),
    )
