"""Spans as a file of OTLP: a line of JSON for each batch.

https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/ has the form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dftrace_ai.analysis.converting.placing import ConvertedFile, gzip_member
from dftrace_ai.analysis.otlp.messages import Batch
from dftrace_ai.analysis.otlp.placing import PlacedSpans
from dftrace_ai.analysis.reading.identity import recordings_of

if TYPE_CHECKING:
    from pathlib import Path

    from dftrace_ai.analysis.reading import TraceSet

SPANS_OF_A_LINE: Final = 2_000


def write_as_otlp(traces: TraceSet, path: Path, name: str) -> tuple[list[ConvertedFile], list[str]]:
    """Write the spans of all traces to a path that will have this name; as `convert`."""
    notes: list[str] = []
    count = 0
    packed = name.endswith(".gz")
    with path.open("wb") as file:

        def write(batch: Batch) -> Batch:
            nonlocal count
            count += batch.count
            file.write(gzip_member(batch.line()) if packed else batch.line())
            return Batch()

        for files in recordings_of(traces).values():
            placed, batch = PlacedSpans(files[0]), Batch()
            for trace in files:
                for _, spans, _ in placed.read(trace):
                    for span in spans:
                        batch.add(placed.resource, span)
                    if batch.count >= SPANS_OF_A_LINE:
                        batch = write(batch)
            for span in placed.end():
                batch.add(placed.resource, span)
            if batch.count:
                write(batch)
            notes += placed.notes
    return [ConvertedFile(name, None, count, path.stat().st_size)], notes
