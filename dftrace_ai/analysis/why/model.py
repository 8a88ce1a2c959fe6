"""What `dftrace why` says of a run, its limits and figures; JSON: `schemas/why.schema.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    TypedDict,
    TypeVar,
    cast,
    get_args,
)

from dftrace_ai.analysis.lines.carrying import Carrier  # noqa: TC001 - pydantic needs it
from dftrace_ai.analysis.thresholds import (
    Abstention,
    Confidence,
    Limit,
    Limits,
    Severity,
    changed_limits,
)
from dftrace_ai.trace_format.running import RunningProcess  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import TypeAdapter

    from dftrace_ai.analysis.steps import Part
    from dftrace_ai.trace_format.json_types import Json

Kind = Literal[
    "late-rank",
    "input-bound", "communication-bound", "transfer-bound", "checkpoint-bound", "optimizer-heavy",
    "other-heavy", "periodic", "slower-and-slower", "slower-since", "two-kinds",
    "evaluation-heavy", "start-up-heavy", "slow-warm-up", "slow-loop-start", "slow-step",
    "between-steps", "memory-creep", "host-bound", "not-annotated", "compute-bound",
]  # fmt: skip
"""What can be found, the more special before the more general."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

ShareOf = Literal["steps", "training", "run", "growth"]
"""What a share is of: the time of the steady steps; the time from the first step to the last; that
of the whole run; or it is by how much something grew, of what it was."""

START_UP: Final = "start-up"
"""The cause of `input-bound` that is no share of steps: what passes cost to begin."""

FORMAT: Final = 1


@dataclass(frozen=True)
class LateRank:
    """A rank that the others wait for.

    Attributes:
        rank: its number.
        part: the part of its steps that takes most more than it takes the others.
        ns: what that takes in a step.
        others_ns: what it takes the others, the median.
    """

    rank: int
    part: str
    ns: int
    others_ns: int


@dataclass(frozen=True)
class FindingLine:
    """The line of the program that carries something, by samples of Python's stacks.

    Attributes:
        phase: what it carries: the samples of a part of steps, of work on data, or what some steps
            take more than others.
        text: it in a sentence; empty where no line is named.
        carrier: the line; None where none is named.
        silence: why none is; or empty.
    """

    phase: str
    text: str = ""
    carrier: Carrier | None = None
    silence: str = ""


if TYPE_CHECKING:

    class Figures(TypedDict):
        """Those behind a finding: each kind has a type of its own below."""

else:
    Figures = dict  # the schema says no more of them


@dataclass(frozen=True)
class Finding:
    """Something that costs the training time or memory.

    Attributes:
        kind: what it is.
        cause: why, of `input-bound`; of `late-rank` what `dftrace ranks` calls it; else the part
            of a step where it is, or empty.
        severity: how much it costs, by the limits.
        confidence: how sure it is.
        share: what it costs, of what `share_of` says; for `memory-creep` and the slower ones the
            growth.
        low: the lower end of the 95 % interval of that, which is held against the limits.
        high: its upper end. Both are the share itself where it is counted and not estimated.
        share_of: what the share is of.
        cost: what it costs of the time from the first step to the last, by which findings of one
            severity are in order; 0 where it costs none yet.
        what: it in a sentence.
        because: what shows the cause; empty where nothing does.
        next: what to try.
        evidence: the figures behind the sentences, times in nanoseconds.
        ranks: whose it is; none where processes say no rank, or the same one, which `what` names.
        rank: of which of them its figures are: the one in the middle; None where there are none.
        of_ranks: the least share and the greatest among its ranks; None for `late-rank`.
        late_ranks: of `late-rank` its ranks, with the part of their steps that takes longest.
        lines: the line of the program that carries it, or why none is named; none at all where
            the traces hold no samples of stacks, or no line can.
    """

    kind: Kind
    cause: str
    severity: Severity
    confidence: Confidence
    share: float
    low: float
    high: float
    share_of: ShareOf
    cost: float = 0.0
    what: str = ""
    because: str = ""
    next: str = ""
    evidence: Figures = field(default_factory=Figures)
    ranks: tuple[int, ...] = ()
    rank: int | None = 0
    of_ranks: tuple[float, float] | None = None
    late_ranks: tuple[LateRank, ...] = ()
    lines: tuple[FindingLine, ...] = ()


