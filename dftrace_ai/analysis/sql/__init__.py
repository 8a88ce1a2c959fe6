"""Traces as tables that SQL is asked of: spans, counters, tensor statistics, processes, steps."""

from __future__ import annotations

from dftrace_ai.analysis.sql.tables import TraceTables
from dftrace_ai.analysis.sql.views import VIEWS
from dftrace_ai.database import Answer, QueryError

__all__ = ["VIEWS", "Answer", "QueryError", "TraceTables"]
