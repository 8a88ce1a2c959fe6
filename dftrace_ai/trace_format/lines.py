"""Models of the lines of a trace file, one per kind of line, told apart by `ph` and `name`.

Loaded late, for pydantic. A line is one JSON object of the Chrome trace event format. The models
are strict: a number written as text is a fault. They serve the JSON Schema of the format and
`dftrace validate`; reading for analysis does not pass through them. They are one subject, since
the schema of the format is the union of all of them.
"""

from __future__ import annotations

from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    create_model,
)
from typing_extensions import TypeAliasType

from dftrace_ai.trace_format.header_and_footer import FooterFacts, Generated, HeaderFacts, Ntp

if TYPE_CHECKING:
    from pydantic.config import JsonDict

__all__ = [
    "ClockLine",
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
    "OpenArgs",
    "ProcessName",
    "Profile",
    "ProfileChunk",
    "Span",
    "TensorStats",
    "ThreadName",
    "UnfinishedSpan",
    "event_adapter",
]


# Perfetto turns larger integers into -1 (trace processor, JSON importer).
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
# Perfetto keeps process and thread ids in 32 bits.
Pid = Annotated[int, Field(ge=0, le=2**32 - 1, description="Process id.")]
Tid = Annotated[
    int,
    Field(
        ge=1,
        le=2**32 - 1,
        description="Thread id; 0x40000000 and up are lanes made for spans that do not nest.",
    ),
]
Id = Annotated[int, Field(ge=1, le=2**63 - 1, description="Number of the event in its process.")]
Count = Annotated[int, Field(ge=0)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="Hash of the host's name.")]


def _with_fraction(value: object) -> object:
    """Refuse what a float would take too: an integer beyond 64 bits."""
    if isinstance(value, float):
        return value
    raise ValueError("not a number with a fraction, and not an integer of 64 bits")


Finite = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_with_fraction)]


def _in_branches(schema: JsonDict) -> None:
    """Say of each kind of number what pydantic says of both, in a keyword of its own."""
    least = schema.pop("ge")
    kinds = cast("list[JsonDict]", schema["anyOf"])
    for kind in kinds:
        kind["minimum"] = least


Micros = Annotated[
    int | Finite,
    Field(
        ge=0,
        json_schema_extra=_in_branches,
        description=(
            "Microseconds: with three decimals since the header's time_base_us, or whole since "
            "1970 where the header says timestamps 'epoch_us'."
        ),
    ),
]

# A list holds no null: Perfetto would shift the items behind it.
ListItem = TypeAliasType(
    "ListItem", "bool | Int64 | str | Finite | list[ListItem] | dict[str, ArgValue]"
)
ArgValue = TypeAliasType(
    "ArgValue", "bool | Int64 | str | Finite | list[ListItem] | dict[str, ArgValue] | None"
)


class Line(BaseModel):
    """What every line has."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)

    name: str
    cat: str
    pid: Pid
    tid: Tid


class OpenArgs(BaseModel):
    """Arguments to which more may be added."""

    model_config = ConfigDict(strict=True, extra="allow", defer_build=True)

    __pydantic_extra__: dict[str, ArgValue]


class FixedObject(BaseModel):
    """An object within the arguments of a line."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)


class IndexedSpans(FixedObject):
    """The finished spans of one category and name."""

    name: str
    cat: str
    count: Annotated[int, Field(ge=1)]
    sum_ns: Count
    self_ns: Annotated[Int64, Field(description="Without what spans inside take on their track.")]
    min_ns: Count
    max_ns: Count
    exact: Annotated[
        list[Count] | None,
        Field(fail_fast=True, description="The durations (ns), where there are at most 128."),
    ] = None
    buckets: Annotated[
        list[Count] | None,
        Field(
            fail_fast=True,
            description=(
                "How many empty buckets lie before each that is not, and how many durations are "
                "in it."
            ),
        ),
    ] = None


