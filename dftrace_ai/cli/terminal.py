"""How the commands write: tables to a terminal of any width, times in microseconds."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ["console", "figures_table", "micros"]

# A pipe or file has no width; wide enough that nothing is folded or cut.
PIPE_WIDTH = 200


def console(*, stderr: bool = False) -> Console:
    """Return a console that never folds or colours what goes to a pipe."""
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = PIPE_WIDTH
    return made


def figures_table(title: str, texts: list[str], figures: list[str]) -> Table:
    """Return an empty table with columns of text, then columns of right-aligned figures."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def micros(value: float) -> str:
    """Return microseconds as text: ``micros(1234.5) == "1,234.500"``."""
    return f"{value:,.3f}"
