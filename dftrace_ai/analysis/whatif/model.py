"""What `dftrace whatif` says of a job, as values; their JSON is `schemas/whatif.schema.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

from dftrace_ai.analysis.ranks.model import Excess  # noqa: TC001 - as above
from dftrace_ai.analysis.thresholds import Severity  # noqa: TC001 - pydantic evaluates it
from dftrace_ai.trace_format.running import RunningProcess  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = 1

CauseKind = Literal[
    "none", "worker", "node", "stage", "stage or worker", "split", "data", "pauses",
    "garbage collection", "jitter", "communication", "bubble", "several", "abstained",
]  # fmt: skip
"""Why the work is uneven: whose it is, or what kind of work; or that a pipeline fills and drains,
which costs more than that."""

Form = Literal["operations", "host"]
"""What traces are of: of operations with communication beside them, each begun when what it needs
was there; or of a host that launches collectives within its spans and waits for them somewhere."""

Reason = Literal[
    "one rank", "few steps", "no collectives", "clocks", "circle", "replay", "negative transfers",
    "structure", "enqueued", "unlike work",
]  # fmt: skip
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)

DEFAULT_LIMITS: Final[Mapping[str, float]] = {
    "slowdown": 1.05,  # less has no cause
    "jitter": 1.15,  # less by turns has none
    "share": 0.5,  # what a cause recovers at least
    "replay": 0.02,  # how far the graph may be off
    "replay_most": 0.05,
    "steps": 20,
}


@dataclass(frozen=True)
class Unjudged:
    """Why nothing is said.

    Attributes:
        what: the reason.
        figure: how much of it: steps there are, the error of the replay, the share of transfers
            that are negative or of steps that differ, how often even work would take the time of
            the run; 0 where there is none.
        names: the operations of a circle, hosts whose clocks are not joined, or steps.
        why: it in a sentence.
    """

    what: Reason
    figure: float = 0.0
    names: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Cause:
    """What the slowdown comes from.

    Attributes:
        kind: what it is.
        share: how much of the slowdown goes with it.
        ranks: who, of a worker, a node, a stage of one rank, or half of all; where even work gains
            little, who alone has most of it.
        hosts: which, of a node.
        stages: which are slower than the others, of a stage.
        kinds: of communication: the kind and ranks of one link that alone makes half of it, or
            which kinds of it, the dearest first.
        correlation: how much forward and backward of one micro-batch go together, the median
            over ranks; null where they are not to be told.
        since: the number of the step from which on a worker, node or stage is slow; null where it
            was from the beginning.
        excess: in what the ranks of a worker or node work longer, one or two spans.
        in_bursts: they do so in few of the steps.
        once: the number of the step in which they do most of that; null for none.
        without: how many times as fast the run would be if they did as little as the others, as
            far as there are any; even work has what they do more dealt out to all.
    """

    kind: CauseKind
    share: float = 0.0
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()
    kinds: tuple[str, ...] = ()
    correlation: float | None = None
    since: int | None = None
    excess: tuple[Excess, ...] = ()
    in_bursts: bool = False
    once: int | None = None
    without: float | None = None


@dataclass(frozen=True)
class Bubble:
    """What a pipeline waits while it fills and drains.

    Attributes:
        stages: how many it has.
        passes: how many forward passes each makes in a step.
        share: of a step with even work, how much every rank waits for it.
    """

    stages: int
    passes: int
    share: float


@dataclass(frozen=True)
class Shares:
    """How much of the slowdown goes, with each change alone.

    Attributes:
        few: the few ranks with most work of their own do it as the others of their stage.
        rank: all ranks do.
        stage: stages have the same work.
        within: on a rank each operation takes always the same.
        comm: communication takes what it usually does.
        both: the last two together, which is all that differs from step to step.
    """

    few: float
    rank: float
    stage: float
    within: float
    comm: float
    both: float


@dataclass(frozen=True)
class Figures:
    """What one rank, host, stage or kind of work does to the time of the run.

    Attributes:
        slowdown: how much slower it alone makes a run of even work.
        recovered: how much of what the run loses goes when it is made even.
        without: how much less time the run would take if its work took what the others' takes;
            null where there are no others.
    """

    slowdown: float
    recovered: float | None = None
    without: float | None = None


@dataclass(frozen=True)
class StepFigures:
    """A judged step.

    Attributes:
        step: its number.
        measured_ns: what it took.
        ideal_ns: what it would take with even work.
        slowdown: of the replay.
        late: the rank that works most in it, without waiting.
    """

    step: int
    measured_ns: int
    ideal_ns: int
    slowdown: float
    late: int


@dataclass(frozen=True)
class Without:
    """What was asked by ``--without``.

    Attributes:
        asked: dimension and value, as ``{"rank": "17"}``; all of them together.
        ranks: whose work it is.
        ratio: how much less time the run would take.
        saved_ns: what a step would take less.
    """

    asked: tuple[tuple[str, str], ...]
    ranks: tuple[int, ...]
    ratio: float
    saved_ns: int


@dataclass(frozen=True)
class StepsJudged:
    """The steps that the graph is made of.

    Attributes:
        common: steps of the rank that has the fewest.
        judged: of these, the ones that are in the graph.
        stretches: in so many stretches of steps that follow each other, evenly over the run.
        alone: each step begins anew, as those that a profiler took now and then.
        first: number of the first.
        last: number of the last.
        odd: so many are left out, since other operations are done in them.
        once: likewise a step or two in which a rank was late once, which the cause is not of.
        once_rank: that rank.
    """

    common: int
    judged: int
    stretches: int
    alone: bool
    first: int
    last: int
    odd: int = 0
    once: tuple[int, ...] = ()
    once_rank: int | None = None


@dataclass(frozen=True)
class WhatIf:
    """How fast a job would be with even work.

    Attributes:
        slowdown: how much slower it is than with even work; null where nothing is said.
        cause: what that comes from.
        bubble: what a pipeline waits even so; null where there is none.
        shares: what each change alone would bring; null where nothing is lost or said.
        form: what the traces are of.
        steps: which are judged; null where there are none.
        ranks: how many.
        operations: how many the graph has.
        measured_ns: what a step took.
        replay_ns: what it takes in the graph with the times that were measured.
        replay_error: by how much of the measured time that differs.
        ideal_ns: what it takes with even work.
        by_rank: by number.
        by_host: by name.
        by_stage: by number.
        by_dimension: by dimension of the layout, and coordinate in it.
        by_kind: by category and name, with the direction or group of communication.
        per_step: each judged step.
        without: what was asked, each by itself.
        together: all of that at once; null for one or none.
        in_turn: where several are late in every step, whom the run would be faster without, the
            latest first: each together with those before it.
        waste_gpu_hours: what all ranks together lose in all their steps.
        negative_transfers: communication that ended before it could have begun.
        transfers: communication in all.
        unmatched: calls that met nobody; their time is work.
        abstained: why nothing is said.
        limits: that were held against.
        severity: how much the slowdown costs; null where it has no cause.
        what: it in a sentence.
        next: what to try.
        unseen: what the traces do not show.
        notes: what a reader has to know beside.
        running: processes that had not written all of their events when their traces were read.
    """

    slowdown: float | None = None
    cause: Cause = Cause("abstained")
    bubble: Bubble | None = None
    shares: Shares | None = None
    form: Form | None = None
    steps: StepsJudged | None = None
    ranks: int = 0
    operations: int = 0
    measured_ns: int = 0
    replay_ns: int = 0
    replay_error: float | None = None
    ideal_ns: int = 0
    by_rank: dict[int, Figures] = field(default_factory=dict)
    by_host: dict[str, Figures] = field(default_factory=dict)
    by_stage: dict[int, Figures] = field(default_factory=dict)
    by_dimension: dict[str, dict[int, Figures]] = field(default_factory=dict)
    by_kind: dict[str, Figures] = field(default_factory=dict)
    per_step: tuple[StepFigures, ...] = ()
    without: tuple[Without, ...] = ()
    together: Without | None = None
    in_turn: tuple[Without, ...] = ()
    waste_gpu_hours: float = 0.0
    negative_transfers: int = 0
    transfers: int = 0
    unmatched: int = 0
    abstained: tuple[Unjudged, ...] = ()
    limits: dict[str, float] = field(default_factory=lambda: dict(DEFAULT_LIMITS))
    severity: Severity | None = None
    what: str = ""
    next: str = ""
    unseen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    running: tuple[RunningProcess, ...] = ()
    kind: Literal["dftrace whatif"] = "dftrace whatif"
    format: Literal[1] = FORMAT
