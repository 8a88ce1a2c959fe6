"""A receiver of OTLP over HTTP that reads what it gets with OpenTelemetry's own messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData


def value_of(told: Any) -> Any:
    return getattr(told, told.WhichOneof("value"))


@dataclass
class Told:
    """A span as a receiver knows it, with what is said of its process."""

    span: Span
    resource: dict[str, Any]
    attributes: dict[str, Any]

    @property
    def key(self) -> tuple[bytes, bytes]:
        return self.span.trace_id, self.span.span_id

    @property
    def above(self) -> tuple[bytes, bytes]:
        return self.span.trace_id, self.span.parent_span_id


def told_in(data: ExportTraceServiceRequest | TracesData) -> list[Told]:
    found = []
    for each in data.resource_spans:
        resource = {one.key: value_of(one.value) for one in each.resource.attributes}
        (scope,) = each.scope_spans
        assert scope.scope.name == "dftrace_ai"
        for span in scope.spans:
            assert (len(span.trace_id), len(span.span_id)) == (16, 8)
            assert len(span.parent_span_id) in {0, 8}
            assert span.kind == Span.SPAN_KIND_INTERNAL
            assert span.start_time_unix_nano <= span.end_time_unix_nano
            attributes = {one.key: value_of(one.value) for one in span.attributes}
            assert len(attributes) == len(span.attributes)
            found.append(Told(span, resource, attributes))
    return found


def by_key(told: list[Told]) -> dict[tuple[bytes, bytes], Told]:
    """Spans by trace and id, each there once, and each parent in the trace of its child."""
    spans = {one.key: one for one in told}
    assert len({one.span.span_id for one in told}) == len(spans) == len(told)
    assert all(not one.span.parent_span_id or one.above in spans for one in told)
    return spans


@dataclass
class Answer:
    """What a receiver says to a request; it takes what it answers with 200 to 299."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    rejected: int = 0
    why: str = ""
    wait: Callable[[], object] = lambda: None  # before it answers
    body: bytes | None = None
    cut: bool = False  # it says that more follows, and ends


class Receiver(ThreadingHTTPServer):
    """Answers as `answers` say, one a request, and then takes everything."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.answers: list[Answer] = []
        self.most_bytes = 2**30  # of a request, as it is before it was compressed
        self.told: list[Told] = []
        self.requests: list[dict[str, str]] = []
        self.lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client has lost patience."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/traces"
        assert self.headers["Content-Type"] == "application/x-protobuf"
        assert self.headers["Content-Encoding"] == "gzip"
        message = gzip.decompress(body)
        told = told_in(ExportTraceServiceRequest.FromString(message))
        server = self.server
        with server.lock:
            server.requests.append(dict(self.headers))
            answer = server.answers.pop(0) if server.answers else Answer()
        if len(message) > server.most_bytes:
            answer = Answer(413)
        answer.wait()
        if answer.status in range(200, 300):
            with server.lock:
                server.told += told
        said = ExportTraceServiceResponse()
        if answer.rejected or answer.why:
            said.partial_success.rejected_spans = answer.rejected
            said.partial_success.error_message = answer.why
        text = said.SerializeToString() if answer.body is None else answer.body
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text) + answer.cut))
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
