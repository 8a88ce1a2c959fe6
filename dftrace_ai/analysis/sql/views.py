"""The views that a query sees: their columns, and what each is made of."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from dftrace_ai.analysis.steps.marks import UNKNOWN
from dftrace_ai.analysis.steps.measuring import STEP_PARTS
from dftrace_ai.database.opening import quoted_text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ARGUMENTS_UNREAD", "TABLES", "UNREAD", "VIEWS", "View", "table_sql", "view_sql"]

# What a query that comes upon something that was not read ends with; never shown.
UNREAD: Final = "dftrace: not read: "
ARGUMENTS_UNREAD: Final = "dftrace: arguments not read"


class View(NamedTuple):
    """A view.

    Attributes:
        columns: types by name, in their order.
        made_of: what each column is of the table's, where it is not the column of that name.
        labelled: rows have a label, which stands for category and name.
    """

    columns: dict[str, str]
    made_of: Mapping[str, str] = MappingProxyType({})
    labelled: bool = False


_WHERE: Final = {"process": "INTEGER", "rank": "INTEGER", "pid": "BIGINT", "tid": "BIGINT"}
_IDS: Final = {"id": "UBIGINT", "parent_id": "UBIGINT"}
_CALLED: Final = {"cat": "VARCHAR", "name": "VARCHAR"}
_MADE_OF: Final = {
    "rank": "nullif(rank, -1)",
    "id": "nullif(id, 0)",
    "parent_id": f"CASE WHEN parent NOT IN (0, {2**64 - 1}) THEN parent END",
    "at_ns": "nullif(start_ns, -1)",
    "start_ns": "nullif(start_ns, -1)",
    "dur_ns": "nullif(dur_ns, -1)",
    "end_ns": "nullif(start_ns, -1) + nullif(dur_ns, -1)",
}

VIEWS: Final[dict[str, View]] = {
    "spans": View(
        _WHERE
        | _IDS
        | _CALLED
        | {"start_ns": "BIGINT", "dur_ns": "BIGINT", "end_ns": "BIGINT", "args": "JSON"},
        _MADE_OF,
        labelled=True,
    ),
    "instants": View(
        _WHERE | _IDS | _CALLED | {"at_ns": "BIGINT", "args": "JSON"}, _MADE_OF, labelled=True
    ),
    "counters": View(
        {
            "process": "INTEGER",
            "rank": "INTEGER",
            "pid": "BIGINT",
            "name": "VARCHAR",
            "series": "VARCHAR",
            "at_ns": "BIGINT",
            "value": "DOUBLE",
        },
        {"rank": _MADE_OF["rank"], "at_ns": "nullif(at_ns, -1)"},
    ),
    "tensor_stats": View(
        {
            "process": "INTEGER",
            "rank": "INTEGER",
            "at_ns": "BIGINT",
            "iteration": "BIGINT",
            "layer": "VARCHAR",
            "tensor": "VARCHAR",
            "feature": "VARCHAR",
            "statistic": "VARCHAR",
            "value": "DOUBLE",
        },
        {
            "rank": _MADE_OF["rank"],
            "at_ns": "nullif(at_ns, -1)",
            "iteration": f"nullif(iteration, {-(2**63)})",
        },
    ),
    "processes": View(
        {
            "process": "INTEGER",
            "rank": "INTEGER",
            "world_size": "BIGINT",
            "local_rank": "BIGINT",
            "host": "VARCHAR",
            "pid": "BIGINT",
            "ppid": "BIGINT",
            "run": "VARCHAR",
            "attempt": "INTEGER",
            "time_base_us": "BIGINT",
            "files": "VARCHAR[]",
            "state": "VARCHAR",
            "ended": "VARCHAR",
            "dropped": "BIGINT",
        },
    ),
    "steps": View(
        {
            "process": "INTEGER",
            "rank": "INTEGER",
            "step": "BIGINT",
            "start_ns": "BIGINT",
            "end_ns": "BIGINT",
            "dur_ns": "BIGINT",
            "first": "BOOLEAN",
            "found_by": "VARCHAR",
            **{f"{part}_ns": "BIGINT" for part in STEP_PARTS},
            "rss_bytes": "BIGINT",
            "device_bytes": "BIGINT",
            "nonfinite": "BIGINT",
        },
        {
            "rank": _MADE_OF["rank"],
            "rss_bytes": f"nullif(rss_bytes, {UNKNOWN})",
            "device_bytes": f"nullif(device_bytes, {UNKNOWN})",
        },
    ),
    "events": View(
        {"ph": "VARCHAR"}
        | _WHERE
        | _IDS
        | _CALLED
        | {"start_ns": "BIGINT", "dur_ns": "BIGINT", "args": "JSON"},
        _MADE_OF | {"ph": "chr(ph::INTEGER)"},
        labelled=True,
    ),
}
"""What can be asked, by name."""

_EVENT_COLUMNS: Final = {
    "ph": "UTINYINT",
    "label": "UINTEGER",
    "process": "INTEGER",
    "rank": "INTEGER",
    "pid": "BIGINT",
    "tid": "BIGINT",
    "id": "UBIGINT",
    "parent": "UBIGINT",
    "start_ns": "BIGINT",
    "dur_ns": "BIGINT",
    "args": "JSON",
}

TABLES: Final[dict[str, dict[str, str]]] = {
    name: _EVENT_COLUMNS if view.labelled else view.columns for name, view in VIEWS.items()
}
"""What the views are made of: tables of the same names in the schema ``read``."""


def table_sql(name: str) -> str:
    """Return the SQL that makes the table of a view, empty."""
    columns = ", ".join(f'"{column}" {kind}' for column, kind in TABLES[name].items())
    return f"CREATE TABLE read.{name} ({columns})"


def view_sql(name: str, *, read: bool, arguments: bool) -> str:
    """Return the SQL of a view, which ends a query that comes upon what was not read.

    Args:
        name: of the view.
        read: its table was filled.
        arguments: the column ``args`` as well.
    """
    view = VIEWS[name]
    if not read:
        columns = ", ".join(f'CAST(NULL AS {kind}) AS "{c}"' for c, kind in view.columns.items())
        what = quoted_text(UNREAD + name)
        return f"CREATE OR REPLACE VIEW {name} AS SELECT {columns} WHERE error({what}) IS NULL"
    made = []
    for column in view.columns:
        text = view.made_of.get(column, f'"{column}"')
        if column == "args" and not arguments:
            # Of a column, so that it is not told before it is needed.
            text = f"CAST(error({quoted_text(ARGUMENTS_UNREAD)} || label) AS JSON)"
        made.append(f'{text} AS "{column}"')
    joined = " JOIN read.labels USING (label)" if view.labelled else ""
    chosen = f"SELECT {', '.join(made)} FROM read.{name}{joined}"  # noqa: S608
    return f"CREATE OR REPLACE VIEW {name} AS {chosen}"
