"""Which line of the program carries a phase, or what some steps have more than others."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from dftrace_ai.analysis.robust_statistics import NORMAL_975, Share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai.analysis.lines.stack_samples import Frame, StackSamples, StackTree
    from dftrace_ai.analysis.reading.event_columns import Integers

FEWEST_SAMPLES: Final = 15
# The lower end of a share, of what some steps have more its part; the function that holds a loop
# is in nearly all samples, of whatever phase.
LEAST_SHARE: Final = 0.5
HOLDS_ALL: Final = 0.95
# The next function of the program is named alone where it has so much, else two with their shares.
ONE_CALLER: Final = 0.8
SECOND_CALLER: Final = 0.1
# A thread that uses so little of what it gets of a processor meanwhile waits.
MOST_WAITING_CPU: Final = 0.1
FEWEST_IN_ROW: Final = 16
MODULE: Final = "<module>"

FEWEST_GROUPS, MOST_GROUPS = 5, 20
T_OF_GROUPS: Final = 2.1


class Sampled(NamedTuple):
    """Samples of a phase, and to which span or step each belongs, in the order of time."""

    samples: StackSamples
    group: Integers
    # Of all that their threads had while they were at such work.
    of_threads: int


@dataclass(frozen=True)
class Caller:
    """A function that calls another, the line where it does, and how much of its samples it has."""

    function: str
    file: str
    line: int
    share: float


@dataclass(frozen=True)
class Carrier:
    """The line of the program that carries a phase.

    Attributes:
        function: its function; ``<module>`` for lines outside of any.
        file: that it is in, relative; empty where files are left out.
        line: the line of it that was at work most often; 0 where lines are left out.
        share: how much of the samples have the function on their stack; of what some steps have
            more than others how much of that.
        low: the lower end of the 95 % interval of that.
        high: its upper end.
        samples: of the phase.
        within: the function of a library, called from there, that has most of it; or empty.
        callers: who calls it: one with nearly all, or two.
        cpu: of the time how much the thread used a processor meanwhile; None where not known.
        waits: it used so little that it waited.
        is_line: the share is of the line, and not of all of the function, which holds the loop.
    """

    function: str
    file: str
    line: int
    share: float
    low: float
    high: float
    samples: int
    within: str = ""
    callers: tuple[Caller, ...] = ()
    cpu: float | None = None
    waits: bool = False
    is_line: bool = False


Silence: TypeAlias = str
"""Why no line is named."""

HOLDS_THE_LOOP: Final = "all of the loop lies in one line of the program, which calls a library"
NOT_LET_RUN: Final = "the machine did not let it run meanwhile"


class NotRun(NamedTuple):
    """Steps have fewer samples than their length promises: the process was not let run."""

    samples: int
    promised: int


Key: TypeAlias = "int | tuple[int, int]"
"""A function by its number; or a line of it, where no other of the program is called from there."""


@dataclass(repr=False)
class _Holders:
    """What the samples of a phase have on their stacks, by function, and by function and line."""

    count: int = 0
    deepest: dict[int, int] = field(default_factory=dict)
    lines: defaultdict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    hits: Counter[Key] = field(default_factory=Counter)
    outermost: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, tree: StackTree, stacks: Integers) -> _Holders:
        """Count the functions of the program."""
        found = cls(len(stacks))
        nodes, times = np.unique(stacks, return_counts=True)
        for node, count in zip(nodes.tolist(), times.tolist(), strict=True):
            own = own_functions(tree, node)
            for function, (depth, line) in own.items():
                found.hits[function] += count
                found.lines[function][line] += count
                found.deepest[function] = max(depth, found.deepest.get(function, 0))
            if own:
                function, (_, line) = innermost(own)
                found.hits[function, line] += count
                found.outermost[next(iter(own))] += count
        return found

    def deepest_first(self) -> list[int]:
        """Return the functions, those in the middle of stacks behind those at their end."""
        return sorted(self.deepest, key=lambda one: (-self.deepest[one], -self.hits[one], one))

    def line_of(self, function: int, *, own: bool) -> int:
        """Return the line of a function that was at work most often, the first of several.

        With `own` as the last one of the program.
        """
        lines = self.lines[function]
        times = {line: self.hits[function, line] if own else lines[line] for line in lines}
        return min(times, key=lambda line: (-times[line], line))


def own_functions(tree: StackTree, node: int) -> dict[int, tuple[int, int]]:
    """Return the functions of the program on a stack, the outermost first: depth and line.

    Of one that is there several times the innermost counts.
    """
    found: dict[int, tuple[int, int]] = {}
    for depth, frame in enumerate(tree.stack(node)):
        if not tree.functions[frame.function].is_library:
            found[frame.function] = depth, frame.line
    return found


def innermost(own: dict[int, tuple[int, int]]) -> tuple[int, tuple[int, int]]:
    """Return the last of the functions of the program on a stack, with its depth and line."""
    return max(own.items(), key=lambda one: one[1])


def loop_holders(tree: StackTree, phases: list[Integers]) -> frozenset[Key]:
    """Return the functions that are on nearly all stacks, given for each phase of a thread.

    So is a line that calls a library for all of the loop, as a trainer does.
    """
    held = [_Holders.of(tree, stacks) for stacks in phases if len(stacks) >= FEWEST_GROUPS]
    if len(held) < 2:
        return frozenset(one for first in held for one, _ in first.outermost.most_common(1))
    return frozenset(
        key for key in held[0].hits if all(one.hits[key] >= HOLDS_ALL * one.count for one in held)
    )


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share by Wilson, of samples that are independent."""
    share, square = hits / count, NORMAL_975**2
    centre = (share + square / 2 / count) / (1 + square / count)
    half = NORMAL_975 / (1 + square / count)
    half *= sqrt(share * (1 - share) / count + square / 4 / count / count)
    return max(0.0, centre - half), min(1.0, centre + half)


