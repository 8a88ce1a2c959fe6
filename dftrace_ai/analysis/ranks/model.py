"""What `dftrace ranks` says of a job, its limits and figures; JSON: `schemas/ranks.schema.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

from dftrace_ai.analysis.thresholds import (
    Abstention,
    Confidence,
    Limit,
    Limits,
    Severity,
    changed_limits,
)
from dftrace_ai.trace_format.running import RunningProcess  # noqa: TC001 - pydantic evaluates it

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FORMAT: Final = 1

Kind = Literal[
    "stage", "stage or worker", "node", "worker", "bursts",
    "split", "pauses", "data", "jitter", "once", "bubble", "link", "memory",
]  # fmt: skip
"""What can be found: who is late all the time or in bursts, be it half of them; or what makes now
one late and now another: pauses, uneven data, and neither; who was late once; a pipeline that fills
and drains; a slow link, and memory of which a rank has more."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

Turn = Literal["persistent", "since", "bursts", "rotating", "once"]
"""When ranks are late: all the time; since a step; in few steps the same one; by turns; once."""

LIMITS: Final[Limits] = {
    # What an engineer would act on.
    "cost": Limit(0.05, 0.15),
    # Of a thousand ranks that differ by 2 % at random the last one costs 6 to 9 %.
    "rotating": Limit(0.10, 0.25),
    "link": Limit(0.03, 0.15),
    # This is no share: so many steps are needed, and so many for high confidence.
    "steps": Limit(20, 50),
}


def limits_of(changes: Iterable[str]) -> Limits:
    """Return the limits with some of them changed.

    Args:
        changes: such as ``cost=0.05,0.15``: the name, from where on it is a warning, and, where it
            is given, from where on it is critical.

    Raises:
        ConfigError: there is no such limit, or it is none.
    """
    return changed_limits(LIMITS, changes)


@dataclass(frozen=True)
class Excess:
    """What ranks do longer than the others in a step.

    Attributes:
        name: in spans of which category and name.
        ns: so much longer.
        part: of all that they do longer.
        usual_part: what spans of the name are of all that comparable ranks do.
    """

    name: str
    ns: int
    part: float
    usual_part: float = 0.0


# A slow machine makes all spans longer. It is none where the other ones have less than so much of
# what that would give them, and are so much of the work that this says something.
OF_A_MACHINE: Final = 0.5
FEWEST_OTHERS: Final = 0.1


def is_in_one_span(excess: Sequence[Excess]) -> bool:
    """Return whether something is longer in spans of one name, and not in all as they are long."""
    if not excess:
        return False
    others = 1 - excess[0].usual_part
    return others >= FEWEST_OTHERS and 1 - excess[0].part < OF_A_MACHINE * others


def bubble_share(stages: int, passes: int) -> float:
    """Return which share of a step ranks wait while a pipeline fills and drains.

    Args:
        stages: how many there are, each on other ranks.
        passes: micro-batches of a step; of a schedule that interleaves, times the chunks of a rank.
    """
    # Narayanan and others, https://arxiv.org/abs/2104.04473, 2.2, of all the time.
    return (stages - 1) / (passes + stages - 1)


