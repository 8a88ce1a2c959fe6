"""Traces as tables that SQL is asked of: spans, counters, tensor statistics, processes, steps."""

from __future__ import annotations

from dftrace_ai.analysis.sql.tables import Answer, QueryError, TraceTables
from dftrace_ai.analysis.sql.views import VIEWS

__all__ = ["VIEWS", "Answer", "QueryError", "TraceTables"]