def _has(tree: StackTree, node: int, key: Key) -> bool:
    """Return whether a stack has a function, or ends with a line of it."""
    own = own_functions(tree, node)
    if not isinstance(key, tuple):
        return key in own
    function, (_, line) = innermost(own) if own else (None, (0, 0))
    return (function, line) == key


def _share(tree: StackTree, sampled: Sampled, key: Key) -> Share:
    """Return how many samples have a function, or line: by Wilson, or as groups of them differ."""
    stacks, which = np.unique(sampled.samples.stack, return_inverse=True)
    hits = np.array([_has(tree, node, key) for node in stacks.tolist()], bool)[which]
    count, total = len(hits), int(hits.sum())
    share = total / count
    low, high = wilson(total, count)
    _, group = np.unique(sampled.group, return_inverse=True)
    groups = int(group.max()) + 1
    if groups >= FEWEST_GROUPS:
        # Groups that follow each other are put together, and one of them left out at a time.
        number = group * min(MOST_GROUPS, groups) // groups
        of_group = np.bincount(number)
        without = (total - np.bincount(number, weights=hits))[of_group < count]
        shares = without / (count - of_group[of_group < count])
        k = len(shares)
        spread = (k - 1) / k * float(((shares - shares.mean()) ** 2).sum())
        reach = T_OF_GROUPS * sqrt(spread)
        low, high = min(low, share - reach), max(high, share + reach)
    return Share(share, max(0.0, low), min(1.0, high))


