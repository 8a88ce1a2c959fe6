"""What the page over all runs is answered with, as JSON; times are seconds since a run's begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from dftrace_ai.trace_format.json_types import Json

State = Literal["reading", "running", "ended", "died", "unreadable", "unknown"]
"""How a run stands; `unknown` where its processes are on another host."""

Severity = Literal["critical", "warning", "note", "none"]

WORDS: Final = {
    "late-rank": "waits for late ranks",
    "input-bound": "waits for data", "communication-bound": "waits for ranks",
    "transfer-bound": "copies for long", "checkpoint-bound": "checkpoints cost time",
    "optimizer-heavy": "a slow optimizer", "other-heavy": "other work in steps",
    "periodic": "slow at intervals", "slower-and-slower": "slower and slower",
    "slower-since": "slower since a step", "two-kinds": "steps of two kinds",
    "evaluation-heavy": "evaluates for long", "start-up-heavy": "starts for long",
    "slow-warm-up": "a slow warm-up", "slow-loop-start": "passes begin slowly",
    "slow-step": "single slow steps", "between-steps": "time between steps",
    "memory-creep": "memory grows", "host-bound": "the GPU waits for the host",
    "not-annotated": "time in no span", "compute-bound": "computes, nothing else",
    "none": "nothing stands out", "abstained": "too few steps to say",
    "not-recovered": "not recovered yet", "unreadable": "cannot be read",
}  # fmt: skip
"""A verdict in three words, by its name; it is the same on all pages."""


PARTS: Final[tuple[dict[str, str], ...]] = tuple(
    {"part": part, "colour": f"var(--part-{part})", "words": words}
    for part, words in (
        ("wait", "loader wait"), ("data", "data work in the loop"),
        ("transfer", "copies to the device"), ("forward", "forward"), ("backward", "backward"),
        ("optimizer", "optimizer"), ("compute", "other computation"), ("gpu", "GPU"),
        ("launch", "launching kernels"), ("comm", "communication"), ("checkpoint", "checkpoint"),
        ("evaluation", "evaluation"), ("other", "other spans"), ("none", "not annotated"),
    )
)  # fmt: skip
"""All parts; their colours are variables of the page's palette."""


class Card(TypedDict):
    """A run in a row of the list."""

    began_s: float | None
    wall_s: float | None
    ranks: int
    events: int
    steps: int
    median_ns: float | None
    steps_per_s: float | None
    spark: list[float]
    verdict: str
    words: str
    severity: Severity
    confidence: str | None
    share: float | None
    what: str
    late_ranks: list[int]
    losses: int
    older: int
    ended: list[str]
    logged: str | None
    as_of_s: float
    metrics: dict[str, float | str]
    params: dict[str, Json]
    hint: str


class Row(TypedDict):
    """A run of the list; without a card it has not been read yet."""

    id: str
    state: State
    fresh: bool
    files: int
    bytes: int
    changed_s: float
    card: Card | None


class Strip(TypedDict):
    """The whole of a run by the rank that is shown; what it did is among the figures."""

    rank: int
    wall_s: float
    zero_s: float


LoggedPicture: TypeAlias = tuple[int, float, str, str]
"""A picture: its step, when, the directory of who logged it, and its file there."""


class ReadRun(TypedDict):
    """What is kept of a run beside its card and its steps."""

    strip: Strip | None
    step_ranks: list[int]
    measures: list[str]
    # Names and how many there are: values and pictures are asked for.
    metrics: list[dict[str, str | int]]
    media: list[dict[str, str | int]]
    # Statistic and tensor of heat maps beyond those among the figures; each is asked for.
    tensor_maps: list[dict[str, str]]
    params: dict[str, Json]
    not_recorded: list[dict[str, str]]  # what, and the setting that records it


class RunHead(TypedDict):
    """A run as it is now; beside it come what was read, the JSON of `report`, and steps."""

    id: str
    state: State
    reading: bool
    stale: bool
    parts: list[dict[str, str]]
    card: Card | None


class StepsAnswer(TypedDict):
    """The steps of a rank in a window, of which several may share a column."""

    rank: int
    count: int
    total: int
    per: float
    number: list[int]
    first: list[int]
    t: list[float]
    te: list[float]
    low: list[float]
    mid: list[float]
    high: list[float]
    parts: dict[str, list[float]]
    worst: list[dict[str, float]]
    p: list[float] | None
    hist: dict[str, list[float]] | None
    outside: dict[str, float]


class RankGroup(TypedDict):
    """Ranks that share a row: those of a host, or some that follow each other."""

    host: str
    first: int
    last: int
    count: int


class HeatHead(TypedDict):
    """Which ranks the rows of a heat map are, and what their colours are held against."""

    # Of more ranks than there are rows those behind the odd ones stand in groups, each with the
    # greatest of its ranks; its rank among `rows` is the one whose median is the greatest.
    what: str
    cols: int
    a: float
    b: float
    ranks: int
    rows: list[int]
    odd: int
    groups: list[RankGroup]
    median_us: list[float | None]
    mid_us: float | None


class MetricSeries(TypedDict):
    """A metric over time; of values that share a column the last, the least and the greatest."""

    name: str
    axis: str
    count: int
    t: list[float]
    step: list[int]
    v: list[float | str]
    low: list[float | None] | None
    high: list[float | None] | None


class LiveRank(TypedDict):
    """A process that is no worker, as it is now."""

    rank: int | None
    pid: int
    host: str
    state: str
    step: int | None
    epoch: int | None
    quiet_s: float | None
    where: str | None
    since_s: float | None
    self_s: dict[str, float]
    covered_s: float
    events_per_s: float | None
    dropped: int
    told_s: float | None  # of another host: seconds since it told of itself


class LiveWaited(TypedDict):
    """A rank that others waited for over the last seconds, in collectives."""

    rank: int
    share: float
    covered_s: float


class LiveAnswer(TypedDict):
    """A running job; `over` says why there is nothing of it any more."""

    over: str | None
    taken_s: float
    ranks: list[LiveRank]
    hidden: int
    waited_for: list[int]
    waited: list[LiveWaited]
    stuck: Json
    stuck_lines: list[str]
