"""Queries that somebody else chose: one select, and what is said of those that are refused."""

from __future__ import annotations

from typing import Any

from dftrace_ai.database.opening import duckdb_module
from dftrace_ai.errors import DftraceError

__all__ = ["QueryError", "one_select", "said"]


class QueryError(DftraceError):
    """A query is not accepted, or is more than there is room for."""


def one_select(connection: Any, sql: str) -> Any:
    """Return the only statement of a query, which changes nothing.

    Args:
        connection: DuckDB's.
        sql: one ``select``, or what else DuckDB takes for one.

    Raises:
        QueryError: it is something else.
        duckdb.Error: it is no SQL.
    """
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb_module().StatementType.SELECT:
        raise QueryError("the query is not accepted; accepted: one select")
    return statements[0]


def said(error: Exception) -> str:
    """Return the first line of what DuckDB says; below it draws where in the query."""
    return str(error).partition("\n")[0]
