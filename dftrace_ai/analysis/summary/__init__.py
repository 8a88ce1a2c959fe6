"""What a set of traces adds up to."""

from __future__ import annotations

from dftrace_ai.analysis.summary.figures import OtherRow, SpanRow, Summary, summarise
from dftrace_ai.analysis.summary.file_facts import FileFacts

__all__ = ["FileFacts", "OtherRow", "SpanRow", "Summary", "summarise"]
