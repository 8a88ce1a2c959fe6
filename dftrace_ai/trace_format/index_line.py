"""The model of the index line: what the lines before it add up to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dftrace_ai.trace_format.line_bases import FixedObject, Line, OpenArgs

# pydantic evaluates the annotations, until 2.13 those of `OpenArgs` among the names here, too:
from dftrace_ai.trace_format.values import (
    ArgValue,  # noqa: F401
    Count,  # noqa: TC001
    Hash,  # noqa: TC001
    Int64,  # noqa: TC001
    Tid,  # noqa: TC001
)

__all__ = ["IndexArgs", "IndexLine"]


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
