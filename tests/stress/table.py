"""The rows of the matrix, and the table that they make."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from stress.judge import Verdict

COLUMNS = ("fault", "spans made", "found", "wrong")
MARK = "faults"


@dataclass
class Row:
    """One fault: all that was made under it, and what was found of it."""

    fault: str
    victims: int = 0
    made: int = 0
    found: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Count one more victim in."""
        self.victims += 1
        self.made += verdict.made
        self.found += verdict.found
        self.wrong += verdict.wrong

    def hold(self) -> None:
        """Assert that spans were made, that all are there, and that none is wrong."""
        assert self.made > 0, f"{self.fault}: no span was made"
        lost = self.made - self.found
        told = "\n".join(self.wrong[:10])
        summary = f"{self.fault}: {lost} lost, {len(self.wrong)} wrong\n{told}"
        assert self.made == self.found, summary
        assert not self.wrong, summary

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """What stands in the table."""
        return self.fault, f"{self.made:,}", f"{self.found:,}", f"{len(self.wrong):,}"


def as_text(rows: list[Row]) -> list[str]:
    """Lines of the table for a terminal."""
    lines = [COLUMNS, *(row.cells for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return [
        line[0].ljust(widths[0]) + "".join(f"  {line[i].rjust(widths[i])}" for i in (1, 2, 3))
        for line in lines
    ]


def as_markdown(rows: list[Row]) -> str:
    """The table for a page."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|---:|---:|---:|"]
    return "\n".join([*lines, *(f"| {' | '.join(row.cells)} |" for row in rows)])


def cells_of(page: Path) -> list[tuple[str, ...]]:
    """The rows of a page's table."""
    _, table, _ = _parted(page)
    rows = [line.strip("| ").split(" | ") for line in table.strip().splitlines()]
    return [tuple(cell.strip() for cell in row) for row in rows[2:]]


def write_into(page: Path, rows: list[Row]) -> None:
    """Put the table into a page, between the marks that it has for it."""
    before, _, behind = _parted(page)
    page.write_text(f"{before}\n{as_markdown(rows)}\n{behind}", encoding="utf-8")


def _parted(page: Path) -> tuple[str, str, str]:
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {MARK}: begin -->", f"<!-- {MARK}: end -->"
    found = re.fullmatch(f"(.*{re.escape(begin)})(.*)({re.escape(end)}.*)", text, re.DOTALL)
    assert found, f"{page} has no place for the table"
    return found[1], found[2], found[3]