@dataclass(frozen=True)
class PluginFinding:
    """What another package has found, see `dftrace_ai.analysis.why.JudgedRun`.

    Attributes:
        what: it in a sentence.
        severity: how much it costs; ``--fail-on`` goes by it.
        confidence: how sure it is.
        because: what shows the cause; empty where nothing does.
        next: what to try; or empty.
        evidence: the figures behind the sentences, as JSON has them.
        name: that of the entry point. This and `package` are filled in; what is given is dropped.
        package: the distribution that brings it, with its version.
    """

    what: str
    severity: Severity = "warning"
    confidence: Confidence = "medium"
    because: str = ""
    next: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    package: str = ""


@dataclass(frozen=True)
class StepFacts:
    """The steps that were judged.

    Attributes:
        found_by: how they were found.
        count: steps in all.
        steady: of these, the ones that are judged.
        warm_up: steps before the steady ones.
        accumulation: micro-batches in a step.
        median_ns: of the steady ones.
        mean_ns: of those that shares are of.
        scale_ns: how much they usually differ from the median.
    """

    found_by: str
    count: int
    steady: int
    warm_up: int
    accumulation: int
    median_ns: int
    mean_ns: int
    scale_ns: int


@dataclass(frozen=True)
class PartTime:
    """A part of the steps.

    Attributes:
        share: of the time of the steady steps.
        low: lower end of its 95 % interval.
        high: upper end.
        ns: in all steps, nanoseconds.
        hidden_ns: spent in such spans by other threads and the GPU meanwhile.
    """

    share: float
    low: float
    high: float
    ns: int
    hidden_ns: int = 0


@dataclass(frozen=True)
class SlowStep:
    """A step.

    Attributes:
        step: its number in the order of time, from 0, or that which torch.profiler gave it.
        at_us: where it begins, microseconds, as ``ts`` of the trace's lines.
        ns: how long it took.
        rss_bytes: memory of the process: the greatest sample in the step, or else the last before
            it; None where nothing was sampled.
        device_bytes: the same of what torch holds on its GPUs.
        nonfinite: how many tensors stopped being finite in it.
        nonfinite_tensor: layer and tensor of the first of these; None without any.
    """

    step: int
    at_us: float
    ns: int
    rss_bytes: int | None = None
    device_bytes: int | None = None
    nonfinite: int = 0
    nonfinite_tensor: str | None = None


@dataclass(frozen=True)
class NonFinite:
    """The first tensor of a run that stopped being finite, as tensor inspection marked it.

    Attributes:
        tensor: its layer and name.
        rank: where it was; None where processes say no rank, or the same one.
        step: number of the step in which it was; None where it was in none.
        at_us: when, microseconds, as ``ts`` of the trace's lines.
        marks: how often a tensor of that rank stopped being finite, this one included.
    """

    tensor: str
    rank: int | None
    step: int | None
    at_us: float
    marks: int