@dataclass(frozen=True)
class Waiting:
    """How long others wait, and where most.

    Attributes:
        name: of the call; empty where that is not known.
        group: its process group, likewise.
        ns: how long the one in the middle of them waits a step, wherever: the usual one, of bursts
            and once on average over all.
        part: how much of all that they wait for those ranks they do in such calls.
    """

    name: str
    group: str
    ns: int
    part: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """The figures behind a finding; which of them there are depends on its kind.

    Attributes:
        step_ns: the usual step, of the rank that takes longest.
        excess: in which spans something is longer, one or two.
        waited_in: how long the others wait for its ranks, and where most.
        scale_ns: how far apart ranks usually are.
        steps: how many steps it is in, of bursts and pauses; of once, one or two.
        step_numbers: the first of these; of once, the longest.
        beside: of who is late as a rule, the steps that are told as once, which none of its figures
            is of.
        beside_ranks: likewise ranks that are late by something else: its cost and how often it is
            last are as if these were as all others are.
        beside_turns: likewise whether they are as if nobody were late by turns.
        ranks_hit: how many ranks were last in one of them.
        mostly: of jitter and uneven data, the rank that was last in most steps by far; None where
            it was now this one and now that.
        correlation: of forward and backward.
        ranks_of_host: the most ranks that one host has.
        cpus: the processors of that host, where these are fewer.
        stages: of the bubble of a pipeline, how many it has.
        passes: likewise how many forward passes each makes in a step.
        beyond: likewise which share of the time even whoever works longest waits beyond it.
        varies: whether how much longer its ranks work differs much from step to step.
        collective: of a link, what takes long.
        group: likewise its process group.
        transfer_ns: likewise how long it usually takes.
        usual_ns: likewise how long others of its kind do.
        peak_bytes: the most memory of its ranks.
        usual_bytes: that of comparable ranks.
    """

    step_ns: int = 0
    excess: tuple[Excess, ...] = ()
    waited_in: Waiting | None = None
    scale_ns: int | None = None
    steps: int | None = None
    step_numbers: tuple[int, ...] = ()
    beside: tuple[int, ...] = ()
    beside_ranks: tuple[int, ...] = ()
    beside_turns: bool = False
    ranks_hit: int | None = None
    mostly: int | None = None
    correlation: float | None = None
    ranks_of_host: int | None = None
    cpus: int | None = None
    stages: int | None = None
    passes: int | None = None
    beyond: float | None = None
    varies: bool = False
    collective: str | None = None
    group: str | None = None
    transfer_ns: int | None = None
    usual_ns: int | None = None
    peak_bytes: int | None = None
    usual_bytes: int | None = None


@dataclass(frozen=True)
class Finding:
    """Who is late, or what makes ranks late, and what it costs.

    Attributes:
        kind: what it is.
        turn: when.
        ranks: who is late; of a link whom it joins; empty where nobody in particular is.
        hosts: of a slow node, which.
        stages: of a slow stage, which.
        since: number of the step from which on; None for all the time.
        severity: how much it costs, by the limits.
        confidence: how sure it is.
        cost: share of the time that the job would win without it.
        low: lower end of the 95 % interval of that, which is held against the limits.
        last_share: in which share of the steps one of them did most work of its own.
        late_ns: how much longer that usually was than the others', nanoseconds a step.
        name: the span that most of it is in, category and name; ``not annotated`` for none; empty
            where it is in none in particular.
        name_part: how much of it is in that.
        without: how many times as fast the job would be without it.
        evidence: the figures behind it.
        what: it in a sentence.
        next: what to try.
    """

    kind: Kind
    turn: Turn
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    stages: tuple[int, ...]
    since: int | None
    severity: Severity
    confidence: Confidence
    cost: float
    low: float
    last_share: float
    late_ns: int
    name: str
    name_part: float
    without: float
    evidence: Evidence
    what: str = ""
    next: str = ""


@dataclass(frozen=True)
class RanksSeen:
    """Which ranks there are.

    Attributes:
        world: how many the job has, as it tells itself; of one that does not, those that are seen.
        seen: how many have a trace.
        missing: which have none.
    """

    world: int
    seen: int
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class StepsSeen:
    """Which steps were judged.

    Attributes:
        common: how many all ranks have.
        steady: of these, those that are judged.
        median_ns: what these usually took on the rank that took longest.
    """

    common: int
    steady: int
    median_ns: int


@dataclass(frozen=True)
class Offset:
    """How the clock of a host stands to that of the reference.

    Attributes:
        ns: by how much it is ahead, nanoseconds.
        ppm: millionths that it gains.
        state: whether an estimate is known, bounds alone, or nothing.
        told: how well it is known, or why it is not.
        typical_ns: by so much the estimate is usually off, nanoseconds; None for no estimate.
        certain_ns: by so much it is off at most; None where that is not known.
        shared: collectives in common with the host that it was compared with.
        jumps_ns: by how much it was set while it ran, each time.
    """

    ns: int
    ppm: float
    state: Literal["reference", "calibrated", "bounded", "not calibrated"]
    told: str
    typical_ns: int | None
    certain_ns: int | None
    shared: int
    jumps_ns: tuple[int, ...]


@dataclass(frozen=True)
class ClocksSeen:
    """How far clocks of hosts agree, by collectives that their ranks leave together.

    Attributes:
        hosts: how many there are.
        uncertainty_ns: so far they agree, nanoseconds; None where they could not be compared.
        offsets: by host.
        unjoined: hosts whose clock could not be compared with the others'.
    """

    hosts: int
    uncertainty_ns: int | None
    offsets: dict[str, Offset] = field(default_factory=dict)
    unjoined: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quantiles:
    """The median, and what 95 of 100 are below."""

    p50: int
    p95: int