def carrier_of(sampled: Sampled, holders: frozenset[Key]) -> Carrier | Silence:
    """Return the deepest function of the program that surely holds at least half of a phase.

    Args:
        sampled: the samples of the phase.
        holders: what is on the stack whatever the thread does; of these only a line is named.
    """
    tree, stacks = sampled.samples.tree, sampled.samples.stack
    if len(stacks) < FEWEST_SAMPLES:
        return f"{len(stacks)} of at least {FEWEST_SAMPLES} samples"
    held = _Holders.of(tree, stacks)
    for function in held.deepest_first():
        if held.hits[function] < LEAST_SHARE * held.count:
            continue
        share = _share(tree, sampled, function)
        if share.low < LEAST_SHARE:
            continue
        is_line = tree.functions[function].name == MODULE or function in holders
        line = held.line_of(function, own=is_line)
        if is_line:
            share = _share(tree, sampled, (function, line))
            if share.low < LEAST_SHARE:
                break
            if (function, line) in holders:
                return HOLDS_THE_LOOP
        return _told(sampled, function, line, share, is_line=is_line)
    return "no function of the program holds half of it"


class Times(NamedTuple):
    """Steps that are compared: which, as a mask, and what each took."""

    slow: Integers
    usual: Integers
    time_ns: Integers


def carrier_of_excess(
    sampled: Sampled, times: Times, holders: frozenset[Key]
) -> Carrier | NotRun | Silence:
    """Return the deepest function that surely has half of what some steps take more than others."""
    tree = sampled.samples.tree
    slow = sampled.samples.at(times.slow[sampled.group])
    usual = sampled.samples.at(times.usual[sampled.group])
    count, usual_steps = len(slow), max(1, int(times.usual.sum()))
    whole = float(times.time_ns[times.slow].sum())
    promised = whole / float(np.median(sampled.samples.period_ns)) if len(sampled.group) else 0.0
    # Where samples are missing everywhere it is another matter.
    usually = float(times.time_ns[times.usual].sum()) / whole * promised
    if promised >= FEWEST_SAMPLES and count < promised / 2 and len(usual) >= usually / 2:
        return NotRun(count, round(promised))
    if count < FEWEST_SAMPLES:
        return f"{count} of at least {FEWEST_SAMPLES} samples"
    if let_run(slow) < let_run(usual) / 2:
        return NOT_LET_RUN
    steps = int(times.slow.sum())
    more = whole - steps * float(np.median(times.time_ns[times.usual]))
    held, before = _Holders.of(tree, slow.stack), _Holders.of(tree, usual.stack)
    period = float(np.mean(usual.period_ns)) if len(usual) else 0.0

    def part_of(key: Key) -> Share:
        usually = steps * before.hits[key] / usual_steps * period
        ends = (held.hits[key] / count, *wilson(held.hits[key], count))
        return Share(*((share * whole - usually) / more for share in ends))

    if more <= 0:
        return "no longer than usual"

    def is_everywhere(function: int) -> bool:
        called = tree.functions[function].name
        usually = bool(before.count) and before.hits[function] >= HOLDS_ALL * before.count
        return called == MODULE or function in holders or usually

    # What all steps are in, such as a function that everything calls, differs by its lines at most.
    for function in sorted(held.deepest_first(), key=is_everywhere):
        share = part_of(function)
        if share.low < LEAST_SHARE:
            continue
        is_line = is_everywhere(function)
        line = held.line_of(function, own=is_line)
        if is_line:
            share = part_of((function, line))
            if share.low < LEAST_SHARE:
                break
            if (function, line) in holders:
                return HOLDS_THE_LOOP
        bounded = Share(*(min(1.0, one) for one in share))
        chosen = times.slow[sampled.group]
        told = Sampled(slow, sampled.group[chosen], count)
        return _told(told, function, line, bounded, is_line=is_line)
    return "no function of the program has half of what they take longer"