@dataclass(frozen=True)
class Verdict:
    """What a run says of itself.

    Attributes:
        verdict: the kind of the first finding; ``none`` when nothing stands out,
            ``abstained`` when there is too little to say that.
        rank: whose steps are shown, with their parts and the slowest of them; of those for which
            the verdict holds the one in the middle, of which the figures of the first finding are;
            None where several processes say no rank, or the same one, as a note says.
        ranks: how many ranks were judged.
        steps: the steps; None where none were found.
        parts: their parts.
        findings: what stands out, the most important first.
        of_some_ranks: what stands out on fewer than half of the ranks.
        slowest: the slowest steady steps.
        abstained: what is not said.
        unseen: what the trace does not show.
        notes: what a reader has to know beside.
        limits: by name from where on something is a warning, and from where on critical; and the
            bounds that are no shares.
        began_at: the first moment of all events, as ISO 8601 has it, in UTC; None where traces do
            not say from when on they count.
        length_ns: from then to the last moment; None without events.
        running: processes that had not written all of their events when their traces were read.
        nonfinite: the first tensor that stopped being finite; None where none did but gradients,
            as those do by which a scaler of losses finds its factor.
        lines: the lines that carry the parts of the steps of `rank`, and the work of its loader,
            that of most samples first; none without samples of stacks.
        of_plugins: what other packages have found.
    """

    verdict: Kind | Literal["none", "abstained"]
    rank: int | None = 0
    ranks: int = 0
    steps: StepFacts | None = None
    parts: dict[str, PartTime] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    of_some_ranks: tuple[Finding, ...] = ()
    slowest: tuple[SlowStep, ...] = ()
    abstained: tuple[Abstention, ...] = ()
    unseen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    limits: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    began_at: str | None = None
    length_ns: int | None = None
    running: tuple[RunningProcess, ...] = ()
    nonfinite: NonFinite | None = None
    lines: tuple[FindingLine, ...] = ()
    of_plugins: tuple[PluginFinding, ...] = ()
    kind: Literal["dftrace why"] = "dftrace why"
    format: Literal[1] = FORMAT


def verdict_adapter() -> TypeAdapter[Verdict]:
    """Return what checks verdicts and makes their schema."""
    from pydantic import TypeAdapter

    return TypeAdapter(Verdict)


LIMITS: Final[Limits] = {
    "input": Limit(0.10, 0.25),
    "comm": Limit(0.10, 0.25),
    "transfer": Limit(0.10, 0.25),
    "checkpoint": Limit(0.05, 0.20),
    "optimizer": Limit(0.60, 0.80),
    "other": Limit(0.15, 0.30),
    "host": Limit(0.15, 0.30),
    "not-annotated": Limit(0.20, 0.40),
    "evaluation": Limit(0.25, 0.50),
    "start-up": Limit(0.20, 0.50),
    "warm-up": Limit(0.10, 0.30),
    "loop-start": Limit(0.05, 0.20),
    "between": Limit(0.20, 0.40),
    "slower": Limit(0.20, 0.50),
    "periodic": Limit(0.05, None),
    "two-kinds": Limit(0.15, None),
    "compute": Limit(0.70, None),
    "slow-step": Limit(0.01, None),
    "memory": Limit(0.05, None),
    # These are no shares. What a busy machine did to runs with which nothing was wrong: stalls,
    # first steps and beginnings of a quarter of a second, and slow spells of some tenths. A run
    # of less than a minute is a try, whose start says nothing of a longer one's. Some milliseconds
    # are what frameworks do for each step.
    "slow-step-ms": Limit(250, None),
    "warm-up-ms": Limit(300, None),
    "start-up-ms": Limit(500, None),
    "start-up-run-s": Limit(60, None),
    "loops-ms": Limit(250, None),
    "not-annotated-ms": Limit(5, None),
    "slower-ms": Limit(500, None),
    "memory-mb": Limit(64, None),
    "rhythm": Limit(0.8, None),
    "steps": Limit(20, 50),
}
"""From where on each finding is a warning, and critical, where nobody says otherwise."""


def limits_of(changes: Iterable[str]) -> Limits:
    """Return the limits with some of them changed.

    Args:
        changes: such as ``input=0.1,0.25``: the name, from where on it is a warning,
            and, where it is given, from where on it is critical; or ``slow-step-ms=100``.

    Raises:
        ConfigError: there is no such limit, or it is none.

    Example::

        assert limits_of(["comm=0.05"])["comm"].warning == 0.05
    """
    return changed_limits(LIMITS, changes)


F = TypeVar("F")


def figures_of(finding: Finding, _: type[F]) -> F:
    """Return the figures behind a finding, whose kind has those of this type."""
    return cast("F", finding.evidence)


