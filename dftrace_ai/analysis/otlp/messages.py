"""Spans and the process they are of, as OTLP has them: in protobuf and in JSON.

The messages, and the numbers of their fields, are those of
https://github.com/open-telemetry/opentelemetry-proto/tree/main/opentelemetry/proto (trace/v1,
common/v1, resource/v1, collector/trace/v1); the JSON is that of
https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import orjson

from dftrace_ai.analysis.protobuf import field, fields_of, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.trace_format.json_types import Json

Attributes: TypeAlias = "tuple[tuple[str, Json], ...]"
"""Names and values; what is no text, number or truth is told as its JSON."""

SCOPE: Final = "dftrace_ai"

INTERNAL: Final = 1
ERROR: Final = 2
# A value of protobuf's has 64 bits, of which one is the sign.
WHOLE: Final = range(-(2**63), 2**63)
MODULUS: Final = 2**64

# What is told at once is held in memory, several times over; a longer text is no value that others
# have, too.
SPANS_AT_ONCE: Final = 2_000
BYTES_AT_ONCE: Final = 2 * 1024 * 1024
LONG: Final = 256


class Resource(NamedTuple):
    """What is recorded: a process."""

    attributes: Attributes
    version: str


class Span(NamedTuple):
    """A span with its place: ids are 16 and 8 bytes, that of a parent is empty for none."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    # Why it failed; None for one that did not.
    error: str | None = None
    # Trace and span that it belongs to without being below them.
    link: tuple[bytes, bytes] | None = None


class Batch:
    """Spans of several processes that are told together."""

    def __init__(self) -> None:
        self.spans: dict[Resource, list[Span]] = {}
        self.count = 0
        self._bytes = 0

    def add(self, resource: Resource, span: Span) -> None:
        """Take in a span."""
        self.spans.setdefault(resource, []).append(span)
        self.count += 1
        self._bytes += sum(length_of(value) for _, value in span.attributes)

    @property
    def is_full(self) -> bool:
        """Whether it holds enough to be told."""
        return self.count >= SPANS_AT_ONCE or self._bytes >= BYTES_AT_ONCE

    def halves(self) -> tuple[Batch, Batch]:
        """Return two that hold half of the spans each."""
        halves = Batch(), Batch()
        for resource, spans in self.spans.items():
            for span in spans:
                halves[halves[0].count > self.count // 2 - 1].add(resource, span)
        return halves

    def message(self) -> bytes:
        """Return it as the protobuf message ``ExportTraceServiceRequest``."""
        return b"".join(
            field(1, _resource_message(resource) + field(2, _scope_message(resource, spans)))
            for resource, spans in self.spans.items()
        )

    def line(self) -> bytes:
        """Return it as a line of JSON, as files of OTLP have it: the message ``TracesData``."""
        return orjson.dumps(
            {
                "resourceSpans": [
                    {
                        "resource": {"attributes": _json_attributes(resource.attributes)},
                        "scopeSpans": [
                            {
                                "scope": {"name": SCOPE, "version": resource.version},
                                "spans": [_json_span(span) for span in spans],
                            }
                        ],
                    }
                    for resource, spans in self.spans.items()
                ]
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )


def length_of(value: Json) -> int:
    """Return how long a value is, near enough to know how much memory it takes."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (list, dict)):
        return sum(map(length_of, value.values() if isinstance(value, dict) else value))
    return 8


@lru_cache(1024)
def _resource_message(resource: Resource) -> bytes:
    return field(1, _attributes(1, resource.attributes))


def _scope_message(resource: Resource, spans: Iterable[Span]) -> bytes:
    scope = field(1, _text(SCOPE)) + field(2, _text(resource.version))
    return field(1, scope) + b"".join(field(2, _span_message(span)) for span in spans)


_TIMES: Final = struct.Struct("<BQBQ")
# Fields 7 and 8, of 64 bits.
_START, _END = 7 << 3 | 1, 8 << 3 | 1


def _span_message(span: Span) -> bytes:
    told = [b"\x0a\x10", span.trace_id, b"\x12\x08", span.span_id]
    if span.parent_id:
        told += (b"\x22\x08", span.parent_id)
    told += (
        field(5, _text(span.name)),
        number(6, INTERNAL),
        _TIMES.pack(_START, span.start_ns, _END, span.end_ns),
        _attributes(9, span.attributes),
    )
    if span.link:
        told.append(field(13, field(1, span.link[0]) + field(2, span.link[1])))
    if span.error is not None:
        told.append(field(15, field(2, _text(span.error)) + number(3, ERROR)))
    return b"".join(told)


def _attributes(key: int, attributes: Attributes) -> bytes:
    return b"".join(
        _attribute(key, name, value)
        if type(value) is str and len(value) < LONG
        else _measured(key, name, value)
        for name, value in attributes
    )


@lru_cache(4096)
def _attribute(key: int, name: str, value: str) -> bytes:
    return _measured(key, name, value)


def _measured(key: int, name: str, value: Json) -> bytes:
    return field(key, _name(name) + field(2, _value(value)))


@lru_cache(4096)
def _name(name: str) -> bytes:
    return field(1, _text(name))


def _value(value: Json) -> bytes:
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int) and value in WHOLE:
        return number(3, value % MODULUS) or b"\x18\x00"
    if isinstance(value, float):
        return b"\x21" + struct.pack("<d", value)
    return field(1, _text(value if isinstance(value, str) else _as_json(value)))


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _as_json(value: object) -> str:
    return orjson.dumps(value).decode()


def _json_span(span: Span) -> Json:
    told: dict[str, Json] = {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "name": span.name,
        "kind": INTERNAL,
        # Whole numbers of 64 bits are texts in it.
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _json_attributes(span.attributes),
    }
    if span.parent_id:
        told["parentSpanId"] = span.parent_id.hex()
    if span.link:
        trace_id, span_id = span.link
        told["links"] = [{"traceId": trace_id.hex(), "spanId": span_id.hex()}]
    if span.error is not None:
        told["status"] = {"code": ERROR, "message": span.error}
    return told


def _json_attributes(attributes: Attributes) -> list[Json]:
    return [{"key": name, "value": _json_value(value)} for name, value in attributes]


def _json_value(value: Json) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and value in WHOLE:
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": value if isinstance(value, str) else _as_json(value)}


class Refused(NamedTuple):
    """How many spans of a batch a receiver has not taken, and why."""

    spans: int
    why: str


def refused_in(answer: bytes) -> Refused:
    """Return what an ``ExportTraceServiceResponse`` says of a batch that was taken in part.

    What is no such message says nothing.
    """
    spans, why = 0, ""
    try:
        for key, partial in fields_of(answer):
            if key != 1 or not isinstance(partial, bytes):
                continue
            for inner, value in fields_of(partial):
                if inner == 1 and isinstance(value, int):
                    spans = value if value in WHOLE else 0
                elif inner == 2 and isinstance(value, bytes):
                    why = value.decode("utf-8", "replace")
    except ValueError:
        pass
    return Refused(spans, why)