class IndexedEvents(FixedObject):
    """Other events of one kind, category and name."""

    ph: Literal["B", "i", "C", "s", "f", "M"]
    name: str
    cat: str
    count: Annotated[int, Field(ge=1)]


class IndexedTrack(FixedObject):
    """Where a track stands."""

    tid: Tid
    end_ns: Annotated[Int64, Field(description="End of the span that ended last.")]
    start_ns: Annotated[Int64, Field(description="Its start.")]
    spans: Annotated[
        list[Int64],
        Field(
            fail_fast=True,
            description=(
                "Of spans that none has enclosed yet, those with one parent together: start of "
                "the first, start of the last, its end, what they cover, parent or -1."
            ),
        ),
    ]


class IndexArgs(OpenArgs):
    """What the lines before this one add up to."""

    hhash: Hash
    bytes: Annotated[int, Field(ge=0, description="Plain bytes before this line.")]
    lines: Annotated[int, Field(ge=0, description="Lines before this line.")]
    first_ns: Annotated[
        Int64 | None, Field(description="Least start of the events before this line.")
    ] = None
    last_ns: Annotated[
        Int64 | None, Field(description="Greatest end of these; of what has no end its start.")
    ] = None
    part: Annotated[int, Field(ge=1)] | None = None
    spans: Annotated[list[IndexedSpans], Field(fail_fast=True)]
    others: Annotated[list[IndexedEvents], Field(fail_fast=True)]
    tracks: Annotated[list[IndexedTrack], Field(fail_fast=True)]


class IndexLine(Line):
    """The figures of the file so far; readers may go on from here."""

    name: Literal["index"]
    cat: Literal["dftrace"]
    ph: Literal["M"]
    args: IndexArgs


# The categories of the moments that tensor inspection records, whose arguments are known.
INSPECTION = ("tensor_stats", "nonfinite", "inspect")


class SpanArgs(OpenArgs):
    """Arguments of a span or instant: place in the tree, and what the user gave.

    `p_idx` and `level` are absent when the setting `ids` is off.
    """

    hhash: Hash
    p_idx: Annotated[int, Field(ge=0, description="Id of the enclosing span; 0 for none.")] = 0
    level: Annotated[int, Field(ge=0, description="Depth; 1 is outermost.")] = 0


class UnfinishedArgs(SpanArgs):
    """Arguments of a span that was open when its thread or the run ended."""

    unfinished: Literal[True]


class Span(Line):
    """A span from start to end."""

    id: Id
    ts: Micros
    dur: Micros
    ph: Literal["X"]
    args: SpanArgs


class UnfinishedSpan(Line):
    """A span that began and never ended."""

    id: Id
    ts: Micros
    ph: Literal["B"]
    args: UnfinishedArgs


class _Moment(Line):
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


class Counter(Line):
    """A sample of numbers, each a track of its own; empty when none of them was finite."""

    id: Id
    cat: Literal["counter"]
    ts: Micros
    ph: Literal["C"]
    args: dict[str, Int64 | Finite]


class FlowStart(Line):
    """The tail ("s") of an arrow; the head carries the same id."""

    id: Annotated[int, Field(ge=0, le=2**64 - 1, description="Equal at both ends of an arrow.")]
    name: str
    cat: Literal["flow"]
    ts: Micros
    ph: Literal["s"]


class FlowEnd(Line):
    """The head ("f") of an arrow, bound to the span that encloses it."""

    id: Annotated[int, Field(ge=0, le=2**64 - 1, description="Equal at both ends of an arrow.")]
    name: str
    cat: Literal["flow"]
    ts: Micros
    ph: Literal["f"]
    bp: Literal["e"]