@dataclass(frozen=True)
class RankShare:
    """A rank, and how often it was that."""

    rank: int
    share: float


@dataclass(frozen=True)
class CollectiveRow:
    """Collectives or messages of one name and group, or of groups alike.

    Attributes:
        name: such as ``all_reduce``.
        group: name of the process group; of several alike, of the first.
        description: what torch calls it.
        ranks: members of a group.
        groups: how many groups alike there are.
        across: whether members are on several hosts.
        count: how many there were.
        bytes: what the usual one moves.
        transfer_ns: what one took when all were there; None where no ends are known.
        wait_ns: what a member waited for the last; likewise.
        wait_share: share of the steps in which ranks wait in them.
        last: who came last, by the waiting that it made.
        root: on whom those waited that came last, likewise.
        imposed_ns_per_step: what the others would win if the last came with the last but one; None
            where not all leave together, or no ends are known.
        algbw_gbs: bytes by time, GB/s; None where they are too short to tell.
        busbw_gbs: the same by what goes over a link.
        uneven: of an all_to_all, the most that a member has by the mean, usually.
    """

    name: str
    group: str
    description: str
    ranks: tuple[int, ...]
    groups: int
    across: bool
    count: int
    bytes: int | None
    transfer_ns: Quantiles | None
    wait_ns: Quantiles | None
    wait_share: float
    last: tuple[RankShare, ...]
    root: tuple[RankShare, ...]
    imposed_ns_per_step: int | None
    algbw_gbs: float | None
    busbw_gbs: float | None
    uneven: float | None = None


@dataclass(frozen=True)
class NameScore:
    """What spans of a name take a rank of its own work, and how that scores.

    Attributes:
        own_ns: nanoseconds a step, the median.
        relative: the least of comparable ranks, by its own.
        individual: its own best window of steps, by its own.
    """

    own_ns: int
    relative: float
    individual: float


@dataclass(frozen=True)
class RankRow:
    """A rank.

    Attributes:
        rank: its number.
        host: where it runs.
        layout: its number in each dimension.
        own_ns: work of its own a step, the median.
        wait_ns: how long it is blocked by others a step, the median.
        last_share: in which share of the steps it did most work of its own.
        late_ns: how much longer that usually was than the others'; below 0 where it was less.
        relative: the least own work of comparable ranks, by its own.
        individual: its own best window of steps, by its own.
        names: the same by span.
    """

    rank: int
    host: str
    layout: dict[str, int]
    own_ns: int
    wait_ns: int
    last_share: float
    late_ns: int
    relative: float
    individual: float
    names: dict[str, NameScore] = field(default_factory=dict)


@dataclass(frozen=True)
class Unmatched:
    """What was left out: calls that no others belong to; and where times contradict each other."""

    collectives: int = 0
    messages: int = 0
    broken: int = 0


@dataclass(frozen=True)
class RanksVerdict:
    """What the ranks of a job say of each other.

    Attributes:
        verdict: the kind of the first finding; ``none`` when nobody is late, ``abstained`` when
            there is too little to say that.
        ranks: which there are.
        steps: which were judged.
        clocks: how far those of hosts agree.
        findings: who is late, the dearest first.
        slowest: the rank whose absence would win most, and what; None where that is not known.
        collectives: where ranks met.
        by_rank: all of them.
        unmatched: what of collectives and messages is left out.
        abstained: what is not said.
        unseen: what the traces do not show.
        notes: what a reader has to know beside.
        limits: by name from where on something is a warning, and from where on critical.
        running: processes that had not written all of their events when their traces were read.
    """

    verdict: Kind | Literal["none", "abstained"]
    ranks: RanksSeen
    steps: StepsSeen
    clocks: ClocksSeen
    findings: tuple[Finding, ...] = ()
    slowest: RankShare | None = None
    collectives: tuple[CollectiveRow, ...] = ()
    by_rank: tuple[RankRow, ...] = ()
    unmatched: Unmatched = Unmatched()
    abstained: tuple[Abstention, ...] = ()
    unseen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    limits: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    running: tuple[RunningProcess, ...] = ()
    kind: Literal["dftrace ranks"] = "dftrace ranks"
    format: Literal[1] = FORMAT