class Lateness(TypedDict):
    """Of ranks that the others wait for, as `dftrace ranks` has it."""

    turn: str
    hosts: list[str]
    stages: list[int]
    since: int | None
    late_ns: int
    last_share: float
    without: float
    name: str
    name_part: float
    longer_ns: int
    waits_ns: int
    explains: float
    beside_ranks: list[int]
    beside_turns: bool


class SpanShare(TypedDict):
    """What spans of a name take of the whole."""

    cat: str
    name: str
    share: float


class SlowSpan(TypedDict):
    """A span that took long."""

    cat: str
    name: str
    at_us: float
    ns: int


class SlowItem(TypedDict):
    """An item of the data that took long."""

    at_us: float
    ns: int
    args: dict[str, Json]


class Also(TypedDict):
    """Another cause of the waiting, beside the dearer one."""

    cause: str
    share: float
    low: float
    high: float
    share_of: ShareOf
    confidence: Confidence


class Input(TypedDict, total=False):
    """Of the waiting for data; which of them there are depends on the cause."""

    also: Also
    # Beginnings of passes over the loader.
    loops: int
    passes: int
    workers_started: int
    by_workers: bool
    first_batch_ns: int
    ns: int
    # Slow items.
    items: int
    median_ns: int
    longest_ns: int
    longest: list[SlowItem]
    # Workers, and what they do.
    workers: int
    items_told: bool
    thread_busy: float
    busy: float
    batches_a_step: int
    batch_ns: int
    rest_ns: int
    needed: int
    cores: int | None
    ranks_of_host: int
    take_over_ns: int


class Checkpoints(TypedDict):
    """Of saving."""

    times: int
    ns: int


class Optimizer(TypedDict):
    """Of the optimizer; how many other ranks it may wait for unseen."""

    ranks_unseen: int


class Others(TypedDict):
    """Of other work, and which spans have most of it."""

    spans: list[SpanShare]


class Rhythm(TypedDict):
    """Of steps that are slow at equal distances."""

    every: int
    times: int
    extra_ns: int
    untold_evaluation: bool
    garbage: bool  # most of it is collecting Python's, in whatever span that lies


class Drift(TypedDict):
    """Of steps that got slower: the part's shares at first and last, and which parts grew."""

    shares: list[float]
    parts: list[Part]
    alike: bool


class DriftSince(Drift):
    """The same, since a step."""

    step: int
    at_us: float


class TwoKinds(TypedDict):
    """Of steps of two kinds: what each usually takes, and how many of all are of the slow one."""

    fast_ns: int
    slow_ns: int
    slow_share: float


class Evaluations(TypedDict):
    """Of evaluation; by forward passes without learning where nothing else told of most of it."""

    times: int
    ns: int
    by_mode: bool


class StartUp(TypedDict):
    """Of the time before the second step."""

    ns: int


class WarmUp(TypedDict):
    """Of the first steps of a run."""

    steps: int
    ns: int


class LoopStart(TypedDict):
    """Of the first steps of every loop."""

    steps: int
    loops: int
    times: float
    ns: int


class SlowSteps(TypedDict):
    """Of single slow steps, and the longest span of the slowest."""

    steps: list[int]
    at_us: list[float]
    span: SlowSpan | None
    untold_evaluation: bool


class Between(TypedDict):
    """Of the time between steps: in how many places most of it is, and whether behind each step.

    Where nothing tells of the loader's workers they may end and start in it.
    """

    times: int
    each: bool
    ns: int
    spans: list[SpanShare]
    workers_unseen: bool
    untold_evaluation: bool


class Memory(TypedDict):
    """Of memory that grows."""

    bytes_a_second: int
    grown_bytes: int
    level_bytes: int
    full_in_s: int | None


class NotAnnotated(TypedDict):
    """Of time in no span: what is not annotated; or whether `auto` has recorded all it knows."""

    lacking: list[str]
    by_auto: bool
    # In so much of it another thread of the program communicates, for which the loop may wait.
    beside_comm: float
    # So many steps hold most of it, where the usual step holds little; 0 where it does.
    bursts: int
