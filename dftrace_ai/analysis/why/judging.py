"""A rank judged by itself: what its steps cost it too much, and what it shows for the others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dftrace_ai.analysis.ranks.partials import own_only
from dftrace_ai.analysis.reading.clock_faults import hours_text
from dftrace_ai.analysis.reading.stack_lines import has_samples
from dftrace_ai.analysis.robust_statistics import BatchSums
from dftrace_ai.analysis.steps import Rank, measure
from dftrace_ai.analysis.steps.measuring import STEP_PARTS, steady_of
from dftrace_ai.analysis.steps.roles import DATA_WORK
from dftrace_ai.analysis.steps.timeline import covered_within
from dftrace_ai.analysis.texts import GPU_UNSEEN
from dftrace_ai.analysis.thresholds import Abstention
from dftrace_ai.analysis.why.evidence import FEWEST_STEPS, Evidence, signals_of
from dftrace_ai.analysis.why.findings import findings_of
from dftrace_ai.analysis.why.findings.counters import (
    machine_notes,
    waiting_processors,
)
from dftrace_ai.analysis.why.findings.phases import start_notes
from dftrace_ai.analysis.why.findings.shares import is_usual_for_frameworks
from dftrace_ai.analysis.why.model import (
    Drift,
    Finding,
    FindingLine,
    NonFinite,
    NotAnnotated,
    SlowStep,
    StepFacts,
    figures_of,
)
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dftrace_ai.analysis.lines.rank_stacks import FunctionTimes
    from dftrace_ai.analysis.ranks.partials import RankPartial
    from dftrace_ai.analysis.reading.event_columns import Integers
    from dftrace_ai.analysis.steps import Part, Process, Steps
    from dftrace_ai.analysis.steps.job import Order
    from dftrace_ai.analysis.thresholds import Limits
    from dftrace_ai.analysis.why.model import Kind

SHOWN_STEPS: Final = 3
# The last of a run's steps: one of so many.
LAST_OF_STEPS: Final = 10
# Of all processors of a host so many are in use where it may be crowded.
FULL_PERCENT: Final = 90.0
# Workers make bursts of waits, a checkpoint every so often makes slow steps.
EXPLAINS: Final[dict[str, Kind]] = {
    "checkpoint": "checkpoint-bound",
    "wait": "input-bound",
    "data": "input-bound",
    "other": "other-heavy",
}
MOST_OF_IT: Final = 0.6
# Where a part of a step grew from below its limit, that it grew is the news. A wait that grew stays
# a finding of its own: what loads too slowly can be told. Parts have the names of their limits.
GREW: Final[dict[Kind, str]] = {
    "optimizer-heavy": "optimizer",
    "communication-bound": "comm",
    "transfer-bound": "transfer",
    "other-heavy": "other",
}
DRIFTS: Final[frozenset[Kind]] = frozenset({"slower-and-slower", "slower-since"})
# A scaler of losses finds its factor by those that are not finite.
GRADIENTS: Final = frozenset({"gradient", "dgrad", "wgrad"})


class _Signs(NamedTuple):
    """What a rank shows that counts for others: something of a loader, waits for one, its items."""

    loader: bool
    waits: bool
    items: bool


class _Crowd(NamedTuple):
    """A host whose processors were in use while a rank trained: from when to when, how much."""

    low_ns: int
    high_ns: int
    cpus: int
    percent: float


class _Used(NamedTuple):
    """What a process used of the processors: percent of one, by time."""

    at_ns: Integers
    percent: Integers

    def mean(self, low_ns: int, high_ns: int) -> float | None:
        inside = self.percent[(self.at_ns >= low_ns) & (self.at_ns <= high_ns)]
        return float(np.mean(inside)) if len(inside) else None


class _Mark(NamedTuple):
    """The first tensor of a process that stopped being finite, and when."""

    at_ns: int
    told: NonFinite


class OwnTime(NamedTuple):
    """What a step of a rank takes without communication, all of it and by part, nanoseconds."""

    ns: float
    parts: dict[str, float]
    comm: float


class OwnTimes(NamedTuple):
    """The same of the usual step, of the usual one of the last, and of all on average."""

    usual: OwnTime
    last: OwnTime
    mean: OwnTime


@dataclass(repr=False)
class Others:
    """What processes that are no ranks show for those that are."""

    items: bool = False  # they load items of the data
    marks: list[_Mark] = field(default_factory=list)

    def add(self, process: Process) -> None:
        """Take in a process."""
        self.items |= _has_items(process)
        mark = _first_nonfinite(process, None)
        self.marks += [mark] if mark else []

    def merge(self, others: Others) -> None:
        """Take in what others have."""
        self.items |= others.items
        self.marks += others.marks


@dataclass(frozen=True, repr=False)
class JudgedSteps:
    """What was found out of the steps of a rank.

    Findings say what the rank shows by itself, as if no other process of the job showed more.
    """

    facts: StepFacts
    sums: BatchSums
    ns: dict[Part, tuple[int, int]]
    is_short: bool
    own: OwnTimes
    abstained: tuple[Abstention, ...]
    # Beside each line whether it is of a loader, and so only told where the job has one.
    unseen: tuple[tuple[str, bool], ...]
    # The rest only of ranks with steady steps enough.
    is_judged: bool
    last_ns: int = 0  # when the last of all steps ended
    is_whole: bool = False
    findings: tuple[Finding, ...] = ()
    slowest: tuple[SlowStep, ...] = ()
    notes: tuple[str, ...] = ()
    # So many processors of its host waited for disks.
    disk_waiting: float = 0.0
    start_notes: tuple[str, ...] = ()
    # Events that were dropped, and spans without an end.
    lost: tuple[int, int] = (0, 0)
    misses_loader: bool = False
    unnamed_is_little: bool = False
    # The lines that carry its parts, and how long it is in each function; of samples of stacks.
    lines: tuple[FindingLine, ...] = ()
    functions: FunctionTimes | None = None


@dataclass(frozen=True, repr=False)
class JudgedRank:
    """What was found out of a rank by itself, in some kilobytes whatever its length.

    Those of all ranks, in any order, make up the verdict, see `verdict_of`.
    """

    order: Order
    host: str
    signs: _Signs
    used: tuple[_Used, ...]
    crowd: _Crowd | None
    steps: JudgedSteps | None
    nonfinite: _Mark | None
    # What it says for the whole job; None where it is the only rank, or has no steps.
    partial: RankPartial | None

    @property
    def number(self) -> int:
        """The number of the rank."""
        return self.order[0]


def _has_items(process: Process) -> bool:
    """Return whether a process says what it does for an item of the data."""
    return bool(process.spans.has("item").any())


def judge_rank(rank: Rank, steps: Steps | None, limits: Limits) -> JudgedRank:
    """Judge a rank by itself."""
    process, processes = rank.process, (rank.process, *rank.workers)
    return JudgedRank(
        rank.order,
        process.host,
        _Signs(
            loader=any(bool(one.spans.has("wait", "block", *DATA_WORK).any()) for one in processes),
            waits=bool(process.spans.has("wait").any()),
            items=any(map(_has_items, processes)),
        ),
        _used_of(processes),
        None if steps is None else _crowd_of(process, steps),
        None if steps is None else _judged_steps(rank, steps, limits),
        _first_nonfinite(process, steps),
        _partial_of(process, steps),
    )


def _partial_of(process: Process, steps: Steps | None) -> RankPartial | None:
    header = process.header
    if steps is None or header.rank is None or header.world_size == 1:
        return None
    # Late: most trainings are of one rank.
    from dftrace_ai.analysis.ranks.job import place_of
    from dftrace_ai.analysis.ranks.measured import partial_of

    # The job is one run, whatever its launcher calls it.
    return own_only(partial_of(process, steps, place_of(process.owner, "")))


def _first_nonfinite(process: Process, steps: Steps | None) -> _Mark | None:
    marks = process.nonfinite
    if all(name.rpartition(":")[2] in GRADIENTS for _, name in marks):
        return None
    at_ns, name = marks[0]
    step = -1 if steps is None else int(steps.within(np.array([at_ns]))[0])
    number = None if steps is None or step < 0 else int(steps.number[step])
    at_us = process.ts_us(at_ns)
    return _Mark(at_ns, NonFinite(name, process.number, number, at_us, len(marks)))


def _judged_steps(rank: Rank, steps: Steps, limits: Limits) -> JudgedSteps:
    evidence = Evidence(rank, steps, steady_of(steps), signals_of(rank, steps), limits)
    enough = len(evidence.steady) >= FEWEST_STEPS and not rank.process.clock.places
    judged = JudgedSteps(
        facts=_step_facts(evidence),
        sums=evidence.sums
        if enough
        else BatchSums.of(steps.parts, evidence.time, np.ones(len(steps), bool)),
        ns={
            part: (int(steps.parts[part].sum()), steps.hidden_ns.get(part, 0))
            for part in STEP_PARTS
        },
        is_short=evidence.is_short,
        own=_own_times(evidence),
        abstained=_abstentions(evidence, enough=enough),
        unseen=tuple(_unseen_of(evidence)),
        lost=_lost_by((rank.process, *rank.workers)),
        is_judged=enough,
        last_ns=int(steps.end_ns[-1]),
    )
    if not enough:
        return judged
    findings = [*findings_of(evidence, "always")]
    if not evidence.is_short:
        findings += findings_of(evidence, "of many steps")
        findings = explained(findings, limits)
        if not findings:
            findings += findings_of(evidence, "where nothing is found")
    lines: tuple[FindingLine, ...] = ()
    functions: FunctionTimes | None = None
    unread: list[str] = []
    if has_samples(rank.process.spans.columns):
        from dftrace_ai.analysis.lines.rank_stacks import RankStacks
        from dftrace_ai.analysis.why.carriers import all_lines, with_line

        if stacks := RankStacks.of(rank, steps, unread):
            findings = [replace(one, lines=with_line(one, evidence, stacks)) for one in findings]
            lines, functions = all_lines(stacks), stacks.functions(evidence.used)
    waits = sum(process.waits for process in (rank.process, *rank.workers))
    times = counted(waits, "time")
    told = f"threads waited {times} for a full spool; durations hold those waits"
    return replace(
        judged,
        is_whole=not evidence.is_short and not evidence.gpu_told,
        findings=tuple(findings),
        slowest=_slowest(evidence),
        notes=(
            *((told,) if waits else ()),
            *_threads_told(evidence),
            *machine_notes(evidence),
            *unread,
        ),
        disk_waiting=waiting_processors(evidence),
        # How long it was there nobody knows of a rank whose trace is torn.
        start_notes=()
        if evidence.is_short or not rank.process.is_whole
        else tuple(start_notes(evidence)),
        misses_loader=not evidence.signals.loader,
        unnamed_is_little=is_usual_for_frameworks(evidence),
        lines=lines,
        functions=functions,
    )


def _threads_told(evidence: Evidence) -> Iterable[str]:
    """Yield that other threads train as well, whose steps are not judged."""
    spans, tid = evidence.rank.process.spans, evidence.steps.tid
    train, step = (np.unique(spans.tid[spans.has(role)]) for role in ("optimizer", "step"))
    others = np.setdiff1d(np.intersect1d(train, step), [tid]).tolist()
    if others:
        said = (
            f"{counted(len(others), 'other thread')} ({', '.join(map(str, others[:SHOWN_STEPS]))})"
        )
        verb = "trains" if len(others) == 1 else "train"
        yield f"{said} of the process {verb} as well: the steps judged are those of thread {tid}"


def _own_times(evidence: Evidence) -> OwnTimes:
    steps, steady = evidence.steps, np.flatnonzero(evidence.steady.mask)
    at = (steady if len(steady) else np.arange(len(steps))).astype(np.int32)
    del steady
    last = at[-max(1, len(at) // LAST_OF_STEPS) :]

    def of(chosen: Integers, figure: Callable[[Integers], float], saving: float = 0.0) -> OwnTime:
        own = evidence.time[chosen]
        own -= steps.parts["comm"][chosen]
        own_ns = float(figure(own)) + saving
        del own
        parts: dict[str, float] = {
            part: float(figure(ns[chosen])) for part, ns in steps.parts.items()
        }
        comm = parts.pop("comm")
        parts["checkpoint"] += saving
        return OwnTime(own_ns, parts, comm)

    # On average with what it saves between steps, where the others go on to the next one and wait.
    window = steps.start_ns[:1], steps.end_ns[-1:]
    saving = covered_within(*steps.timeline.of("checkpoint"), *window)[0]
    between = max(0, int(saving - steps.parts["checkpoint"].sum())) / len(steps)
    return OwnTimes(of(at, np.median), of(last, np.median), of(at, np.mean, between))


def _used_of(processes: Sequence[Process]) -> tuple[_Used, ...]:
    """Return what a rank and its workers used; it counts its children, or each counts itself."""
    own, children = _used_by(processes[0]), _used_by(processes[0], "children")
    if not len(children.at_ns):
        return tuple(map(_used_by, processes))
    return own, children


def _used_by(process: Process, series: str = "process") -> _Used:
    none = np.zeros(0, np.int64)
    return _Used(*process.samples.series("cpu %").get(series, (none, none)))


def _crowd_of(process: Process, steps: Steps) -> _Crowd | None:
    """Return how busy the host was while a rank trained; None where it was not, or nobody says."""
    low, high = int(steps.start_ns[0]), int(steps.end_ns[-1])
    percent = _used_by(process, "system").mean(low, high)
    cpus = process.header.cpus
    if not cpus or percent is None or percent < FULL_PERCENT:
        return None
    return _Crowd(low, high, cpus, percent)


def _step_facts(evidence: Evidence) -> StepFacts:
    steps, steady = evidence.steps, evidence.steady
    used = evidence.used
    return StepFacts(
        found_by=steps.found_by,
        count=len(steps),
        steady=len(steady),
        warm_up=steady.warm_up,
        accumulation=steps.accumulation,
        median_ns=int(steady.median_ns),
        mean_ns=int(np.mean(evidence.time[used] if used.any() else evidence.time)),
        scale_ns=int(steady.scale_ns),
    )


def _slowest(evidence: Evidence) -> tuple[SlowStep, ...]:
    time = np.where(evidence.steady.mask, evidence.time, 0)
    few = min(SHOWN_STEPS, len(evidence.steady))
    # None is shorter than 1 ns.
    among = np.flatnonzero(time >= max(1, np.partition(time, len(time) - few)[-few]))
    order = among[np.argsort(-time[among], kind="stable")][:SHOWN_STEPS]
    starts, ts_us = evidence.steps.start_ns, evidence.rank.process.ts_us
    return tuple(
        SlowStep(
            *(int(evidence.steps.number[at]), ts_us(int(starts[at])), int(evidence.time[at])),
            **vars(evidence.steps.marks.beside(at)),
        )
        for at in order.tolist()
    )


def _abstentions(evidence: Evidence, *, enough: bool) -> tuple[Abstention, ...]:
    steady = counted(len(evidence.steady), "steady step")
    clock = evidence.rank.process.clock
    if clock.places:
        back = f"its times go back by {hours_text(clock.ns)}: the clock was set while it ran"
        return (Abstention("run", back),)
    if not enough:
        return (Abstention("run", f"{steady}, at least {FEWEST_STEPS} are needed"),)
    found: list[Abstention] = []
    if evidence.is_short:
        found.append(
            Abstention(
                "all but clear shares of a step",
                f"{steady}, {evidence.limits['steps'].warning:g} are needed for the rest",
            )
        )
    if evidence.gpu_told:
        found.append(Abstention("what the GPU does", evidence.gpu_told))
    if evidence.hides_comm:
        found.append(
            Abstention(
                "compute-bound",
                f"{evidence.rank.process.world_size} ranks, and no communication is annotated",
            )
        )
    return tuple(found)


def _lost_by(processes: Sequence[Process]) -> tuple[int, int]:
    return sum(one.dropped for one in processes), sum(one.unfinished for one in processes)


def _unseen_of(evidence: Evidence) -> Iterable[tuple[str, bool]]:
    """Yield what traces of a rank do not show, how to have it shown, and if it is of a loader."""
    seen, world = evidence.signals, evidence.rank.process.world_size
    wrapped = "wrap the loader in ai.dataloader.fetch.iter"
    some = " in many steps" if evidence.rank.process.spans.has("wait").any() else ""
    lines = (
        (GPU_UNSEEN, not seen.gpu, False),
        (f"the wait for data{some} ({wrapped})", not seen.loader, True),
        ("what the loader does (annotate __getitem__ with ai.data.item)", not seen.data, True),
        ("communication (ai.comm)", world > 1 and not seen.comm, False),
        ("memory (system_counters_s)", not seen.memory, False),
        (
            "evaluation, which is not told apart (ai.pipeline.evaluate)",
            not evidence.steps.told_apart,
            False,
        ),
    )
    for line, unseen, of_loader in lines:
        if unseen:
            yield line, of_loader


def explained(findings: Iterable[Finding], limits: Limits) -> list[Finding]:
    """Return the findings without those that another one explains."""
    found = list(findings)
    # By part of a step: its share at first.
    drifts = [finding for finding in found if finding.kind in DRIFTS and finding.cause]
    grown = {drift.cause: figures_of(drift, Drift)["shares"][0] for drift in drifts}

    def has_grown(finding: Finding) -> bool:
        part = GREW.get(finding.kind, "")
        return part in grown and grown[part] < limits[part].warning

    found = [finding for finding in found if not has_grown(finding)]
    beat = next((f.share for f in found if f.kind == "periodic" and f.cause == "other"), 0.0)

    def is_a_beat(finding: Finding) -> bool:
        # When it comes says more than how much it is.
        return finding.kind == "other-heavy" and beat >= MOST_OF_IT * finding.share

    found = [finding for finding in found if not is_a_beat(finding)]
    kinds = {finding.kind for finding in found}

    def is_explained(finding: Finding) -> bool:
        if finding.kind == "slow-step" and finding.cause == "checkpoint":
            return True  # saving takes its time, once as often
        # Of a change, of a beat and of bursts there are two kinds of steps, too.
        if finding.kind == "two-kinds" and kinds & {"periodic", *DRIFTS}:
            return True
        if finding.kind == "two-kinds" and finding.cause == "none":
            return "not-annotated" in kinds
        if finding.kind == "not-annotated" and figures_of(finding, NotAnnotated)["bursts"]:
            return any(one.cause == "none" and one.kind != "two-kinds" for one in found)
        patterns = {"periodic", "slow-step", "slow-loop-start", "two-kinds"}
        return finding.kind in patterns and EXPLAINS.get(finding.cause) in kinds

    return [finding for finding in found if not is_explained(finding)]


class Judged(NamedTuple):
    """Judged ranks, and what other processes show."""

    ranks: list[JudgedRank]
    others: Others

    def merge(self, other: Judged) -> None:
        """Take in what another has."""
        self.ranks.extend(other.ranks)
        self.others.merge(other.others)


def judged_of(members: Iterable[Rank | Process], limits: Limits) -> Judged:
    """Judge processes, each of which is let go of before the next is asked for."""
    judged = Judged([], Others())
    for member in members:
        if isinstance(member, Rank):
            judged.ranks.append(judge_rank(member, measure(member.process, whole=False), limits))
        else:
            judged.others.add(member)
        del member
    return judged
