"""Models of the lines of a trace file, one per kind of line, told apart by `ph` and `name`.

A line is one JSON object of the Chrome trace event format. The models are strict:
a number written as text is a fault. They serve the JSON Schema of the format and
`dftrace validate`; reading for analysis does not pass through them.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, TypeAdapter

# pydantic evaluates the annotations:
from dftrace_ai.trace_format.header_and_footer import Ending  # noqa: TC001
from dftrace_ai.trace_format.index_line import IndexArgs, IndexLine
from dftrace_ai.trace_format.line_bases import Line as _Line
from dftrace_ai.trace_format.line_bases import OpenArgs as _Open
from dftrace_ai.trace_format.values import (  # noqa: TC001
    ArgValue,
    Count,
    Finite,
    Hash,
    Id,
    Int64,
    Micros,
    Pid,
)

__all__ = [
    "Counter",
    "CustomMetadata",
    "EventLine",
    "FlowEnd",
    "FlowStart",
    "Footer",
    "HashLine",
    "Header",
    "IndexArgs",
    "IndexLine",
    "InspectionPlan",
    "Instant",
    "NonFinite",
    "ProcessName",
    "Span",
    "TensorStats",
    "ThreadName",
    "UnfinishedSpan",
    "event_adapter",
]

# The categories of the moments that tensor inspection records, whose arguments are known.
INSPECTION = ("tensor_stats", "nonfinite", "inspect")


class SpanArgs(_Open):
    """Arguments of a span or instant: place in the tree, and what the user gave.

    `p_idx` and `level` are absent when the setting `ids` is off.
    """

    hhash: Hash
    p_idx: Annotated[int, Field(ge=0, description="Id of the enclosing span; 0 for none.")] = 0
    level: Annotated[int, Field(ge=0, description="Depth; 1 is outermost.")] = 0


class UnfinishedArgs(SpanArgs):
    """Arguments of a span that was open when its thread or the run ended."""

    unfinished: Literal[True]


class Span(_Line):
    """A span from start to end."""

    id: Id
    ts: Micros
    dur: Micros
    ph: Literal["X"]
    args: SpanArgs


class UnfinishedSpan(_Line):
    """A span that began and never ended."""

    id: Id
    ts: Micros
    ph: Literal["B"]
    args: UnfinishedArgs


class _Moment(_Line):
    id: Id
    ts: Micros
    ph: Literal["i"]
    s: Literal["t"]


class Instant(_Moment):
    """A moment on a thread."""

    cat: Annotated[str, Field(json_schema_extra={"not": {"enum": list(INSPECTION)}})]
    args: SpanArgs


class TensorStatsArgs(SpanArgs):
    """What the numbers belong to; these are further arguments, each by the name of its statistic.

    A number that is not finite is null, with its text in the argument of the same name with
    `_str` behind it. All are absent when the setting `args` is off.
    """

    iteration: Annotated[
        ArgValue, Field(description="The step: a whole number, or what another logger took for it.")
    ] = 0
    rank: Annotated[int, Field(ge=0, description="That recorded them.")] = 0
    feature: Annotated[str, Field(description="Who made the numbers.")] = ""


class TensorStats(_Moment):
    """The statistics of a tensor, at the moment when it was seen; `name` is `layer:tensor`."""

    cat: Literal["tensor_stats"]
    args: TensorStatsArgs


class NonFiniteArgs(SpanArgs):
    """What was counted; further arguments are the counts of what the tensor was made of.

    All are absent when the setting `args` is off.
    """

    iteration: Annotated[Int64, Field(description="The step.")] = 0
    micro_batch: Count = 0
    first: Annotated[bool, Field(description="The first non-finite value of the process.")] = False
    n_nan: Count = 0
    n_inf: Count = 0
    n: Annotated[int, Field(ge=0, description="Elements of the tensor.")] = 0


class NonFinite(_Moment):
    """The moment at which the values of a tensor stopped being finite."""

    cat: Literal["nonfinite"]
    args: NonFiniteArgs


class InspectionPlanArgs(SpanArgs):
    """Which section holds; further arguments are `tensor/gemm`, each with what is done there.

    All are absent when the setting `args` is off.
    """

    section: str = ""


class InspectionPlan(_Moment):
    """How the GEMMs of a layer run; `name` is the layer."""

    cat: Literal["inspect"]
    args: InspectionPlanArgs


def _kind_of_instant(event: Any) -> str:
    category = event.get("cat") if isinstance(event, dict) else getattr(event, "cat", None)
    return category if category in INSPECTION else "instant"


Instants: TypeAlias = Annotated[
    Annotated[Instant, Tag("instant")]
    | Annotated[TensorStats, Tag("tensor_stats")]
    | Annotated[NonFinite, Tag("nonfinite")]
    | Annotated[InspectionPlan, Tag("inspect")],
    Discriminator(_kind_of_instant),
]


class Counter(_Line):
    """A sample of numbers, each a track of its own; empty when none of them was finite."""

    id: Id
    cat: Literal["counter"]
    ts: Micros
    ph: Literal["C"]
    args: dict[str, Int64 | Finite]


class FlowStart(_Line):
    """The tail ("s") of an arrow; the head carries the same id."""

    id: Annotated[int, Field(ge=0, le=2**64 - 1, description="Equal at both ends of an arrow.")]
    name: str
    cat: Literal["flow"]
    ts: Micros
    ph: Literal["s"]


class FlowEnd(_Line):
    """The head ("f") of an arrow, bound to the span that encloses it."""

    id: Annotated[int, Field(ge=0, le=2**64 - 1, description="Equal at both ends of an arrow.")]
    name: str
    cat: Literal["flow"]
    ts: Micros
    ph: Literal["f"]
    bp: Literal["e"]


class NameArgs(_Open):
    """The name that a viewer shows."""

    name: str


class ProcessName(_Line):
    """Names the process: rank and host."""

    name: Literal["process_name"]
    cat: Literal["dftrace"]
    ph: Literal["M"]
    args: NameArgs


class ThreadName(_Line):
    """Names a thread or a lane."""

    name: Literal["thread_name"]
    cat: Literal["dftrace"]
    ph: Literal["M"]
    args: NameArgs


class HeaderArgs(_Open):
    """What is known of the process when it starts to record."""

    version: str
    format: Literal[1]
    hhash: Hash
    host: str
    pid: Pid
    ppid: Count
    run: Annotated[str, Field(pattern=r"^[0-9a-f]+$", description="Same in all of a run.")]
    rank: Count | None = None
    world_size: Count | None = None
    local_rank: Count | None = None
    layout: Annotated[str, Field(description="Rank in each dimension: dp=0,pp=1.")] | None = None
    scheduler: str | None = None
    job_id: str | None = None
    run_id: str | None = None
    node: str | None = None
    restarts: Count | None = None
    boot_id: str | None = None
    pid_namespace: Count | None = None
    process_start: Count | None = None
    time_base_us: Annotated[int, Field(ge=0, description="Microseconds since 1970 to add to ts.")]
    timestamps: Literal["relative", "epoch_us"]
    clock: str


class Header(_Line):
    """The facts of the process; one line near the start of each file."""

    name: Literal["dftrace"]
    cat: Literal["dftrace"]
    ph: Literal["M"]
    args: HeaderArgs


class HashArgs(_Open):
    """A text and its hash."""

    hhash: Hash
    name: str
    value: str


class HashLine(_Line):
    """A hash of host (HH), working directory (FH) or command (SH), and what it stands for."""

    name: Literal["HH", "FH", "SH"]
    cat: Literal["dftracer"]
    ph: Literal["M"]
    args: HashArgs


class CustomMetadata(_Line):
    """A fact written at once: a start or stop in metadata mode, or a key with its value."""

    id: Id
    name: Literal["CM"]
    cat: Literal["dftracer"]
    ph: Literal["M"]
    args: HashArgs


class FooterArgs(_Open):
    """What was written, and what was lost."""

    hhash: Hash
    events: Annotated[int, Field(ge=0, description="Sum of the six counts that follow.")]
    spans: Count
    instants: Count
    counters: Count
    flows: Annotated[int, Field(ge=0, description="Tails and heads, each counted.")]
    metadata: Annotated[int, Field(ge=0, description="CM lines.")]
    unfinished: Count
    dropped: Annotated[int, Field(ge=0, description="Events lost because the spool was full.")]
    waits: Annotated[int, Field(ge=0, description="Times a thread waited for the writer.")]
    unmatched_stops: Count
    args_sanitised: Annotated[int, Field(ge=0, description="Values replaced by safe ones.")]
    bytes: Annotated[int, Field(ge=0, description="Plain bytes before this line.")]
    file_bytes: Annotated[int, Field(ge=0, description="Bytes of the file before this line.")]
    drain_cpu_us: Count
    ended: Ending
    part: Annotated[int, Field(ge=0)] | None = None
    earlier_events: Annotated[int, Field(ge=1, description="In the parts before.")] | None = None
    error: Annotated[str, Field(description="Type of the exception that nobody caught.")] | None = (
        None
    )
    signal: Annotated[int, Field(ge=1, description="That killed the process.")] | None = None
    exit_status: Annotated[int, Field(ge=0, le=255)] | None = None
    write_error: (
        Annotated[str, Field(description="Why the process could not write the rest itself.")] | None
    ) = None
    damaged: (
        Annotated[int, Field(ge=1, description="Kinds of damage found in the spool.")] | None
    ) = None
    overwritten: (
        Annotated[int, Field(ge=1, description="Events that a flight recorder let go.")] | None
    ) = None
    alive_us: (
        Annotated[int, Field(ge=1, description="A process that died is known to have lived then.")]
        | None
    ) = None
    layout: Annotated[str, Field(description="As in the header, known later.")] | None = None


class Footer(_Line):
    """The last line of a file that was closed."""

    name: Literal["end"]
    cat: Literal["dftrace"]
    ph: Literal["M"]
    args: FooterArgs


Metadata: TypeAlias = Annotated[
    ProcessName | ThreadName | Header | HashLine | CustomMetadata | IndexLine | Footer,
    Field(discriminator="name"),
]
EventLine: TypeAlias = Annotated[
    Span | UnfinishedSpan | Instants | Counter | FlowStart | FlowEnd | Metadata,
    Field(discriminator="ph"),
]


@cache
def event_adapter() -> TypeAdapter[Any]:
    """Return the validator of a line, built at the first call (about 50 ms).

    Example::

        event_adapter().validate_json(line)
    """
    return TypeAdapter(EventLine)
