"""What a rank's steps are judged by: which of them count, and which signals its spans give."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dftrace_ai.analysis.endings import ends_early
from dftrace_ai.analysis.ranks.partials import GARBAGE
from dftrace_ai.analysis.robust_statistics import BatchSums, Share, binomial_tail
from dftrace_ai.analysis.steps.measuring import STEP_PARTS, usual_distance
from dftrace_ai.analysis.steps.roles import DATA_WORK
from dftrace_ai.analysis.steps.spans import union
from dftrace_ai.analysis.steps.timeline import PART_CODE, PIECES_AT_ONCE, covered_within
from dftrace_ai.analysis.steps.torn import is_by_auto
from dftrace_ai.analysis.thresholds import severity
from dftrace_ai.analysis.why.model import Finding
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part, Rank, Steps
    from dftrace_ai.analysis.steps.measuring import Steady
    from dftrace_ai.analysis.steps.timeline import Timeline
    from dftrace_ai.analysis.thresholds import Confidence, Limit, Limits
    from dftrace_ai.analysis.why.model import Figures, Kind, ShareOf, SpanShare

FEWEST_STEPS: Final = 3
NS_A_MS: Final = 1e6

# Of the other work those spans are named that have most of it.
NAMED_SPANS: Final = 3
LEAST_NAMED: Final = 0.02


# Of a model in evaluation mode, or without gradients, as `auto` names its forward passes.
EVAL_FORWARD: Final = ("compute", "forward.eval")

# Loops after the first of them; so many steps of a loop are looked at, and of it at most this part.
LEAST_LOOPS: Final = 2
MOST_FIRST_STEPS, MOST_OF_LOOP = 50, 0.5
# A slow first step takes so much of a usual one longer.
LEAST_LONGER: Final = 0.5
MOST_BY_CHANCE: Final = 1e-3


@dataclass(frozen=True)
class Signals:
    """What the spans of a rank show."""

    loader: bool  # waits for most steps
    forward: bool  # forward passes, or computation, for most steps
    backward: bool  # backward passes, or computation, for most steps
    optimizer: bool  # optimizer steps for most steps
    comm: bool  # any communication
    gpu: bool  # tracks of a GPU
    data: bool  # any span of data work
    memory: bool  # counters of memory
    by_auto: bool  # steps that `auto` has recorded, and so all that it knows of them


def signals_of(rank: Rank, steps: Steps) -> Signals:
    """Tell what the spans of a rank show."""
    spans = rank.process.spans

    def mostly(*roles: Any) -> bool:
        return int(spans.has(*roles).sum()) >= 0.9 * len(steps)

    processes = (rank.process, *rank.workers)
    # Operations that Kineto sees in every program are those of a forward where a backward is told.
    whole = mostly("compute") and (rank.process.source != "kineto" or mostly("backward"))
    return Signals(
        loader=mostly("wait"),
        forward=mostly("forward") or whole,
        backward=mostly("backward") or whole,
        optimizer=mostly("optimizer"),
        comm=bool(spans.has("comm", "gpu_comm").any()),
        gpu=bool(spans.has("gpu_compute", "gpu_comm", "gpu_transfer").any()),
        data=any(bool(process.spans.has(*DATA_WORK).any()) for process in processes),
        memory=any("memory" in name.lower() for name in rank.process.samples.names),
        by_auto=is_by_auto(steps.thread),
    )


# However fast a GPU is, it has something to do in nearly every step that needs one.
MOST_ON_GPU: Final = 0.9


@dataclass(frozen=True, repr=False)
class Evidence:
    """A rank's steps as the rules look at them; there is at least one steady step."""

    rank: Rank  # the rank, with its workers
    steps: Steps  # its steps
    steady: Steady  # which of them are steady
    signals: Signals  # what its spans show
    limits: Limits  # from which shares on something is a finding

    @cached_property
    def time(self) -> Integers:
        """What each step took, nanoseconds; at least one."""
        time = self.steps.time_ns
        return time if (time > 0).all() else np.maximum(time, 1)

    @property
    def is_short(self) -> bool:
        """There are too few steps for more than their shares."""
        return len(self.steady) < self.limits["steps"].warning

    def bound_ns(self, name: str) -> float:
        """Return a limit that is in milliseconds, as nanoseconds."""
        return self.limits[name].warning * NS_A_MS

    @property
    def slow_ns(self) -> float:
        """Beyond this a step is odd."""
        return self.steady.median_ns + max(8 * self.steady.scale_ns, 2 * self.steady.median_ns)

    @property
    def calmed(self) -> Integers:
        """The time of steps; the first of a loop waits as long as the others."""
        return self._calmed(slice(None))

    def _calmed(self, which: Integers | slice) -> Integers:
        wait = self.steps.parts["wait"]
        usual = float(np.median(wait[self.steady.mask]))
        longer = np.maximum(wait[which] - usual, 0)
        return self.time[which] - np.where(self.steps.first[which], longer, 0)

    @cached_property
    def beginnings(self) -> Beginnings:
        """The slow first steps of loops."""
        return _beginnings_of(self.steps, self.steady, self.limits["rhythm"].warning)

    @cached_property
    def single(self) -> Integers:
        """The steady steps that are none of the slow first ones of every loop, as a mask."""
        return self.steady.mask & ~self.beginnings.members

    @cached_property
    def evaluations(self) -> tuple[Integers, Integers]:
        """Starts and ends of evaluation, annotated or told by forward passes that learn nothing."""
        more = _untold_evaluations(self.steps)
        told = self.steps.evaluation
        return union(np.concatenate([told[0], more[0]]), np.concatenate([told[1], more[1]]))

    @cached_property
    def apart(self) -> tuple[Integers, Integers]:
        """Starts and ends of what is no training: evaluation, and when nothing was recorded."""
        told, pauses = self.evaluations, self.rank.process.pauses
        return union(np.concatenate([told[0], pauses[0]]), np.concatenate([told[1], pauses[1]]))

    @cached_property
    def isolated(self) -> Integers:
        """Single slow steps, as a mask; none where they are more than a few."""
        bound = max(self.slow_ns, self.steady.median_ns + self.bound_ns("slow-step-ms"))
        found = self.time > bound
        found[: self.steady.warm_up] = False
        # A last step that broke is not slow.
        found[-1] &= not ends_early(self.rank.process.owner)
        found &= ~self.beginnings.members
        found[found] = self._calmed(np.flatnonzero(found)) > bound
        few = found.sum() <= max(2, 0.02 * len(self.steps))
        return found if few else np.zeros(len(found), bool)

    @cached_property
    def used(self) -> Integers:
        """The steady steps without the odd ones, which shares are of, as a mask."""
        if self.is_short:
            return self.steady.mask
        mask = self.single if self.single.any() else self.steady.mask
        slow = mask & (self.time > self.slow_ns)
        odd = slow if slow.sum() <= max(1, 0.02 * mask.sum()) else self.isolated
        return mask & ~odd

    @cached_property
    def sums(self) -> BatchSums:
        """What the parts of the used steps add up to."""
        return BatchSums.of(self.steps.parts, self.time, self.used)

    @cached_property
    def _others(self) -> Timeline:
        """Other work of the steps, without what a span has to itself that is around a whole one."""
        steps, whole = self.steps, self.steps.timeline
        line = whole.only((whole.part == PART_CODE["other"]) & (whole.span >= 0))
        step = steps.within(line.start_ns)
        at = np.maximum(step, 0)
        around = steps.thread.start_ns[line.span] <= steps.start_ns[at]
        around &= steps.thread.end_ns[line.span] >= steps.end_ns[at]
        return line.only((step >= 0) & ~around)

    @cached_property
    def other_ns(self) -> Integers:
        """What other work took in each step, nanoseconds."""
        if self.rank.process.source != "annotated":
            return self.steps.parts["other"]
        line, steps = self._others, self.steps
        if not len(line.span):
            return np.broadcast_to(np.int64(0), len(steps))
        inside = covered_within(line.start_ns, line.end_ns, steps.start_ns, steps.end_ns)
        return np.minimum(inside, steps.parts["other"])

    @property
    def unnamed_ns(self) -> Integers:
        """What of each step is in no span, or only in one around all of it; nanoseconds."""
        unnamed = self.steps.time_of("none", "other")
        unnamed -= self.other_ns
        return unnamed

    @cached_property
    def garbage_ns(self) -> Integers:
        """How long Python's garbage was collected in each step, in whatever span that lies."""
        spans, steps = self.rank.process.spans, self.steps
        some = spans.at(spans.called(*GARBAGE.split("/")))
        return covered_within(*union(some.start_ns, some.end_ns), steps.start_ns, steps.end_ns)

    @property
    def longest_others(self) -> list[SpanShare]:
        """Which spans have most of the other work, with their share of all steps."""
        line = self._others
        return self.longest_spans(line, line.end_ns - line.start_ns, float(self.time.sum()))

    def longest_spans(self, line: Timeline, ns: Integers, whole: float) -> list[SpanShare]:
        """Return which spans have most of the times of some pieces, with their share of a whole."""
        times = self.steps.thread.time_by_label(line.span, ns)
        longest = sorted(times, key=lambda label: -times[label])[:NAMED_SPANS]
        return [
            {"cat": label.cat, "name": label.name, "share": times[label] / whole}
            for label in longest
            if times[label] >= LEAST_NAMED * whole
        ]

    @property
    def confidence(self) -> Confidence:
        """How sure shares are."""
        if self.is_short:
            return "low"
        many = self.limits["steps"].critical
        return "high" if many is not None and self.used.sum() >= many else "medium"

    @cached_property
    def gpu_told(self) -> str:
        """Where what was recorded of a GPU cannot be all, what is told of it; else empty."""
        process = self.rank.process
        if not self.signals.gpu:
            # A profiler writes what the GPU did behind what the host did.
            lost = process.source == "kineto" and not process.is_whole
            return "the profile is torn, and has no event of a GPU in what is left" if lost else ""
        spans = process.spans
        kernels = spans.has("gpu_compute")
        count = int(kernels.sum())
        if not count:
            return "no kernel among GPU events: the profiler has lost them, or nothing is computed"
        timeless = int((spans.end_ns[kernels] <= spans.start_ns[kernels]).sum())
        if timeless > (1 - MOST_ON_GPU) * count:
            return (
                f"{timeless:,} of {counted(count, 'kernel')} last 0 ns: how long they took is lost"
            )
        seen, used = self.steps.on_gpu, self.used if self.used.any() else self.steady.mask
        if not seen.any():
            return "GPU events in no step: their clock is not the host's, or the GPU was not used"
        if np.mean(seen[used] if used.any() else seen) >= MOST_ON_GPU:
            return ""
        return (
            f"GPU events in {int(seen.sum()):,} of {counted(len(seen), 'step')}: the profiler has "
            "lost them, or the GPU was not used"
        )

    @property
    def hides_comm(self) -> bool:
        """There are other ranks, and nothing shows the communication with them."""
        return self.rank.process.world_size > 1 and not self.signals.comm

    @cached_property
    def wall_ns(self) -> int:
        """From the first event of the process to its last, nanoseconds, without pauses."""
        return max(1, self._recorded_ns(self.first_ns, self.last_ns))

    @cached_property
    def first_ns(self) -> int:
        """When the first span of the process began."""
        return int(self.rank.process.spans.start_ns.min())

    @cached_property
    def last_ns(self) -> int:
        """When the last span of the process, or the last step, ended."""
        return max(int(self.rank.process.spans.end_ns.max()), int(self.steps.end_ns[-1]))

    @cached_property
    def training_ns(self) -> int:
        """From the beginning of the first step to the end of the last one, without pauses."""
        return max(1, self._recorded_ns(int(self.steps.start_ns[0]), int(self.steps.end_ns[-1])))

    def _recorded_ns(self, first_ns: int, last_ns: int) -> int:
        """Return the time from one moment to another in which was recorded."""
        window = np.array([first_ns]), np.array([last_ns])
        return last_ns - first_ns - int(covered_within(*self.rank.process.pauses, *window)[0])

    @property
    def steps_share(self) -> float:
        """Share of the training that is in the steps which shares are of."""
        return float(self.time[self.used].sum()) / self.training_ns

    @cached_property
    def beside_steps(self) -> Timeline:
        """The pieces of the timeline that do not lie within a step."""
        steps, line = self.steps, self.steps.timeline
        beside = [np.zeros(0, np.int64)]
        for first in range(0, len(line.span), PIECES_AT_ONCE):
            some = line.only(slice(first, first + PIECES_AT_ONCE))
            step = np.searchsorted(steps.start_ns, some.start_ns, side="right") - 1
            within = (step >= 0) & (some.end_ns <= steps.end_ns[np.maximum(step, 0)])
            beside.append(first + np.flatnonzero(~within))
        return line.only(np.concatenate(beside))

    @cached_property
    def between(self) -> float:
        """Share of the training that is in no span between steps, or the wait for first ones."""
        steps, line = self.steps, self.beside_steps
        taken = union(
            np.concatenate([line.start_ns, self.apart[0]]),
            np.concatenate([line.end_ns, self.apart[1]]),
        )
        low, high = np.maximum.accumulate(steps.end_ns[:-1]), steps.start_ns[1:]
        apart = high > low
        low, high = low[apart], high[apart]
        gaps = int((high - low - covered_within(*taken, low, high)).sum())
        return (gaps + float((self.time - self.calmed).sum())) / self.training_ns

    def medians(self, chosen: Any) -> dict[Part, float]:
        """Return the median of each part over some of the steps."""
        parts = self.steps.parts
        return {part: float(np.median(parts[part][chosen])) for part in STEP_PARTS}

    def part_that_grew(self, after: Any, before: Any, parts: Iterable[Part] = STEP_PARTS) -> Part:
        """Return the part whose median differs most between some steps and others."""
        with_it, without = self.medians(after), self.medians(before)
        return max(parts, key=lambda part: with_it[part] - without[part])

    def part_in_excess(self, slow: Any) -> Part:
        """Return the part that has most of what some steps take more than steady ones."""
        usual, parts = self.medians(self.steady.mask), self.steps.parts

        def excess(part: Part) -> float:
            return float(np.maximum(parts[part][slow] - usual[part], 0).sum())

        return max(usual, key=excess)

    def finding(
        self,
        kind: Kind,
        limit: Limit,
        share: Share | float,
        figures: Figures,
        *,
        share_of: ShareOf = "steps",
        cause: str = "",
        confidence: Confidence = "high",
        lost: float = 0.0,
    ) -> Finding | None:
        """Return a finding; None where the lower end of its share does not reach the limit."""
        told = share if isinstance(share, Share) else Share(share, share, share)
        found = severity(limit, told.low)
        if found is None:
            return None
        # What grew has cost what it grew by on the way, and memory costs no time yet.
        costs = {"steps": told.share * self.steps_share, "growth": lost}
        cost = costs.get(share_of, told.share)
        return Finding(
            *(kind, cause, found, confidence),
            *told,
            *(share_of, round(cost, 6)),
            evidence=figures,
        )


