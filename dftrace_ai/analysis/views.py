"""What can be asked of traces: the views, their columns and types, and the SQL that they are.

`dftrace sql`, frames and Parquet have them by these definitions alone.
"""

from __future__ import annotations

from typing import Final

from dftrace_ai.analysis.steps.marks import UNKNOWN
from dftrace_ai.analysis.steps.measuring import STEP_PARTS

UNREAD: Final = "dftrace: not read: "
"""What a query that comes upon a table that was not filled ends with; never shown."""

LINE_COLUMNS: Final = (
    *("file", "ph", "cat", "name", "id", "pid", "tid", "start_ns", "dur_ns", "args", "parent"),
)
"""Of the stream ``read.lines``."""

_WHERE: Final = {"process": "INTEGER", "rank": "BIGINT", "pid": "BIGINT", "tid": "BIGINT"}
_IDS: Final = {"id": "UBIGINT", "parent_id": "UBIGINT"}
_CALLED: Final = {"cat": "VARCHAR", "name": "VARCHAR"}

VIEWS: Final[dict[str, dict[str, str]]] = {
    "spans": {
        **(_WHERE | _IDS | _CALLED),
        "start_ns": "BIGINT",
        "dur_ns": "BIGINT",
        "end_ns": "BIGINT",
        "args": "JSON",
    },
    "instants": _WHERE | _IDS | _CALLED | {"at_ns": "BIGINT", "args": "JSON"},
    "counters": {
        "process": "INTEGER",
        "rank": "BIGINT",
        "pid": "BIGINT",
        "name": "VARCHAR",
        "series": "VARCHAR",
        "at_ns": "BIGINT",
        "value": "DOUBLE",
    },
    "tensor_stats": {
        "process": "INTEGER",
        "rank": "BIGINT",
        "at_ns": "BIGINT",
        "iteration": "BIGINT",
        "layer": "VARCHAR",
        "tensor": "VARCHAR",
        "feature": "VARCHAR",
        "statistic": "VARCHAR",
        "value": "DOUBLE",
    },
    "processes": {
        "process": "INTEGER",
        "rank": "BIGINT",
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
    "steps": {
        "process": "INTEGER",
        "rank": "BIGINT",
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
    "findings": {
        **dict.fromkeys(("kind", "cause", "severity", "confidence"), "VARCHAR"),
        **dict.fromkeys(("share", "low", "high"), "DOUBLE"),
        "share_of": "VARCHAR",
        "cost": "DOUBLE",
        **dict.fromkeys(("what", "because", "next"), "VARCHAR"),
        "evidence": "JSON",
        "ranks": "BIGINT[]",
        "rank": "BIGINT",
        "of_ranks": "DOUBLE[]",
        "late_ranks": "JSON",
        "lines": "JSON",
        "of_some_ranks": "BOOLEAN",
    },
    "summary": {
        **_CALLED,
        "count": "BIGINT",
        **dict.fromkeys(("total_us", "self_us", "share", "wall_us", "mean_us"), "DOUBLE"),
        **dict.fromkeys(("min_us", "p50_us", "p95_us", "p99_us", "max_us"), "DOUBLE"),
        "loop": "VARCHAR",
    },
    "samples": {
        "process": "INTEGER",
        "rank": "BIGINT",
        "pid": "BIGINT",
        "tid": "BIGINT",
        "at_ns": "BIGINT",
        "span": "UBIGINT",
        "stack": "BIGINT",
        "cpu_ns": "BIGINT",
        "since_ns": "BIGINT",
        "cut": "BOOLEAN",
        "period_ns": "BIGINT",
    },
    "stacks": {
        "stack": "BIGINT",
        "depth": "INTEGER",
        "function": "VARCHAR",
        "file": "VARCHAR",
        "line": "INTEGER",
        "library": "BOOLEAN",
    },
    "events": {
        **({"ph": "VARCHAR"} | _WHERE | _IDS | _CALLED),
        "start_ns": "BIGINT",
        "dur_ns": "BIGINT",
        "args": "JSON",
    },
}
"""What can be asked: the types of the columns, by view and by name."""

TABLES: Final = ("processes", "steps", "findings", "summary", "samples", "stacks")
"""What is worked out, and put into tables of the schema ``read``; all else the lines tell."""

# How columns differ from those of the rows they are of.
_MADE_OF: Final = {
    "instants": {"at_ns": "start_ns"},
    "spans": {"end_ns": "start_ns + dur_ns"},
    "counters": {"series": "key", "at_ns": "start_ns", "value": "value::DOUBLE"},
    "tensor_stats": {
        # The rank that the statistic is of: that of a reduced one is told in it alone.
        "rank": "coalesce(CASE WHEN json_type(args, 'rank') = 'UBIGINT' "
        "THEN TRY_CAST(args->>'rank' AS BIGINT) END, rank)",
        "at_ns": "start_ns",
        "iteration": "CASE WHEN json_type(args, 'iteration') IN ('UBIGINT', 'BIGINT') "
        "THEN TRY_CAST(args->>'iteration' AS BIGINT) END",
        "layer": "CASE WHEN contains(name, ':') "
        "THEN left(name, length(name) - length(split_part(name, ':', -1)) - 1) ELSE '' END",
        "tensor": "split_part(name, ':', -1)",
        "feature": "coalesce(args->>'feature', '')",
        "statistic": "key",
        "value": "statistic",
    },
    "samples": {
        "rank": "nullif(rank, -1)",
        "span": "nullif(span, 0)",
        "cpu_ns": "CASE WHEN cpu_ns >= 0 THEN cpu_ns END",
    },
    "stacks": {"file": "nullif(file, '')", "line": "nullif(line, 0)"},
    "steps": {
        "rank": "nullif(rank, -1)",
        "rss_bytes": f"nullif(rss_bytes, {UNKNOWN})",
        "device_bytes": f"nullif(device_bytes, {UNKNOWN})",
    },
}

_IS_NUMBER: Final = "type IN ('BIGINT', 'UBIGINT', 'DOUBLE')"

# Statistics that are not finite are null, and a text beside them says what they are. A key may be
# any text; as a path into JSON it is read where it is a name.
_STATISTIC: Final = rf"""CASE WHEN {_IS_NUMBER} THEN value::DOUBLE
    WHEN type = 'NULL' AND regexp_full_match(key, '\w+') THEN
        CASE args->>(key || '_str') WHEN 'nan' THEN 'nan'::DOUBLE
            WHEN 'inf' THEN 'inf'::DOUBLE WHEN '-inf' THEN '-inf'::DOUBLE END
    END"""
_NO_STATISTICS: Final = (
    *("hhash", "p_idx", "level", "iteration", "rank", "feature", "count", "error", "unfinished"),
)

_EACH: Final = "read.events AS event, json_each(event.args) AS member(key, value, type)"

_ROWS: Final = {
    "events": "read.events",
    "spans": "read.events WHERE ph = 'X'",
    "instants": "read.events WHERE ph = 'i'",
    "counters": f"{_EACH} WHERE ph = 'C' AND {_IS_NUMBER}",
    "tensor_stats": f"(SELECT *, {_STATISTIC} AS statistic FROM {_EACH} WHERE ph = 'i' "  # noqa: S608
    f"AND cat = 'tensor_stats' AND key NOT IN {_NO_STATISTICS}) WHERE statistic IS NOT NULL",
}


def events_sql(*, by_pid: bool) -> str:
    """Return the SQL of all events; `by_pid`: lines of some files are of several processes."""
    # Lists, and no table to join: DuckDB does not know how many lines there are, takes them for
    # few, and would put all of them into the table that is searched.
    process = "getvariable('process_of_file')[file + 1]"
    if by_pid:
        process = f"""coalesce({process}, (SELECT process FROM read.pids AS own
            WHERE own.file = line.file AND own.pid = line.pid))"""  # noqa: S608
    return f"""
        CREATE OR REPLACE VIEW read.events AS
        SELECT ph, {process} AS process, getvariable('rank_of_file')[file + 1] AS rank,
            pid, tid, nullif(id, 0) AS id,
            CASE WHEN parent NOT IN (0, {2**64 - 1}) THEN parent END AS parent_id, cat, name,
            nullif(start_ns, -1) AS start_ns, nullif(dur_ns, -1) AS dur_ns,
            CAST(nullif(args, '') AS JSON) AS args
        FROM read.lines AS line
    """  # noqa: S608


def view_sql(name: str, *, filled: bool = True) -> str:
    """Return the SQL of a view; a query that comes upon one that is not filled ends."""
    columns = VIEWS[name]
    if not filled:
        made = ", ".join(f'CAST(NULL AS {kind}) AS "{c}"' for c, kind in columns.items())
        rows = f"SELECT {made} WHERE error('{UNREAD}{name}') IS NULL"
    else:
        made_of = _MADE_OF.get(name, {})
        made = ", ".join(f'{made_of.get(c, c)} AS "{c}"' for c in columns)
        rows = f"SELECT {made} FROM {_ROWS.get(name, f'read.{name}')}"  # noqa: S608
    return f"CREATE OR REPLACE VIEW {name} AS {rows}"