class CallFrame(FixedObject):
    """A function and a line of it; what they are called as V8 has it, which viewers read."""

    function_name: Annotated[
        str, Field(alias="functionName", description="Its name, in brackets file and line.")
    ]
    url: Annotated[str, Field(description="Its file, by no absolute path; empty if left out.")]
    script_id: Annotated[
        int,
        Field(
            alias="scriptId",
            ge=0,
            le=3,
            description="Whose: 0 the program's, 1 a package's, 2 Python's, 3 the recorder's own.",
        ),
    ]
    line_number: Annotated[
        int, Field(alias="lineNumber", ge=0, description="From 1; 0 where it is left out.")
    ]


class StackNode(FixedObject):
    """A frame of stacks, inside of another."""

    id: Annotated[int, Field(ge=1, description="Once for each `id` of the lines.")]
    parent: Annotated[int, Field(ge=1, description="The frame around it; none outermost.")] = 0
    call_frame: Annotated[CallFrame, Field(alias="callFrame")]


_Counts = Annotated[list[Count], Field(fail_fast=True)]


class StackTree(FixedObject):
    """Frames that were not there before, and the innermost frame of each sample."""

    nodes: Annotated[list[StackNode], Field(fail_fast=True, description="Absent for none.")] = []
    samples: _Counts


class ChunkData(FixedObject):
    """Samples; times in whole microseconds."""

    cpu_profile: Annotated[StackTree, Field(alias="cpuProfile")]
    time_deltas: Annotated[
        list[Count],
        Field(
            alias="timeDeltas",
            fail_fast=True,
            description="Since the sample before, the first since startTime.",
        ),
    ]
    cpu: Annotated[
        list[Annotated[int, Field(ge=-1)]],
        Field(fail_fast=True, description="What the thread used of a processor; -1: not known."),
    ]
    cut: Annotated[
        list[Count], Field(fail_fast=True, description="1 where inner frames are not known.")
    ]
    late: Annotated[
        list[Count],
        Field(
            fail_fast=True,
            description="Periods that each stands for beside its own; absent where that is none.",
        ),
    ] = []
    ready: Annotated[
        Count,
        Field(
            description="How long the thread waited for a processor since the line before; "
            "absent where the kernel does not tell."
        ),
    ] = 0
    missed: Annotated[
        int, Field(ge=1, description="Stacks that could not be read since the line before.")
    ] = 1


class ChunkArgs(OpenArgs):
    """What a line of samples holds."""

    hhash: Hash
    data: ChunkData


class ProfileData(FixedObject):
    """Since when the times of samples count."""

    start_time: Annotated[
        int, Field(alias="startTime", ge=0, description="As ts, in whole microseconds.")
    ]


class ProfileArgs(OpenArgs):
    """How samples are taken."""

    hhash: Hash
    hz: Annotated[
        int | Finite, Field(ge=0, json_schema_extra=_in_branches, description="So many a second.")
    ]
    data: ProfileData


class _OfStacks(Line):
    cat: Literal["stack"]
    id: Annotated[Id, Field(description="Whose frames are told once; of one thread and file.")]
    ts: Micros
    ph: Literal["P"]


class Profile(_OfStacks):
    """Comes before the samples of a thread in a file; no event."""

    name: Literal["Profile"]
    args: ProfileArgs


class ProfileChunk(_OfStacks):
    """Samples of the stack of a thread; no event."""

    name: Literal["ProfileChunk"]
    args: ChunkArgs


class NameArgs(OpenArgs):
    """The name that a viewer shows."""

    name: str


class ProcessName(Line):
    """Names the process: rank and host."""

    name: Literal["process_name"]
    cat: Literal["dftrace"]
    ph: Literal["M"]
    args: NameArgs


class ThreadName(Line):
    """Names a thread or a lane."""

    name: Literal["thread_name"]
    cat: Literal["dftrace"]
    ph: Literal["M"]
    args: NameArgs


