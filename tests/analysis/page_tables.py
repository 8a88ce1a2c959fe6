"""Tables in pages of the guide that programs beside the tests write."""

from __future__ import annotations

import sys
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"


def write_table(page: str, mark: str, table: str) -> None:
    """Put a table in the place of the one between the marks of a page, and print it."""
    path = GUIDE / page
    begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
    before, rest = path.read_text(encoding="utf-8").split(begin)
    path.write_text(f"{before}{begin}{table}{end}{rest.split(end)[1]}", encoding="utf-8")
    sys.stdout.write(table)
