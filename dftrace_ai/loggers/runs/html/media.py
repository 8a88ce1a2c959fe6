"""Histograms and pictures of runs on the page; what is no picture is told by its name."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.runs.html.plots import bars, told
from dftrace_ai.loggers.runs.log_files import kept_bytes
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dftrace_ai.loggers.runs.model import LocalRun
    from dftrace_ai.loggers.runs.tables import RunTables

__all__ = ["histograms", "pictures"]

MOST_OF_ONE = 4
"""Histograms, or pictures, of one name in one run: the first, the last and some between."""
MOST_SHOWN = 400
MOST_BINS = 4096
PICTURE_BYTES = 16 << 20
PAGE_BYTES = 64 << 20
MOST_PIXELS = 1 << 26

PNG, GIF = b"\x89PNG\r\n\x1a\n", b"GIF8"

# Of each name so many, evenly from the first to the last.
SOME = """
WITH found AS (
  SELECT *, row_number() OVER (PARTITION BY run, name ORDER BY step, time_s) - 1 AS number,
    count(*) OVER (PARTITION BY run, name) AS of_all
  FROM media WHERE kind IN ({kinds})
)
SELECT run, kind, name, step, file, facts, of_all FROM found
WHERE of_all <= {some} OR number = 0
  OR number * ({some} - 1) // (of_all - 1) > (number - 1) * ({some} - 1) // (of_all - 1)
ORDER BY name, run, number LIMIT {most}
"""


def histograms(runs: Sequence[LocalRun], tables: RunTables) -> str:
    """Draw the histograms of runs."""
    keys = {run.key for run in runs}
    parts = []
    for run, _, name, step, _, facts, _ in _some(tables, "'histogram'"):
        found = _bins(json.loads(facts)) if run in keys else None
        if found is not None:
            parts.append(
                f"<figure><figcaption>{told(name)} <small>{told(run)}, step {step}</small>"
                f"</figcaption>{bars(name, *found)}</figure>"
            )
    return f"<h2>Histograms</h2><div class=plots>{''.join(parts)}</div>" if parts else ""


def pictures(runs: Sequence[LocalRun], tables: RunTables) -> str:
    """Show the pictures and animations of runs, and name what else was kept with them."""
    folders = {run.key: run.path for run in runs}
    parts: list[str] = []
    left = PAGE_BYTES
    for run, kind, name, step, file, facts, _ in _some(tables, "'image', 'video'"):
        if run not in folders:
            continue
        data = kept_bytes(folders[run], file or "", min(PICTURE_BYTES, left))
        source = None if data is None else _source(data)
        left -= len(data or b"")
        if source is None:
            shown = f"<p>{told(kind)}: {told(file)}</p>"
        else:
            shown = f'<img alt="{told(name)}" src="{source}">'
        caption = told(json.loads(facts).get("caption") or "")
        parts.append(
            f"<figure><figcaption>{told(name)} <small>{told(run)}, step {step} {caption}</small>"
            f"</figcaption>{shown}</figure>"
        )
    others = _others(tables)
    return (f"<h2>Pictures</h2><div class=plots>{''.join(parts)}</div>" if parts else "") + others


def _others(tables: RunTables) -> str:
    rows = tables.ask(
        "SELECT run, kind, name, count(*), max(step) FROM media "
        "WHERE kind NOT IN ('histogram', 'image', 'video') GROUP BY ALL ORDER BY ALL LIMIT 1000"
    ).rows
    if not rows:
        return ""
    items = "".join(
        f"<li>{told(run)}: {told(kind)} {told(name)}, {counted(count, 'time')}, last at step "
        f"{step}</li>"
        for run, kind, name, count, step in rows
    )
    return f"<h2>What else was kept</h2><ul>{items}</ul>"


def _some(tables: RunTables, kinds: str) -> list[tuple[Any, ...]]:
    return tables.ask(SOME.format(kinds=kinds, some=MOST_OF_ONE, most=MOST_SHOWN)).rows


def _bins(facts: Any) -> tuple[list[float], list[int]] | None:
    """Return edges and counts, where they are such."""
    edges, counts = facts.get("edges"), facts.get("counts")
    if not isinstance(edges, list) or not isinstance(counts, list):
        return None
    if not 0 < len(counts) <= MOST_BINS or len(edges) != len(counts) + 1:
        return None
    if not all(type(edge) in (int, float) and math.isfinite(edge) for edge in edges):
        return None
    if not all(type(count) is int and 0 <= count < 1 << 63 for count in counts):
        return None
    return edges, counts


def _source(data: bytes) -> str | None:
    """Return the address that holds a picture whole; None where it is none, or vast."""
    if data.startswith(PNG) and len(data) > 24:
        kind = "png"
        width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    elif data.startswith(GIF) and len(data) > 10:
        kind = "gif"
        width, height = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    else:
        return None
    if width * height > MOST_PIXELS:
        return None
    return f"data:image/{kind};base64,{b64encode(data).decode()}"