@dataclass(frozen=True, repr=False)
class Beginnings:
    """The first steps of loops, as far as they are slow in each of them."""

    begins: Integers  # which steps are the first of their loops
    steps: int  # so many first steps of a loop are slow in what is no wait for data; 0 for none
    waits: int  # so many are in the wait for data; 0 for none
    members: Integers  # the slow steps of all loops that do not wait, as a mask


def _beginnings_of(steps: Steps, steady: Steady, share_of_loops: float) -> Beginnings:
    """Tell how many steps at the beginning of each loop are slow."""
    begins = np.flatnonzero(steps.first)
    body = steps.time_ns - steps.time_of("wait", "data")
    length = _slow_first_steps(body, begins, steady, share_of_loops)
    members = first_steps(begins, length, len(steps))
    if length:
        members &= body > _bound(body, steady)
    del body
    waits = _slow_first_steps(steps.time_of("wait", "data"), begins, steady, share_of_loops)
    return Beginnings(begins, length, waits, members)


def _bound(values: Integers, steady: Steady) -> float:
    chosen = values[steady.mask]
    median = float(np.median(chosen, overwrite_input=True))
    spread = 1.4826 * usual_distance(chosen, median)
    return median + max(4 * spread, LEAST_LONGER * median, 1.0)


def _slow_first_steps(
    values: Integers, begins: Integers, steady: Steady, share_of_loops: float
) -> int:
    later = begins[begins > 0]
    if len(later) < LEAST_LOOPS or not steady.mask.any():
        return 0
    ends = np.append(begins[1:], len(values))[begins > 0]
    slow = values > _bound(values, steady)
    most = int(min(MOST_FIRST_STEPS, max(1.0, MOST_OF_LOOP * float(np.median(ends - later)))))
    length = hits = chances = 0
    for offset in range(most):
        at = (later + offset)[later + offset < ends]
        if len(at) < max(LEAST_LOOPS, share_of_loops * len(later)):
            break
        if slow[at].mean() < share_of_loops:
            break
        length, hits, chances = offset + 1, hits + int(slow[at].sum()), chances + len(at)
    rest = steady.mask & ~first_steps(begins, length, len(values))
    # One more of each, so that what was never seen is not impossible.
    likely = (float(slow[rest].sum()) + 1) / (float(rest.sum()) + 2)
    by_chance = binomial_tail(hits, chances, likely) * most
    return length if length and by_chance < MOST_BY_CHANCE else 0


