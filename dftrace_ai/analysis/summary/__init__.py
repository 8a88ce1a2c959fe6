"""What a set of traces adds up to."""

from __future__ import annotations

from dftrace_ai.analysis.summary.figures import Summary, summarise
from dftrace_ai.analysis.summary.file_facts import FileFacts
from dftrace_ai.analysis.summary.rows import OtherRow, Row

__all__ = ["FileFacts", "OtherRow", "Row", "Summary", "summarise"]
