"""What the lines of a log hold, as their JSON Schema says it and `line_of` reads it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import Required, TypedDict

from dftrace_ai.loggers.runs.lines import MOST_STEP, MOST_TIME_S

Time = Annotated[
    float, Field(ge=0, lt=MOST_TIME_S, description="When it was logged, in seconds since 1970.")
]
Whole = Annotated[int, Field(ge=-MOST_STEP, le=MOST_STEP)]
Step = Annotated[int, Field(ge=-MOST_STEP, le=MOST_STEP, description="Number on its axis.")]
Axis = Annotated[
    Literal["i", "e", "t"],
    Field(description="What the step counts: iterations, epochs, or seconds since the begin."),
]
Number = float | Literal["NaN", "Infinity", "-Infinity"]


class _Line(TypedDict, total=False):
    t: Required[Time]


class _Placed(_Line, total=False):
    s: Required[Step]
    a: Required[Axis]
    name: str
    file: Annotated[str, Field(description="Path within the run's directory.")]


class RunLine(_Line, total=False):
    """The first line: who writes."""

    k: Required[Literal["run"]]
    project: str
    name: str
    group: str
    tags: list[str]
    rank: Whole
    world_size: Whole
    host: str
    boot: Annotated[str, Field(description="Name of the machine's boot.")]
    pid_ns: Annotated[Whole, Field(description="Set of processes that `pid` is meant in.")]
    pid: Whole
    start: Annotated[Whole, Field(description="Of the process, in clock ticks since the boot.")]
    argv: Annotated[list[str], Field(description="The command line, without its secrets.")]


class MetricsLine(TypedDict):
    """Numbers by name."""

    k: Literal["m"]
    s: Step
    a: Axis
    t: Time
    v: dict[str, Number]


class ParamsLine(TypedDict):
    """Hyper-parameters, nested; of one that is logged again the latest counts."""

    k: Literal["p"]
    t: Time
    v: dict[str, Any]


class HistogramLine(_Placed, total=False):
    """A histogram."""

    k: Required[Literal["h"]]
    edges: Any
    counts: Any
    minimum: Any
    maximum: Any
    total: Any
    total_squares: Any
    non_finite: Any
    quantiles: Any


class FileLine(_Placed, total=False):
    """A file below `media`, with facts of its kind."""

    k: Required[Literal["f"]]
    kind: Required[Literal["image", "video", "mesh", "file"]]


class TextLine(_Placed, total=False):
    """A text."""

    k: Required[Literal["x"]]
    text: Any


class ArtifactLine(_Placed, total=False):
    """A file or directory below `artifacts`."""

    k: Required[Literal["a"]]


class AlertLine(_Line, total=False):
    """Something that somebody should look at."""

    k: Required[Literal["!"]]
    s: Required[Step]
    a: Required[Axis]
    file: str
    title: str
    text: Any
    level: Any


class EndLine(_Line, total=False):
    """How the run ended for this process: finished, failed or killed."""

    k: Required[Literal["end"]]
    status: str


LogLine = Annotated[
    RunLine
    | MetricsLine
    | ParamsLine
    | HistogramLine
    | FileLine
    | TextLine
    | ArtifactLine
    | AlertLine
    | EndLine,
    Field(discriminator="k"),
]