def first_steps(begins: Integers, length: int, count: int) -> Integers:
    """Return the mask of the first steps of loops."""
    mask = np.zeros(count, bool)
    ends = np.append(begins[1:], count)
    for offset in range(length):
        mask[(begins + offset)[begins + offset < ends]] = True
    return mask


def _untold_evaluations(steps: Steps) -> tuple[Integers, Integers]:
    """Return the stretches between steps from the first to the last forward in evaluation mode."""
    thread = steps.thread
    spans = thread.at(thread.called(*EVAL_FORWARD))
    step = np.searchsorted(steps.start_ns, spans.start_ns, side="right") - 1
    outside = spans.start_ns >= steps.end_ns[np.maximum(step, 0)]
    outside &= step >= 0
    spans, step = spans.at(outside), step[outside]
    if not len(spans):
        return spans.start_ns, spans.end_ns
    gaps, begins = np.unique(step, return_index=True)
    ends = np.maximum.reduceat(spans.end_ns, begins)
    # Where something learns as well it is a part of the training.
    learning = np.sort(thread.start_ns[thread.has("backward", "optimizer")])
    after = np.append(steps.start_ns[1:], np.iinfo(np.int64).max)[gaps]
    learns = np.searchsorted(learning, after) > np.searchsorted(learning, steps.end_ns[gaps])
    return spans.start_ns[begins][~learns], np.minimum(ends, after)[~learns]


def at_once(lives: Iterable[tuple[int, int]]) -> int:
    """Return how many lived at the same time at most."""
    moments = sorted(moment for a, b in lives for moment in ((a, 1), (b, -1)))
    now = most = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most
