"""The OpenTelemetry SDK with a batch processor whose exporter throws the spans away."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from bench.contestants.plain import function
from bench.spans.loops import Subject, call_loop, empty_loop, named_with_loop


class DiscardingExporter(SpanExporter):
    """Takes every batch and keeps none: what an exporter costs is not the SDK's fault."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Say that the batch was exported."""
        del spans
        return SpanExportResult.SUCCESS


class Contestant:
    """A tracer of the SDK; spans carry epoch and step as attributes."""

    version = version("opentelemetry-sdk")

    def __init__(self, mode: str, workdir: str) -> None:
        del mode, workdir
        self.provider = TracerProvider()
        self.provider.add_span_processor(BatchSpanProcessor(DiscardingExporter()))
        self.tracer = self.provider.get_tracer("bench")

    def span(self, name: str) -> Any:
        """Open a span the way an application does."""
        return self.tracer.start_as_current_span(name, attributes={"epoch": 1, "step": 2})

    def subjects(self) -> dict[str, Subject]:
        """Return what can be timed, by name."""
        decorated = self.tracer.start_as_current_span("forward")(function)
        return {
            "with": Subject(named_with_loop(self.span), empty_loop()),
            "call": Subject(call_loop(decorated), call_loop(function)),
        }

    def settle(self) -> None:
        """Do nothing: the processor has a thread of its own."""

    def close(self) -> dict[str, int]:
        """Stop the processor's thread."""
        self.provider.shutdown()
        return {}
