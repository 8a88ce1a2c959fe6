"""Steps that `step` spans without a number show, numbered as `dftrace why` does; needs NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dftrace_ai.analysis.reading import TraceSet
from dftrace_ai.analysis.steps.finding import find_steps
from dftrace_ai.analysis.steps.processes import read_job, step_thread
from dftrace_ai.analysis.steps.spans import integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.reading.trace import Trace

__all__ = ["NumberedSteps", "steps_without_number"]


class NumberedSteps(NamedTuple):
    """Steps of a process in order, of which none overlaps another.

    Attributes:
        pid: the process; None for all that are in the files.
        start_ns: where each begins, nanoseconds since 1970.
        end_ns: where it ends.
        number: counted from 0, over all steps of the process, or as torch.profiler has it.
    """

    pid: int | None
    start_ns: Integers
    end_ns: Integers
    number: Integers

    def at(self, start_ns: Integers, pid: Integers) -> Integers:
        """Return the number of the step in which each span begins; -1 for none.

        Args:
            start_ns: of the spans.
            pid: theirs.
        """
        index = np.searchsorted(self.start_ns, start_ns, side="right") - 1
        found = np.maximum(index, 0)
        inside = (index >= 0) & (start_ns < self.end_ns[found])
        if self.pid is not None:
            inside &= pid == self.pid
        return np.where(inside, self.number[found], -1)


def steps_without_number(parts: Sequence[Trace]) -> tuple[NumberedSteps, ...]:
    """Return the steps of a process that are found by spans, which do not say their number.

    Args:
        parts: its files in their order.

    Raises:
        TraceError: a file cannot be read.

    Example::

        for steps in steps_without_number(open_traces(["t.pfw"]).files):
            print(steps.number, steps.start_ns)
    """
    found = []
    for rank in read_job(TraceSet(tuple(parts))).ranks:
        process = rank.process
        tid = step_thread(process.spans)
        steps = None if tid is None else find_steps(process.spans, tid, process.pauses[1])
        if steps is None or steps.found_by != "step spans":
            continue
        marks = process.spans.of("step")
        says = [integer(marks.args(at).get("step")) is not None for at in range(len(marks))]
        silent = np.ones(len(steps.start_ns), bool)
        step = np.searchsorted(steps.end_ns, marks.start_ns[np.array(says, bool)], side="right")
        silent[step[step < len(silent)]] = False
        at = np.flatnonzero(silent)
        if len(at):
            alone = process.source == "kineto" or (process.header and process.header.run)
            pid = None if alone else process.pid
            found.append(
                NumberedSteps(pid, steps.start_ns[at], steps.end_ns[at], steps.numbers[at])
            )
    return tuple(found)
