"""Sections that other packages add to a report: what they are made of, and what is taken of them.

An entry point of the group `dftrace_ai.report_sections` is a function: it gets a `Run` and returns
a `ReportSection`, several of them, or None. See docs/guide/plug-ins.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence  # noqa: TC003 - pydantic evaluates them
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from dftrace_ai.analysis.plug_ins import Answers, Source, ask, each_of, line_of
from dftrace_ai.wording import in_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GROUP: Final = "dftrace_ai.report_sections"
"""The entry-point group of other packages: a name, and the function that makes sections."""

MOST_SECTIONS: Final = 5
MOST_BLOCKS: Final = 20
MOST_ROWS: Final = 200
MOST_COLUMNS: Final = 20
MOST_LINES: Final = 8
MOST_POINTS: Final = 5000
TITLE_LETTERS: Final = 80
CELL_LETTERS: Final = 300

Cell: TypeAlias = str | int | float | None


@dataclass(frozen=True)
class Paragraph:
    """Sentences; they are shown as they are, without any markup.

    Attributes:
        text: up to 1,000 letters.
    """

    text: str
    kind: Literal["paragraph"] = "paragraph"


@dataclass(frozen=True)
class Table:
    """A table, which sorts by a click on a head.

    Attributes:
        heads: of the columns, 20 at most.
        rows: 200 at most. A cell is a text, a number or None. Columns at the end that have numbers
            alone are set as figures.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    kind: Literal["table"] = "table"


@dataclass(frozen=True)
class LinePlot:
    """Lines over the same places, drawn for wide and narrow windows.

    Attributes:
        title: above it.
        x: where the values are, in ascending order; 5,000 at most.
        lines: the values by what a line is called, 8 lines at most; None or NaN leaves a gap.
        x_title: what is below, with its unit.
        y_title: what is beside it, with its unit.
        caption: how it is read.

    Example::

        shares = {"shop": [0.2, 0.4, 0.3], "street": [0.1, None, 0.2]}
        plot = LinePlot("Who is served", [1, 2, 3], shares, x_title="hour", y_title="share")
    """

    title: str
    x: Sequence[float]
    lines: Mapping[str, Sequence[float | None]]
    x_title: str = ""
    y_title: str = ""
    caption: str = ""
    kind: Literal["line-plot"] = "line-plot"


Block: TypeAlias = Paragraph | Table | LinePlot


@dataclass(frozen=True)
class ReportSection:
    """A section of a report that another package has made.

    Attributes:
        title: 80 letters at most.
        blocks: what is in it from top to bottom, 20 at most.
        name: of the plug-in; whoever makes one leaves it out.
        package: which distribution brings it, with its version; left out, too.

    Example::

        def show(run: Run) -> ReportSection:
            events = run.summary.events
            return ReportSection("Ours", [Paragraph(f"{events:,} events were read.")])
    """

    title: str
    blocks: Sequence[Block] = field(default_factory=list)
    name: str = ""
    package: str = ""


def sections_of(lent: Callable[[], object]) -> Answers:
    """Return the sections of other packages; a fault costs its package's sections alone."""

    # Each gets a `Run` of its own, to do with it what it likes.
    def shown(show: Callable[[object], object], source: Source) -> Iterator[ReportSection]:
        for one in each_of(show(lent()), ReportSection, MOST_SECTIONS):
            title = line_of(one.title, TITLE_LETTERS)
            if not title:
                raise ValueError("it returned a section without a title")
            blocks = _several(one.blocks, MOST_BLOCKS, "blocks")
            yield ReportSection(title, [_block(block) for block in blocks], *source)

    return ask(GROUP, shown)


def _several(values: object, most: int, noun: str) -> list[object]:
    # A text is not taken for its letters.
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"its {noun} are {in_short(values)}, which is no sequence")
    if len(values) > most:
        raise ValueError(f"it returned {len(values):,} {noun}; {most:,} are taken")
    return list(values)  # type: ignore[call-overload, no-any-return]


def _block(block: object) -> Block:
    if isinstance(block, Paragraph):
        return Paragraph(line_of(block.text))
    if isinstance(block, Table):
        heads = [
            line_of(head, TITLE_LETTERS) for head in _several(block.heads, MOST_COLUMNS, "heads")
        ]
        rows = [
            [_cell(cell) for cell in _several(row, MOST_COLUMNS, "cells")]
            for row in _several(block.rows, MOST_ROWS, "rows")
        ]
        if not heads or any(len(row) != len(heads) for row in rows):
            raise ValueError(f"a row of its table has not as many cells as heads, {len(heads)}")
        return Table(heads, rows)
    if isinstance(block, LinePlot):
        return _plot(block)
    raise TypeError(f"it returned {in_short(block)}, which is no Paragraph, Table or LinePlot")


def _plot(plot: LinePlot) -> LinePlot:
    across = [_number(x) for x in _several(plot.x, MOST_POINTS, "places")]
    x = [value for value in across if value is not None]
    if len(x) != len(across) or x != sorted(x):
        raise ValueError("the places of its plot are no ascending numbers")
    names = _several(plot.lines, MOST_LINES, "lines")
    lines = {
        line_of(name, TITLE_LETTERS): [
            _number(y)
            for y in _several(plot.lines[name], MOST_POINTS, "values")  # type: ignore[index]
        ]
        for name in names
    }
    if any(len(values) != len(x) for values in lines.values()):
        raise ValueError(f"a line of its plot has not as many values as places, {len(x)}")
    return LinePlot(
        title=line_of(plot.title, TITLE_LETTERS),
        x=x,
        lines=lines,
        x_title=line_of(plot.x_title, TITLE_LETTERS),
        y_title=line_of(plot.y_title, TITLE_LETTERS),
        caption=line_of(plot.caption),
    )


def _number(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Real):
        raise TypeError(f"{in_short(value)} is no number")
    number = float(value)
    return number if math.isfinite(number) else None


def _cell(value: object) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral) and abs(int(value)) < 1 << 53:
        return int(value)
    return line_of(value, CELL_LETTERS) if isinstance(value, str) else _number(value)
