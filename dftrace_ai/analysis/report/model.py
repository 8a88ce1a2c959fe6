"""What a report shows, as values; their JSON is `schemas/report.schema.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from dftrace_ai.analysis.report.sections import ReportSection  # noqa: TC001 - the same
from dftrace_ai.analysis.summary.report import Report  # noqa: TC001 - pydantic evaluates it
from dftrace_ai.analysis.why.model import Verdict  # noqa: TC001 - pydantic evaluates it

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True)
class Envelope:
    """Values in their order, several of which may be put together; none is averaged away.

    Attributes:
        first: where the first of each group is.
        last: where its last one is.
        low: the least finite value of each group; null where none is finite.
        middle: the median of these.
        high: the greatest.
        non_finite: how many of each group are NaN or infinite.
    """

    first: list[float]
    last: list[float]
    low: list[float | None]
    middle: list[float | None]
    high: list[float | None]
    non_finite: list[int]


@dataclass(frozen=True)
class CounterLine:
    """A number over the time of a process, in seconds since the first event."""

    process: str
    samples: int
    values: Envelope


@dataclass(frozen=True)
class CounterChart:
    """One number of one counter.

    Attributes:
        counter: name of the counter.
        key: name of the number.
        lines: of processes.
        lines_left_out: processes whose lines are not shown.
    """

    counter: str
    key: str
    lines: list[CounterLine]
    lines_left_out: int


@dataclass(frozen=True)
class HeatMap:
    """A statistic of a kind of tensor: a row for each layer, a column for one or more iterations.

    Or what ranks took, a row for each or for some that follow each other, a column for one or more
    steps. Where several values come into one cell (iterations, ranks) it has the one that is
    farthest from zero, and before all others one that is not finite.

    Attributes:
        statistic: its name.
        tensor: which tensor of the layers; empty of ranks.
        layers: the rows.
        first: first iteration of each column.
        last: its last iteration.
        values: by row and column; null where there is nothing, texts for NaN and infinities.
        layers_left_out: layers that are not shown.
        of: what its rows are.
    """

    statistic: str
    tensor: str
    layers: list[str]
    first: list[int]
    last: list[int]
    values: list[list[float | Literal["NaN", "Infinity", "-Infinity"] | None]]
    layers_left_out: int
    of: Literal["layer", "rank"] = "layer"


@dataclass(frozen=True)
class ConstantMap:
    """A statistic of tensors that does not change: in so many layers, between two values."""

    statistic: str
    tensor: str
    layers: int
    low: float
    high: float


@dataclass(frozen=True)
class NonFiniteMark:
    """A moment at which the values of a tensor stopped being finite.

    Attributes:
        process: whose.
        layer: name of the layer.
        tensor: which tensor of it.
        iteration: null where the mark does not say it.
        n_nan: how many of its elements are NaN.
        n_inf: how many are infinite.
        at: what `dftrace view --at` takes.
    """

    process: str
    layer: str
    tensor: str
    iteration: int | None
    n_nan: int | None
    n_inf: int | None
    at: str


@dataclass(frozen=True)
class TensorFigures:
    """What tensor inspection wrote.

    Attributes:
        layers: how many.
        statistics: names of all statistics.
        non_finite: values that are NaN or infinite, of all statistics together.
        first_non_finite: the layer and tensor, with iteration and statistic, that was first.
        maps: heat maps of what changes.
        maps_left_out: pairs of statistic and tensor that change and are not shown.
        stopped: when tensors stopped being finite, in the order of time.
        stopped_left_out: more of these.
        constant: what does not change, and has no map.
    """

    layers: int
    statistics: list[str]
    non_finite: int
    first_non_finite: str
    maps: list[HeatMap]
    maps_left_out: int
    stopped: list[NonFiniteMark]
    stopped_left_out: int
    constant: list[ConstantMap]


FORMAT: Final = 2


@dataclass(frozen=True)
class Histogram:
    """How long steps take.

    Attributes:
        edges_ns: of the bins, one more than there are bins.
        steady: steady steps in each bin.
        others: steps of the warm-up and first ones of loops.
        logarithmic: bins grow by a factor.
    """

    edges_ns: list[float]
    steady: list[int]
    others: list[int]
    logarithmic: bool


@dataclass(frozen=True)
class EpochParts:
    """Where the time of the steps of an epoch went, or of several, or of a stretch of steps.

    Attributes:
        label: which.
        steps: how many.
        time_ns: what they took.
        parts: nanoseconds of each part.
    """

    label: str
    steps: int
    time_ns: int
    parts: dict[str, int]


@dataclass(frozen=True)
class StepFigures:
    """The steps of the rank that is shown.

    Attributes:
        rank: its number.
        who: the same as people say it, by its process where it says no rank.
        found_by: how the steps were found.
        count: how many there are.
        steady: how many of them are steady.
        warm_up: steps before these.
        times: nanoseconds over the number of the step.
        histogram: of their times.
        p50_ns: median of all steps.
        p95_ns: 95th percentile.
        p99_ns: 99th percentile.
        max_ns: the longest.
        time_ns: what all of them took.
        parts: nanoseconds of each part in all of them.
        split_by: what `epochs` are.
        epochs: the parts, in the order of time.
        epoch_starts: the first step of each epoch; empty where there are very many.
    """

    rank: int
    who: str
    found_by: str
    count: int
    steady: int
    warm_up: int
    times: Envelope
    histogram: Histogram
    p50_ns: float
    p95_ns: float
    p99_ns: float
    max_ns: int
    time_ns: int
    parts: dict[str, int]
    split_by: Literal["epoch", "loop", "stretch"]
    epochs: list[EpochParts]
    epoch_starts: list[int]


PhaseKind = Literal[
    "start-up",
    "warm-up",
    "steady",
    "evaluation",
    "checkpoint",
    "between",
    "end",
    "loop",
    "stall",
]
"""What a rank does; a `loop` is a pass or an epoch, in a `stall` nothing is annotated for long."""


@dataclass(frozen=True)
class Phase:
    """What a rank did from one moment to another, seconds since the first event of the run."""

    begin_s: float
    end_s: float
    kind: PhaseKind
    name: str  # more of it: which epoch, how many steps, after which step


@dataclass(frozen=True)
class PhaseFigures:
    """What the rank that is shown did over the whole run."""

    rank: int
    # Seconds of each phase: start-up before the first step, the steps of the warm-up, those behind
    # it (`steady`), evaluation outside of steps, checkpoints, what else was between steps, and the
    # end behind the last. Together they are the whole run.
    spent_s: dict[str, float]
    # In the order of time; `loop`, `warm-up` and `steady` lie around others, and what is between
    # steps is there as stalls, where it is long. Of very many the shortest are left out.
    phases: list[Phase]
    phases_left_out: int
    # By part, its share of each of 400 stretches of the run.
    lane: dict[str, list[float]]


@dataclass(frozen=True)
class RankFigures:
    """A rank beside the others.

    Attributes:
        rank: its number.
        who: the same as people say it, by its process where it says no rank.
        host: where it ran.
        pid: its process.
        workers: processes that load data for it.
        steps: how many.
        p50_ns: median of their times.
        p95_ns: 95th percentile.
        max_ns: the longest.
        wait_share: of their time it waits for data.
        comm_share: of their time it communicates.
        workers_at_once: how many of the workers lived at the same time at most.
        own_ns: median of a step without communication; where ranks wait for each other their steps
            take equally long, and this alone shows who is late.
        odd: that is far from what it is for most ranks, or the others wait for it.
    """

    rank: int
    who: str
    host: str
    pid: int
    workers: int
    steps: int
    p50_ns: float
    p95_ns: float
    max_ns: int
    wait_share: float
    comm_share: float
    workers_at_once: int
    own_ns: float
    odd: bool


@dataclass(frozen=True)
class SlowSpan:
    """A span inside of a slow step.

    Attributes:
        cat: category.
        name: name.
        depth: spans around it within the step.
        after_ns: when it began, counted from the beginning of the step.
        dur_ns: how much of it lies in the step.
    """

    cat: str
    name: str
    depth: int
    after_ns: int
    dur_ns: int


@dataclass(frozen=True)
class SlowStepFigures:
    """One of the slowest steps of all ranks.

    Attributes:
        rank: whose.
        who: the same as people say it, by its process where it says no rank.
        step: its number in the order of time, from 0.
        epoch: by the arguments of its spans; null where they say nothing.
        ns: how long it took.
        at_us: where it begins, as ``ts`` of the lines.
        at: what `dftrace view --at` takes.
        kind: steady, or why it is no wonder that it is slow.
        rss_bytes: memory of the process: the greatest sample in the step, or else the last before
            it; null where nothing was sampled.
        device_bytes: the same of what torch holds on its GPUs.
        nonfinite: how many tensors stopped being finite in it.
        nonfinite_tensor: layer and tensor of the first of these; null without any.
        parts: nanoseconds of each part.
        spans: what the thread that trains did in it, the longest spans.
        spans_left_out: how many spans are not shown.
    """

    rank: int
    who: str
    step: int
    epoch: int | None
    ns: int
    at_us: float
    at: str
    kind: Literal["steady", "warm-up", "first of a loop"]
    rss_bytes: int | None
    device_bytes: int | None
    nonfinite: int
    nonfinite_tensor: str | None
    parts: dict[str, int]
    spans: list[SlowSpan]
    spans_left_out: int


@dataclass(frozen=True)
class FlameFrame:
    """Spans of one path: of one category and name, inside of the same ones.

    Attributes:
        cat: category; empty for a frame that holds the tracks of one kind of process, and for what
            is not annotated.
        name: name.
        parent: number of the frame around it; -1 for the outermost.
        count: how many spans.
        total_ns: what they take.
        self_ns: what they take without the spans inside of them; steps, epochs and evaluations that
            are laid around the spans of a rank's main thread have none.
        part: what they have the colour of: a part of a step; one of a few for their category where
            they are none, ``category-a`` and so on.
    """

    cat: str
    name: str
    parent: int
    count: int
    total_ns: int
    self_ns: int
    part: str


@dataclass(frozen=True)
class FlameGraph:
    """Spans merged by path, over all tracks of all processes.

    Attributes:
        frames: parents before their children, and of these the greatest first.
        paths_left_out: paths that take too little to be shown; their time is in their parents'.
        deepest: how many spans lie inside of each other at most.
        counts: what `count` of a frame counts.
    """

    frames: list[FlameFrame]
    paths_left_out: int
    deepest: int
    counts: Literal["span", "sample"] = "span"


@dataclass(frozen=True)
class StepRange:
    """Steps that follow each other.

    Attributes:
        first: number of the first of them.
        last: of the last one.
        steps: how many they are.
    """

    first: int
    last: int
    steps: int


@dataclass(frozen=True)
class RankStackFigures:
    """The stacks of a rank and of who loads for it, by part of its steps, and by ranges of steps.

    Attributes:
        rank: its number.
        graph: those of all steps.
        ranges: into which the steps are cut.
        range_ns: of each frame of the graph what of `total_ns` lies in each of these; what is
            between steps counts for the one before.
    """

    rank: int
    graph: FlameGraph
    ranges: list[StepRange]
    range_ns: list[list[int]]


@dataclass(frozen=True)
class LoaderFigures:
    """The wait of the rank that is shown, and what its workers did meanwhile.

    Attributes:
        rank: its number.
        who: the same as people say it, by its process where it says no rank.
        workers: how many processes load for it.
        edges_s: of stretches of time, seconds since the first event.
        wait: share of each stretch that the rank waited.
        busy: share of each stretch that a worker worked, on average over those that lived then;
            empty where nothing is known of them.
        wait_share: over the whole training.
        busy_share: of the lives of all workers; null where nothing is known.
        workers_at_once: how many of the workers lived at the same time at most.
        inline: the training's own process loads, without workers.
    """

    rank: int
    who: str
    workers: int
    edges_s: list[float]
    wait: list[float]
    busy: list[float]
    wait_share: float
    busy_share: float | None
    workers_at_once: int
    inline: bool


@dataclass(frozen=True)
class ProcessFacts:
    """What a process says of itself; empty or null what it does not say."""

    process: str
    host: str
    pid: int | None
    run: str
    world_size: int | None
    command: str
    python: str
    torch: str
    version: str
    system: str
    cpus: int | None
    memory_bytes: int | None


@dataclass(frozen=True)
class ReportFigures:
    """All that is on the page.

    Attributes:
        title: what the report is of.
        paths: what was read.
        made_at: when, as ISO 8601 has it.
        first_us: the first event, microseconds since 1970; null without events.
        wall_s: from it to the last, seconds.
        began_at: the first event as ISO 8601 has it, in UTC; null where traces do not say from when
            on they count.
        losses: what was lost or cannot be read, a line each.
        verdict: as of `dftrace why`.
        summary: as of `dftrace summary --sort self`, with its first rows.
        steps: the steps of a rank; null where none were found.
        phases: what that rank did over the whole run.
        rank_maps: own work and waiting by rank and step; none where no step is of several ranks.
        ranks: the ranks that have steps, by their numbers; where they are very many, those that are
            odd and the first.
        ranks_left_out: ranks that are not in the list.
        slowest: the slowest steps of all ranks.
        flame: where the time goes.
        stacks: the stacks of the rank that is shown and of who loads for it, by part of its steps,
            a frame a line of the program or a function of a library; null without samples.
        loader: null where no wait for data is annotated.
        counters: the counters that are drawn.
        counters_left_out: those that are not.
        tensors: null where there are no statistics of tensors.
        processes: their facts.
        processes_left_out: processes that are not in the list.
        sections: what other packages add.
        plugin_faults: which of these failed, a line each.
        kind: what this is.
        format: version of this form; it grows when a member goes or means something else.
    """

    title: str
    paths: list[str]
    made_at: str
    first_us: float | None
    wall_s: float
    began_at: str | None
    losses: list[str]
    verdict: Verdict
    summary: Report
    steps: StepFigures | None
    ranks: list[RankFigures]
    ranks_left_out: int
    slowest: list[SlowStepFigures]
    flame: FlameGraph
    loader: LoaderFigures | None
    counters: list[CounterChart] = field(default_factory=list)
    counters_left_out: int = 0
    tensors: TensorFigures | None = None
    processes: list[ProcessFacts] = field(default_factory=list)
    processes_left_out: int = 0
    phases: PhaseFigures | None = None
    rank_maps: list[HeatMap] = field(default_factory=list)
    stacks: FlameGraph | None = None
    stacks_of_ranks: list[RankStackFigures] = field(default_factory=list)
    sections: list[ReportSection] = field(default_factory=list)
    plugin_faults: list[str] = field(default_factory=list)
    kind: Literal["dftrace report"] = "dftrace report"
    format: Literal[2] = FORMAT


def figures_adapter() -> TypeAdapter[ReportFigures]:
    """Return what checks figures and makes their schema."""
    from pydantic import TypeAdapter

    return TypeAdapter(ReportFigures)
