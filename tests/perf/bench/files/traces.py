"""Reads a trace back line by line, ours or dftracer's, with nothing but the standard library."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield every event of a plain or gzip trace."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            text = line.strip().rstrip(",")
            if text not in ("", "[", "]"):
                yield json.loads(text)


def is_span(event: dict[str, Any]) -> bool:
    """Tell whether an event is a complete span (dftracer writes 1 for the letter X)."""
    return event["ph"] in ("X", 1) and event["cat"] != "dftracer"


def footer(path: Path) -> dict[str, Any]:
    """Return the counts in the last line of one of our traces."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        tail = b""
        while chunk := lines.read(1 << 24):
            tail = (tail + chunk)[-65536:]
    last = json.loads(tail.splitlines()[-1])
    if last["name"] != "end":
        raise ValueError(f"{path.name}: the last line is no footer: {last}")
    counts: dict[str, Any] = last["args"]
    return counts
