"""What a set of traces adds up to."""

from __future__ import annotations

from dftrace_ai.analysis.summary.figures import FileFacts, Summary, summarise
from dftrace_ai.analysis.summary.rows import OtherRow, Row

__all__ = ["FileFacts", "OtherRow", "Row", "Summary", "summarise"]