def _told(sampled: Sampled, function: int, line: int, share: Share, *, is_line: bool) -> Carrier:
    """Return what is to be said of a function: who calls it, what it calls, whether it waits."""
    samples = sampled.samples
    tree, mine = samples.tree, np.zeros(len(samples), bool)
    below: Counter[str] = Counter()
    callers: Counter[Frame] = Counter()
    nodes, which = np.unique(samples.stack, return_inverse=True)
    times = np.bincount(which)
    for at, node in enumerate(nodes.tolist()):
        stack = tree.stack(node)
        own = own_functions(tree, node).get(function)
        if own is None or (is_line and not _has(tree, node, (function, line))):
            continue
        mine[which == at] = True
        # What records the call is nothing that the program has asked for.
        called = (tree.functions[frame.function] for frame in stack[own[0] + 1 :])
        inner = next((one for one in called if not one.is_recorder), None)
        if inner is not None and inner.is_library:
            below[inner.name] += int(times[at])
        if caller := next(_callers(tree, stack[: own[0]], function), None):
            callers[caller] += int(times[at])
    count = int(mine.sum())
    within, inside = below.most_common(1)[0] if below else ("", 0)
    cpu, most = _cpu_of(sampled, mine)
    named = tree.functions[function]
    return Carrier(
        named.name,
        named.file,
        line,
        *share,
        len(samples),
        within if 2 * inside > count else "",
        () if is_line else _named(tree, callers, count),
        cpu,
        waits=cpu is not None and cpu <= most,
        is_line=is_line,
    )


def _callers(tree: StackTree, outer: tuple[Frame, ...], function: int) -> Iterator[Frame]:
    """Yield the functions of the program around one, the next first."""
    for frame in reversed(outer):
        if frame.function != function and not tree.functions[frame.function].is_library:
            yield frame


def _named(tree: StackTree, frames: Counter[Frame], count: int) -> tuple[Caller, ...]:
    """Return who calls a function: one that nearly always does, or the two that do most."""
    by_function: Counter[int] = Counter()
    for frame, times in frames.items():
        by_function[frame.function] += times
    some = by_function.most_common(2)
    if some and some[0][1] >= ONE_CALLER * count:
        some = some[:1]
    elif len(some) < 2 or some[1][1] < SECOND_CALLER * count:
        return ()
    found = []
    for function, times in some:
        lines = {frame.line: n for frame, n in frames.items() if frame.function == function}
        line = min(lines, key=lambda one: (-lines[one], one))
        called = tree.functions[function]
        found.append(Caller(called.name, called.file, line, times / count))
    return tuple(found)


def _cpu_of(sampled: Sampled, mine: Integers) -> tuple[float | None, float]:
    """Return how much of a processor was used in some samples, and up to what they waited.

    What was used since the sample before is of the function alone where both are in it, in one
    span or step. Where too few are, the time may hold what else the thread does: then it waits
    only if much less was used than the function would by itself. Who waits for a processor, as on a
    busy machine, uses little without waiting for anything else.
    """
    samples, group = sampled.samples, sampled.group
    inside = mine.copy()
    inside[1:] &= mine[:-1] & (group[1:] == group[:-1])
    inside[1:] &= samples.at_ns[1:] - samples.since_ns[1:] == samples.at_ns[:-1]
    inside[:1] = False
    # Few of many follow each other where the machine did not let it run.
    if 2 * int(inside.sum()) >= max(FEWEST_IN_ROW, int(mine.sum())):
        chosen = samples.at(inside)
        return _cpu(chosen), MOST_WAITING_CPU * let_run(chosen)
    part = int(mine.sum()) / max(1, sampled.of_threads)
    chosen = samples.at(mine)
    return _cpu(chosen), min(MOST_WAITING_CPU * let_run(chosen), part / 2)


def let_run(samples: StackSamples) -> float:
    """Return of the time in which threads could run how much they did; 1 where unknown."""
    known = (samples.cpu_ns >= 0) & (samples.ready_ns >= 0)
    ran, ready = (int(column[known].sum()) for column in (samples.cpu_ns, samples.ready_ns))
    return ran / (ran + ready) if ran + ready else 1.0


def _cpu(samples: StackSamples) -> float | None:
    """Return how much of the time before samples their threads used a processor."""
    known = (samples.cpu_ns >= 0) & (samples.since_ns > 0)
    since = int(samples.since_ns[known].sum())
    return min(1.0, int(samples.cpu_ns[known].sum()) / since) if since else None
