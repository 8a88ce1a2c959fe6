"""What a set of traces adds up to."""

from __future__ import annotations

from dftrace_ai.analysis.summary.figures import FileFacts, OtherRow, SpanRow, Summary, summarise

__all__ = ["FileFacts", "OtherRow", "SpanRow", "Summary", "summarise"]
