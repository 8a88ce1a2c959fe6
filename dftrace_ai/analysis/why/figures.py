"""The figures behind findings, of one type for the rule that gives and the sentence that reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, TypeVar, cast

if TYPE_CHECKING:
    from dftrace_ai.analysis.steps import Part
    from dftrace_ai.analysis.why.model import Confidence, Finding, ShareOf
    from dftrace_ai.trace_format.json_types import JsonObject

__all__ = [
    "Also",
    "Between",
    "Checkpoints",
    "Communication",
    "Drift",
    "DriftSince",
    "Evaluations",
    "Input",
    "LoopStart",
    "Memory",
    "NoFigures",
    "NotAnnotated",
    "Optimizer",
    "Others",
    "Rhythm",
    "SlowItem",
    "SlowSpan",
    "SlowSteps",
    "SpanShare",
    "StartUp",
    "TwoKinds",
    "WarmUp",
    "figures_of",
]

F = TypeVar("F")


def figures_of(finding: Finding, _: type[F]) -> F:
    """Return the figures behind a finding, whose kind has those of this type."""
    return cast("F", finding.evidence)


class NoFigures(TypedDict):
    """Nothing but the share itself."""


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
    args: JsonObject


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


class Communication(TypedDict, total=False):
    """Of the waiting for other ranks."""

    late_ranks: list[int]


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
    """Of evaluation; by the mode of the model where nothing else told of most of it."""

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
    # So many steps hold most of it, where the usual step holds little; 0 where it does.
    bursts: int