class NtpArgs(OpenArgs):
    """How well the wall clock of the host is kept, as adjtimex(2) tells it."""

    synchronised: bool
    max_error_us: Count
    estimated_error_us: Count
    frequency_ppm: Annotated[
        int | Finite, Field(description="It is made to run so much faster than by itself.")
    ]


class GeneratedArgs(OpenArgs):
    """That nobody recorded the trace: of which seed it is made, and what is planted in it."""

    seed: Count
    causes: list[str]


_ARGS_OF: dict[object, object] = {Ntp: NtpArgs, Generated: GeneratedArgs}


def _arguments_of(facts: type[HeaderFacts | FooterFacts], name: str, about: str) -> Any:
    """Make the model of the arguments of a line of what is said beside its facts."""
    members: dict[str, Any] = {}
    for member, annotation in get_type_hints(facts, include_extras=True).items():
        if get_origin(annotation) is not Annotated:
            continue
        optional, said = get_args(annotation)
        rules = Field(
            description=said.about or None,
            ge=said.least,
            le=said.most,
            pattern=said.pattern or None,
        )
        fact = get_args(optional)[0]
        kind: Any = Annotated[said.kind or _ARGS_OF.get(fact, fact), rules]
        members[member] = (kind, ...) if said.always else (kind | None, None)
    return create_model(name, __base__=OpenArgs, __doc__=about, __module__=__name__, **members)


if TYPE_CHECKING:

    class HeaderArgs(OpenArgs): ...

    class FooterArgs(OpenArgs): ...

else:
    HeaderArgs = _arguments_of(
        HeaderFacts, "HeaderArgs", "What is known of the process when it starts to record."
    )
    FooterArgs = _arguments_of(FooterFacts, "FooterArgs", "What was written, and what was lost.")


class Header(Line):
    """The facts of the process; one line near the start of each file."""

    name: Literal["dftrace"]
    cat: Literal["dftrace"]
    ph: Literal["M"]
    args: HeaderArgs


class HashArgs(OpenArgs):
    """A text and its hash."""

    hhash: Hash
    name: str
    value: str


class HashLine(Line):
    """A hash of host (HH), working directory (FH) or command (SH), and what it stands for."""

    name: Literal["HH", "FH", "SH"]
    cat: Literal["dftracer"]
    ph: Literal["M"]
    args: HashArgs


class CustomMetadata(Line):
    """A fact written at once: a start or stop in metadata mode, or a key with its value."""

    id: Id
    name: Literal["CM"]
    cat: Literal["dftracer"]
    ph: Literal["M"]
    args: HashArgs


class ClockArgs(OpenArgs):
    """Both clocks at one moment."""

    hhash: Hash
    boottime_ns: Annotated[Int64, Field(description="By CLOCK_BOOTTIME.")]
    realtime_ns: Annotated[Int64, Field(description="By the wall clock, since 1970.")]
    width_ns: Annotated[Int64, Field(ge=0, description="How long it took to read them.")]


class ClockLine(Line):
    """How the clocks of the host stood; no event."""

    name: Literal["clock"]
    cat: Literal["dftrace"]
    ph: Literal["M"]
    args: ClockArgs


class Footer(Line):
    """The last line of a file that was closed."""

    name: Literal["end"]
    cat: Literal["dftrace"]
    ph: Literal["M"]
    args: FooterArgs


Metadata: TypeAlias = Annotated[
    ProcessName | ThreadName | Header | HashLine | ClockLine | CustomMetadata | IndexLine | Footer,
    Field(discriminator="name"),
]
StackLine: TypeAlias = Annotated[Profile | ProfileChunk, Field(discriminator="name")]
EventLine: TypeAlias = Annotated[
    Span | UnfinishedSpan | Instants | Counter | FlowStart | FlowEnd | StackLine | Metadata,
    Field(discriminator="ph"),
]


@cache
def event_adapter() -> TypeAdapter[Any]:
    """Return the validator of a line, built at the first call (about 50 ms)."""
    return TypeAdapter(EventLine)
