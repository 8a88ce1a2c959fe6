"""What a set of traces adds up to."""

from __future__ import annotations

from dftrace_ai.analysis.summary.rows import OtherRow, Row
from dftrace_ai.analysis.summary.table import FileFacts, Summary, summarise

__all__ = ["FileFacts", "OtherRow", "Row", "Summary", "summarise"]
